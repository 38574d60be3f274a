import Sealing
import TLS
import Testing
import Vocabulary

@testable import Courier
@testable import HTTP2

@Suite struct BackoffTests {
    struct Fixed: RandomNumberGenerator {
        var value: UInt64
        mutating func next() -> UInt64 { value }
    }

    @Test func doublesUpToItsLongest() {
        let backoff = Backoff(firstMs: 100, longestMs: 1000)
        let bounds: [UInt64] = [100, 200, 400, 800, 1000, 1000]
        for (index, bound) in bounds.enumerated() {
            var high = Fixed(value: bound / 2)
            #expect(backoff.delayMs(index + 1, using: &high) == bound)
        }
        var low = Fixed(value: 0)
        #expect((1...6).map { backoff.delayMs($0, using: &low) } == [50, 100, 200, 400, 500, 500])
        #expect(backoff.delayMs(1_000_000, using: &low) == 500)
    }

    @Test func neverComesBeforeWhatThePeerAskedFor() {
        var low = Fixed(value: 0)
        #expect(Backoff(firstMs: 100, longestMs: 1000).delayMs(1, leastMs: 60_000, using: &low) == 60_000)
    }

    @Test func spreads() {
        var generator = SystemRandomNumberGenerator()
        let delays = Set((0..<100).map { _ in Backoff().delayMs(5, using: &generator) })
        #expect(delays.count > 50)
    }
}

@Suite struct PurgeBreakerTests {
    /// After a push that was taken; all refusals are of one token.
    func breaker(refused: Int, answered: Int, atMs: UInt64 = 0) -> PurgeBreaker {
        var breaker = PurgeBreaker()
        breaker.record(.taken, nowMs: atMs)
        for _ in 0..<refused { breaker.record(.refused(1), nowMs: atMs) }
        for _ in 0..<answered - 1 { breaker.record(.gone, nowMs: atMs) }
        return breaker
    }

    @Test func opensAtTwentyAndMoreThanHalf() {
        #expect(breaker(refused: 0, answered: 1).state(nowMs: 0) == .closed)
        #expect(breaker(refused: 19, answered: 1).state(nowMs: 0) == .closed)
        #expect(breaker(refused: 20, answered: 1).state(nowMs: 0) == .open)
        #expect(breaker(refused: 20, answered: 19).state(nowMs: 0) == .open)
        #expect(breaker(refused: 20, answered: 20).state(nowMs: 0) == .closed)
        #expect(breaker(refused: 5000, answered: 5001).state(nowMs: 0) == .closed)
    }

    @Test func forgetsAfterAMinute() {
        let breaker = breaker(refused: 30, answered: 1, atMs: 500)
        #expect(breaker.state(nowMs: 59_999) == .open)
        #expect(breaker.state(nowMs: 60_000) == .closed)
    }

    @Test func countsOverTheWholeMinute() {
        var breaker = breaker(refused: 0, answered: 1)
        for second in UInt64(100)..<119 { breaker.record(.refused(1), nowMs: second * 1000) }
        #expect(breaker.state(nowMs: 119_000) == .closed)
        breaker.record(.refused(1), nowMs: 119_000)
        #expect(breaker.state(nowMs: 119_000) == .open)
        #expect(breaker.state(nowMs: 160_000) == .closed)  // the first of them have left
    }

    @Test func aSlotThatIsUsedAgainStartsFromNothing() {
        var breaker = breaker(refused: 30, answered: 1, atMs: 0)
        breaker.record(.refused(1), nowMs: 60_000)
        #expect(breaker.state(nowMs: 60_000) == .closed)
    }

    /// An hour apart: the minute's count sees none of them.
    @Test func opensAtTheThirdTokenInARowHoweverSlowly() {
        var breaker = PurgeBreaker()
        var now: UInt64 = 0
        func states(_ tokens: [Int]) -> [PurgeBreaker.State] {
            tokens.map { token in
                now += 3_600_000
                breaker.record(.refused(token), nowMs: now)
                return breaker.state(nowMs: now)
            }
        }
        // Before anything was taken no token is known to be bad.
        #expect(states([1, 2, 3, 4]) == [.unproven, .unproven, .open, .open])
        breaker.record(.taken, nowMs: now)
        #expect(states([1, 2, 3, 4]) == [.closed, .closed, .open, .open])
        // Only a push that is taken closes it: a token that is gone was good once, perhaps under other settings.
        breaker.record(.gone, nowMs: now)
        #expect(breaker.state(nowMs: now) == .open)
        breaker.record(.taken, nowMs: now)
        // One token, in however many rooms, is one.
        #expect(states([5, 5, 5, 5, 6, 5]) == Array(repeating: .closed, count: 6))
        #expect(states([7]) == [.open])
    }
}

@Suite struct ProviderTokenTests {
    static let now: UInt64 = 1_700_000_000_000

    static func make(_ key: ES256.PrivateKey = Stage.key, stored: UInt64? = nil) throws -> ProviderToken {
        try ProviderToken(keyID: "ABCDE12345", teamID: "TEAM123456", key: key, issuedAtS: stored)
    }

    @Test func isWhatAppleWants() throws {
        var token = try Self.make()
        let issued = try token.current(nowMs: Self.now + 999, monotonicMs: 0)
        // A minute back: Apple refuses a token from its future.
        #expect(issued.issuedAtS == 1_699_999_940)
        let parts = issued.token.split(separator: ".").map(String.init)
        try #require(parts.count == 3)
        #expect(parts[0] == "eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQ0RFMTIzNDUifQ")  // {"alg":"ES256","kid":"ABCDE12345"}
        #expect(parts[1] == "eyJpc3MiOiJURUFNMTIzNDU2IiwiaWF0IjoxNjk5OTk5OTQwfQ")  // {"iss":"TEAM123456","iat":1699999940}
        #expect(parts[2].utf8.count == 86)  // 64 bytes: raw, not DER
    }

    @Test func isKeptUntilItIsDatedFiftyMinutesBack() throws {
        var token = try Self.make()
        let first = try token.current(nowMs: Self.now, monotonicMs: 0)
        #expect(try token.current(nowMs: Self.now + 49 * 60_000 - 1, monotonicMs: 0) == first)
        let second = try token.current(nowMs: Self.now + 49 * 60_000, monotonicMs: 0)
        #expect(second.issuedAtS == first.issuedAtS + 49 * 60)
    }

    @Test func aClockThatWentBackMakesAnother() throws {
        var token = try Self.make()
        _ = try token.current(nowMs: Self.now, monotonicMs: 0)
        let again = try token.current(nowMs: Self.now - 120_000, monotonicMs: 0)
        #expect(again.issuedAtS == 1_699_999_820)
        // Apple has accepted this one: the clock is wrong only now.
        token.noteAdmission(of: again, monotonicMs: 0)
        #expect(try token.current(nowMs: Self.now - 3_600_000, monotonicMs: 0) == again)
    }

    @Test func aStoredOneIsUsedWhileItLasts() throws {
        var first = try Self.make()
        let stored = try first.current(nowMs: Self.now, monotonicMs: 0)
        var second = try Self.make(stored: stored.issuedAtS)
        let again = try second.current(nowMs: Self.now + 48 * 60_000, monotonicMs: 0)
        // The same claims under another signature.
        #expect(again.issuedAtS == stored.issuedAtS)
        #expect(again.token.split(separator: ".").dropLast() == stored.token.split(separator: ".").dropLast())
        #expect(try second.current(nowMs: Self.now + 50 * 60_000, monotonicMs: 0).issuedAtS == stored.issuedAtS + 50 * 60)
    }

    @Test func aStoredBirthThatCanNotBeIsIgnored() throws {
        // From the future by a clock that was wrong, or long ago.
        for stored: UInt64 in [1_700_000_002, 1_700_000_001 - 3_000, 0, .max] {
            var token = try Self.make(stored: stored)
            #expect(try token.current(nowMs: Self.now + 1000, monotonicMs: 0).issuedAtS == 1_699_999_941)
        }
    }

    @Test func refusalsRenewATokenAtMostOnceAMinute() throws {
        var token = try Self.make()
        let first = try token.current(nowMs: Self.now, monotonicMs: 0)
        #expect(try token.renew(after: first, isExpired: false, laneAdmittedAtMs: nil, nowMs: Self.now, monotonicMs: 5))
        let second = try token.current(nowMs: Self.now, monotonicMs: 0)
        // From Apple's future: further back, and still good for the 20 minutes that Apple demands.
        #expect(second.issuedAtS == 1_700_000_000 - 30 * 60)
        #expect(token.isDatedFurtherBack)
        #expect(try token.current(nowMs: Self.now + 20 * 60_000 - 1, monotonicMs: 0) == second)
        // The others of the same wave find it done.
        #expect(try token.renew(after: first, isExpired: false, laneAdmittedAtMs: nil, nowMs: Self.now, monotonicMs: 6))
        #expect(
            try !token.renew(
                after: second, isExpired: true, laneAdmittedAtMs: nil, nowMs: Self.now + 900_000, monotonicMs: 60_004))
        #expect(try token.current(nowMs: Self.now, monotonicMs: 0) == second)
        #expect(try token.renew(after: second, isExpired: true, laneAdmittedAtMs: nil, nowMs: Self.now, monotonicMs: 60_005))
        #expect(try token.current(nowMs: Self.now, monotonicMs: 0).issuedAtS == 1_699_999_940)
        #expect(!token.isDatedFurtherBack)
    }

    @Test func anAcceptedTokenIsRenewedAfterTwentyMinutes() throws {
        var token = try Self.make()
        let first = try token.current(nowMs: Self.now, monotonicMs: 0)
        token.noteAdmission(of: first, monotonicMs: 0)
        #expect(
            try !token.renew(
                after: first, isExpired: true, laneAdmittedAtMs: nil, nowMs: Self.now + 20 * 60_000, monotonicMs: 1_199_999))
        #expect(try token.current(nowMs: Self.now, monotonicMs: 0) == first)
        #expect(
            try token.renew(
                after: first, isExpired: true, laneAdmittedAtMs: nil, nowMs: Self.now + 20 * 60_000, monotonicMs: 1_200_000))
        #expect(try token.current(nowMs: Self.now + 20 * 60_000, monotonicMs: 1_200_000) != first)
    }

    /// Its date makes it look old. Another lane of the key is refused whatever the token.
    @Test func anAcceptedTokenThatIsDatedFurtherBackIsYoung() throws {
        var token = try Self.make()
        func renew(_ refused: Authorization, _ ms: UInt64) throws -> Bool {
            try token.renew(
                after: refused, isExpired: false, laneAdmittedAtMs: nil, nowMs: Self.now + ms, monotonicMs: ms)
        }
        let first = try token.current(nowMs: Self.now, monotonicMs: 0)
        #expect(try renew(first, 0))
        let second = try token.current(nowMs: Self.now, monotonicMs: 0)
        token.noteAdmission(of: second, monotonicMs: 1_000)
        for ms: UInt64 in [2_000, 60_000, 600_000, 1_199_000] { #expect(try !renew(second, ms)) }
        #expect(try token.current(nowMs: Self.now + 1_199_000, monotonicMs: 1_199_000) == second)
    }

    /// It is refused first after each issue, before Apple accepts the new token elsewhere.
    @Test func aLaneThatIsAlwaysRefusedCausesOneTokenInTwentyMinutes() throws {
        var token = try Self.make()
        func renew(lane admittedAtMs: UInt64?, _ ms: UInt64) throws -> Bool {
            let refused = try token.current(nowMs: Self.now + ms, monotonicMs: ms)
            return try token.renew(
                after: refused, isExpired: false, laneAdmittedAtMs: admittedAtMs, nowMs: Self.now + ms, monotonicMs: ms)
        }
        token.noteAdmission(of: try token.current(nowMs: Self.now, monotonicMs: 0), monotonicMs: 2_900_000)
        #expect(try token.current(nowMs: Self.now + 2_940_000, monotonicMs: 2_940_000).issuedAtS == 1_700_002_880)
        #expect(try renew(lane: nil, 2_940_000))
        for ms: UInt64 in [3_000_000, 3_060_000, 4_000_000] { #expect(try !renew(lane: nil, ms)) }
        // A lane whose own tokens were accepted until now doesn't wait.
        #expect(try renew(lane: 2_900_000, 4_000_000))
    }

    @Test(arguments: ["", "has space", "quote\"", "a\\", "ü", String(repeating: "A", count: 33)])
    func refusesIdentifiersThatCantBe(text: String) {
        #expect(throws: CourierError.badKeyID) { _ = try ProviderToken(keyID: text, teamID: "T", key: Stage.key) }
        #expect(throws: CourierError.badTeamID) { _ = try ProviderToken(keyID: "K", teamID: text, key: Stage.key) }
    }
}

@Suite struct PushTests {
    func fault(_ change: (inout Push) -> Void) -> PushReason? {
        var push = Push.sample()
        change(&push)
        return APNsAdapter(accounts: Accounts([])).fault(of: push)
    }

    @Test func aGoodOneHasNoFault() { #expect(fault { _ in } == nil) }

    @Test func aCollapseIDIsCountedInBytes() {
        #expect(fault { $0.collapseID = String(repeating: "a", count: 64) } == nil)
        #expect(fault { $0.collapseID = String(repeating: "a", count: 65) } == .badCollapseID)
        #expect(fault { $0.collapseID = String(repeating: "é", count: 32) } == nil)
        #expect(fault { $0.collapseID = String(repeating: "é", count: 33) } == .badCollapseID)
        #expect(fault { $0.collapseID = "" } == .badCollapseID)
        #expect(fault { $0.collapseID = "a\r\nb" } == .badCollapseID)
    }

    @Test func payloadsHaveTheirKindsLimit() {
        #expect(fault { $0.payload = [] } == .payloadEmpty)
        #expect(fault { $0.payload = [UInt8](repeating: 1, count: 4096) } == nil)
        #expect(fault { $0.payload = [UInt8](repeating: 1, count: 4097) } == .payloadTooLarge)
        #expect(fault { ($0.type, $0.payload) = (.voip, [UInt8](repeating: 1, count: 5120)) } == nil)
        #expect(fault { ($0.type, $0.payload) = (.voip, [UInt8](repeating: 1, count: 5121)) } == .payloadTooLarge)
    }

    @Test func identifiersAreCanonical() {
        for id in [
            "", "x", "00000000-0000-4000-8000-00000000000G", "00000000-0000-4000-8000-00000000000A",
            "000000000000-4000-8000-000000000000-0",
        ] {
            #expect(fault { $0.apnsID = id } == .badMessageID)
        }
        #expect(fault { $0.priority = 7 } == .badPriority)
    }

    @Test func aTokenHasOneToAHundredBytes() throws {
        #expect(fault { $0.setToken([UInt8](repeating: 1, count: 100)) } == nil)
        #expect(fault { $0.setToken([UInt8](repeating: 1, count: 101)) } == .badDeviceToken)
    }

    /// Printed, dumped, or in any error: never a token, never a JWT.
    @Test func nothingPrintsASecret() throws {
        let push = Push.sample()
        var dumped = ""
        dump(push, to: &dumped)
        var token = try ProviderTokenTests.make()
        let issued = try token.current(nowMs: ProviderTokenTests.now, monotonicMs: 0)
        dump(issued, to: &dumped)
        dump(token, to: &dumped)
        let attempt = Attempt(startedAt: 0, startedAtWallMs: 0, authorization: issued)
        for text in [dumped, "\(push)", String(reflecting: push), "\(issued)", String(reflecting: attempt), "\(token)"] {
            #expect(!text.contains("deadbeef"))
            #expect(!text.contains("222, 173, 190, 239"))
            #expect(!text.contains("eyJ"))
        }
        var headers = RequestHeaders(.sandbox)
        headers.with(push, topic: "example.app", issued) { #expect(!"\($0)".contains("deadbeef")) }
    }
}

@Suite struct RequestHeadersTests {
    /// As Apple advises: secrets and what never repeats stay out of HPACK's tables, but for the first value, which brings the name there.
    @Test func fieldsAreIndexedAsAppleAdvises() throws {
        var token = try ProviderTokenTests.make()
        let issued = try token.current(nowMs: ProviderTokenTests.now, monotonicMs: 0)
        var headers = RequestHeaders(.sandbox)
        var rounds: [[String: HTTP2Headers.Indexing]] = []
        for _ in 1...3 {
            let fields = headers.with(Push.sample(), topic: "example.app", issued) { block in
                (0..<block.count).map { (block[$0].name, block.fields[$0].indexing) }
            }
            rounds.append(Dictionary(uniqueKeysWithValues: fields))
        }
        for (index, round) in rounds.enumerated() {
            #expect(round[":path"] == .never && round["authorization"] == .never)
            for name in ["apns-topic", "apns-push-type", "apns-priority", ":method", ":scheme", ":authority"] {
                #expect(round[name] == .incremental, "\(name)")
            }
            for name in ["apns-id", "apns-expiration", "apns-collapse-id"] {
                #expect(round[name] == (index == 0 ? .incremental : .never), "\(name)")
            }
        }
    }

    @Test(arguments: [1, 2, 32, 100])
    func aTokenOfAnyLengthIsItsHexadecimalDigits(count: Int) throws {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 37 &+ 5) }
        var push = Push.sample()
        push.setToken(bytes)
        var headers = RequestHeaders(.sandbox)
        let digits = bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        for _ in 1...2 { headers.with(push, topic: "example.app", nil) { #expect($0[":path"] == "/3/device/" + digits) } }
    }

    /// What stays in the block from one push to the next is never the other push's.
    @Test func eachPushHasItsOwnFields() throws {
        var token = try ProviderTokenTests.make()
        let issued = try token.current(nowMs: ProviderTokenTests.now, monotonicMs: 0)
        let first = Push.sample()
        var other = first
        (other.type, other.priority, other.apnsID) = (.background, 5, "other")
        (other.expirationS, other.collapseID) = (nil, nil)
        other.setToken([0xab])
        var kept = RequestHeaders(.sandbox)
        for (push, issued) in [(first, issued), (other, issued), (other, nil), (first, nil), (first, issued), (first, issued)] {
            let topic = push.type == .alert ? "example.app" : "org.example.other"
            var fresh = RequestHeaders(.sandbox)
            let wanted = fresh.with(push, topic: topic, issued) { block in (0..<block.count).map { "\(block[$0])" } }
            let found = kept.with(push, topic: topic, issued) { block in (0..<block.count).map { "\(block[$0])" } }
            #expect(found == wanted)
            #expect(found.count == 7 + (issued == nil ? 0 : 1) + (push.expirationS == nil ? 1 : 3))
            #expect(found[3].hasPrefix(#"(name: ":path""#) && found[4].contains(issued == nil ? "apns-topic" : "authorization"))
        }
    }

    /// RFC 9113, 8.3.1: the port stands there unless it is https's own.
    @Test(
        arguments: [
            ("api.push.apple.com", 443, "api.push.apple.com"), ("api.push.apple.com", 2197, "api.push.apple.com:2197"),
            ("127.0.0.1", 8789, "127.0.0.1:8789"), ("::1", 443, "[::1]"), ("::1", 2197, "[::1]:2197"),
        ] as [(String, UInt16, String)])
    func theAuthorityNamesAPortThatIsNotHTTPSs(host: String, port: UInt16, authority: String) {
        var headers = RequestHeaders(Endpoint(host: host, port: port))
        headers.with(Push.sample(), topic: "example.app", nil) { #expect($0[":authority"] == authority) }
    }

    @Test func aCertificateNeedsNoAuthorization() {
        var headers = RequestHeaders(.sandbox)
        headers.with(Push.sample(), topic: "example.app", nil) { #expect($0["authorization"] == nil) }
    }
}
