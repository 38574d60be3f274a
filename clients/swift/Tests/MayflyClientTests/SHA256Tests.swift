import Foundation
import Testing

@testable import MayflyClient

#if !canImport(CryptoKit)
    /// Vectors of NIST's examples for FIPS 180-4, and of RFC 4231.
    struct SHA256Tests {
        @Test(arguments: [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
            ),
            (
                "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
                "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"
            ),
        ])
        func hashesAsFIPS180(text: String, expected: String) {
            #expect(PushToken(Data(SHA256.hash(Array(text.utf8)))).hex == expected)
        }

        @Test func hashesEveryLengthOfPadding() {
            // The SHA-256 of the SHA-256s of 0 to 129 zero bytes, from Python's hashlib.
            let all = (0..<130).flatMap { SHA256.hash([UInt8](repeating: 0, count: $0)) }
            #expect(PushToken(Data(SHA256.hash(all))).hex == "d26cf8eafa144521d64bdc66b8314175fd9e78310979a068c8b8b2ea18636450")
        }

        @Test(arguments: [
            (
                [UInt8](repeating: 0x0b, count: 20), Array("Hi There".utf8),
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
            ),
            (
                Array("Jefe".utf8), Array("what do ya want for nothing?".utf8),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
            ),
            (
                [UInt8](repeating: 0xaa, count: 20), [UInt8](repeating: 0xdd, count: 50),
                "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"
            ),
            (
                [UInt8](1...25), [UInt8](repeating: 0xcd, count: 50),
                "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"
            ),
            (
                [UInt8](repeating: 0xaa, count: 131), Array("Test Using Larger Than Block-Size Key - Hash Key First".utf8),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
            ),
            (
                [UInt8](repeating: 0xaa, count: 131),
                Array(
                    ("This is a test using a larger than block-size key and a larger than block-size data. "
                        + "The key needs to be hashed before being used by the HMAC algorithm.").utf8),
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"
            ),
        ])
        func authenticatesAsRFC4231(key: [UInt8], message: [UInt8], expected: String) {
            #expect(PushToken(Data(SHA256.authenticationCode(for: message, key: key))).hex == expected)
        }
    }
#endif
