import JSON
import Ledger
import Linux
import Policy
import Storage
import Synchronization
import Vocabulary

/// Measures the log: appended entries, small publications in an early and a late log, and the way through the store.
struct LedgerBench {
    /// Entries per publication.
    private static let publication = 16_384
    /// Entries of a busy second. The cost of publishing them must not grow with the log.
    private static let small = 1_000
    private static let smallRounds = 25
    private static let firstSize = 10_000
    private static let throughStore = 250_000

    private let key: SigningKey
    private let folder: LedgerFolder
    private var log = TileLog()
    private var lives = Lives()

    static func run(_ flags: Flags) async throws {
        let path = try flags.required("folder")
        let entries = try flags.count("entries", default: 1_000_000, most: 100_000_000)
        guard !File.exists(path) else { throw BenchError("\(ShownPath(path)) exists: name a new folder for the log") }

        var bench = try LedgerBench(path + "/alone", seed: 1)
        _ = try bench.grow(to: min(Self.firstSize, entries))
        let early = try bench.publishSmall()
        let appended = try bench.grow(to: entries)
        let late = try bench.publishSmall()
        var second = try LedgerBench(path + "/stored", seed: 2)
        let stored = try await second.passStore(path + "/mayfly.sqlite")
        var json = JSONWriter()
        json.add("size", bench.log.size)
        json.add("key", "\(bench.key.verifierKey)")
        json.add("appended", appended.write)
        json.add("stored", stored.write)
        json.add("early", early.write)
        json.add("late", late.write)
        Standard.output(String(decoding: json.finish(), as: UTF8.self) + "\n")
    }

    private init(_ path: String, seed: UInt8) throws {
        try File.makeFolder(File.folder(of: path), mode: 0o755)
        folder = LedgerFolder(path)
        _ = try folder.writePolicy(Lives.policy)
        key = try SigningKey(origin: "bench.example/audit", seed: [UInt8](repeating: seed, count: 32).span)
    }

    /// Encodes, hashes, signs and writes durably. Making the entries isn't measured.
    private mutating func grow(to size: Int) throws -> Spent {
        var spent = Spent()
        while log.size < UInt64(size) {
            let entries = lives.window(of: min(Self.publication, size - Int(log.size)))
            try spent.measure(entries.count) { try publish(entries.map(\.encoded)) }
        }
        return spent
    }

    private mutating func publishSmall() throws -> Spent {
        var spent = Spent()
        for _ in 0..<Self.smallRounds {
            let entries = lives.window(of: Self.small)
            try spent.measure(entries.count) { try publish(entries.map(\.encoded)) }
        }
        return spent
    }

    private mutating func publish(_ entries: [[UInt8]]) throws {
        let plan = log.append(entries)
        try folder.publish(plan, checkpoint: key.sign(size: plan.newSize, root: plan.root))
        log = plan.log
    }

    /// Works like the sequencer: records the entries, takes them from the closed window, commits the head, publishes and deletes them.
    /// Seals and purges need operations on rows, so these windows contain only openings and outcomes.
    private mutating func passStore(_ path: String) async throws -> Spent {
        let clock = BenchClock()
        let store = try SQLiteStore(path: path, resolution: 60, timing: nil, now: { clock.now })
        var spent = Spent()
        while log.size < UInt64(Self.throughStore) {
            let events = lives.window(of: Self.publication).map(\.op).filter { $0.rank < 3 }
            let (start, startCPU) = (Clock.monotonicNs, Clock.processNs)
            try await store.record(events)
            clock.advance(60_000)
            let entries = try await store.closedEntries(before: clock.now / 60_000 * 60, limit: .max)
            let plan = log.append(entries.map(\.bytes))
            let note = key.sign(size: plan.newSize, root: plan.root)
            let head = LogHead(
                size: plan.newSize, checkpoint: String(decoding: note.encoded, as: UTF8.self), window: entries.last?.window ?? 0)
            guard try await store.commit(head, after: plan.oldSize, entries: entries) else {
                throw BenchError("another process moved the head")
            }
            try folder.publish(plan, checkpoint: note)
            log = plan.log
            try await store.published(upTo: plan.newSize)
            spent.add(entries.count, since: start, startCPU)
        }
        await store.shutDown()
        return spent
    }
}

/// Makes windows of valid entries: whole lives of tokens, four entries each. A window is an hour and a day of the log, so each one has a
/// batch and closes a bucket.
private struct Lives {
    private static let windowMs: UInt64 = 60_000
    private static let beginMs: UInt64 = 1_767_225_600_000

    private var random = FastRandom(state: 1)
    private var atMs = Self.beginMs
    /// Tokens sealed per open bucket. All of them end early.
    private var sealed: [UInt64: UInt64] = [:]

    /// The built-in policy for rooms with shorter hours and days.
    static let policy: [UInt8] = {
        let rooms = String(decoding: Policy.builtInBytes("rooms") ?? [], as: UTF8.self)
        return Array(
            rooms.replacing(
                #""hourSeconds": 3600, "daySeconds": 86400, "batchSeals": 64"#,
                with: #""hourSeconds": 60, "daySeconds": 60, "batchSeals": 1"#
            ).utf8)
    }()
    private static let start = Entry.Op.brokerStarted(
        node: EntryText("bench")!, version: EntryText("1")!, policy: .sha256(policy.span), resolutionSeconds: 60,
        binary: .sha256(policy.span))

    /// Returns at most `count` entries.
    mutating func window(of count: Int) -> [Entry] {
        let untilMs = atMs + 15 * Self.windowMs
        let template = EntryText("peer_waiting")!
        let lives = max(1, (count - 2) / 4)
        func ids<ID: OpaqueID>() -> [ID] { (0..<lives).map { _ in random.id() }.sorted() }
        let epoch = atMs / 300_000
        var ops = [atMs == Self.beginMs ? Self.start : .keysRatcheted(epoch: epoch - 2, swept: epoch)]
        ops.reserveCapacity(count)
        let jobs: [JobID] = ids()
        ops += zip(ids(), jobs).map { .tokenOpened(id: $0, job: $1, template: template) }
        ops += jobs.map { .pushDelivered(job: $0, status: 200) }
        ops += ids().map { .tokenSealed(id: $0, untilMs: untilMs) }
        ops += ids().map { .tokenPurged(id: $0, cause: .ended) }
        sealed[untilMs] = UInt64(lives)
        if atMs > Self.beginMs {
            let due = sealed.removeValue(forKey: atMs) ?? 0
            ops.append(.bucketClosed(untilMs: atMs, sealed: due, expired: 0, ended: due))
        }
        defer { atMs += Self.windowMs }
        return ops.map { Entry(atMs: atMs, $0) }
    }
}

/// Sums of entries, wall time and processor time.
private struct Spent {
    private var entries = 0
    private var wallNs: UInt64 = 0
    private var cpuNs: UInt64 = 0

    mutating func measure(_ entries: Int, _ work: () throws -> Void) rethrows {
        let (start, startCPU) = (Clock.monotonicNs, Clock.processNs)
        try work()
        add(entries, since: start, startCPU)
    }

    mutating func add(_ entries: Int, since start: UInt64, _ startCPU: UInt64) {
        self.entries += entries
        wallNs += Clock.monotonicNs - start
        cpuNs += Clock.processNs - startCPU
    }

    func write(to json: inout JSONWriter) {
        json.add("entries", entries)
        json.add("seconds", Double(wallNs) / 1e9)
        json.add("cpuSeconds", Double(cpuNs) / 1e9)
    }
}

/// A clock that advances only on request.
private final class BenchClock: Sendable {
    private let time = Mutex<UInt64>(1_767_225_600_000)

    var now: UInt64 { time.withLock { $0 } }

    func advance(_ ms: UInt64) { time.withLock { $0 += ms } }
}
