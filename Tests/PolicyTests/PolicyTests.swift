import Sodium
import Testing
import Vocabulary

@testable import Policy

@Suite struct PolicyTests {
    // Promise: built-in-policies-pass
    @Test func builtInPoliciesPass() throws {
        for name in Policy.builtInNames {
            let bytes = try #require(Policy.builtInBytes(name))
            #expect(Policy.lint(bytes).isEmpty)
            #expect(try Policy.builtIn(name)?.name == name)
        }
        #expect(try Policy.builtIn("nothing") == nil)
    }

    /// Any operator can use them for any app.
    // Promise: built-in-texts-name-no-product
    @Test(arguments: Policy.builtInNames) func builtInTextsNameNoProduct(_ name: String) throws {
        let policy = try builtIn(name)
        for template in policy.templates.values {
            for text in template.texts.map(\.text) + [template.web?.title ?? ""] {
                for product in ["claude", "anthropic", "cometchat", "bambu", "apple", "iphone", "mayfly"] {
                    #expect(!text.lowercased().contains(product), "\(name): \(text)")
                }
            }
        }
    }

    // Promise: until-ends-the-day, batch-timing-in-the-policy
    @Test func timingOfTheLog() throws {
        let day: UInt64 = 86_400_000
        let standard = try builtIn("rooms").ledger
        #expect(
            standard == .standard && standard.hourSeconds == 3_600 && standard.daySeconds == 86_400 && standard.batchSeals == 64)
        #expect(standard.untilMs(expiryMs: day - 1) == day && standard.untilMs(expiryMs: day) == 2 * day)
        let absent = try Policy(
            rooms("  \"ledger\": { \"hourSeconds\": 3600, \"daySeconds\": 86400, \"batchSeals\": 64 },\n", ""))
        #expect(absent.ledger == .standard)
        let trial = try builtIn("trial")
        #expect(trial.ledger == LedgerTiming(hourSeconds: 10, daySeconds: 10, batchSeals: 1))
        #expect(try Policies([trial, builtIn("calls")]).ledger == trial.ledger)
        let calls = try text("calls").replacing("\"limits\"", with: "\"ledger\": {}, \"limits\"")
        #expect(Policy.lint(Array(calls.utf8)).map(\.path) == ["$.ledger"])
    }

    @Test func limitsOfRooms() throws {
        let limits = try builtIn("rooms").rooms
        #expect(limits.roomLifeSeconds == 10...604_800)
        #expect(limits.roomLifeDefaultSeconds == 86_400)
        #expect(limits.codeLifeSeconds == 10...86_400)
        #expect(limits.codeLifeDefaultSeconds == 86_400)
        #expect(limits.shortestCode == 4)
        #expect(limits.shortCodeBelow == 8)
        #expect(limits.isShort(codeOf: 7) && !limits.isShort(codeOf: 8))
        #expect(limits.pendingShortCodes == 1000)
        #expect(limits.codeKeptAfterAcceptMs == 600_000)
        #expect(limits.retryWindowMs == 120_000)
        #expect(limits.knockThrottleMs == 30_000)
        #expect(limits.tokenKnocks.count == 30 && limits.tokenKnocks.windowMs == 300_000)
        #expect(limits.presenceMs == 45_000)
        #expect(limits.presenceProbeMs == 2000)
        #expect(limits.peerGraceMs == 5000)
        #expect(limits.startGraceMs == 15_000)
        #expect(limits.jobDeadlineMs == 120_000)
        #expect(limits.ipv4Bits == 32)
        #expect(limits.ipv6Bits == 56)
        #expect(limits.wrongCodes.perAddress.count == 100)
        #expect(limits.wrongCodes.perAddress.windowMs == 600_000)
        #expect(limits.wrongCodes.overall.count == 600)
        #expect(limits.longestLifeSeconds == 604_800)
        #expect(limits.codeLifeSeconds(asked: nil, roomSeconds: 604_800) == 86_400)
        #expect(limits.codeLifeSeconds(asked: nil, roomSeconds: 60) == 60)
        #expect(limits.codeLifeSeconds(asked: 30, roomSeconds: 60) == 30)
    }

    @Test(arguments: [("10", "604800", 86_400), ("10", "3600", 3_600), ("100000", "604800", 100_000)])
    func roomsLiveADayByDefault(_ min: String, _ max: String, _ life: Int) throws {
        let policy = try Policy(
            rooms("\"min\": 10, \"max\": 604800, \"default\": 86400", "\"min\": \(min), \"max\": \(max)"))
        #expect(try policy.rooms.roomLifeDefaultSeconds == life)
    }

    @Test func limitsOfCompanion() throws {
        let policy = try builtIn("companion")
        #expect(policy.kind == .companion)
        guard case .audience(let limits) = policy.limits else { return #expect(Bool(false), "no limits of an audience") }
        #expect(limits.deviceLifeMs == 30 * 86_400_000)
        #expect(limits.activities == ActivityLimits(lifeMs: 12 * 3_600_000, perOwner: 100, updateMs: 15_000))
        #expect(limits.approvals == ApprovalLimits(answerableMs: 60_000, answerKeptMs: 600_000))
        #expect(limits.sessionLifeMs == 86_400_000)
        #expect(limits.registrationsPerOwner == 100)
        #expect(limits.eventsPerUser == Budget(count: 600, windowMs: 60_000))
        #expect(limits.jobDeadlineMs == 120_000)
        #expect(policy.limits.longestLifeSeconds == 2_592_000)
    }

    @Test func kindsAreRead() throws {
        #expect(try Policy(rooms("\"name\"", "\"kind\": \"rooms\", \"name\"")).kind == .rooms)
        #expect(try builtIn("rooms").kind == .rooms)
        for kind in ["companion", "monitor", "calls"] { #expect(try builtIn(kind).kind.rawValue == kind) }
    }

    /// A policy has no limits for features that its kind of app lacks.
    @Test func limitsOfMonitorAndCalls() throws {
        for kind in [Policy.Kind.monitor, .calls] {
            let limits = try #require(try Policies([builtIn("rooms"), builtIn(kind.rawValue)]).audience(kind)?.limits)
            #expect(limits.activities == nil && limits.approvals == nil)
            #expect(limits.deviceLifeMs == 30 * 86_400_000 && limits.registrationsPerOwner == 100)
            // Minus the step of a slot, so that a call rings once within a day.
            #expect(limits.sessionLifeMs - 43_200_000 >= 86_400_000)
        }
    }

    @Test func tokenKnocksHaveADefault() throws {
        let limits = try Policy(rooms("\"tokenKnocks\": { \"count\": 30, \"seconds\": 300 },", "")).rooms
        #expect(limits.tokenKnocks.count == 30 && limits.tokenKnocks.windowMs == 300_000)
    }

    @Test func presenceProbesHaveADefault() throws {
        #expect(try Policy(rooms("\"presenceProbeSeconds\": 2,", "")).rooms.presenceProbeMs == 2000)
        #expect(try Policy(rooms("\"presenceProbeSeconds\": 2", "\"presenceProbeSeconds\": 5")).rooms.presenceProbeMs == 5000)
    }

    /// With one more space it is another policy.
    @Test func theDigestIsOfTheExactBytes() throws {
        let bytes = try #require(Policy.builtInBytes("rooms"))
        let policy = try Policy(bytes)
        #expect(policy.bytes == bytes)
        #expect(policy.digest == .sha256(bytes.span))
        #expect(try Policy(bytes + [0x20]).digest != policy.digest)
    }

    @Test func theSummaryIsComplete() throws {
        let policy = try #require(try Policy.builtIn("rooms"))
        let summary = policy.summary()
        for text in [
            policy.digest.hex, "10 to 604,800 s", "at most 1,000 (short: fewer than 8 characters)",
            "100 per 600 s an address, 600 per 600 s in all", "knocks at one token, by all rooms 30 per 300 s",
            "1,000 per 600 s in all", "(158,400 guesses)", "(1,584,000,000 guesses)",
            "template peer_waiting", "\"Your chat partner is waiting\"", "120 s, never past the token's expiry",
            "\"roomId\":\"<handle>\"", "4 digits", "8 alphanumerics",
            "browsers show                     \"Your chat partner is waiting\", a click opens /",
        ] {
            #expect(summary.contains(text), "summary lacks: \(text)")
        }
    }

    @Test func theSummaryOfAnAudienceIsComplete() throws {
        let summary = try builtIn("companion").summary()
        for text in [
            "kind companion", "at most 2,592,000 s", "at most 43,200 s", "between updates of an activity    15 s", "600 per 60 s",
            "\"expiresAt\":\"<time + 60 s>\"", "\"stale-date\":<time + 300 s>,\"timestamp\":<time>", "\"badge\":1",
        ] {
            #expect(summary.contains(text), "summary lacks: \(text)")
        }
        #expect(!summary.contains("join code"))
    }
}

@Suite struct GuessingTests {
    @Test func guessingProbabilities() throws {
        let guessing = Guessing(try builtIn("rooms").rooms)
        // Each of a day's 144 windows allows 100 wrong codes per address, 600 in total, and 1,000 rooms with short codes.
        #expect(guessing.guessesPerDay(.oneAddress, characters: 7) == 14_400 + 144_000)
        #expect(guessing.guessesPerDay(.everyAddress, characters: 7) == 86_400 + 144_000)
        // Longer codes: the budget of an address times the number of addresses, and all rooms that can be made.
        #expect(guessing.guessesPerDay(.oneAddress, characters: 8) == 14_400 + 1_440_000)
        #expect(guessing.guessesPerDay(.everyAddress, characters: 8) == 1_440_000_000 + 144_000_000)
        func chance(_ characters: Int, _ rooms: Int, _ guesser: Guessing.Guesser, _ alphabet: Guessing.Alphabet = .digits)
            -> Double
        {
            guessing.hitsWithinDay(alphabet, characters: characters, rooms: rooms, guesser: guesser)
        }
        // 1 - (1 - 1e-6)^158400 and similar, computed by other means.
        #expect(abs(chance(6, 1, .oneAddress) - 0.1464917572) < 1e-9)
        #expect(abs(chance(6, 1, .everyAddress) - 0.2057842388) < 1e-9)
        #expect(abs(chance(8, 1, .oneAddress) - 0.0144387469) < 1e-9)
        #expect(chance(6, 1000, .oneAddress) > 1 - 1e-9)
        #expect(chance(4, 10_000, .oneAddress) == 1)
        #expect(chance(4, 20_000, .oneAddress) == 1)
        // Small probabilities are exact, unlike with 1 - x.
        #expect(abs(chance(8, 1, .oneAddress, .alphanumerics) / (1_454_400 / 2_821_109_907_456) - 1) < 1e-6)
    }
}
