import Testing
import Vocabulary

@testable import Courier

@Suite struct AnswerTests {
    func step(
        _ status: Int, _ body: String = "", retryAfter: String? = nil, sealed: UInt64 = 1000, sent: UInt64 = 2000,
        breaker: PurgeBreaker.State = .closed, history: History = History(), nowMs: UInt64 = 0
    ) -> Step {
        var history = history
        return Answer(status: status, body: Array(body.utf8), retryAfter: retryAfter, nowMs: nowMs).step(
            &history, sealedAtMs: sealed, sentAtMs: sent, breaker: breaker)
    }

    /// The whole table, by the statuses Apple uses.
    static let table: [(Int, PushReason, Reaction)] = [
        (400, .badCollapseID, .drop), (400, .badDeviceToken, .purge), (400, .badExpirationDate, .drop),
        (400, .badMessageID, .drop), (400, .badPriority, .drop), (400, .badTopic, .configuration),
        (400, .deviceTokenNotForTopic, .purge), (400, .duplicateHeaders, .drop), (400, .idleTimeout, .reconnect),
        (400, .invalidPushType, .drop), (400, .missingDeviceToken, .drop), (400, .missingTopic, .configuration),
        (400, .payloadEmpty, .drop), (400, .topicDisallowed, .configuration), (403, .badCertificate, .configuration),
        (403, .badCertificateEnvironment, .configuration), (403, .expiredProviderToken, .renewProviderToken),
        (403, .forbidden, .configuration), (403, .invalidProviderToken, .renewProviderToken),
        (403, .missingProviderToken, .configuration), (403, .unrelatedKeyIDInToken, .reconnectOnce),
        (403, .badEnvironmentKeyIDInToken, .configuration), (403, .badEnvironmentKeyInToken, .configuration),
        (404, .badPath, .drop), (405, .methodNotAllowed, .drop), (410, .expiredToken, .purgeIfOlder),
        (410, .unregistered, .purgeIfOlder), (413, .payloadTooLarge, .drop), (429, .tooManyProviderTokenUpdates, .reconnect),
        (429, .tooManyRequests, .holdToken), (500, .internalServerError, .retry), (503, .serviceUnavailable, .retry),
        (503, .shutdown, .reconnect),
    ]

    @Test func everyReasonOfApplesHasItsReaction() {
        for (status, reason, reaction) in Self.table {
            let answer = Answer(status: status, body: Array(#"{"reason":"\#(reason.rawValue)"}"#.utf8))
            #expect(answer.reason == reason)
            #expect(answer.reaction == reaction, "\(reason.rawValue)")
        }
        let own: Set<PushReason> = [.unreachable, .unknown, .late, .stopped, .revoked, .notConfigured, .other, .unsent]
        #expect(Set(Self.table.map(\.1)).union(own) == Set(PushReason.allCases))
    }

    /// Apple: never retry these.
    @Test func aFinalErrorEndsThePush() {
        for reason: PushReason in [
            .badDeviceToken, .deviceTokenNotForTopic, .forbidden, .expiredToken, .unregistered, .payloadTooLarge,
        ] {
            let (status, _, _) = Self.table.first { $0.1 == reason }!
            guard case .finish = step(status, #"{"reason":"\#(reason.rawValue)"}"#) else {
                Issue.record("\(reason) is tried again")
                continue
            }
        }
    }

    // Promise: purge-only-about-that-token
    @Test func configurationFaultsNeverPurge() {
        for (status, reason, reaction) in Self.table where reaction == .configuration {
            let step = step(status, #"{"reason":"\#(reason.rawValue)"}"#)
            #expect(step == .finish(.failed(status: status, reason: reason, verdict: .configuration)))
        }
    }

    // Promise: purge-breaker
    @Test func theBreakerTurnsPurgesIntoAnAlarm() {
        for reason: PushReason in [.badDeviceToken, .deviceTokenNotForTopic] {
            let body = #"{"reason":"\#(reason.rawValue)"}"#
            #expect(step(400, body) == .finish(.failed(status: 400, reason: reason, verdict: .purge(ifSealedBefore: nil))))
            #expect(
                step(400, body, breaker: .open) == .finish(.failed(status: 400, reason: reason, verdict: .configuration)))
            #expect(step(400, body, breaker: .unproven) == .finish(.failed(status: 400, reason: reason, verdict: .keep)))
        }
        // A 410 says for itself that the token is gone.
        #expect(
            step(410, #"{"reason":"Unregistered","timestamp":1500}"#, breaker: .open)
                == .finish(.failed(status: 410, reason: .unregistered, verdict: .purge(ifSealedBefore: 1500))))
    }

    // Promise: gone-before-it-was-sealed
    @Test(arguments: ["Unregistered", "ExpiredToken"])
    func a410ConcernsWhatWasSealedByItsMillisecond(name: String) {
        let reason = PushReason(rawValue: name)!
        func verdict(_ sealed: UInt64, _ timestamp: String) -> Verdict? {
            guard
                case .finish(.failed(410, reason, let verdict)) = step(
                    410, #"{"reason":"\#(name)"\#(timestamp)}"#, sealed: sealed, sent: 1_700_000_000_000)
            else { return nil }
            return verdict
        }
        let timestamp = #","timestamp":1650000000123"#
        #expect(verdict(1_650_000_000_123, timestamp) == .purge(ifSealedBefore: 1_650_000_000_123))
        #expect(verdict(1_650_000_000_124, timestamp) == .keep)
        // In seconds it would lie in 1970: everything was sealed later, nothing is lost.
        #expect(verdict(1_650_000_000_123, #","timestamp":1650000000"#) == .keep)
        // None: the moment of the attempt.
        #expect(verdict(1_700_000_000_000, "") == .purge(ifSealedBefore: 1_700_000_000_000))
        #expect(verdict(1_700_000_000_001, "") == .keep)
        // As far ahead as clocks may be apart.
        #expect(verdict(1, #","timestamp":1700003600000"#) == .purge(ifSealedBefore: 1_700_003_600_000))
    }

    @Test(arguments: [
        "null", "-5", "-1650000000123", "1.5e12", "1650000000123.0", "\"1650000000123\"", "\"\"", "true", "[1650000000123]", "{}",
        "1700003600001", "18446744073709551615", "18446744073709551616", "99999999999999999999999", "0x18", "1650000000123 1",
        "1650000000123,\"timestamp\":1650000000123", "1650000000123,\"timestamp\":null", "null,\"timestamp\":1650000000123", "0",
    ])
    func a410WhoseTimestampCantBeMeantKeepsTheToken(timestamp: String) {
        for name in ["Unregistered", "ExpiredToken", "BrandNew"] {
            let step = step(
                410, #"{"reason":"\#(name)","timestamp":\#(timestamp)}"#, sealed: 1_600_000_000_000, sent: 1_700_000_000_000)
            guard case .finish(.failed(410, _, let verdict)) = step else {
                Issue.record("not the end: \(step)")
                continue
            }
            #expect(verdict == .keep, "\(name)")
        }
    }

    /// What is missing may be the timestamp by which the token lives.
    @Test func a410ThatBreaksOffKeepsTheToken() {
        let kept = Step.finish(.failed(status: 410, reason: .other, verdict: .keep))
        for name in ["Unregistered", "ExpiredToken", "BrandNew"] {
            let body = #"{"reason":"\#(name)","timestamp":1650000000123}"#
            for count in 1..<body.utf8.count {
                let step = step(410, String(body.prefix(count)), sealed: 1_600_000_000_000, sent: 1_700_000_000_000)
                #expect(step == kept, "\(name), \(count)")
            }
        }
        for body in ["no JSON", "null", "[]", " ", "<html>410 Gone</html>"] { #expect(step(410, body) == kept, "\(body)") }
        // Whole, or nothing at all: then the status says it.
        for body in ["", "{}", #"{"reason":"BrandNew"}"#] {
            #expect(step(410, body) == .finish(.failed(status: 410, reason: .other, verdict: .purge(ifSealedBefore: 2000))))
        }
    }

    /// By its status, whatever else it says: only Apple's own pairs purge or renew.
    @Test(arguments: [200, 301, 400, 403, 404, 405, 410, 413, 429, 500, 502, 503])
    func aReasonCountsOnlyWithItsStatus(status: Int) {
        for (own, reason, _) in Self.table where own != status {
            let answer = Answer(status: status, body: Array(#"{"reason":"\#(reason.rawValue)"}"#.utf8))
            #expect(answer.reason == .other, "\(reason.rawValue)")
            #expect(answer.reaction == Answer(status: status, body: []).reaction, "\(reason.rawValue)")
            #expect(answer.reaction != .purge)
        }
    }

    @Test func unknownReasonsGoByTheirStatus() {
        #expect(step(400, #"{"reason":"BrandNew"}"#) == .finish(.failed(status: 400, reason: .other, verdict: .keep)))
        #expect(step(403, #"{"reason":"BrandNew"}"#) == .finish(.failed(status: 403, reason: .other, verdict: .configuration)))
        #expect(step(410) == .finish(.failed(status: 410, reason: .other, verdict: .purge(ifSealedBefore: 2000))))
        #expect(step(429, "x") == .retry(Retry(holdsToken: true)))
        #expect(step(502, "<html>") == .retry(Retry()))
        #expect(step(404) == .finish(.failed(status: 404, reason: .other, verdict: .keep)))
    }

    @Test func anAnswerCantClaimTheCouriersOwnReasons() {
        for reason in ["unreachable", "unknown", "late", "stopped", "revoked", "other"] {
            #expect(Answer(status: 400, body: Array(#"{"reason":"\#(reason)"}"#.utf8)).reason == .other)
        }
    }

    @Test func a200NeedsNoBody() {
        #expect(step(200) == .finish(.delivered))
        #expect(step(200, #"{"reason":"BadDeviceToken"}"#) == .finish(.delivered))
    }

    @Test func aRefusedProviderTokenEndsNoPush() {
        for reason in ["ExpiredProviderToken", "InvalidProviderToken"] {
            #expect(
                step(403, #"{"reason":"\#(reason)"}"#) == .retry(Retry(replacesConnection: true, renewsAuthorization: true)))
        }
    }

    @Test func aSingleRetryHappensOnce() {
        let unrelated = #"{"reason":"UnrelatedKeyIdInToken"}"#
        #expect(step(403, unrelated) == .retry(Retry(waits: false, replacesConnection: true)))
        #expect(
            step(403, unrelated, history: History(reconnected: true))
                == .finish(.failed(status: 403, reason: .unrelatedKeyIDInToken, verdict: .configuration)))
        let idle = #"{"reason":"IdleTimeout"}"#
        #expect(step(400, idle) == .retry(Retry(waits: false, replacesConnection: true)))
        #expect(step(400, idle, history: History(reconnected: true)) == .retry(Retry(replacesConnection: true)))
    }

    @Test func retryAfterIsInSeconds() {
        #expect(step(503, retryAfter: "7") == .retry(Retry(leastMs: 7000)))
        #expect(step(429, retryAfter: "2") == .retry(Retry(leastMs: 2000, holdsToken: true)))
        // Too long for a number is long.
        #expect(step(503, retryAfter: "99999999999999999999") == .retry(Retry(leastMs: .max)))
        for nonsense in ["-1", "+1", "1.5", "Fri, 31 Nov 2026 10:00:00 GMT", "99999999999x", ""] {
            #expect(step(503, retryAfter: nonsense) == .retry(Retry()))
        }
    }

    @Test(arguments: ["Fri, 20 Nov 2026 10:00:00 GMT", "Friday, 20-Nov-26 10:00:00 GMT", "Fri Nov 20 10:00:00 2026"])
    func retryAfterMayBeADate(retryAfter: String) {
        let dateMs: UInt64 = 1_795_168_800_000
        #expect(step(503, retryAfter: retryAfter, nowMs: dateMs - 7_001) == .retry(Retry(leastMs: 7_001)))
        #expect(step(503, retryAfter: retryAfter, nowMs: dateMs + 7_001) == .retry(Retry()))
    }

    @Test(
        arguments: [
            (#"{"reason":"a"}"#, "a", .absent), (#" { "timestamp" : 12 , "reason" : "b" } "#, "b", .at(12)),
            (#"{"x":{"reason":"inner"},"y":["reason",{"z":"}"}],"reason":"c"}"#, "c", .absent),
            (#"{"note":"\"reason\":\"d\"","reason":"e"}"#, "e", .absent), (#"{"reason":null,"timestamp":3}"#, nil, .at(3)),
            (#"{}"#, nil, .absent), ("", nil, .absent), (#"{"reason":"f""#, nil, .unreadable), ("[]", nil, .unreadable),
            (#"{"timestamp":9223372036854775807}"#, nil, .at(1 << 63 - 1)),
            (#"{"timestamp":9223372036854775808}"#, nil, .unreadable),
            (#"{"reason":"f","x":"\ud83d","y":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}"#, "f", .absent),
            (#"{"reason":"a","reason":"b"}"#, nil, .absent),
        ] as [(String, String?, AnswerBody.Timestamp)])
    func bodiesAreReadLoosely(body: String, reason: String?, timestamp: AnswerBody.Timestamp) {
        let read = AnswerBody(Array(body.utf8))
        #expect(read.reason == reason)
        #expect(read.timestamp == timestamp)
    }

    @Test func invalidBodiesHaveNoReason() {
        let good = Array(#"{"reason":"BadTopic","a":[1,{"b":"\\"}],"timestamp":5}"#.utf8)
        for count in 0..<good.count { #expect(AnswerBody(Array(good.prefix(count))).reason == nil) }
        for index in good.indices {
            for byte: UInt8 in [0, 0x22, 0x5c, 0x7b, 0x7d, 0xff] {
                var bad = good
                bad[index] = byte
                _ = AnswerBody(bad)
            }
        }
    }
}
