import Policy
import Testing
import Vocabulary

@testable import Ledger

/// Each rule of the log's format 2, broken one at a time. Times are seconds after midnight of 2026-01-01.
@Suite struct ConservationTests {
    static let start = Int(HonestBroker.start)
    static let day = 86_400
    static let policy = HonestBroker.Setting(seals: 2).policy
    static let otherTiming = HonestBroker.Setting(seals: 3).policy
    static let rules: [Digest: PublishedRules] = [
        sha256(policy): PublishedRules(policy)!, sha256(otherTiming): PublishedRules(otherTiming)!,
    ]

    static func ms(_ seconds: Int) -> UInt64 { UInt64(start + seconds) * 1_000 }
    static func at(_ seconds: Int, _ op: Entry.Op) -> Entry { Entry(atMs: ms(seconds), op) }
    static func started(_ seconds: Int, policy: [UInt8] = policy, resolution: UInt32 = 60) -> Entry {
        PublishedLog.start(ms(seconds), resolution: resolution, policy: policy)
    }
    static func seal(_ seconds: Int, _ id: UInt128, until: Int = day) -> Entry {
        at(seconds, .tokenSealed(id: EntryID(id), untilMs: ms(until)))
    }
    static func expire(_ seconds: Int, _ id: UInt128, until: Int = day) -> Entry {
        at(seconds, .tokenPurged(id: EntryID(id), cause: .expired(untilMs: ms(until))))
    }
    static func end(_ seconds: Int, _ id: UInt128) -> Entry { at(seconds, .tokenPurged(id: EntryID(id), cause: .ended)) }
    static func close(_ seconds: Int, _ until: Int, _ sealed: UInt64, _ expired: UInt64, _ ended: UInt64) -> Entry {
        at(seconds, .bucketClosed(untilMs: ms(until), sealed: sealed, expired: expired, ended: ended))
    }
    static func ratchet(_ seconds: Int) -> Entry {
        let epoch = UInt64(start + seconds) / 300
        return at(seconds, .keysRatcheted(epoch: epoch - 2, swept: epoch))
    }
    static func open(_ seconds: Int, _ job: UInt128, template: String = "peer_waiting") -> Entry {
        at(seconds, .tokenOpened(id: EntryID(job + 1_000), job: JobID(job), template: EntryText(template)!))
    }
    static func deliver(_ seconds: Int, _ job: UInt128) -> Entry { at(seconds, .pushDelivered(job: JobID(job), status: 200)) }

    /// A valid log of a day and an hour. Two tokens expire, one ends early, one lives, and there are two pushes.
    static let honest = sorted(
        [started(0), at(0, .policyLoaded(name: EntryText("rooms")!, policy: sha256(policy)))]
            + stride(from: 0, to: day + 3_600, by: 300).map(ratchet)
            + [open(120, 1), deliver(240, 1), open(3_000, 2), deliver(3_000, 2)]
            + [seal(3_600, 1), seal(3_600, 2), seal(7_200, 3), seal(7_200, 4, until: 2 * day), end(7_200, 5)]
            + [expire(day + 60, 6), expire(day + 60, 7), close(day + 60, day, 3, 2, 1)])

    static func sorted(_ entries: [Entry]) -> [Entry] {
        entries.enumerated().sorted { left, right in
            let (one, other) = (left.element, right.element)
            if one.atMs != other.atMs { return one.atMs < other.atMs }
            if one.op.rank != other.op.rank { return one.op.rank < other.op.rank }
            if one.op.sortKey != other.op.sortKey { return one.op.sortKey.lexicographicallyPrecedes(other.op.sortKey) }
            return left.offset < right.offset
        }.map(\.element)
    }

    static func judge(_ entries: [Entry], allowsGaps: Bool = false) throws(VerificationFailure) -> Report {
        var life = Conservation(allowsGaps: allowsGaps)
        for (index, entry) in entries.enumerated() { try admit(entry, UInt64(index), &life) }
        return try life.finish()
    }

    static func admit(_ entry: Entry, _ index: UInt64, _ life: inout Conservation) throws(VerificationFailure) {
        try life.checkOpen(index)
        let bytes = entry.encoded
        let fields = try! EntryFields(bytes.span)
        let policy = fields.policy.isEmpty ? nil : rules[Digest(hex: bytes.span.extracting(fields.policy))!]
        try life.place(fields, index)
        try life.apply(fields, bytes.span, policy, index)
    }

    static func verdict(_ entries: [Entry], allowsGaps: Bool = false) -> VerificationFailure? {
        do {
            _ = try judge(entries, allowsGaps: allowsGaps)
            return nil
        } catch { return error }
    }

    /// The honest log with some entries removed and others added.
    static func changed(without remove: (Entry) -> Bool = { _ in false }, with add: [Entry] = []) -> [Entry] {
        sorted(honest.filter { !remove($0) } + add)
    }

    @Test func anHonestDayPasses() throws {
        let report = try Self.judge(Self.honest)
        #expect((report.sealed, report.purged, report.live, report.bucketsClosed) == (4, 3, 1, 1))
        #expect((report.opened, report.delivered, report.pending, report.gapSeconds) == (2, 2, 0, 0))
    }

    @Test(arguments: [1, 20, 60] as [UInt64]) func honestBrokersPass(resolution: UInt64) throws {
        for seed in UInt64(1)...3 {
            let setting = HonestBroker.Setting(resolution: resolution, seals: 20, tokens: 300)
            var life = Conservation()
            let rules = PublishedRules(setting.policy)
            for (index, entry) in HonestBroker.story(seed: seed, setting).enumerated() {
                let bytes = entry.encoded
                let fields = try EntryFields(bytes.span)
                try life.place(fields, UInt64(index))
                try life.apply(fields, bytes.span, rules, UInt64(index))
            }
            #expect(try life.finish().sealed > 250)
        }
    }

    static let broken: [(VerificationFailure.Code, [Entry])] = [
        (.time, changed().map { $0.atMs == ms(7_200) ? Entry(atMs: $0.atMs + 1_000, $0.op) : $0 }),
        (.time, honest + [at(day, .keysGenerated(generation: 1))]),
        (.entry, [at(0, .keysGenerated(generation: 1))] + honest),
        (.entry, honest + [seal(day + 3_600, 9, until: 2 * day), seal(day + 3_600, 8, until: 2 * day)]),
        (.entry, honest + [open(day + 3_300, 9), open(day + 3_300, 8)]),
        (.carry, honest + [at(day + 3_300, .bucketCarried(untilMs: ms(2 * day), live: 1))]),
        (.carry, honest + [at(day + 3_300, .ledgerOpened(previous: EntryText("a")!, size: 1, root: .emptyRoot, jobs: 0))]),
        (.policyChanged, changed(with: [started(day + 3_300, policy: otherTiming)])),
        (.policyChanged, changed(with: [started(day + 3_300, resolution: 7)])),
        (.templateUnknown, changed(with: [open(300, 7, template: "chatter")])),
        (.jobTwice, changed(with: [open(180, 1)])),
        (.jobUnknown, changed(with: [deliver(300, 1)])),
        (.outcomeLate, changed(without: { $0 == deliver(240, 1) })),
        (.outcomeLate, changed(without: { $0 == deliver(240, 1) }, with: [deliver(420, 1)])),
        (.lifeTooLong, changed(with: [seal(7_200, 8, until: 9 * day)])),
        (.bucketUnknown, changed(with: [seal(7_200, 8, until: day + 3_600)])),
        (.bucketUnknown, changed(with: [close(day + 120, day, 0, 0, 0)])),
        (.bucketUnknown, changed(with: [close(day + 60, day + 60, 0, 0, 0)])),
        (.purgedEarly, changed(with: [expire(7_200, 8, until: 2 * day)])),
        // An expiry without a seal; one expiry more than the closing has; one less.
        (.unbalanced, changed(with: [expire(day + 60, 8), expire(day + 60, 9)])),
        (.unbalanced, changed(without: { $0.op.name == .bucketClosed }, with: [close(day + 60, day, 3, 3, 1)])),
        (.unbalanced, changed(without: { $0 == expire(day + 60, 6) })),
        // An early end counted for the first day instead of the second.
        (.unbalanced, changed(without: { $0 == expire(day + 60, 6) }, with: [expire(day + 60, 6, until: 2 * day)])),
        (.unbalanced, changed(without: { $0.op.name == .bucketClosed }, with: [close(day + 60, day, 3, 2, 0)])),
        (.overbooked, changed(without: { $0 == end(7_200, 5) })),
        (.overbooked, changed(with: [end(7_200, 8), end(7_200, 9), end(7_200, 10), end(7_200, 11)])),
        (.smallBatch, changed(without: { $0 == seal(3_600, 1) })),
        (.batchLate, changed(with: [seal(11_040, 8), seal(11_040, 9)])),
        (.batchLate, changed().map { $0.atMs == ms(day + 60) ? Entry(atMs: ms(day + 240), $0.op) : $0 }),
        (.midnightMissing, changed(without: { $0.atMs == ms(day + 60) })),
        (.ratchetLate, changed(without: { $0.op.name == .keysRatcheted && $0.atMs > ms(9_000) && $0.atMs < ms(10_200) })),
        (.ratchetEarly, changed(with: [at(1_500, .keysRatcheted(epoch: UInt64(start + 1_500) / 300, swept: 1))])),
        // Something was due 13 minutes after the start and is not purged at 25.
        (
            .sweptLate,
            changed(
                without: { [ratchet(1_200), ratchet(1_500)].contains($0) },
                with: [1_200, 1_500].map { at($0, .keysRatcheted(epoch: 1, swept: UInt64(start) / 300 + 3)) })
        ),
        (
            .sweptLate,
            changed(
                without: { $0.op.name == .keysRatcheted && $0.atMs > ms(1_300) },
                with: stride(from: 1_500, to: 3_000, by: 300).map {
                    at($0, .keysRatcheted(epoch: UInt64(start + $0) / 300 - 2, swept: UInt64(start) / 300 + 4))
                })
        ),
        (.sweptEarly, changed(with: [at(1_500, .keysRatcheted(epoch: 1, swept: UInt64(start) / 300 + 7))])),
        (.sweptEarly, changed(with: [at(1_560, .keysRatcheted(epoch: 1, swept: UInt64(start) / 300 + 4))])),
    ]

    // Promise: conservation
    @Test(arguments: broken.indices) func eachRuleIsChecked(number: Int) {
        let (code, entries) = Self.broken[number]
        let failure = Self.verdict(entries)
        #expect(failure?.code == code, "\(failure?.description ?? "good")")
        #expect(failure?.index ?? 0 < UInt64(entries.count))
    }

    @Test func everyFailureCodeHasATest() {
        // Codes that other tests cover.
        let elsewhere: Set<VerificationFailure.Code> = [
            .unreadable, .missing, .damaged, .signature, .tree, .rewritten, .cosignatures, .stale, .folder, .afterClosed, .gaps,
            .idTwice,
        ]
        #expect(Set(Self.broken.map(\.0)).union(elsewhere) == Set(VerificationFailure.Code.allCases))
    }

    /// No key is destroyed and nothing is swept, with a start every seven minutes.
    @Test func startsDontExcuseLateRatchets() {
        let entries = stride(from: 0, to: Self.day, by: 420).map { Self.started($0) }
        #expect(Self.verdict(entries) != nil)
        #expect(Self.verdict(entries, allowsGaps: true) != nil)
    }

    /// Ratchets that continue after gaps of 40 minutes.
    static func pauses(_ starts: [Int]) -> [Entry] {
        let away = starts.map { $0 - 2_400..<$0 }
        let times = stride(from: 0, to: 6 * 3_600, by: 300).filter { time in !away.contains { $0.contains(time) } }
        return sorted(([0] + starts).map { started($0) } + times.map(ratchet))
    }

    // Promise: an-hour-of-gaps
    @Test func anHourOfGapsADayIsAllowed() throws {
        #expect(try Self.judge(Self.pauses([7_200])).gapSeconds == 2_640)
        #expect(Self.verdict(Self.pauses([7_200, 14_400]))?.code == .gaps)
        #expect(try Self.judge(Self.pauses([7_200, 14_400]), allowsGaps: true).gapSeconds == 5_280)
    }

    /// Without a start after it, a silence isn't a gap.
    // Promise: gap-needs-a-start
    @Test func aSilenceWithoutAStartIsNotAGap() {
        let code = Self.verdict(Self.pauses([7_200]).filter { $0 != Self.started(7_200) })?.code
        #expect(code == .ratchetLate || code == .sweptLate)
    }

    @Test func entriesAfterTheEndAreRefused() {
        let next = Self.at(0, .ledgerClosed(next: EntryText("log.example/b")!))
        #expect(Self.verdict([Self.started(0), next]) == nil)
        #expect(Self.verdict([Self.started(0), next, next])?.code == .afterClosed)
    }

    /// A log that ends, and the next one with its balances.
    @Test func rotationCarriesBalances() throws {
        let (seconds, name) = (10_800, EntryText("log.example/b")!)
        let old = Self.honest.filter { $0.atMs <= Self.ms(seconds) }
        let closings = [Self.close(seconds, Self.day, 3, 0, 1), Self.close(seconds, 2 * Self.day, 1, 0, 0)]
        let closed = Self.at(seconds, .ledgerClosed(next: name))
        #expect(try Self.judge(old + closings + [closed]).live == 0)
        #expect(Self.verdict(old + closings)?.code == .unbalanced)
        #expect(Self.verdict(old + closings + [Self.at(seconds, .keysGenerated(generation: 1))])?.code == .unbalanced)
        #expect(Self.verdict(old + [closings[1], closed])?.code == .unbalanced)
        #expect(Self.verdict(old + [Self.close(seconds, Self.day, 3, 0, 4)])?.code == .overbooked)

        let opened = Self.at(seconds, .ledgerOpened(previous: name, size: 9, root: .emptyRoot, jobs: 1))
        func carried(_ until: Int, _ live: UInt64) -> Entry {
            Self.at(seconds, .bucketCarried(untilMs: Self.ms(until), live: live))
        }
        let rest = Self.honest.filter { $0.atMs >= Self.ms(seconds) && $0.op.name != .bucketClosed }
        let next =
            [opened, carried(Self.day, 2), carried(2 * Self.day, 1), Self.started(seconds), Self.deliver(seconds, 99)]
            + rest.filter { $0.atMs < Self.ms(Self.day + 300) } + [Self.close(Self.day + 60, Self.day, 0, 2, 0)]
        let report = try Self.judge(Self.sorted(next))
        #expect((report.carried, report.live, report.pending) == (3, 1, 0))
        func without(_ entry: Entry) -> [Entry] { Self.sorted(next.filter { $0 != entry }) }
        #expect(Self.verdict(without(carried(Self.day, 2)))?.code == .unbalanced)
        #expect(Self.verdict(without(opened))?.code == .carry)
        #expect(Self.verdict(without(Self.deliver(seconds, 99)))?.code == .outcomeLate)
        #expect(Self.verdict([opened, carried(2 * Self.day, 1), carried(Self.day, 2)])?.code == .carry)
        #expect(Self.verdict([opened, carried(Self.day + 1, 1), Self.started(seconds)])?.code == .carry)
    }

    /// The verifier's state must not grow with the log.
    @Test func theStateIsSmallAndComplete() throws {
        var (life, sizes) = (Conservation(), [Int]())
        let setting = HonestBroker.Setting(seals: 2, tokens: 1_000, days: 8)
        #expect(setting.policy == Self.policy)
        let story = HonestBroker.story(seed: 4, setting)
        for (index, entry) in story.enumerated() {
            try Self.admit(entry, UInt64(index), &life)
            guard index % 200 == 0 else { continue }
            var writer = StateCoder()
            life.code(&writer)
            sizes.append(writer.bytes.count)
            var (read, reader) = (Conservation(), StateCoder(reading: writer.bytes))
            read.code(&reader)
            #expect(!reader.isDamaged && reader.isAtEnd)
            var again = StateCoder()
            read.code(&again)
            #expect(again.bytes == writer.bytes)
            life = read
        }
        #expect(story.count > 2_500 && sizes.max()! < 4_096)
        #expect(try life.finish() == Self.judge(story))
    }
}

@Suite struct BucketsTests {
    /// Random changes have the effect that they have on a dictionary, for one page of buckets and for many.
    @Test(arguments: [10, 20_000]) func bucketsAreFoundByTheirEnd(range: Int) {
        var chance = SeededGenerator(seed: 4)
        var (buckets, model): (Buckets, [Int: Bucket]) = (Buckets(), [:])
        for _ in 0..<40_000 {
            let until = Int(chance.next() % UInt64(range))
            switch chance.next() % 8 {
            case 0..<4:
                buckets.seal(until: until)
                model[until, default: Bucket(until: until)].sealed += 1
            case 4:
                buckets.carry(3, until: until)
                model[until, default: Bucket(until: until)].carried += 3
            case 5:
                let isLive = (model[until]?.remaining ?? 0) > 0
                #expect(buckets.expire(until: until) == isLive)
                if isLive { model[until]!.expired += 1 }
            default:
                buckets.close(until)
                model[until] = nil
            }
            #expect(buckets.find(until) == model[until] ?? Bucket(until: until))
        }
        #expect(buckets.first == model.values.min { $0.until < $1.until } && buckets.allSatisfy { $0 == model[$0.until] })
        #expect(buckets.remaining == model.values.reduce(0) { $0 + $1.remaining })
        var writer = StateCoder()
        buckets.code(&writer)
        var (read, reader) = (Buckets(), StateCoder(reading: writer.bytes))
        read.code(&reader)
        for until in 0..<range { #expect(read.find(until) == buckets.find(until)) }
    }

    /// Moving all of them for each new one would take minutes.
    @Test(.timeLimit(.minutes(1))) func manyBucketsInAnyOrder() {
        let count = 200_000
        // A full page, and then always before its successor.
        let between = Array(0..<512) + [count] + (512..<count).reversed()
        for order in [Array((0..<count).reversed()), Array(0..<count), between] {
            var buckets = Buckets()
            for until in order { buckets.seal(until: until) }
            #expect(buckets.remaining == order.count)
            while let first = buckets.first { buckets.close(first.until) }
            #expect(buckets.remaining == 0)
        }
    }
}
