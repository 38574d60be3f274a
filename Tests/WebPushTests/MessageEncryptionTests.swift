import Sodium
import TLS
import Testing

@testable import WebPush

@Suite struct MessageEncryptionTests {
    private func encrypt(_ text: [UInt8], to point: [UInt8], _ auth: [UInt8]) throws -> [UInt8] {
        try MessageEncryption.encrypt(text, to: point.span, auth: auth.span)
    }

    private func decrypt(_ message: [UInt8], _ key: ES256.PrivateKey, _ auth: [UInt8]) throws -> [UInt8]? {
        try MessageEncryption.decrypt(message, with: key, auth: auth.span)
    }

    private func isPoint(_ bytes: [UInt8]) -> Bool { ES256.isPoint(bytes.span) }

    /// RFC 8291, appendix A and section 5.
    @Test func theExampleOfTheSpecificationIsReproducedByteForByte() throws {
        let text = Array("When I grow up, I want to be a watermelon".utf8)
        let sender = try Keys.private(
            "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw",
            point: "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8")
        let point = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        let receiver = try Keys.private("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94", point: point)
        let auth = try #require(Base64.url.decode("BTBZMqHH6r4Tts7J_aSIgg"))
        let (to, salt) = (try receiver.point(), try #require(Base64.url.decode("DGv6ra1nlYgDCS1FRnbzlw")))
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
        let (key, auth) = (try ES256.PrivateKey(), Sodium.randomBytes(16))
        let text = [UInt8](repeating: UInt8(ascii: "x"), count: count)
        let message = try encrypt(text, to: key.point(), auth)
        #expect(message.count == 1_127)
        #expect(try decrypt(message, key, auth) == text)
        // Neither salt nor key is used twice.
        #expect(try encrypt(text, to: key.point(), auth).prefix(86) != message.prefix(86))
    }

    @Test func nothingElseOpens() throws {
        let (key, auth) = (try ES256.PrivateKey(), Sodium.randomBytes(16))
        let message = try encrypt([1, 2, 3], to: key.point(), auth)
        for index in [0, 15, 20, 21, 22, 85, 86, 500, message.count - 1] {
            var changed = message
            changed[index] ^= 1
            #expect(try decrypt(changed, key, auth) == nil, "byte \(index)")
        }
        #expect(try decrypt(Array(message.dropLast()), key, auth) == nil)
        #expect(try decrypt(message, ES256.PrivateKey(), auth) == nil)
        #expect(try decrypt(message, key, Sodium.randomBytes(16)) == nil)
        #expect(try decrypt([], key, auth) == nil)
    }

    @Test func onlyUncompressedPointsOfTheCurveAreTaken() throws {
        let point = try ES256.PrivateKey().point()
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

enum Keys {
    /// Makes a key from its number and point.
    static func `private`(_ number: String, point: String) throws -> ES256.PrivateKey {
        let head: [UInt8] = [
            0x30, 0x81, 0x87, 0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
            0x2a,
            0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x04, 0x6d, 0x30, 0x6b, 0x02, 0x01, 0x01, 0x04, 0x20,
        ]
        let der =
            head + (try #require(Base64.url.decode(number))) + [0xa1, 0x44, 0x03, 0x42, 0x00]
            + (try #require(Base64.url.decode(point)))
        let pem = "-----BEGIN PRIVATE KEY-----\n\(Base64.standard.encode(der.span))\n-----END PRIVATE KEY-----\n"
        return try ES256.PrivateKey(pem: Array(pem.utf8).span)
    }
}
