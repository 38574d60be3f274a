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
        for algorithm in [JSONWebAlgorithm.es256, .edDSA] {
            #expect(fault(algorithm, .key(path: mint.privateFile(algorithm))) == .privateKey)
        }
    }

    @Test func otherKeysAreRefused() throws {
        #expect(fault(.es256, .key(path: mint.file(.edDSA))) == .noPublicKey(.es256))
        #expect(fault(.edDSA, .key(path: mint.file(.es256))) == .noPublicKey(.edDSA))
        for algorithm in [JSONWebAlgorithm.es256, .edDSA] {
            #expect(fault(algorithm, .key(path: mint.file(.hs256))) == .noPublicKey(algorithm))
            for text in [
                "", "-----BEGIN PUBLIC KEY-----\n", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
                try mint.jwk(algorithm),
            ] {
                #expect(try fault(algorithm, file: Array(text.utf8)) == .noPublicKey(algorithm), "\(text)")
            }
        }
        for (algorithm, path) in [(JSONWebAlgorithm.es256, mint.file(.es256)), (.edDSA, mint.privateFile(.es256))] {
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
        #expect(try set(.edDSA, [jwk]) == .badKey("key 1", "is invalid: \(JSONWebKeyError.badPoint)"))
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
            #"key 1 (kid "r") is of another type (kty)"#, "key 2 is of another curve (crv)", "key 3 is of another type (kty)",
            "key 4 is not for signatures (use)", "key 5 is for another algorithm (alg)", "key 6 is not for verifying (key_ops)",
            "key 7 is of another type (kty)",
        ]
        let path = try mint.write(
            "set", #"{"keys":[\#((others + [try mint.jwk(.es256, #","key_ops":["sign","verify"]"#)]).joined(separator: ","))]}"#)
        let authenticator = try mint.authenticator(.es256, .keySet(path: path))
        #expect(authenticator.outcome(try mint.token(.es256)).user == "ann")
        #expect(authenticator.keysText == "one key for ES256 from \(path); not used: \(reasons.joined(separator: ", "))")
        #expect(try set(.es256, others) == .noUsableKey(.es256, skipped: reasons))
        #expect(try set(.es256, []) == .noUsableKey(.es256, skipped: []))
    }

    @Test func privateKeysInASetAreRefused() throws {
        let rsa = #"{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB","d":"AQAB"}"#
        for (index, key) in [try mint.jwk(.es256, #","d":"AA""#), rsa, try mint.jwk(.hs256), try mint.jwk(.es256, #","d":null"#)]
            .enumerated()
        {
            guard case .badKey(let name, let what)? = try set(.es256, [try mint.jwk(.es256, #","kid":"one""#), key]) else {
                Issue.record("key \(index) was accepted")
                continue
            }
            #expect(
                name == (index == 1 ? #"key 2 (kid "r")"# : "key 2") && what.contains(index == 2 ? "a secret" : "a private key"))
        }
        guard case .badKey? = try set(.hs256, [try mint.jwk(.hs256), rsa]) else { throw BrokerError.notFound }
    }

    @Test func invalidKeysAreReported() throws {
        func fault(_ algorithm: JSONWebAlgorithm, _ key: String) throws -> String? {
            guard case .badKey(let name, let what)? = try set(algorithm, [key]) else { return nil }
            return "\(name) \(what)"
        }
        let good = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"
        let zero = String(repeating: "A", count: 43)
        #expect(
            try fault(.es256, #"{"kty":"EC","crv":"P-256","x":"\#(good)","y":"\#(good)"}"#)?.contains("not a valid point") == true
        )
        #expect(
            try fault(.es256, #"{"kty":"EC","crv":"P-256","x":"\#(zero)","y":"\#(zero)"}"#)?.contains("not a valid point") == true
        )
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
            #expect(try fault(.es256, key)?.hasPrefix("key 1 ") == true, "\(key)")
        }
        for key in [#"{"kty":"oct"}"#, #"{"kty":"oct","k":"AAAA"}"#, #"{"kty":"oct","k":"\#(good)="}"#, #"{"kty":"oct","k":1}"#] {
            #expect(try fault(.hs256, key)?.hasPrefix("key 1 ") == true, "\(key)")
        }
    }

    @Test func severalKeysNeedUniqueIDs() throws {
        let other = try TokenMint()
        let first = try mint.jwk(.edDSA, #","kid":"one""#)
        #expect(try set(.edDSA, [first, try other.jwk(.edDSA, #","kid":"one""#)]) == .repeatedID(#"key 2 (kid "one")"#))
        #expect(
            try set(.edDSA, [first, try other.jwk(.edDSA)])
                == .badKey("key 2", "has no kid, which is required if there are several keys"))
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
