import Ledger
import Linux
import Policy
import Testing
import Vocabulary

@testable import Storage

/// Random days of a broker, with crashes, absences, an unwritable folder and rotations. Each log verifies.
@Suite struct LogStoryTests {
    @Test(arguments: [(1, Engine.sqlite), (2, .sqlite), (3, .sqlite), (2, .postgres)] as [(UInt64, Engine)])
    func everyLogOfAStoryVerifies(seed: UInt64, engine: Engine) async throws {
        var story = try Story(engine, seed: seed)
        try await story.start()
        for _ in 0..<2_500 { try await story.step() }
        try await story.rotate()
        for log in story.logs { try await story.verify(log) }
        func sum(_ figure: KeyPath<Report, UInt64>) -> UInt64 { story.reports.reduce(0) { $0 + $1[keyPath: figure] } }
        #expect(story.reports.count >= story.logs.count - 1, "the last one may be empty")
        #expect(sum(\.bucketsClosed) > 5 && sum(\.opened) > 100 && sum(\.sealed) > 800 && sum(\.purged) > 400)
        await story.store.shutDown()
        try story.fixture.remove()
    }
}

private struct Story {
    struct Log {
        var origin: String
        var entries: [[UInt8]] = []
    }

    let timing: LedgerTiming
    let resolution: UInt64
    let fixture: Fixture
    var store: any Store
    var chance: Chance
    var logs = [Log(origin: "log.example/0")]
    var reports: [Report] = []
    private var current: [RegistrationRecord] = []
    private var jobs: [JobRecord] = []
    private var number = 0
    private var published: UInt64 = 0
    private var swept: UInt64 = 0
    private var ratcheted: UInt64 = 0
    /// The end of the time in which nothing can be published.
    private var isBroken: UInt64 = 0
    /// True while the log's end waits for publication.
    private var isClosed = false
    private let policy: [UInt8]

    init(_ engine: Engine, seed: UInt64) throws {
        chance = Chance(state: seed)
        resolution = [1, 10, 60][Int(seed % 3)]
        timing =
            seed.isMultiple(of: 2)
            ? LedgerTiming(hourSeconds: 600, daySeconds: 1_800, batchSeals: 9)
            : LedgerTiming(hourSeconds: 3_600, daySeconds: 3_600, batchSeals: 64)
        policy = Array(
            """
            {"ledger":{"batchSeals":\(timing.batchSeals),"daySeconds":\(timing.daySeconds),"hourSeconds":\(timing.hourSeconds)},
            "limits":{"roomLifeSeconds":{"max":20000}},"templates":{"task_complete":{}}}
            """.utf8)
        fixture = try Fixture(
            engine, resolution: resolution, timing: timing, resumption: Self.started(policy, resolution),
            now: 1_700_000_000 + seed * 977)
        store = fixture.store
    }

    private static func started(_ policy: [UInt8], _ resolution: UInt64) -> Entry.Op {
        .brokerStarted(
            node: EntryText("n")!, version: EntryText("1")!, policy: Digest.sha256(policy.span),
            resolutionSeconds: UInt32(resolution), binary: Digest.sha256([2].span))
    }

    private var now: UInt64 { fixture.clock.now }

    private mutating func chance(_ odds: UInt64) -> Bool { chance.next() % odds == 0 }

    mutating func start() async throws {
        try await store.start([Self.started(policy, resolution)], marks: [])
        let epoch = now / 300_000 - 2
        if epoch > ratcheted { try await store.record([.keysRatcheted(epoch: epoch, swept: 0)]) }
        ratcheted = epoch
        jobs = try await store.read { try $0.jobs() }
        swept = 0
    }

    // MARK: Steps

    mutating func step() async throws {
        fixture.clock.advance(500 + chance.next() % 12_000)
        if chance(400) { isBroken = now + chance.next() % 3_000_000 }
        try await keepUp()
        switch chance.next() % 100 {
        case 0 where chance(3): try await restart()
        case 0 where chance(2): fixture.clock.advance(60_000 + chance.next() % 200_000)
        case 1 where chance(8): try await rotate()
        case 0..<50:
            number += 1
            let life = [5_000, 60_000, 1_000_000, 4_000_000, 19_000_000][Int(chance.next() % 5)] + chance.next() % 1_000_000
            var record = fixture.registration(number, owner: number, life: life)
            record.isLong = life > 3_600_000
            let outcome = try await store.write { [record] in
                try $0.register(
                    NewRegistration(record), replacing: [], owners: [record.owner], limit: 1)
            }
            #expect(outcome == .registered)
            current.append(record)
        case 50..<65:
            guard let record = current.randomElement(using: &chance), record.expires > now + 20_000 else { return }
            number += 1
            let job = fixture.job(number, record)
            let moment = now
            let outcome = try await store.write { try $0.apply(AudienceChange(jobs: [AudienceJob(job)]), now: moment) }
            if outcome == .done { jobs.append(job) }
        case 65..<90 where !jobs.isEmpty:
            let job = jobs.remove(at: Int(chance.next() % UInt64(jobs.count)))
            let isGone = chance(3)
            try await store.write {
                try $0.finish(
                    job, JobOutcome(status: isGone ? 410 : 200, reason: isGone ? .unregistered : nil, purge: isGone))
            }
        default:
            guard !current.isEmpty else { return }
            let record = current.remove(at: Int(chance.next() % UInt64(current.count)))
            let cause: PurgeCause = chance(5) ? .policy : .ended
            _ = try await store.write { [record] in try $0.unregister([record.row], cause: cause) }
        }
    }

    /// Runs ratchet, sweeper and sequencer.
    private mutating func keepUp() async throws {
        let epoch = now / 300_000 - 2
        if epoch > ratcheted {
            try await store.record([.keysRatcheted(epoch: epoch, swept: 0)])
            ratcheted = epoch
        }
        if now >= swept {
            try await sweep()
            swept = now + 30_000
        }
        let window = now / 1_000 / resolution * resolution
        if window > published, now >= isBroken {
            try await publish(before: window)
            published = window
        }
    }

    private func sweep() async throws {
        while try await store.sweep(now: now, limit: 20, jobSlack: 5_000).more {}
    }

    private mutating func publish(before window: UInt64) async throws {
        let limit = [1, 5, 40, 1_000][Int(chance.next() % 4)]
        while true {
            let entries = try await store.closedEntries(before: window, limit: limit)
            guard let last = entries.last else { return }
            let size = UInt64(logs[logs.count - 1].entries.count + entries.count)
            let head = LogHead(size: size, checkpoint: "signed", window: last.window)
            #expect(try await store.commit(head, after: size - UInt64(entries.count), entries: entries))
            if chance(100) { try await reopen() }
            let (first, unpublished) = try await store.unpublished(after: 0)
            #expect(first + UInt64(unpublished.count) == size)
            logs[logs.count - 1].entries += unpublished
            try await store.published(upTo: size)
            if chance(100) { try await reopen() }
        }
    }

    /// Kills the store and starts it again at once.
    private mutating func reopen() async throws {
        await store.shutDown()
        store = try fixture.reopen(resolution: resolution, resumption: Self.started(policy, resolution))
        if !isClosed { try await start() }
    }

    private mutating func restart() async throws {
        if chance(2) {
            try await store.record([.brokerStopped(node: EntryText("n")!)])
            if now >= isBroken { try await publish(before: .max) }
        }
        await store.shutDown()
        if chance(2) { fixture.clock.advance(chance.next() % 4_000_000) }
        store = try fixture.reopen(resolution: resolution, resumption: Self.started(policy, resolution))
        try await start()
    }

    mutating func rotate() async throws {
        let next = "log.example/\(logs.count)"
        repeat {
            try await sweep()
            try await publish(before: .max)
            fixture.clock.advance(50)
        } while try await !store.closeLog(
            [.brokerStopped(node: EntryText("n")!)], next: EntryText(next)!, mark: StoreMark("a", []))
        isClosed = true
        try await publish(before: .max)
        isClosed = false
        let log = logs[logs.count - 1]
        let plan = TileLog().append(log.entries)
        #expect(
            try await store.beginLog(
                after: Checkpoint(origin: log.origin, size: plan.newSize, root: plan.root), marks: []))
        logs.append(Log(origin: next))
        if chance(2) { fixture.clock.advance(chance.next() % 2_000_000) }
        (published, isBroken) = (0, 0)
        try await start()
    }

    // MARK: Verification

    mutating func verify(_ log: Log) async throws {
        if log.entries.isEmpty { return }
        let key = try SigningKey(origin: log.origin, seed: [UInt8](repeating: 1, count: 32).span)
        let folder = LedgerFolder("\(fixture.folder)/\(log.origin.suffix(1))")
        _ = try folder.writePolicy(policy)
        let plan = TileLog().append(log.entries)
        try folder.publish(plan, checkpoint: key.sign(size: plan.newSize, root: plan.root))
        do {
            reports.append(
                try await Verifier(folder.source(after: plan), key: key.verifierKey, allowsGaps: true, unique: true).verify())
        } catch {
            let index = Int(error.index ?? 0)
            let around = log.entries[max(0, index - 12)..<min(index + 4, log.entries.count)]
            Issue.record("\(error)\n\(around.map { String(decoding: $0, as: UTF8.self) }.joined(separator: "\n"))")
        }
    }
}

/// An independent model of the log's rules for the store.
struct LogModel {
    struct Line {
        let text: String
        private(set) var (op, at, rank) = ("", "", 0)

        init(_ entry: ClosedEntry) {
            text = String(decoding: entry.bytes, as: UTF8.self)
            (op, at) = (string("op")!, string("at")!)
            rank = Self.ranks[op] ?? 0
        }

        func string(_ key: String) -> String? {
            text.range(of: "\"\(key)\":\"").map { String(text[$0.upperBound...].prefix { $0 != "\"" }) }
        }
        func number(_ key: String) -> Int? {
            text.range(of: "\"\(key)\":").flatMap { Int(text[$0.upperBound...].prefix { $0.isNumber }) }
        }
        private static let ranks = [
            "token.opened": 1, "push.delivered": 2, "push.failed": 2, "token.sealed": 3, "token.purged": 4, "bucket.closed": 5,
            "ledger.closed": 6,
        ]
        var key: String { (rank == 2 ? string("job") : rank == 5 ? string("until") : string("id")) ?? "" }
    }

    let timing: LedgerTiming
    /// By the text of `until`, which sorts like the time.
    var live: [String: Int] = [:]
    private var sealed: [String: Int] = [:]
    private var expired: [String: Int] = [:]
    private(set) var ended = 0
    private(set) var booked = 0
    private(set) var closed: [String] = []
    private(set) var ops: [String: Int] = [:]
    /// The number of seals in each batch, and whether it has closings.
    private(set) var batches: [(at: String, seals: Int, isMidnight: Bool)] = []

    init(_ timing: LedgerTiming) { self.timing = timing }

    mutating func admit(_ entries: [ClosedEntry]) {
        var last: Line?
        var isInBatch = false
        for line in entries.map({ Line($0) }) {
            if let last {
                #expect(last.at <= line.at)
                if last.at == line.at, line.rank > 0 {
                    #expect((last.rank, last.key) < (line.rank, line.key), "\(last.text) \(line.text)")
                }
            }
            if !(3...5).contains(line.rank) {
                isInBatch = false
            } else {
                if !isInBatch || last?.at != line.at { batches.append((line.at, 0, false)) }
                isInBatch = true
            }
            ops[line.op, default: 0] += 1
            admit(line)
            last = line
        }
        for batch in batches { #expect(batch.isMidnight || batch.seals >= timing.batchSeals, "\(batch)") }
    }

    private mutating func admit(_ line: Line) {
        switch line.op {
        case "token.sealed":
            let until = line.string("until")!
            #expect(closed.allSatisfy { $0 < until }, "\(line.text) after its bucket was closed")
            sealed[until, default: 0] += 1
            live[until, default: 0] += 1
            batches[batches.count - 1].seals += 1
        case "token.purged" where line.string("until") == nil: ended += 1
        case "token.purged":
            let until = line.string("until")!
            #expect(closed.allSatisfy { $0 < until }, "\(line.text) after its bucket was closed")
            expired[until, default: 0] += 1
            live[until, default: 0] -= 1
        case "bucket.carried": live[line.string("until")!] = line.number("live")!
        case "bucket.closed":
            let until = line.string("until")!
            let early = line.number("ended")!
            #expect(line.number("sealed") == sealed[until, default: 0] && line.number("expired") == expired[until, default: 0])
            booked += early
            #expect(booked <= ended)
            let rest = live.removeValue(forKey: until).map { $0 - early } ?? -early
            #expect(until <= line.at ? rest == 0 : rest >= 0, "\(line.text)")
            if until <= line.at { closed.append(until) }
            batches[batches.count - 1].isMidnight = true
        case "ledger.closed": #expect(live.values.allSatisfy { $0 == 0 })
        default: break
        }
    }
}
