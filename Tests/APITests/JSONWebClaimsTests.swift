import Broker
import Testing

@testable import API

@Suite struct JSONWebClaimsTests {
    let mint: TokenMint
    init() throws { mint = try TokenMint() }

    private func outcome(_ claims: String, issuer: String? = nil, audience: String? = nil) throws -> Result<
        Principal, BrokerError
    > {
        try mint.authenticator(.hs256, issuer: issuer, audience: audience).outcome(try mint.token(.hs256, claims))
    }

    private func times(_ more: String) throws -> BrokerError? { try outcome(#"{"sub":"ann"\#(more)}"#).error }

    @Test func expiryIsRequired() throws {
        #expect(try times("") == .invalidJWT(.noExpiry))
        #expect(try times(#","exp":null"#) == .invalidJWT(.noExpiry))
        #expect(try times(#","exp":1799999971"#) == nil)
        #expect(try times(#","exp":1799999970"#) == .jwtExpired)
        #expect(try times(#","exp":0"#) == .jwtExpired)
        #expect(try times(#","exp":253402300799.9"#) == nil)
        // Rounded down.
        #expect(try times(#","exp":1799999970.99"#) == .jwtExpired)
    }

    @Test(arguments: ["exp", "nbf", "iat"])
    func timesAreNumericDates(_ name: String) throws {
        let rest = name == "exp" ? "" : #","exp":1800000060"#
        for value in ["1800000000", "1800000000.0", "1800000000.999", "1.8e9", "18E8", "1800000000123e-3"] {
            #expect(try times(rest + #","\#(name)":\#(value)"#) == nil, "\(value)")
        }
        for value in [
            #""1800000060""#, "-1", "-0.5", "253402300800", "253402300800.5", "9223372036854775807",
            "9223372036854775808", "99999999999999999999999999", "true", "[1800000060]", "{}", "1e400",
        ] {
            #expect(try times(rest + #","\#(name)":\#(value)"#) == .invalidJWT(.badTime(name)), "\(value)")
        }
    }

    @Test(arguments: ["nbf", "iat"])
    func futureTimesAreRefused(_ name: String) throws {
        #expect(try times(#","exp":1800000060,"\#(name)":1800000030"#) == nil)
        #expect(try times(#","exp":1800000060,"\#(name)":1800000031"#) == .invalidJWT(.notYet(name)))
        #expect(try times(#","exp":1800000060,"\#(name)":0"#) == nil)
        #expect(try times(#","exp":1800000060,"\#(name)":253402300799"#) == .invalidJWT(.notYet(name)))
    }

    @Test func expiryIsReportedFirst() throws {
        // The holder of an old JWT learns that it has expired, even if the configuration has changed too.
        #expect(try outcome(#"{"sub":"ann","exp":1}"#, issuer: "other").error == .jwtExpired)
    }

    private func named(_ more: String, issuer: String? = nil, audience: String? = nil) throws -> BrokerError? {
        try outcome(#"{"sub":"ann","exp":1800000060\#(more)}"#, issuer: issuer, audience: audience).error
    }

    @Test func audienceIsChecked() throws {
        let wrong = BrokerError.invalidJWT(.wrongAudience)
        for good in [#""mayfly""#, #"["mayfly"]"#, #"["other","mayfly"]"#, #""may\u0066ly""#] {
            #expect(try named(#","aud":\#(good)"#, audience: "mayfly") == nil, "\(good)")
        }
        for bad in [
            #""Mayfly""#, #""mayfly ""#, #""other mayfly""#, #"["other"]"#, "[]", "null", "1", #"[["mayfly"]]"#, #"["mayfly",1]"#,
            #"{"mayfly":1}"#, #""""#,
        ] {
            #expect(try named(#","aud":\#(bad)"#, audience: "mayfly") == wrong, "\(bad)")
        }
        #expect(try named("", audience: "mayfly") == wrong)
        // Without a configured audience, any `aud` is refused.
        for some in [#""mayfly""#, "[]", "null"] {
            #expect(try named(#","aud":\#(some)"#) == .invalidJWT(.unexpectedAudience))
        }
    }

    @Test func issuerIsChecked() throws {
        let issuer = "https://login.example.org"
        #expect(try named(#","iss":"\#(issuer)""#, issuer: issuer) == nil)
        for bad in [#""\#(issuer)/""#, #""""#, "null", #"["\#(issuer)"]"#, "1"] {
            #expect(try named(#","iss":\#(bad)"#, issuer: issuer) == .invalidJWT(.wrongIssuer), "\(bad)")
        }
        #expect(try named("", issuer: issuer) == .invalidJWT(.wrongIssuer))
        #expect(try named(#","iss":"anyone""#) == nil)
    }

    private func subject(_ value: String) throws -> Result<Principal, BrokerError> {
        try outcome(#"{"exp":1800000060,"sub":\#(value)}"#)
    }

    @Test func subjectIsChecked() throws {
        let longest = String(repeating: "a", count: 128)
        for good in ["a", longest, "Ann", " ann", "ü", "12", "user:ann", "a/b"] {
            #expect(try subject("\"\(good)\"").user == good)
        }
        #expect(try subject(#""\u00fc\n\u0000""#).user == "ü\n\u{0}")
        for bad in [
            #""""#, "\"\(longest)a\"", "\"" + String(repeating: "ü", count: 65) + "\"", "1", "null", #"["ann"]"#, "true",
        ] {
            #expect(try subject(bad).error == .invalidJWT(.badUser(claim: "sub")), "\(bad)")
        }
        #expect(try outcome(#"{"exp":1800000060}"#).error == .invalidJWT(.badUser(claim: "sub")))
        // A lone surrogate isn't text.
        #expect(try subject(#""\ud800""#).error == .invalidJWT(.badUser(claim: "sub")))
    }

    @Test(arguments: [
        #""name":"\ud83d""#, #""groups":\#(String(repeating: "[", count: 1_000))\#(String(repeating: "]", count: 1_000))"#,
        #""x":1,"x":2"#,
        #""x":{"sub":"ben","sub":"carl"}"#, #""\ud83d":1"#,
    ])
    func claimsThatAreNotReadAreNotJudged(_ more: String) throws {
        for claims in [#"{"sub":"ann",\#(more),"exp":1800000060}"#, #"{\#(more),"exp":1800000060,"sub":"ann"}"#] {
            #expect(try outcome(claims).user == "ann", "\(claims)")
        }
    }

    @Test func faultyJSONIsReportedWithItsPosition() throws {
        #expect(
            try outcome(#"{"sub":"ann", "exp":NaN}"#).error
                == .invalidJWT(
                    .malformedClaims("line 1, column 21: this is not a JSON value; NaN and Infinity are none")))
        #expect(
            try outcome("\u{feff}" + TokenMint.good).error
                == .invalidJWT(.malformedClaims("line 1, column 1: a byte order mark precedes the JSON")))
        #expect(
            try outcome("[]").error
                == .invalidJWT(.malformedClaims("line 1, column 1: an object is expected here")))
    }

    @Test func claimsThatAreReadAppearOnce() throws {
        let good = #""sub":"ann","exp":1800000060,"iss":"i","aud":"a","scope":"x""#
        for (name, value) in [
            ("sub", #""ann""#), ("exp", "1800000060"), ("iss", #""i""#), ("aud", #""a""#), ("scope", #""x""#), ("scp", #""x""#),
            ("iat", "1"),
            ("nbf", "1"),
        ] {
            let twice = (good.contains("\"\(name)\"") ? "" : ",\"\(name)\":\(value)") + ",\"\(name)\":\(value)"
            #expect(try outcome("{\(good)\(twice)}", issuer: "i", audience: "a").error == .invalidJWT(.repeated(name)), "\(name)")
        }
    }

    /// Then `sub` is neither required nor read.
    // Promise: jwt-user-claim
    @Test func anotherClaimCanNameTheUser() throws {
        func user(_ claims: String, claim: String = "userId") throws -> Result<Principal, BrokerError> {
            try mint.authenticator(.hs256, userClaim: claim).outcome(
                try mint.token(.hs256, "{\"exp\":1800000060\(claims)}"))
        }
        #expect(try user(#","userId":"ann""#).user == "ann")
        #expect(try user(#","userId":"ann","sub":"bob""#).user == "ann")
        #expect(try user(#","userId":42"#).user == "42")
        #expect(try user(#","https://example.org/id":"ann""#, claim: "https://example.org/id").user == "ann")
        for bad in [
            #","sub":"ann""#, #","userId":null"#, #","userId":1.5"#, #","userId":true"#, #","userId":["ann"]"#,
            #","userid":"ann""#,
        ] {
            #expect(try user(bad).error == .invalidJWT(.badUser(claim: "userId")), "\(bad)")
        }
        #expect(InvalidJWT.badUser(claim: "userId").detail.contains("userId"))
        // The other claims stay required.
        let endless = try mint.token(.hs256, #"{"userId":"ann"}"#)
        #expect(try mint.authenticator(.hs256, userClaim: "userId").outcome(endless).error == .invalidJWT(.noExpiry))
    }

    // Promise: jwt-scope
    @Test func scopeMarksBackEnds() throws {
        func scope(_ more: String) throws -> Result<Principal, BrokerError> {
            try outcome(#"{"sub":"ann","exp":1800000060\#(more)}"#)
        }
        for good in [
            #","scope":"broker.notify""#, #","scope":"a broker.notify b""#, #","scope":" broker.notify ""#,
            #","scope":["broker.notify"]"#,
            #","scp":["a","broker.notify"]"#, #","scp":"a broker.notify""#, #","scope":"a","scp":["broker.notify"]"#,
        ] {
            #expect(try scope(good).isBackEnd == true, "\(good)")
        }
        for none in [
            "", #","scope":"""#, #","scope":"broker.notify.x""#, #","scope":"xbroker.notify""#, #","scope":"Broker.notify""#,
            #","scope":"broker.notify,a""#, #","scope":"broker\tnotify""#, #","scope":"a\tbroker.notify""#, #","scope":[]"#,
            #","scope":null"#, #","scopes":"broker.notify""#, #","roles":["broker.notify"]"#,
        ] {
            #expect(try scope(none).isBackEnd == false, "\(none)")
        }
        for bad in [
            #","scope":1"#, #","scp":{"broker.notify":true}"#, #","scope":[1]"#, #","scope":true"#,
            #","scp":[["broker.notify"]]"#,
        ] {
            #expect(try scope(bad).error == .invalidJWT(.badScope), "\(bad)")
        }
    }
}
