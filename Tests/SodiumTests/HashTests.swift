import Sodium
import Testing
import Vocabulary

@Suite struct HashTests {
    @Test func sha256Vectors() {
        // FIPS 180-4, "abc"
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        #expect(hex(sha256("abc")) == expected)
        let (first, nothing, rest) = (Array("a".utf8), [UInt8](), Array("bc".utf8))
        var parts = SHA256()
        parts.update(first.span)
        parts.update(nothing.span)
        parts.update(rest.span)
        #expect(hex(parts.finish()) == expected)
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        #expect(hex(sha256("")) == empty)
    }

    @Test func hmacVectors() {
        // RFC 4231, cases 1, 2 and 6 (a key longer than a block)
        let cases: [([UInt8], [UInt8], String)] = [
            (
                [UInt8](repeating: 0x0b, count: 20), Array("Hi There".utf8),
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
            ),
            (
                Array("Jefe".utf8), Array("what do ya want for nothing?".utf8),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
            ),
            (
                [UInt8](repeating: 0xaa, count: 131), Array("Test Using Larger Than Block-Size Key - Hash Key First".utf8),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
            ),
        ]
        for (key, message, expected) in cases {
            let code = HMACSHA256.code(message.span, key: key.span)
            #expect(hex(code) == expected)
            #expect(isValid(code, message, key))
            var wrong = code
            wrong[31] ^= 1
            #expect(!isValid(wrong, message, key))
            #expect(!isValid(Array(code[0..<31]), message, key))
        }
        // An empty key is valid: HMAC_SHA256("", "").
        #expect(
            hex(hmac([], []))
                == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad")
    }

    @Test func keyedGenericHash() {
        let key = (0..<32).map { UInt8($0) }
        // hashlib.blake2b(b"abc", digest_size=32, key=bytes(range(32)))
        let (message, nothing) = (Array("abc".utf8), [UInt8]())
        let whole = GenericHash.hash(message.span, key: key.span)
        var parts = GenericHash(key: key.span)
        parts.update(message.span.extracting(first: 1))
        parts.update(nothing.span)
        parts.update(message.span.extracting(droppingFirst: 1))
        #expect(parts.finish() == whole)
        #expect(hex(whole) == "d63a32d3e44738d7907f964316c241adaba0abfeabc32349677578a15a203f7f")
        // hashlib.blake2b(b"abc", digest_size=32)
        #expect(
            hex(genericHash("abc"))
                == "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319")
    }
}

// `#expect` can't capture a span, so the tests use arrays.
func hex(_ bytes: [UInt8]) -> String { Hex.encode(bytes.span) }

func equal(_ left: [UInt8], _ right: [UInt8]) -> Bool { Sodium.equal(left.span, right.span) }

func unpaddedCount(_ bytes: [UInt8], block: Int) -> Int? { Sodium.unpaddedCount(bytes.span, block: block) }

func verify(_ signature: [UInt8], _ message: [UInt8], _ key: [UInt8]) -> Bool {
    Ed25519.verify(signature.span, message: message.span, publicKey: key.span)
}

func isPublicKey(_ key: [UInt8]) -> Bool { Ed25519.isPublicKey(key.span) }

func isValid(_ code: [UInt8], _ message: [UInt8], _ key: [UInt8]) -> Bool {
    HMACSHA256.isValid(code.span, for: message.span, key: key.span)
}

func encode(_ bytes: [UInt8], _ alphabet: Base64) -> String { alphabet.encode(bytes.span) }

func sha256(_ text: String) -> [UInt8] { SHA256.hash(Array(text.utf8).span) }

func hmac(_ message: [UInt8], _ key: [UInt8]) -> [UInt8] { HMACSHA256.code(message.span, key: key.span) }

func genericHash(_ text: String) -> [UInt8] { GenericHash.hash(Array(text.utf8).span) }
