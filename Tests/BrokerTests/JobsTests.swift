import Ledger
import Linux
import Policy
import Sealing
import Testing
import Vocabulary

@testable import Broker

@Suite struct TokenLifeTests {
    // Promise: short-lives-a-day
    @Test func aLifeOfMoreThanADayIsLong() {
        let sealed: UInt64 = 1_800_000_000_000
        let day: UInt64 = 24 * 3_600_000
        #expect(!TokenContext.isLong(from: sealed, to: sealed + day))
        #expect(TokenContext.isLong(from: sealed, to: sealed + day + 1))
    }
}

@Suite struct JobTimesTests {
    private static let now: UInt64 = 1_800_000_007_000

    private func times(_ ttl: Int, _ timing: String = "") throws -> JobTimes {
        let policy = try Policy.rooms(timing, ttlSeconds: ttl)
        return JobTimes(try #require(policy.templates[Rooms.template]))
    }

    /// The expiration for APNs must follow from the knock, even if the deadline was cut short.
    // Promise: job-deadline
    @Test(
        arguments: [
            // ttl in seconds, then in ms: from the knock to the token's end, the deadline and the worth from the knock.
            (120, 600_000, 120_000, 120_000), (120, 30_000, 30_000, 30_000), (60, 600_000, 60_000, 60_000),
            (60, 90_000, 60_000, 60_000), (60, 30_000, 30_000, 30_000), (3_600, 7_200_000, 120_000, 3_600_000),
            (3_600, 300_000, 120_000, 300_000), (3_600, 60_000, 60_000, 60_000),
        ] as [(Int, UInt64, UInt64, UInt64)])
    func expiryIsCountedFromTheKnock(_ ttl: Int, _ left: UInt64, _ tried: UInt64, _ worth: UInt64) throws {
        let times = try times(ttl)
        let end = Self.now + left
        let plan = try #require(times.plan(now: Self.now, delayedUntil: 0, tokenExpires: end))
        #expect(plan == JobTimes.Plan(notBefore: 0, deadline: Self.now + tried, knocked: Self.now))
        let counted = times.countedFrom(deadline: plan.deadline, tokenExpires: end)
        #expect(min(counted + UInt64(ttl) * 1_000, end) == Self.now + worth)
    }

    @Test func aSingleAttemptHasTheWholeDeadline() throws {
        #expect(try times(0).plan(now: Self.now, delayedUntil: 0, tokenExpires: .max)?.deadline == Self.now + 120_000)
    }

    /// All that Apple sees must follow from the time at which the push leaves.
    @Test(arguments: [(0, 0), (120, 0), (120, 16_000), (3_600, 0)] as [(Int, UInt64)])
    func pushesThatLeaveTogetherLookAlike(_ ttl: Int, _ held: UInt64) throws {
        let times = try times(ttl, #""sendSlotSeconds":20,"jitterSeconds":40,"#)
        let end = Self.now + 600_000
        var seen: [UInt64: Set<[UInt64]>] = [:]
        for knock in stride(from: Self.now, to: Self.now + 20_000, by: 10) {
            let delayedUntil = held == 0 ? 0 : Self.now + held
            let plan = try #require(times.plan(now: knock, delayedUntil: delayedUntil, tokenExpires: end))
            let from = max(knock, delayedUntil)
            #expect(plan.notBefore > from && plan.notBefore < from + 60_000)
            #expect(plan.deadline <= knock + 120_000, "two minutes from the knock, at most")
            #expect(plan.deadline >= plan.notBefore + 20_000 + 10_000, "a slot missed, and time to send")
            let counted = times.countedFrom(deadline: plan.deadline, tokenExpires: end)
            #expect(counted <= from)
            let times = [plan.deadline, counted, plan.knocked].map { $0 + 1_000_000 - plan.notBefore }
            seen[plan.notBefore % 20_000, default: []].insert(times)
        }
        #expect(seen.values.allSatisfy { $0.count == 1 })
        #expect(Set(seen.values.map { $0.map { $0.prefix(2) } }).count == 1)
    }

    @Test func theTokensExpiryCutsOnlyTheDeadline() throws {
        let times = try times(120, #""sendSlotSeconds":20,"#)
        // The next boundary is 13 s away.
        let end = Self.now + 13_001
        let plan = try #require(times.plan(now: Self.now, delayedUntil: 0, tokenExpires: end))
        #expect(plan.notBefore == Self.now + 13_000 && plan.deadline == end)
        #expect(times.countedFrom(deadline: end, tokenExpires: end) == end)
        #expect(times.plan(now: Self.now, delayedUntil: 0, tokenExpires: end - 1) == nil)
    }

    @Test func aPushThatMayBeTooLateIsNotPlanned() throws {
        let times = try times(120, #""sendSlotSeconds":20,"jitterSeconds":40,"#)
        for _ in 0..<50 {
            #expect(times.plan(now: Self.now, delayedUntil: 0, tokenExpires: Self.now + 53_000) == nil)
            #expect(times.plan(now: Self.now, delayedUntil: 0, tokenExpires: Self.now + 53_001) != nil)
        }
    }
}

@Suite struct PushContentTests {
    private static let full = PushContent(
        template: "activity_state", stampMs: 0x0102_0304_0506_0708, collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
        fields: [
            "status": .choice("processing"), "elapsedSeconds": .number(-1), "most": .number(.max), "least": .number(.min),
            "requestId": .handle(Handle(0x1011_1213_1415_1617_1819_1a1b_1c1d_1e1f)), "on": .flag(true), "off": .flag(false),
            "": .choice(""),
        ])

    @Test func contentSurvivesEncoding() {
        #expect(PushContent(Self.full.encoded) == Self.full)
        let bare = PushContent(template: "", stampMs: 0, collapse: Handle(9 * (.max / 255)), fields: [:])
        #expect(PushContent(bare.encoded) == bare)
        let long = PushContent(
            template: String(repeating: "t", count: 255), stampMs: .max,
            collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
            fields: [String(repeating: "ä", count: 127): .choice(String(repeating: "w", count: 255))])
        #expect(PushContent(long.encoded) == long)
    }

    /// Contents are compared byte by byte with those that wait.
    @Test func encodingIsDeterministic() {
        for _ in 0..<20 {
            var again = Self.full
            again.fields = Dictionary(uniqueKeysWithValues: again.fields.shuffled())
            #expect(again.encoded == Self.full.encoded)
        }
    }

    @Test func truncatedContentIsRefused() {
        let bytes = Self.full.encoded
        for count in bytes.indices { #expect(PushContent(Array(bytes.prefix(count))) == nil, "the first \(count) bytes") }
    }

    @Test func trailingBytesAreRefused() {
        for byte: UInt8 in [0, 1, 255] { #expect(PushContent(Self.full.encoded + [byte]) == nil) }
    }

    /// Flips each bit of each length and of the count.
    @Test func wrongLengthsAreRefused() {
        let content = PushContent(
            template: "template", stampMs: 1, collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f),
            fields: ["a": .choice("word"), "b": .handle(Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f))])
        let bytes = content.encoded
        // After stamp and collapse: the lengths of the template, of the list, of `a`'s name and word, of `b`'s name.
        let lengths = [24, 33, 34, 37, 42]
        #expect(lengths.map { bytes[$0] } == [8, 2, 1, 4, 1])
        for place in lengths {
            for bit in 0..<8 {
                var flipped = bytes
                flipped[place] ^= 1 << bit
                #expect(PushContent(flipped) == nil, "bit \(bit) of byte \(place)")
            }
        }
    }

    @Test func unknownKindsOfFieldsAreRefused() {
        let bytes = PushContent(
            template: "t", stampMs: 1, collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f), fields: ["a": .flag(true)]
        ).encoded
        let place = bytes.count - 2
        #expect(bytes[place] == 4)
        for kind in UInt8.min...UInt8.max where !(1...4).contains(kind) {
            var other = bytes
            other[place] = kind
            #expect(PushContent(other) == nil, "kind \(kind)")
        }
    }

    @Test func invalidUTF8IsRefused() {
        let bytes = PushContent(
            template: "t", stampMs: 1, collapse: Handle(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f), fields: ["a": .choice("b")]
        ).encoded
        for text in [UInt8(ascii: "t"), UInt8(ascii: "a"), UInt8(ascii: "b")] {
            var broken = bytes
            broken[bytes.lastIndex(of: text)!] = 0xff
            #expect(PushContent(broken) == nil)
        }
    }

    @Test func randomBytesAreParsedSafely() {
        let chance = Chance(seed: 11)
        for _ in 0..<2_000 {
            var bytes = Self.full.encoded
            for _ in 0...chance.next() % 4 {
                bytes[Int(chance.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: chance.next())
            }
            guard let content = PushContent(bytes) else { continue }
            #expect(PushContent(content.encoded) == content)
        }
    }
}
