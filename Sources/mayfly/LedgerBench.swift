import Ledger
import Linux
import Storage

/// The log alone: entries appended and verified, and what a small publication costs in a log that has grown; then the way through the store.
struct LedgerBench {
    /// Entries in one publication, as many as the sequencer takes.
    private static let publication = 16_384
    /// What a busy second brings; its cost must not grow with the log.
    private static let small = 1_000
    private static let smallRounds = 25
    private static let firstSize = 10_000
    private static let throughStore = 250_000

    private let key: SigningKey
    private let folder: LedgerFolder
    private var log = TileLog()
    private var lives = Lives()

    static func run(_ options: [String: String]) async throws {
        let path = try BenchCommand.required(options, "folder")
        let entries = try BenchCommand.count(options, "entries", default: 1_000_000, most: 100_000_000)
        guard !File.exists(path) else { throw UsageError("\(ShownPath(path)) exists: the log starts in a folder of its own") }

        var bench = try LedgerBench(path + "/alone", seed: 1)
        _ = try bench.grow(to: min(Self.firstSize, entries))
        let early = try bench.publishSmall()
        let appended = try bench.grow(to: entries)
        let late = try bench.publishSmall()
        let verified = try await bench.verify()
        var second = try LedgerBench(path + "/stored", seed: 2)
        let stored = try await second.passStore(path + "/mayfly.sqlite")
        Terminal.out(
            """
            {"size":\(bench.log.size),"appended":\(appended.json),"verified":\(verified.json),"stored":\(stored.json),\
            "early":\(early.json),"late":\(late.json)}
            """)
    }

    private init(_ path: String, seed: UInt8) throws {
        try File.makeFolder(File.folder(of: path), mode: 0o755)
        folder = LedgerFolder(path)
        _ = try folder.writePolicy(Lives.policy)
        key = try SigningKey(origin: "bench.example/audit", seed: [UInt8](repeating: seed, count: 32).span)
    }

    /// Encodes, hashes, signs and writes durably; the story behind the entries is made outside the measured time.
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

    private func verify() async throws -> Spent {
        var spent = Spent()
        let (start, startCPU) = (Clock.monotonicNs, Clock.processNs)
        let report = try await Verifier(FolderSource(folder.path), key: key.verifierKey).verify()
        spent.add(Int(report.size), since: start, startCPU)
        return spent
    }

    /// As the sequencer does it: recorded in one durable transaction, taken from the closed window, the head committed, published, forgotten.
    private mutating func passStore(_ path: String) async throws -> Spent {
        let clock = BenchClock()
        let store = try SQLiteStore(path: path, resolution: 60, now: { clock.now })
        var spent = Spent()
        while log.size < UInt64(Self.throughStore) {
            let events = lives.window(of: Self.publication).map(\.op)
            let (start, startCPU) = (Clock.monotonicNs, Clock.processNs)
            try await store.record(events)
            clock.advance(60_000)
            let entries = try await store.closedEntries(before: clock.now / 60_000 * 60, limit: Self.publication)
            let plan = log.append(entries.map(\.bytes))
            let note = key.sign(size: plan.newSize, root: plan.root)
            let head = LogHead(
                size: plan.newSize, checkpoint: String(decoding: note.encoded, as: UTF8.self), window: entries.last?.window ?? 0)
            guard try await store.commit(head, after: plan.oldSize, entries: entries) else {
                throw CheckFailed("the head was moved by another")
            }
            try folder.publish(plan, checkpoint: note)
            log = plan.log
            while try await store.published(upTo: plan.newSize) {}
            spent.add(entries.count, since: start, startCPU)
        }
        await store.shutDown()
        return spent
    }
}

/// Tokens' lives of four entries each, window after window, in the order of a log: `count` entries at most, each life whole.
private struct Lives {
    private var random = FastRandom(state: 1)
    private var atMs: UInt64 = 1_767_225_600_000
    private var hasStarted = false

    /// What the start names; nobody reads more of it than its hash.
    static let policy = Array("{}".utf8)
    private static let start = Entry.Op.brokerStarted(
        node: EntryText("bench")!, version: EntryText("1")!, policy: .sha256(policy.span), resolutionSeconds: 60)

    mutating func window(of count: Int) -> [Entry] {
        let untilMs = (atMs / 300_000 + 3) * 300_000
        let template = EntryText("rooms.waiting")!
        // A log begins with a start, and its keys keep up.
        var entries = [Entry(atMs: atMs, hasStarted ? .keysRatcheted(epoch: atMs / 300_000 - 2) : Self.start)]
        hasStarted = true
        entries.reserveCapacity(count)
        for ref in (0..<(count - 1) / 4).map({ _ in id() }).sorted() {
            let job = id()
            let ops: [Entry.Op] = [
                .tokenSealed(ref: ref, kind: .alert, untilMs: untilMs), .tokenOpened(ref: ref, job: job, template: template),
                .pushDelivered(ref: ref, job: job, status: 200), .tokenPurged(ref: ref, cause: .roomClosed),
            ]
            for op in ops { entries.append(Entry(atMs: atMs, op)) }
        }
        atMs += 60_000
        return entries
    }

    private mutating func id() -> OpaqueID { OpaqueID(UInt128(random.word()) << 64 | UInt128(random.word())) }
}

/// Entries, wall time and processor time.
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

    var json: String { "{\"entries\":\(entries),\"seconds\":\(Double(wallNs) / 1e9),\"cpuSeconds\":\(Double(cpuNs) / 1e9)}" }
}
