import Sodium
import TLS
import Testing

@testable import WebPush

@Suite struct MessageEncryptionTests {
    private func encrypt(_ text: [UInt8], to point: [UInt8], _ auth: [UInt8]) throws -> [UInt8] {
        try MessageEncryption.encrypt(text, to: point.span, auth: auth.span)
    }

    private func decrypt(_ message: [UInt8], _ key: ECDHKey, _ auth: [UInt8]) throws -> [UInt8]? {
        try MessageEncryption.decrypt(message, with: key, auth: auth.span)
    }

    private func key(_ number: [UInt8]) throws -> ECDHKey { try ECDHKey(number.span) }
    private func key(_ number: String) throws -> ECDHKey {
        let bytes = try #require(Base64.url.decode(number))
        return try key(bytes)
    }

    private func isPoint(_ bytes: [UInt8]) -> Bool { ECDHKey.isPoint(bytes.span) }

    /// RFC 8291, appendix A and section 5.
    @Test func theExampleOfTheSpecificationIsReproducedByteForByte() throws {
        let text = Array("When I grow up, I want to be a watermelon".utf8)
        let sender = try key("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
        let own = sender.point
        #expect(
            Base64.url.encode(own.span)
                == "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8")
        let receiver = try key("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
        let auth = try #require(Base64.url.decode("BTBZMqHH6r4Tts7J_aSIgg"))
        let (to, salt) = (receiver.point, try #require(Base64.url.decode("DGv6ra1nlYgDCS1FRnbzlw")))
        let message = try MessageEncryption.encrypt(
            text, to: to.span, auth: auth.span, with: sender, salt: salt, textCount: text.count)
        #expect(
            Base64.url.encode(message.span)
                == "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
        )
        #expect(try decrypt(message, receiver, auth) == text)
    }

    @Test(arguments: [0, 1, 27, 1_023, 1_024])
    func allMessagesHaveOneLength(count: Int) throws {
        let (key, auth) = (try ECDHKey(), Sodium.randomBytes(16))
        let text = [UInt8](repeating: UInt8(ascii: "x"), count: count)
        let message = try encrypt(text, to: key.point, auth)
        #expect(message.count == 1_127)
        #expect(try decrypt(message, key, auth) == text)
        // Neither salt nor key is used twice.
        #expect(try encrypt(text, to: key.point, auth).prefix(86) != message.prefix(86))
    }

    @Test func nothingElseOpens() throws {
        let (key, auth) = (try ECDHKey(), Sodium.randomBytes(16))
        let message = try encrypt([1, 2, 3], to: key.point, auth)
        for index in [0, 15, 20, 21, 22, 85, 86, 500, message.count - 1] {
            var changed = message
            changed[index] ^= 1
            #expect(try decrypt(changed, key, auth) == nil, "byte \(index)")
        }
        #expect(try decrypt(Array(message.dropLast()), key, auth) == nil)
        #expect(try decrypt(message, ECDHKey(), auth) == nil)
        #expect(try decrypt(message, key, Sodium.randomBytes(16)) == nil)
        #expect(try decrypt([], key, auth) == nil)
    }

    @Test func aKeyIsANumberBelowTheOrder() throws {
        // FIPS 186-4, D.1.2.3.
        let order: [UInt8] = [
            0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7,
            0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
        ]
        let largest = Array(order.dropLast()) + [0x50]
        // The point of -1 is that of 1 with another y.
        let (one, last) = (try key([1]), try key(largest))
        #expect(one.point != last.point && one.point[1..<33] == last.point[1..<33])
        for bad in [[], [0], order, [UInt8](repeating: 0xff, count: 33)] {
            #expect(throws: TLSError.badKey) { try key(bad) }
        }
    }

    /// The point of 379, by the curve's formulas in Python.
    @Test func aSecretKeepsItsLeadingZero() throws {
        let x: [UInt8] = [
            0x00, 0x55, 0x43, 0x89, 0x4a, 0xf3, 0xd0, 0x0e, 0xd7, 0xd7, 0x40, 0xab, 0xdb, 0xd7, 0x5c, 0x96, 0xb0, 0x68, 0x77,
            0xb7, 0x87, 0xdb, 0x5f, 0x70, 0xee, 0xa7, 0x8b, 0x90, 0xa8, 0xd7, 0xc0, 0x0a,
        ]
        let (one, other) = (try key([1]), try key([0x01, 0x7b]))
        #expect(Array(other.point[1..<33]) == x)
        let base = one.point
        var secret = [UInt8](repeating: 0xff, count: ECDHKey.secretLength)
        var span = secret.mutableSpan
        try other.agree(with: base.span, into: &span)
        #expect(secret == x)
    }

    @Test func onlyUncompressedPointsOfTheCurveAreTaken() throws {
        let point = try ECDHKey().point
        #expect(isPoint(point))
        var wrong = point
        wrong[64] ^= 1
        let compressed = [2 + (point[64] & 1)] + point[1...32]
        let hybrid = [6 + (point[64] & 1)] + point[1...]
        let aboveTheField = [4] + [UInt8](repeating: 0xff, count: 64)
        for bad in [
            wrong, compressed, hybrid, aboveTheField, [0], [], Array(point.dropLast()), point + [0],
            [4] + [UInt8](repeating: 0, count: 64),
        ] {
            #expect(!isPoint(bad))
            #expect(throws: TLSError.badKey) { try encrypt([], to: bad, [UInt8](repeating: 0, count: 16)) }
        }
    }
}
