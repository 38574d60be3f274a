import Testing

@testable import TLS

@Suite struct ES256Tests {
    /// RFC 7515, A.3: an ES256 key, signing input and signature.
    static let publicKey = """
        -----BEGIN PUBLIC KEY-----
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV7
        6e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==
        -----END PUBLIC KEY-----
        """
    static let signingInput =
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
    static let signature: [UInt8] = [
        14, 209, 33, 83, 121, 99, 108, 72, 60, 47, 127, 21, 88, 7, 212, 2, 163, 178, 40, 3, 58, 249, 124, 126, 23, 129, 154,
        195, 22, 158, 166, 101, 197, 10, 7, 211, 140, 60, 112, 229, 216, 241, 45, 175, 8, 74, 84, 128, 166, 101, 144, 197,
        242, 147, 80, 154, 143, 63, 127, 138, 131, 163, 84, 213,
    ]

    /// `#expect` can't capture a span.
    func verifies(_ key: ES256.PublicKey, _ signature: [UInt8], _ message: String) -> Bool {
        key.isValid(signature.span, for: Array(message.utf8).span)
    }

    @Test func verifiesThePublishedVector() throws {
        let key = try ES256.PublicKey(pem: Array(Self.publicKey.utf8).span)
        #expect(verifies(key, Self.signature, Self.signingInput))
    }

    @Test(arguments: [0, 31, 32, 63])
    func refusesAChangedSignature(index: Int) throws {
        let key = try ES256.PublicKey(pem: Array(Self.publicKey.utf8).span)
        var signature = Self.signature
        signature[index] ^= 1
        #expect(!verifies(key, signature, Self.signingInput))
    }

    @Test func refusesInvalidSignatures() throws {
        let key = try ES256.PublicKey(pem: Array(Self.publicKey.utf8).span)
        let zeros = [UInt8](repeating: 0, count: 64)
        for signature in [[], zeros, Self.signature + [0], Array(Self.signature.dropLast())] {
            #expect(!verifies(key, signature, Self.signingInput))
        }
        #expect(!verifies(key, Self.signature, (Self.signingInput + "x")))
    }

    @Test func signaturesVerifyAfterAPEMRoundTrip() throws {
        let made = try ES256.PrivateKey()
        let privatePEM = try made.pem()
        let publicPEM = try made.publicKeyPEM()
        let key = try ES256.PrivateKey(pem: privatePEM.span)
        let publicKey = try ES256.PublicKey(pem: publicPEM.span)
        // Repeat it: one signature in 128 has leading zeros in R or S.
        for number in 0..<300 {
            let message = "message \(number)"
            let signature = try key.sign(Array(message.utf8).span)
            #expect(signature.count == ES256.signatureLength)
            #expect(verifies(publicKey, signature, message))
        }
        #expect(String(decoding: privatePEM, as: UTF8.self).hasPrefix("-----BEGIN PRIVATE KEY-----\n"))
    }

    @Test func refusesOtherKeys() throws {
        let encrypted = """
            -----BEGIN ENCRYPTED PRIVATE KEY-----
            MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjLUYg1d1V8QAICCAAw
            DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEBmLJEBFgPkE5mSe7NAt8PUEgZAZ
            -----END ENCRYPTED PRIVATE KEY-----
            """
        // openssl genpkey -algorithm ed25519
        let ed25519 = """
            -----BEGIN PRIVATE KEY-----
            MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
            -----END PRIVATE KEY-----
            """
        let faults: [(String, KeyFault)] = [
            ("", .noPEM), ("nonsense", .noPEM), (encrypted, .encrypted), (ed25519, .otherKind("ED25519")),
            (Self.publicKey, .publicKey), (encrypted.replacing("ENCRYPTED ", with: ""), .damaged),
            (Self.publicKey.replacing("PUBLIC KEY", with: "CERTIFICATE"), .noKey),
        ]
        for (text, fault) in faults {
            let bytes = Array(text.utf8)
            #expect(throws: TLSError.badKey) { _ = try ES256.PrivateKey(pem: bytes.span) }
            let found = KeyFault(bytes.span)
            #expect(found == fault)
        }
        let p384 = """
            -----BEGIN PUBLIC KEY-----
            MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE8cv/FCdNgYv+nwgbyBNm2GaMvOVo8dip
            wHG78PkglUksl54M+3bF3TYJcmoQ0Xh62ECJfTYAy9uswXn7vr24HF729aQtSc4G
            EqAZ/6xUX60iAG2NOczul9HaZPiJxrWD
            -----END PUBLIC KEY-----
            """
        #expect(throws: TLSError.badKey) { _ = try ES256.PublicKey(pem: Array(p384.utf8).span) }
    }

    @Test func acceptsThePointOfAJWK() throws {
        // RFC 7515, A.3.1.
        let x: [UInt8] = [
            127, 205, 206, 39, 112, 246, 196, 93, 65, 131, 203, 238, 111, 219, 75, 123, 88, 7, 51, 53, 123, 233, 239, 19, 186,
            207, 110,
            60, 123, 209, 84, 69,
        ]
        let y: [UInt8] = [
            199, 241, 68, 205, 27, 189, 155, 126, 135, 44, 223, 237, 185, 238, 185, 244, 179, 105, 93, 110, 169, 11, 36, 173, 138,
            70, 35,
            40, 133, 136, 229, 173,
        ]
        #expect(verifies(try ES256.PublicKey(x: x, y: y), Self.signature, Self.signingInput))
        let zero = [UInt8](repeating: 0, count: 32)
        let ones = [UInt8](repeating: 0xff, count: 32)
        for (x, y) in [
            (y, x), (x, x), (zero, zero), (ones, ones), (x, []), ([], y), (x + [0], y), (Array(x.dropLast()), y),
            (x + [y[0]], Array(y[1...])),
        ] {
            #expect(throws: TLSError.badKey) { _ = try ES256.PublicKey(x: x, y: y) }
        }
    }

    @Test func readsEd25519() throws {
        // RFC 8410, 10.1 and 10.3.
        let publicKey = """
            -----BEGIN PUBLIC KEY-----
            MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
            -----END PUBLIC KEY-----
            """
        let privateKey = """
            -----BEGIN PRIVATE KEY-----
            MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC
            -----END PRIVATE KEY-----
            """
        #expect(try Ed25519PEM.publicKey(Array(publicKey.utf8).span).prefix(4) == [0x19, 0xbf, 0x44, 0x09])
        var seed = [UInt8](repeating: 0, count: 32)
        func read(_ text: String) throws(TLSError) {
            var room = seed.mutableSpan
            try Ed25519PEM.privateKey(Array(text.utf8).span, into: &room)
        }
        try read(privateKey)
        #expect(seed.prefix(4) == [0xd4, 0xee, 0x72, 0xdb])
        for text in ["", publicKey, Self.publicKey] { #expect(throws: TLSError.badKey) { try read(text) } }
        for text in ["", privateKey, Self.publicKey] {
            #expect(throws: TLSError.badKey) { _ = try Ed25519PEM.publicKey(Array(text.utf8).span) }
        }
    }

    @Test func hashesTheHandshakeOfRFC6455() {
        let input = Array("dGhlIHNhbXBsZSBub25jZQ==258EAFA5-E914-47DA-95CA-C5AB0DC85B11".utf8)
        let digest = SHA1.digest(input.span)
        #expect(
            digest == [
                0xb3, 0x7a, 0x4f, 0x2c, 0xc0, 0x62, 0x4f, 0x16, 0x90, 0xf6, 0x46, 0x06, 0xcf, 0x38, 0x59, 0x45, 0xb2, 0xbe, 0xc4,
                0xea,
            ])
    }
}
