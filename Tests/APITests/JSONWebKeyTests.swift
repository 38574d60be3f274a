import Broker
import Linux
import Sodium
import TLS
import Testing
import Vocabulary

@testable import API

@Suite struct JSONWebKeyTests {
    let mint: TokenMint
    init() throws { mint = try TokenMint() }

    /// The error of a file, or nil if it is accepted.
    private func fault(_ algorithm: JSONWebAlgorithm, file bytes: [UInt8], mode: UInt32 = 0o600) throws -> JSONWebKeyError? {
        let path = try mint.write("key", bytes, mode: mode)
        return fault(algorithm, .key(path: path))
    }

    private func fault(_ algorithm: JSONWebAlgorithm, _ source: JSONWebKeySource) -> JSONWebKeyError? {
        do {
            _ = try mint.authenticator(algorithm, source)
            return nil
        } catch let error as JSONWebKeyError {
            if case .file(_, let inner) = error { return inner }
            return error
        } catch { return nil }
    }

    // MARK: One key

    @Test func shortSecretsAreRefused() throws {
        #expect(try fault(.hs256, file: Sodium.randomBytes(31)) == .shortSecret)
        #expect(try fault(.hs256, file: []) == .shortSecret)
        #expect(try fault(.hs256, file: Sodium.randomBytes(32)) == nil)
        // The line break doesn't count.
        #expect(try fault(.hs256, file: Array((String(repeating: "s", count: 31) + "\n").utf8)) == .shortSecret)
        #expect(try fault(.hs256, file: Array((String(repeating: "s", count: 31) + "\r\n").utf8)) == .shortSecret)
    }

    @Test(arguments: [32, 63, 64, 65, 200])
    func secretsOfAnyLengthWork(_ count: Int) throws {
        let secret = [UInt8](repeating: UInt8(ascii: "s"), count: count)
        let input = TokenMint.input(#"{"alg":"HS256"}"#, TokenMint.good)
        let code = HMACSHA256.code(Array(input.utf8).span, key: secret.span)
        let token = input + "." + base64url(code)
        for end in ["", "\n", "\r\n"] {
            let path = try mint.write("key", secret + Array(end.utf8))
            #expect(try mint.authenticator(.hs256, .key(path: path)).outcome(token).user == "ann")
        }
        // These ends are part of the secret.
        for end in [[0x0a, 0x0a], [0, 0x0a], [0x0d], [0x20]] as [[UInt8]] {
            let path = try mint.write("key", secret + end)
            #expect(try mint.authenticator(.hs256, .key(path: path)).outcome(token).error == .invalidJWT(.badSignature))
        }
    }

    @Test func readableSecretFilesAreRefused() throws {
        for mode: UInt32 in [0o640, 0o604, 0o620, 0o602, 0o660, 0o644] {
            let error = try fault(.hs256, file: Sodium.randomBytes(32), mode: mode)
            #expect(error == .exposed(path: mint.folder + "/key", mode: mode), "\(mode)")
        }
        #expect(try fault(.hs256, file: Sodium.randomBytes(32), mode: 0o400) == nil)
        // Others may read a public key.
        #expect(try fault(.es256, file: try mint.contents(.es256), mode: 0o644) == nil)
        let set = try mint.write("set", #"{"keys":[\#(try mint.jwk(.hs256))]}"#, mode: 0o644)
        #expect(fault(.hs256, .keySet(path: set)) == .exposed(path: set, mode: 0o644))
        #expect(JSONWebKeyError.exposure(0o4).hasPrefix("has mode 0004, so others"))
        #expect(JSONWebKeyError.exposure(0o600).hasPrefix("belongs to another user, so others"))
    }

    @Test func unreadableAndLargeFilesAreRefused() throws {
        for algorithm in JSONWebAlgorithm.allCases {
            for source in [
                JSONWebKeySource.key(path: mint.folder + "/none"), .keySet(path: mint.folder + "/none"), .key(path: mint.folder),
            ] {
                let error = fault(algorithm, source)
                guard case .unreadable? = error else {
                    Issue.record("\(algorithm), \(source): \(String(describing: error))")
                    continue
                }
            }
            let path = try mint.write("large", [UInt8](repeating: 0x20, count: 65_537))
            #expect(fault(algorithm, .keySet(path: path)) == .tooLarge(path: path, limit: 65_536))
        }
    }

    @Test func privateKeysAreRefused() throws {
        for algorithm in [JSONWebAlgorithm.es256, .edDSA, .rs256] {
            #expect(fault(algorithm, .key(path: mint.privateFile(algorithm))) == .privateKey)
        }
    }

    @Test func otherKeysAreRefused() throws {
        #expect(fault(.es256, .key(path: mint.file(.edDSA))) == .noPublicKey(.es256))
        #expect(fault(.edDSA, .key(path: mint.file(.es256))) == .noPublicKey(.edDSA))
        #expect(fault(.rs256, .key(path: mint.file(.es256))) == .noPublicKey(.rs256))
        for algorithm in [JSONWebAlgorithm.es256, .edDSA, .rs256] {
            #expect(fault(algorithm, .key(path: mint.file(.hs256))) == .noPublicKey(algorithm))
            for text in [
                "", "-----BEGIN PUBLIC KEY-----\n", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
                try mint.jwk(algorithm),
            ] {
                #expect(try fault(algorithm, file: Array(text.utf8)) == .noPublicKey(algorithm), "\(text)")
            }
        }
        for (algorithm, path) in [
            (JSONWebAlgorithm.es256, mint.file(.es256)), (.edDSA, mint.privateFile(.es256)), (.rs256, mint.privateFile(.es256)),
        ] {
            #expect(throws: JSONWebKeyError.file(path: path, .noPrivateKey(algorithm))) {
                _ = try JSONWebSigner(algorithm: algorithm, path: path)
            }
        }
    }

    /// Points of small order, no points, and a non-canonical point. With the first kind, anybody could sign.
    @Test(arguments: [
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "0200000000000000000000000000000000000000000000000000000000000000",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ])
    func weakPointsAreRefused(_ hex: String) throws {
        let point = try #require(Hex.decode(hex))
        let der = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00] + point
        let pem = "-----BEGIN PUBLIC KEY-----\n\(base64(der))\n-----END PUBLIC KEY-----\n"
        #expect(try fault(.edDSA, file: Array(pem.utf8)) == .noPublicKey(.edDSA))
        let jwk = #"{"kty":"OKP","crv":"Ed25519","x":"\#(base64url(point))"}"#
        #expect(try set(.edDSA, [jwk]) == .noUsableKey(.edDSA, skipped: "key 1 is invalid: \(JSONWebKeyError.badPoint)"))
    }

    // MARK: Sets

    private func set(_ algorithm: JSONWebAlgorithm, _ keys: [String]) throws -> JSONWebKeyError? {
        fault(algorithm, .keySet(path: try mint.write("set", #"{"keys":[\#(keys.joined(separator: ","))]}"#)))
    }

    @Test(arguments: JSONWebAlgorithm.allCases)
    func keysAreFoundByID(_ algorithm: JSONWebAlgorithm) throws {
        let other = try TokenMint()
        let keys = [
            try mint.jwk(algorithm, #","kid":"one","use":"sig""#),
            try other.jwk(algorithm, #","kid":"two","alg":"\#(algorithm.rawValue)""#),
        ]
        let path = try mint.write("set", #"{"keys":[\#(keys.joined(separator: ","))],"more":1}"#)
        let authenticator = try mint.authenticator(algorithm, .keySet(path: path))
        func header(_ id: String) -> String { #"{"alg":"\#(algorithm.rawValue)","kid":\#(id)}"# }
        #expect(authenticator.outcome(try mint.token(algorithm, header: header(#""one""#))).user == "ann")
        #expect(authenticator.outcome(try other.token(algorithm, header: header(#""two""#))).user == "ann")
        #expect(authenticator.outcome(try mint.token(algorithm, header: header(#""two""#))).error == .invalidJWT(.badSignature))
        #expect(authenticator.outcome(try mint.token(algorithm, header: header(#""three""#))).error == .invalidJWT(.unknownKey))
        #expect(authenticator.outcome(try mint.token(algorithm, header: header(#""""#))).error == .invalidJWT(.unknownKey))
        #expect(authenticator.outcome(try mint.token(algorithm)).error == .invalidJWT(.namesNoKey))
        for id in ["1", "[]", #"["one"]"#] {
            #expect(authenticator.outcome(try mint.token(algorithm, header: header(id))).error == .invalidJWT(.malformed))
        }
        #expect(authenticator.keysText == "2 keys for \(algorithm.rawValue) from \(path)")
    }

    @Test func singleKeyNeedsNoID() throws {
        let path = try mint.write("set", #"{"keys":[\#(try mint.jwk(.es256, #","kid":"one""#))]}"#)
        let authenticator = try mint.authenticator(.es256, .keySet(path: path))
        #expect(authenticator.outcome(try mint.token(.es256)).user == "ann")
        #expect(authenticator.outcome(try mint.token(.es256, header: #"{"alg":"ES256","kid":"one"}"#)).user == "ann")
        #expect(
            authenticator.outcome(try mint.token(.es256, header: #"{"alg":"ES256","kid":"two"}"#)).error
                == .invalidJWT(.unknownKey))
    }

    @Test func keysForOtherPurposesAreSkipped() throws {
        let others = [
            #"{"kty":"RSA","n":"AQAB","e":"AQAB","kid":"r"}"#, #"{"kty":"EC","crv":"P-384","x":"AA","y":"AA"}"#,
            #"{"kty":"XYZ"}"#,
            try mint.jwk(.es256, #","use":"enc""#), try mint.jwk(.es256, #","alg":"ECDH-ES""#),
            try mint.jwk(.es256, #","key_ops":["encrypt"]"#), try mint.jwk(.edDSA),
        ]
        let reasons = [
            "key 1 is of another type (kty)", "key 2 is of another curve (crv)", "key 3 is of another type (kty)",
            "key 4 is not for signatures (use)", "key 5 is for another algorithm (alg)", "key 6 is not for verifying (key_ops)",
            "key 7 is of another type (kty)",
        ]
        let path = try mint.write(
            "set", #"{"keys":[\#((others + [try mint.jwk(.es256, #","key_ops":["sign","verify"]"#)]).joined(separator: ","))]}"#)
        let authenticator = try mint.authenticator(.es256, .keySet(path: path))
        #expect(authenticator.outcome(try mint.token(.es256)).user == "ann")
        #expect(authenticator.keysText == "one key for ES256 from \(path); not used: \(reasons.joined(separator: ", "))")
        #expect(authenticator.warning == nil, "a set may contain keys for other purposes")
        #expect(try set(.es256, others) == .noUsableKey(.es256, skipped: reasons.joined(separator: ", ")))
        #expect(try set(.es256, []) == .noUsableKey(.es256, skipped: ""))
    }

    /// The faults of a set's key: it is skipped, and the key after it works (RFC 7517 section 5).
    private func skipped(_ algorithm: JSONWebAlgorithm, _ key: String) throws -> String? {
        let good = try mint.jwk(algorithm, #","kid":"good""#)
        let path = try mint.write("set", #"{"keys":[\#(key),\#(good)]}"#)
        let authenticator = try mint.authenticator(algorithm, .keySet(path: path))
        let header = #"{"alg":"\#(algorithm.rawValue)","kid":"good"}"#
        #expect(authenticator.outcome(try mint.token(algorithm, header: header)).user == "ann", "\(key)")
        #expect(authenticator.keysText == "one key for \(algorithm.rawValue) from \(path)", "\(key)")
        return authenticator.warning
    }

    @Test func privateKeysInASetAreSkipped() throws {
        let rsa = #"{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB","d":"AQAB"}"#
        for (key, what) in [
            (try mint.jwk(.es256, #","kid":"leaked","d":"AA""#), "a private key"), (rsa, "a private key"),
            (try mint.jwk(.hs256), "a secret"), (try mint.jwk(.es256, #","d":null"#), "a private key"),
        ] {
            let warning = try #require(try skipped(.es256, key))
            #expect(warning.contains("key 1 has the member") && warning.contains(what) && !warning.contains("leaked"))
        }
        #expect(try skipped(.hs256, rsa)?.contains("a private key") == true)
        // Nothing is left of a set of such keys.
        guard case .noUsableKey(.es256, let reasons)? = try set(.es256, [try mint.jwk(.es256, #","d":"AA""#)]) else {
            throw BrokerError.notFound
        }
        #expect(reasons.contains("a private key"))
    }

    @Test func malformedKeysAreSkipped() throws {
        let good = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
        let zero = String(repeating: "A", count: 43)
        for coordinate in [good, zero] {
            let key = #"{"kty":"EC","crv":"P-256","x":"\#(coordinate)","y":"\#(coordinate)"}"#
            #expect(try skipped(.es256, key)?.contains("not a valid point") == true)
        }
        for key in [
            #"{"kty":"EC","crv":"P-256","x":"\#(good)"}"#, #"{"kty":"EC","crv":"P-256","x":"\#(good)","y":"\#(good)="}"#,
            #"{"kty":"EC","crv":"P-256","x":"\#(good)","y":"\#(good.dropLast())"}"#,
            #"{"kty":"EC","crv":"P-256","x":"\#(good)","y":1}"#,
            #"{"kty":"EC","crv":"P-256","x":"\#(good)","y":"\#(good.dropLast())V"}"#, #"{"kty":"EC","x":"\#(good)"}"#,
            #"{"crv":"P-256"}"#,
            #"{"kty":1}"#, "{}", "1", "null", "[]", #"{"kty":"EC","kty":"EC"}"#, try mint.jwk(.es256, #","kid":1"#),
            try mint.jwk(.es256, #","use":1"#),
            try mint.jwk(.es256, #","alg":[]"#), try mint.jwk(.es256, #","key_ops":{}"#),
        ] {
            #expect(try skipped(.es256, key)?.hasPrefix("jwt: keys of the set are not used: key 1 ") == true, "\(key)")
        }
        for key in [#"{"kty":"oct"}"#, #"{"kty":"oct","k":"AAAA"}"#, #"{"kty":"oct","k":"\#(good)="}"#, #"{"kty":"oct","k":1}"#] {
            #expect(try skipped(.hs256, key) != nil, "\(key)")
        }
    }

    /// A repeated member is named as such, not as missing or of the wrong type. One that nobody reads is no fault.
    @Test func repeatedMembersAreNamed() throws {
        let rsa = #"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#
        for (key, member) in [
            (rsa.replacing(#""n":"AQAB""#, with: #""n":"AQAB","n":"AQAB""#), "n"), (#"{"kty":"RSA",\#(rsa.dropFirst())"#, "kty"),
            (#"{"kid":"a","kid":"b",\#(rsa.dropFirst())"#, "kid"), (#"{"use":"sig","use":"enc",\#(rsa.dropFirst())"#, "use"),
            (#"{"key_ops":[],"key_ops":[],\#(rsa.dropFirst())"#, "key_ops"),
        ] {
            #expect(try skipped(.rs256, key)?.contains("key 1 has the member \(member) twice") == true, "\(key)")
        }
        let secret = #"{"kty":"oct","k":"AAAA","k":"AAAA"}"#
        #expect(try skipped(.hs256, secret)?.contains("has the member k twice") == true)
        #expect(try skipped(.rs256, "1")?.contains("key 1 is not a JSON object.") == true)
        #expect(try set(.edDSA, [try mint.jwk(.edDSA, #","x5t":"a","x5t":"b""#)]) == nil)
    }

    /// RSA of other sizes than 2,048 to 4,096 bits, and of weak or costly exponents.
    @Test func otherRSAKeysAreSkipped() throws {
        func key(_ bytes: Int, first: UInt8 = 0xc0, exponent: [UInt8] = [1, 0, 1]) -> String {
            let modulus = [first] + [UInt8](repeating: 0x5b, count: bytes - 1)
            return #"{"kty":"RSA","n":"\#(base64url(modulus))","e":"\#(base64url(exponent))"}"#
        }
        for (bytes, first, bits) in [(128, 0xc0, 1_024), (256, 0x7f, 2_047), (513, 1, 4_097), (1_024, 0xc0, 8_192)] {
            #expect(try skipped(.rs256, key(bytes, first: UInt8(first)))?.contains("it has \(bits) bits") == true)
        }
        for exponent in [[], [0], [1], [3], [17], [1, 0, 0], [0, 0xff, 0xff], [1, 0, 0, 0, 1]] as [[UInt8]] {
            #expect(try skipped(.rs256, key(256, exponent: exponent))?.contains("exponent") == true, "\(exponent)")
        }
        for (bytes, first) in [(256, 0x80), (384, 0xc0), (512, 0xff)] {
            #expect(try set(.rs256, [key(bytes, first: UInt8(first))]) == nil)
        }
        // Some libraries write a leading zero.
        let zero = key(257, first: 0).replacing("AFtb", with: "AMtb")
        #expect(try set(.rs256, [zero]) == nil)
        for key in [#"{"kty":"RSA","e":"AQAB"}"#, #"{"kty":"RSA","n":"AQAB"}"#, #"{"kty":"RSA","n":1,"e":"AQAB"}"#] {
            #expect(try skipped(.rs256, key)?.contains("has no member") == true)
        }
    }

    @Test func severalKeysNeedUniqueIDs() throws {
        let other = try TokenMint()
        let repeated = try skipped(.edDSA, try mint.jwk(.edDSA))
        #expect(repeated?.contains("key 1 has no kid, which is required if there are several keys") == true)
        // The first of a kid is used.
        let path = try mint.write(
            "set",
            #"{"keys":[\#(try mint.jwk(.edDSA, #","kid":"one""#)),\#(try other.jwk(.edDSA, #","kid":"one""#))]}"#)
        let authenticator = try mint.authenticator(.edDSA, .keySet(path: path))
        #expect(authenticator.warning?.contains("key 2 has the same kid as another key") == true)
        let header = #"{"alg":"EdDSA","kid":"one"}"#
        #expect(authenticator.outcome(try mint.token(.edDSA, header: header)).user == "ann")
        #expect(authenticator.outcome(try other.token(.edDSA, header: header)).error == .invalidJWT(.badSignature))
        // Without any kid the first is for all JWTs.
        try mint.write("set", #"{"keys":[\#(try mint.jwk(.edDSA)),\#(try other.jwk(.edDSA))]}"#)
        try authenticator.reload()
        #expect(authenticator.outcome(try mint.token(.edDSA, header: header)).user == "ann")
        #expect(authenticator.warning?.contains("key 2 has no kid") == true)
    }

    @Test func setsAreLimited() throws {
        let keys = try (0..<101).map { try mint.jwk(.edDSA, #","kid":"\#($0)""#) }
        #expect(try set(.edDSA, keys) == .tooManyKeys(limit: 100))
        #expect(try set(.edDSA, Array(keys.dropLast())) == nil)
        // A line of the log stays a line.
        guard case .noUsableKey(_, let reasons)? = try set(.edDSA, Array(repeating: "{}", count: 100)) else {
            throw BrokerError.notFound
        }
        #expect(reasons.hasSuffix("key 8 has no kty, and 92 more"))
    }

    @Test(arguments: [
        "", "[]", "{}", #"{"keys":{}}"#, #"{"keys":null}"#, #"{"keys":[],"keys":[]}"#, #"{"keys":[}"#, "null",
        "-----BEGIN PUBLIC KEY-----",
    ])
    func malformedSetsAreRefused(_ text: String) throws {
        #expect(fault(.es256, .keySet(path: try mint.write("set", text))) == .noKeySet)
    }

    @Test func errorsContainNoKeys() throws {
        let secret = "a-secret-that-nobody-may-read-1234"
        for algorithm in JSONWebAlgorithm.allCases {
            for text in [
                secret, "-----BEGIN PUBLIC KEY-----\n\(secret)", #"{"keys":[{"kty":"oct","k":"\#(secret)=","kid":"x"}]}"#,
                #"{"keys":["\#(secret)"]}"#,
            ] {
                let path = try mint.write("key", text)
                for source in [JSONWebKeySource.key(path: path), .keySet(path: path)] {
                    let text = fault(algorithm, source)?.description ?? ""
                    #expect(!text.contains(secret), "\(text)")
                }
            }
        }
    }
}
