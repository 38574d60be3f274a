import Broker
import Sodium
import Testing

@testable import API

@Suite struct JSONWebTokenTests {
    let mint: TokenMint
    init() throws { mint = try TokenMint() }

    @Test(arguments: JSONWebAlgorithm.allCases)
    func validJWTsAreAccepted(_ algorithm: JSONWebAlgorithm) throws {
        let authenticator = try mint.authenticator(algorithm)
        let outcome = authenticator.outcome(try mint.token(algorithm))
        #expect(outcome.user == "ann" && outcome.isBackEnd == false)
        // Some issuers omit `typ` or use another order.
        #expect(
            authenticator.outcome(try mint.token(algorithm, header: #"{"kid":"any","alg":"\#(algorithm.rawValue)"}"#)).user
                == "ann")
    }

    @Test(arguments: JSONWebAlgorithm.allCases)
    func jwtsOfTheSignerAreAccepted(_ algorithm: JSONWebAlgorithm) throws {
        let signer = try JSONWebSigner(algorithm: algorithm, path: mint.privateFile(algorithm))
        let now = UInt64(TokenMint.nowS)
        let claims = JSONWebSigner.Claims(
            user: "a \"quoted\" ü", scope: "x broker.notify", issuer: "i", audience: "a", issuedAtS: now, expiresAtS: now + 1)
        let authenticator = try mint.authenticator(algorithm, issuer: "i", audience: "a")
        let outcome = authenticator.outcome(try signer.token(claims, keyID: "k"))
        #expect(outcome.user == "a \"quoted\" ü" && outcome.isBackEnd == true)
    }

    // MARK: Published vectors

    /// The vectors name no user. So the signature is verified, and the claims are refused.
    private func signed(_ algorithm: JSONWebAlgorithm, jwk: String, token: String) throws -> BrokerError? {
        let path = try mint.write("set.json", #"{"keys":[\#(jwk)]}"#)
        let authenticator = try mint.authenticator(algorithm, .keySet(path: path))
        var changed = Array(token.utf8)
        let place = changed.count - 8
        changed[place] = changed[place] == UInt8(ascii: "A") ? UInt8(ascii: "B") : UInt8(ascii: "A")
        #expect(authenticator.outcome(changed).error == .invalidJWT(.badSignature))
        return authenticator.outcome(token, nowS: 1_300_819_379).error
    }

    private static let joe =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"

    @Test func appendixA1OfRFC7515IsVerified() throws {
        let jwk =
            #"{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}"#
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\(Self.joe).dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
        #expect(try signed(.hs256, jwk: jwk, token: token) == .invalidJWT(.badUser(claim: "sub")))
    }

    @Test func appendixA2OfRFC7515IsVerified() throws {
        let jwk =
            #"{"kty":"RSA","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ","e":"AQAB"}"#
        let signature =
            "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
        #expect(
            try signed(.rs256, jwk: jwk, token: "eyJhbGciOiJSUzI1NiJ9.\(Self.joe).\(signature)")
                == .invalidJWT(.badUser(claim: "sub")))
    }

    @Test func appendixA3OfRFC7515IsVerified() throws {
        let jwk =
            #"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#
        let signature = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
        #expect(
            try signed(.es256, jwk: jwk, token: "eyJhbGciOiJFUzI1NiJ9.\(Self.joe).\(signature)")
                == .invalidJWT(.badUser(claim: "sub")))
    }

    @Test func appendixA4OfRFC8037IsVerified() throws {
        let jwk = #"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#
        let token =
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
        // Its payload is a sentence.
        let cause = "line 1, column 1: this is not a JSON value; NaN and Infinity are none"
        #expect(try signed(.edDSA, jwk: jwk, token: token) == .invalidJWT(.malformedClaims(cause)))
    }

    // MARK: Algorithms

    // Promise: jwt-algorithm-fixed
    @Test(arguments: JSONWebAlgorithm.allCases)
    func onlyTheConfiguredAlgorithmIsAccepted(_ algorithm: JSONWebAlgorithm) throws {
        let authenticator = try mint.authenticator(algorithm)
        let wrong = BrokerError.invalidJWT(.wrongAlgorithm(expected: algorithm.rawValue))
        let others = JSONWebAlgorithm.allCases.filter { $0 != algorithm }
        for other in others {
            #expect(authenticator.outcome(try mint.token(other)).error == wrong)
            // A JWT with a wrong `alg`.
            let lie = try mint.token(other, header: #"{"alg":"\#(algorithm.rawValue)"}"#)
            #expect(authenticator.outcome(lie).error == .invalidJWT(.badSignature))
        }
        let headers = [
            #"{"alg":"none"}"#, #"{"alg":"None"}"#, #"{"alg":""}"#, #"{"typ":"JWT"}"#, #"{"alg":null}"#, #"{"alg":1}"#,
            #"{"alg":["\#(algorithm.rawValue)"]}"#, #"{"alg":"\#(algorithm.rawValue.lowercased())"}"#,
            #"{"alg":"\#(algorithm.rawValue) "}"#, #"{"Alg":"\#(algorithm.rawValue)"}"#, #"{"alg":"HS512"}"#, #"{"alg":"PS256"}"#,
        ]
        for header in headers {
            #expect(authenticator.outcome(try mint.token(algorithm, header: header)).error == wrong, "\(header)")
            #expect(authenticator.outcome(TokenMint.input(header, TokenMint.good) + ".").error == wrong, "\(header)")
        }
    }

    @Test func publicKeyIsNotUsedAsSecret() throws {
        let authenticator = try mint.authenticator(.es256)
        let input = TokenMint.input(#"{"alg":"HS256"}"#, TokenMint.good)
        let key = try mint.contents(.es256)
        let code = HMACSHA256.code(Array(input.utf8).span, key: key.span)
        #expect(
            authenticator.outcome(input + "." + base64url(code)).error
                == .invalidJWT(.wrongAlgorithm(expected: "ES256")))
        // The configuration refuses it as well.
        #expect(throws: JSONWebKeyError.file(path: mint.file(.es256), .notASecret)) {
            _ = try mint.authenticator(.hs256, .key(path: mint.file(.es256)))
        }
    }

    @Test(arguments: [
        #","crit":["exp"]"#, #","crit":[]"#, #","crit":null"#, #","crit":["b64"],"b64":false"#,
    ])
    func criticalHeadersAreRefused(_ more: String) throws {
        let token = try mint.token(.hs256, header: #"{"alg":"HS256"\#(more)}"#)
        #expect(try mint.authenticator(.hs256).outcome(token).error == .invalidJWT(.hasCriticalHeader))
    }

    /// RFC 7797 section 7: a JWT's claims are always base64url.
    @Test(arguments: ["false", "null", "0", #""true""#])
    func unencodedClaimsAreRefused(_ value: String) throws {
        let authenticator = try mint.authenticator(.hs256)
        let token = try mint.token(.hs256, header: #"{"alg":"HS256","b64":\#(value)}"#)
        #expect(authenticator.outcome(token).error == .invalidJWT(.malformed))
        #expect(authenticator.outcome(try mint.token(.hs256, header: #"{"alg":"HS256","b64":true}"#)).user == "ann")
    }

    @Test func keysInTheHeaderAreIgnored() throws {
        let other = try TokenMint()
        for algorithm in JSONWebAlgorithm.allCases {
            let header =
                #"{"alg":"\#(algorithm.rawValue)","jwk":\#(try other.jwk(algorithm)),"jku":"https://x.example/","x5u":"https://x.example/","x5c":["AA"]}"#
            let authenticator = try mint.authenticator(algorithm)
            #expect(authenticator.outcome(try other.token(algorithm, header: header)).error == .invalidJWT(.badSignature))
            #expect(authenticator.outcome(try mint.token(algorithm, header: header)).user == "ann")
        }
    }

    // MARK: Form

    @Test(arguments: JSONWebAlgorithm.allCases)
    func changedJWTsAreRefused(_ algorithm: JSONWebAlgorithm) throws {
        let authenticator = try mint.authenticator(algorithm)
        let token = Array(try mint.token(algorithm).utf8)
        for index in token.indices {
            for flip in [UInt8(1), 4, 0x20, 0x80] {
                var changed = token
                changed[index] ^= flip
                #expect(authenticator.outcome(changed).user == nil, "\(index), \(flip)")
            }
            #expect(authenticator.outcome(Array(token[..<index])).user == nil, "cut at \(index)")
            #expect(authenticator.outcome(Array(token[..<index] + token[(index + 1)...])).user == nil, "without \(index)")
        }
        #expect(authenticator.outcome(token).user == "ann")
    }

    @Test(arguments: [
        "", ".", "..", "...", "a", "a.b", "a.b.c.d", "bearer", "{}", "\u{0}.\u{0}.\u{0}", "e30.e30.", ".e30.e30", "e30..e30",
        "ü.ü.ü",
        "eyJhbGciOiJIUzI1NiJ9", "eyJhbGciOiJIUzI1NiJ9.e30", "bnVsbA.e30.AA", "W10.e30.AA", "IiI.e30.AA", "e30=.e30.AA",
        "e3 0.e30.AA",
    ])
    func malformedJWTsAreRefused(_ text: String) throws {
        for algorithm in JSONWebAlgorithm.allCases {
            let error = try mint.authenticator(algorithm).outcome(text).error
            let wrong = BrokerError.invalidJWT(.wrongAlgorithm(expected: algorithm.rawValue))
            #expect(error == .invalidJWT(.malformed) || error == wrong, "\(text): \(String(describing: error))")
        }
    }

    @Test func base64MustBeCanonical() throws {
        let authenticator = try mint.authenticator(.hs256)
        let token = try mint.token(.hs256)
        let parts = token.split(separator: ".").map(String.init)
        for other in [
            " " + token, token + " ", token + "\n", token + "=", "\t" + token, parts.joined(separator: " ."),
            parts.joined(separator: ".\r\n"),
            token + ".", "." + token, "bearer " + token, token + "\0", "\"" + token + "\"",
        ] {
            #expect(authenticator.outcome(other).error == .invalidJWT(.malformed), "\(other)")
        }
        // The last character has two unused bits, which must be zero.
        let last = try #require(token.last)
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        let place = try #require(alphabet.firstIndex(of: last))
        #expect(place % 4 == 0)
        for bits in 1...3 {
            #expect(authenticator.outcome(token.dropLast() + String(alphabet[place + bits])).error == .invalidJWT(.malformed))
        }
    }

    @Test func lengthIsLimited() throws {
        let authenticator = try mint.authenticator(.hs256)
        func padded(_ count: Int) throws -> String {
            try mint.token(.hs256, #"{"sub":"ann","exp":1800000060,"x":"\#(String(repeating: "x", count: count))"}"#)
        }
        var count = 6_000
        while try padded(count + 1).utf8.count <= JSONWebToken.largestCount { count += 1 }
        let longest = try padded(count)
        #expect(longest.utf8.count > JSONWebToken.largestCount - 4 && authenticator.outcome(longest).user == "ann")
        #expect(authenticator.outcome(try padded(count + 1)).error == .invalidJWT(.tooLong(limit: 8_192)))
        #expect(authenticator.outcome(String(repeating: ".", count: 8_193)).error == .invalidJWT(.tooLong(limit: 8_192)))
    }

    @Test func duplicateNamesAreRefused() throws {
        let authenticator = try mint.authenticator(.hs256)
        for header in [#"{"alg":"HS256","alg":"HS256"}"#, #"{"alg":"HS256","\u0061lg":"none"}"#] {
            let refused = authenticator.outcome(try mint.token(.hs256, header: header)).error
            #expect(refused == .invalidJWT(.repeated("alg")), "\(header)")
        }
        let twice = try mint.token(.hs256, header: #"{"alg":"HS256","kid":"a","kid":"a"}"#)
        #expect(authenticator.outcome(twice).error == .invalidJWT(.repeated("kid")))
        // Nobody reads these.
        #expect(authenticator.outcome(try mint.token(.hs256, header: #"{"alg":"HS256","x":1,"x":2}"#)).user == "ann")
        for (claims, name) in [
            (#"{"sub":"ann","sub":"ben","exp":1800000060}"#, "sub"), (#"{"sub":"ann","exp":1,"exp":1800000060}"#, "exp"),
            (#"{"sub":"ann","exp":1800000060,"\u0073ub":"ben"}"#, "sub"),
        ] {
            #expect(authenticator.outcome(try mint.token(.hs256, claims)).error == .invalidJWT(.repeated(name)), "\(claims)")
        }
        for claims in ["[]", "", "null", TokenMint.good + " x"] {
            guard case .invalidJWT(.malformedClaims)? = authenticator.outcome(try mint.token(.hs256, claims)).error
            else {
                Issue.record("\(claims)")
                continue
            }
        }
    }

    // MARK: Signatures of ES256

    /// The order of P-256's base point.
    private static let order: [UInt8] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad, 0xa7, 0x17,
        0x9e,
        0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ]

    @Test func invalidES256SignaturesAreRefused() throws {
        let authenticator = try mint.authenticator(.es256)
        let input = TokenMint.input(#"{"alg":"ES256"}"#, TokenMint.good)
        let signature = try mint.signature(.es256, input)
        let (r, s) = (Array(signature.prefix(32)), Array(signature.suffix(32)))
        func outcome(_ signature: [UInt8]) -> Result<Principal, BrokerError> {
            authenticator.outcome(input + "." + base64url(signature))
        }
        #expect(outcome(signature).user == "ann")
        // RFC 7518 doesn't require a low S: both values are valid.
        var other = s
        var borrow = 0
        for index in (0..<32).reversed() {
            let difference = Int(Self.order[index]) - Int(s[index]) - borrow
            (other[index], borrow) = (UInt8(truncatingIfNeeded: difference), difference < 0 ? 1 : 0)
        }
        #expect(outcome(r + other).user == "ann")
        let zero = [UInt8](repeating: 0, count: 32)
        let ones = [UInt8](repeating: 0xff, count: 32)
        for bad in [
            zero + s, r + zero, zero + zero, Self.order + s, r + Self.order, ones + ones, s + r, Array(signature.dropLast()),
            signature + [0], [0] + signature, r, [], Self.der(r, s),
        ] {
            #expect(outcome(bad).error == .invalidJWT(.badSignature))
        }
    }

    /// The signature in DER, which JOSE doesn't use.
    private static func der(_ r: [UInt8], _ s: [UInt8]) -> [UInt8] {
        func integer(_ number: [UInt8]) -> [UInt8] {
            let short = Array(number.drop { $0 == 0 })
            let value = short[0] < 0x80 ? short : [0] + short
            return [2, UInt8(value.count)] + value
        }
        let both = integer(r) + integer(s)
        return [0x30, UInt8(both.count)] + both
    }

    @Test func invalidEdDSASignaturesAreRefused() throws {
        let authenticator = try mint.authenticator(.edDSA)
        let input = TokenMint.input(#"{"alg":"EdDSA"}"#, TokenMint.good)
        let signature = try mint.signature(.edDSA, input)
        // S plus the group's order is the same number in another encoding (refused by RFC 8032 section 5.1.7).
        let order: [UInt8] = [
            0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0,
            0, 0, 0, 0, 0, 0x10,
        ]
        var other = signature
        var carry = 0
        for index in 0..<32 {
            let sum = Int(signature[32 + index]) + Int(order[index]) + carry
            (other[32 + index], carry) = (UInt8(truncatingIfNeeded: sum), sum >> 8)
        }
        for bad in [other, [UInt8](repeating: 0, count: 64), Array(signature.dropLast()), signature + [0], []] {
            let outcome = authenticator.outcome(input + "." + base64url(bad))
            #expect(outcome.error == .invalidJWT(.badSignature))
        }
    }
}
