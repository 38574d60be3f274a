import Sodium
import Testing
import Vocabulary

@Suite struct CipherTests {
    private func open(_ sealed: [UInt8], _ data: [UInt8], _ nonce: [UInt8], _ key: [UInt8]) -> [UInt8]? {
        var plain = [UInt8](repeating: 0, count: max(0, sealed.count - 16))
        var span = plain.mutableSpan
        let isGenuine = XChaCha20Poly1305.open(
            sealed.span, into: &span, associatedData: data.span, nonce: nonce.span, key: key.span)
        return isGenuine ? plain : nil
    }

    /// draft-irtf-cfrg-xchacha-03, appendix A.3.1
    @Test func publishedVector() {
        let plain = Array(
            "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it."
                .utf8)
        let data: [UInt8] = [0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7]
        let key = (0x80...0x9f).map { UInt8($0) }
        let nonce = (0x40...0x57).map { UInt8($0) }
        var sealed = [UInt8](repeating: 0, count: plain.count + 16)
        var span = sealed.mutableSpan
        XChaCha20Poly1305.seal(plain.span, into: &span, associatedData: data.span, nonce: nonce.span, key: key.span)
        #expect(hex(sealed).hasPrefix("bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb"))
        #expect(hex(sealed).hasSuffix("c0875924c1c7987947deafd8780acf49"))
        #expect(open(sealed, data, nonce, key) == plain)

        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 0x40
            #expect(open(changed, data, nonce, key) == nil)
        }
        #expect(open(sealed, [], nonce, key) == nil)
        #expect(open(Array(sealed.dropLast()), data, nonce, key) == nil)
        #expect(open([1, 2, 3], data, nonce, key) == nil)
    }

    @Test func sealsAnEmptyPlaintext() {
        let (key, nonce) = ([UInt8](repeating: 1, count: 32), [UInt8](repeating: 2, count: 24))
        var sealed = [UInt8](repeating: 0, count: 16)
        var span = sealed.mutableSpan
        let nothing: [UInt8] = []
        XChaCha20Poly1305.seal(nothing.span, into: &span, associatedData: nothing.span, nonce: nonce.span, key: key.span)
        #expect(open(sealed, [], nonce, key) == [])
        sealed[0] ^= 1
        #expect(open(sealed, [], nonce, key) == nil)
    }

    /// RFC 8032, section 7.1, tests 1 and 3
    @Test func signatures() throws {
        let vectors = [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", "",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
            ),
            (
                "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7", "af82",
                "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
                "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
            ),
        ]
        for (seed, message, publicKey, signature) in vectors {
            let seedBytes = try #require(Hex.decode(seed))
            let key = try Ed25519.PrivateKey(seed: seedBytes.span)
            let message = try #require(Hex.decode(message))
            #expect(hex(key.publicKey) == publicKey)
            let made = key.sign(message.span)
            #expect(hex(made) == signature)
            #expect(verify(made, message, key.publicKey))
            var wrong = made
            wrong[40] ^= 1
            #expect(!verify(wrong, message, key.publicKey))
            #expect(!verify(made, message + [0], key.publicKey))
            #expect(!verify(Array(made[0..<63]), message, key.publicKey))
            #expect(!verify(made, message, [UInt8](repeating: 0, count: 32)))
            #expect("\(key) \(String(reflecting: key))".contains(seed) == false)
        }
    }

    @Test func recognisesPublicKeys() throws {
        func isKey(_ text: String) throws -> Bool { isPublicKey(try #require(Hex.decode(text))) }
        #expect(try isKey("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"))
        // The neutral element, points of order 2, 4 and 8, a number outside the field, no point at all.
        for bad in [
            "0100000000000000000000000000000000000000000000000000000000000000",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "0200000000000000000000000000000000000000000000000000000000000000", "", "00", "fc51",
        ] {
            #expect(try !isKey(bad), "\(bad)")
        }
    }
}
