import Testing

@testable import Ledger

@Suite struct LifeCycleTests {
    /// The check's verdict on a history; nil is good.
    static func verdict(_ entries: [Entry]) -> VerificationFailure.Code? {
        var life = LifeCycle()
        do {
            for (index, entry) in entries.enumerated() { try life.admit(entry, index: UInt64(index)) }
            _ = try life.finish()
            return nil
        } catch { return error.code }
    }

    // Times are seconds after a beginning that is also the beginning of epoch `epoch0`.
    static let epoch0: UInt64 = 5_890_000
    static let (a, b) = (OpaqueID(1), OpaqueID(2))
    static let (job1, job2) = (OpaqueID(101), OpaqueID(102))

    static func at(_ time: UInt64, _ op: Entry.Op) -> Entry { Entry(atMs: (epoch0 * 300 + time) * 1000, op) }
    static func seal(_ time: UInt64, _ ref: OpaqueID, until: UInt64) -> Entry {
        at(time, .tokenSealed(ref: ref, kind: .alert, untilMs: (epoch0 * 300 + until) * 1000))
    }
    static func open(_ time: UInt64, _ ref: OpaqueID, _ job: OpaqueID) -> Entry {
        at(time, .tokenOpened(ref: ref, job: job, template: EntryText("t")!))
    }
    static func deliver(_ time: UInt64, _ ref: OpaqueID, _ job: OpaqueID) -> Entry {
        at(time, .pushDelivered(ref: ref, job: job, status: 200))
    }
    static func fail(_ time: UInt64, _ ref: OpaqueID, _ job: OpaqueID) -> Entry {
        at(time, .pushFailed(ref: ref, job: job, status: 0, reason: .unknown))
    }
    static func purge(_ time: UInt64, _ ref: OpaqueID) -> Entry { at(time, .tokenPurged(ref: ref, cause: .expired)) }
    static func start(_ time: UInt64, resolution: UInt32 = 1) -> Entry {
        at(
            time,
            .brokerStarted(
                node: EntryText("n")!, version: EntryText("1")!, policy: EntryTests.policy, resolutionSeconds: resolution))
    }
    static func stop(_ time: UInt64) -> Entry { at(time, .brokerStopped(node: EntryText("n")!)) }
    static func ratchet(_ time: UInt64, _ epoch: Int) -> Entry { at(time, .keysRatcheted(epoch: UInt64(Int(epoch0) + epoch))) }
    static func close(_ time: UInt64) -> Entry { at(time, .ledgerClosed(next: EntryText("log.example/b")!)) }
    static func tick(_ time: UInt64) -> Entry { at(time, .requestRefused(cause: .throttled, count: 10)) }

    struct History: Sendable, CustomStringConvertible {
        var description: String
        var entries: [Entry]
        var verdict: VerificationFailure.Code?

        init(_ description: String, _ verdict: VerificationFailure.Code?, _ entries: [Entry]) {
            (self.description, self.verdict, self.entries) = (description, verdict, entries)
        }

        init(_ description: String, _ entries: [Entry]) { self.init(description, nil, entries) }
    }

    static let refs: [History] = [
        History("nothing", []),
        History("a life", [seal(0, a, until: 300), open(60, a, job1), deliver(60, a, job1), purge(240, a)]),
        History(
            "two jobs, answers crossed",
            [seal(0, a, until: 600), open(0, a, job1), open(0, a, job2), fail(60, a, job2), deliver(60, a, job1), purge(60, a)]),
        History("all in one window", [seal(0, a, until: 300), open(0, a, job1), deliver(0, a, job1), purge(0, a)]),
        History("sealed twice", .sealedTwice, [seal(0, a, until: 300), seal(60, a, until: 300)]),
        History("sealed again after its purge", .sealedTwice, [seal(0, a, until: 300), purge(60, a), seal(60, a, until: 300)]),
        History("opened, never sealed", .neverSealed, [open(0, a, job1)]),
        History("purged, never sealed", .neverSealed, [seal(0, a, until: 300), purge(0, b)]),
        History("opened before it is sealed", .neverSealed, [open(0, a, job1), seal(0, a, until: 300)]),
        History("opened in the last window", [seal(0, a, until: 300), open(240, a, job1), purge(240, a)]),
        History("opened at until", .openedLate, [seal(0, a, until: 300), open(300, a, job1)]),
        History("opened after its purge", .afterPurge, [seal(0, a, until: 600), purge(60, a), open(60, a, job1)]),
        History("one job opens twice", .jobTwice, [seal(0, a, until: 600), open(0, a, job1), open(60, a, job1)]),
        History(
            "one job opens two refs", .jobTwice,
            [seal(0, a, until: 600), open(0, a, job1), deliver(0, a, job1), seal(0, b, until: 600), open(60, b, job1)]),
        History("an outcome of no job", .jobUnknown, [seal(0, a, until: 600), deliver(0, a, job1)]),
        History("an outcome before it is opened", .jobUnknown, [seal(0, a, until: 600), deliver(0, a, job1), open(0, a, job1)]),
        History(
            "an outcome of another ref's job", .jobUnknown,
            [seal(0, a, until: 600), open(0, a, job1), seal(0, b, until: 600), deliver(0, b, job1)]),
        History(
            "delivered twice", .outcomeTwice,
            [seal(0, a, until: 600), open(0, a, job1), deliver(0, a, job1), deliver(60, a, job1)]),
        History(
            "delivered, then failed", .outcomeTwice,
            [seal(0, a, until: 600), open(0, a, job1), deliver(0, a, job1), fail(60, a, job1)]),
        History("an outcome after the purge", [seal(0, a, until: 600), open(0, a, job1), purge(60, a), deliver(60, a, job1)]),
        History(
            "an unopened job's outcome after the purge", .jobUnknown,
            [seal(0, a, until: 600), open(0, a, job1), purge(60, a), deliver(60, a, job2)]),
        History("purged twice", .purgedTwice, [seal(0, a, until: 300), purge(60, a), purge(60, a)]),
        History("purged 2 minutes after until", [seal(0, a, until: 300), purge(420, a)]),
        History("purged later", .purgedLate, [seal(0, a, until: 300), purge(421, a)]),
        History("live at the head", [seal(0, a, until: 300), tick(420)]),
        History("overdue at the head", .neverPurged, [seal(0, a, until: 300), tick(421)]),
        History("time stands still", [tick(60), tick(60)]),
        History("time runs back", .time, [tick(60), tick(59)]),
        History("sealed until a second later", [seal(299, a, until: 300)]),
        History("ended when it was sealed", .entry, [seal(300, a, until: 300)]),
        History("ended before it was sealed", .entry, [seal(600, a, until: 300)]),
        History("sorted", [seal(60, a, until: 300), purge(60, a), seal(60, b, until: 300)]),
        History("sorted by window", [seal(60, b, until: 300), seal(120, a, until: 300)]),
        History("not sorted", .entry, [seal(60, b, until: 300), seal(60, a, until: 300)]),
        History("not sorted in one ref's own order", .entry, [seal(60, a, until: 300), seal(60, b, until: 300), purge(60, a)]),
        History("sorted anew after a stop", [seal(60, b, until: 300), stop(60), start(60), seal(60, a, until: 300)]),
    ]

    static let silences: [History] = [
        History("late after a silence", [seal(0, a, until: 300), tick(240), start(6000), ratchet(6000, 18), purge(6120, a)]),
        History(
            "later than 2 minutes after the start", .purgedLate,
            [seal(0, a, until: 300), tick(240), start(6000), ratchet(6000, 18), purge(6121, a)]),
        History(
            "not silent from until on", .purgedLate,
            [seal(0, a, until: 300), tick(300), start(6000), ratchet(6000, 18), purge(6060, a)]),
        History(
            "something in the silence", .purgedLate,
            [seal(0, a, until: 300), tick(240), tick(440), start(6000), ratchet(6000, 18), purge(6060, a)]),
        History("stopped before until", [seal(0, a, until: 300), stop(240), start(6000), ratchet(6000, 18), purge(6060, a)]),
        History("silence, and no start", .purgedLate, [seal(0, a, until: 300), tick(240), purge(6000, a)]),
        History("the purge before the start", .purgedLate, [seal(0, a, until: 300), tick(240), purge(6000, a), start(6000)]),
        History("a start before until", .purgedLate, [seal(0, a, until: 300), start(240), purge(480, a)]),
        History(
            "live at the head, just started", [seal(0, a, until: 300), tick(240), start(6000), ratchet(6000, 18), tick(6120)]),
        History(
            "overdue since the start", .neverPurged,
            [seal(0, a, until: 300), tick(240), start(6000), ratchet(6000, 18), tick(6180)]),
        History(
            "two starts, the first one counts",
            [seal(0, a, until: 300), tick(240), start(6000), start(6060), ratchet(6060, 18), purge(6120, a)]),
        History(
            "two starts, the second excuses nothing", .purgedLate,
            [seal(0, a, until: 300), tick(240), start(6000), start(6060), ratchet(6060, 18), purge(6180, a)]),
        // The start's window began at 6000, and the broker up to 10 minutes later.
        History(
            "due in the window of the start",
            [
                seal(0, a, until: 6300), tick(240), start(6000, resolution: 600), ratchet(6000, 18), ratchet(6600, 20),
                purge(6600, a),
            ]),
    ]

    static let keys: [History] = [
        History("kept up", [start(0), ratchet(300, -1), ratchet(600, 0), ratchet(900, 1), tick(1199)]),
        History("each 2 minutes late", [start(0), ratchet(420, -1), ratchet(720, 0), ratchet(1020, 1), tick(1320)]),
        History("held for one epoch", [start(0), ratchet(300, -1), ratchet(900, 1), tick(1199)]),
        History("held for one epoch, and 2 minutes", [start(0), ratchet(300, -1), ratchet(1020, 1), tick(1199)]),
        History("held for longer", .ratchetLate, [start(0), ratchet(300, -1), tick(1021), ratchet(1021, 1)]),
        History("late in the middle, and made up for", .ratchetLate, [start(0), tick(1021), ratchet(1080, 1), tick(1200)]),
        History("late by the second window", .ratchetLate, [start(0), ratchet(780, 0), tick(900)]),
        History("never", .ratchetLate, [start(0), tick(721)]),
        History("not yet", [start(0), tick(720)]),
        History("no broker ran", [start(0), ratchet(300, -1), start(90_000), ratchet(90_120, 298), tick(90_240)]),
        History(
            "held after a jump", [start(0), ratchet(300, -1), start(90_000), tick(90_400), ratchet(90_420, 298), tick(90_480)]),
        History("not made up for", .ratchetLate, [start(0), ratchet(300, -1), start(90_000), tick(90_480), tick(90_540)]),
        History(
            "leapt again while it was held",
            [start(0), ratchet(300, -1), start(9000), tick(9200), start(20_000), tick(20_420), ratchet(20_420, 64), tick(20_460)]),
        History(
            "leapt again, and not made up for", .ratchetLate,
            [start(0), ratchet(300, -1), start(9000), tick(9200), start(20_000), tick(20_421)]),
        History(
            "late before it leapt again", .ratchetLate, [start(0), ratchet(300, -1), start(9000), tick(9421), start(20_000)]),
        History("fell behind before the silence", .ratchetLate, [start(0), ratchet(300, -1), tick(1000), tick(1100)]),
        History("of the running epoch", .ratchetEarly, [start(0, resolution: 1), ratchet(300, 1)]),
        History("of the epoch before", [start(0, resolution: 1), ratchet(300, 0)]),
        History("of the far future", .ratchetEarly, [start(0), ratchet(300, 1000), tick(9000)]),
        History("of an epoch that ends in this window", [start(0, resolution: 600), ratchet(0, 0)]),
        History("of the one that begins in it", .ratchetEarly, [start(0, resolution: 600), ratchet(0, 1)]),
        // The window that a start with longer ones finds open goes on to their next multiple, and no further.
        History("in a window of the old length", [start(0, resolution: 60), start(540, resolution: 600), ratchet(540, 0)]),
        History(
            "and into the next epoch", .ratchetEarly, [start(0, resolution: 60), start(540, resolution: 600), ratchet(540, 1)]),
        History("no word of keys", .ratchetLate, [start(0), tick(90_000)]),
    ]

    /// In which windows a log may be, by what it says of their length.
    static let windows: [History] = [
        History("multiples", [start(0, resolution: 60), tick(60), tick(180)]),
        History("no multiple", .time, [start(0, resolution: 60), tick(60), tick(61)]),
        History("begun at no multiple", .time, [start(30, resolution: 60)]),
        History("shorter from now on", [start(0, resolution: 60), tick(60), start(75, resolution: 5), tick(80)]),
        History("a start between, as long as before", .time, [start(0, resolution: 60), start(75, resolution: 60)]),
        History(
            "longer from the next one on", [start(0, resolution: 5), tick(55), start(55, resolution: 60), tick(55), tick(60)]),
        History("longer, and not kept to", .time, [start(0, resolution: 5), start(55, resolution: 60), tick(65)]),
        History("the last of two starts counts", [start(0, resolution: 60), start(0, resolution: 8), tick(8)]),
        History("not the first", .time, [start(0, resolution: 8), start(0, resolution: 60), tick(8)]),
        History("a start that does not come first", .time, [start(0, resolution: 60), tick(65), start(65, resolution: 5)]),
        History("nothing but a start", [start(0, resolution: 600)]),
        History("no start", .entry, [tick(0)]),
        History("purged before any start", .entry, [seal(0, a, until: 300), purge(0, a)]),
        History("nothing but what was carried over", [seal(7, a, until: 300), open(7, a, job1)]),
        History("carried over from other windows", [seal(7, a, until: 300), start(7, resolution: 60), tick(60)]),
        History("carried over in two windows", .time, [seal(0, a, until: 300), seal(60, b, until: 300)]),
        // A start that names windows of an hour excuses for an hour what is late; unless the log goes on in others.
        History(
            "hours that are none", .time,
            [start(0), seal(0, a, until: 300), start(2400, resolution: 3600), ratchet(2400, 6), tick(2460), purge(3000, a)]),
        History(
            "hours that end with another start", .purgedLate,
            [start(0), seal(0, a, until: 300), start(2400, resolution: 3600), start(2401), ratchet(2401, 6), purge(2522, a)]),
        History(
            "and their excuse with it",
            [start(0), seal(0, a, until: 300), start(2400, resolution: 3600), start(2401), ratchet(2401, 6), purge(2521, a)]),
        // 2400 and 6000 begin hours.
        History(
            "an excuse until the next hour",
            [start(0), seal(0, a, until: 300), start(2460, resolution: 3600), ratchet(2460, 6), purge(6000, a)]),
        History(
            "not until the one after it", .purgedLate,
            [start(0), seal(0, a, until: 300), start(2460, resolution: 3600), ratchet(2460, 6), purge(9600, a)]),
        History("keys of hours that are none", .time, [start(0), start(2400, resolution: 3600), ratchet(2400, 6), tick(2460)]),
        History(
            "keys late after another start", .ratchetLate,
            [start(0), start(2400, resolution: 3600), start(2401), tick(2822)]),
    ]

    static let closings: [History] = [
        History("closed", [start(0), stop(60), close(60)]),
        History("nothing but closed", .entry, [close(0)]),
        History(
            "closed with a token that lives, and one just due",
            [start(0), seal(0, a, until: 300), seal(0, b, until: 9000), close(420)]),
        History("closed with an overdue token", .neverPurged, [start(0), seal(0, a, until: 300), close(421)]),
        History("closed behind with the keys", .ratchetLate, [start(0), tick(700), tick(760), close(760)]),
        History(
            "closed late, as a start does it",
            [start(0), seal(0, a, until: 300), start(9000), ratchet(9000, 28), purge(9000, a), close(9000)]),
        History("closed twice", .afterClosed, [start(0), close(0), close(0)]),
        History("stopped after it was closed", .afterClosed, [start(0), close(60), stop(60)]),
        History("purged after it was closed", .afterClosed, [start(0), seal(0, a, until: 300), close(60), purge(60, a)]),
        History("and time runs back", .afterClosed, [start(0), close(60), tick(0)]),
        // The next log: what was alive at the closing, and a start some time later.
        History(
            "carried over",
            [
                seal(0, a, until: 300), seal(0, b, until: 600), open(0, b, job1), start(60), deliver(60, b, job1), purge(240, a),
                purge(600, b),
            ]),
        History(
            "carried over, and no broker for hours",
            [seal(0, a, until: 300), open(0, a, job1), start(9000), ratchet(9000, 28), fail(9000, a, job1), purge(9000, a)]),
        History(
            "carried over, and told of more before the start", .time,
            [seal(0, a, until: 300), tick(360), start(9000), ratchet(9000, 28), purge(9000, a)]),
    ]

    @Test(arguments: refs + silences) func judgesAfterAStart(history: History) {
        #expect(Self.verdict([Self.start(0)] + history.entries) == history.verdict)
    }

    @Test(arguments: keys + windows + closings) func judges(history: History) {
        #expect(Self.verdict(history.entries) == history.verdict)
    }

    @Test func countsAndExcuses() throws {
        var life = LifeCycle()
        let history = [
            Self.start(0), Self.seal(0, Self.a, until: 300), Self.seal(0, Self.b, until: 9000),
            Self.open(60, Self.a, Self.job1), Self.fail(60, Self.a, Self.job1), Self.open(60, Self.b, Self.job2),
            Self.start(6000), Self.purge(6060, Self.a),
        ]
        for (index, entry) in history.enumerated() { try life.admit(entry, index: UInt64(index)) }
        let report = try life.finish()
        #expect(report.size == 8)
        #expect((report.sealed, report.live, report.purged, report.excused) == (2, 1, 1, 1))
        #expect((report.opened, report.delivered, report.failed, report.pending) == (2, 0, 1, 1))
        #expect((report.fromMs, report.toMs) == (history[0].atMs, history[7].atMs))
    }

    @Test func saysWhere() {
        var life = LifeCycle()
        let failure = #expect(throws: VerificationFailure.self) {
            try life.admit(Self.start(0), index: 6)
            try life.admit(Self.seal(0, Self.a, until: 300), index: 7)
            try life.admit(Self.purge(900, Self.a), index: 8)
        }
        #expect(failure?.index == 8)
        #expect(failure?.ref == Self.a)
        #expect(failure?.description.hasPrefix("entry 8, ref 00000000000000000000000000000001: purged at 2") == true)
    }

    @Test(arguments: [1, 7, 60, 90, 300, 3600] as [UInt64]) func honestHistoriesVerify(resolution: UInt64) throws {
        for seed in 0..<40 {
            let story = HonestBroker.story(seed: UInt64(seed), resolution: resolution)
            var life = LifeCycle()
            do {
                for (index, entry) in story.enumerated() {
                    try life.admit(entry, index: UInt64(index))
                    // What was published after any window must verify as well.
                    guard index + 1 == story.count || story[index + 1].atMs != entry.atMs else { continue }
                    var head = life
                    _ = try head.finish()
                }
            } catch { Issue.record("seed \(seed): \(error)") }
        }
    }

    static let stories = [1, 60].flatMap { resolution in (0..<40).map { HonestBroker.story(seed: $0, resolution: resolution) } }

    @Test(arguments: Damage.allCases) func everyDamageIsCaught(damage: Damage) {
        var random = SeededGenerator(seed: 4)
        var tried = 0
        for (number, story) in Self.stories.enumerated() {
            guard let damaged = damage.applied(to: story, using: &random) else { continue }
            tried += 1
            #expect(Self.verdict(damaged) != nil, "story \(number)")
        }
        #expect(tried > 15)
    }

    @Test func idsAreNumberedInOrderAndNeverForgotten() {
        var table = IDTable()
        var random = SeededGenerator(seed: 5)
        let ids = (0..<5000).map { OpaqueID($0 % 2 == 0 ? UInt128($0) : UInt128.random(in: 1 << 64 ... .max, using: &random)) }
        for (number, id) in ids.enumerated() {
            #expect(table.number(of: id) == nil)
            #expect(table.insert(id) == number)
            #expect(table.insert(id) == nil)
        }
        for (number, id) in ids.enumerated() { #expect(table.number(of: id) == number) }
    }
}
