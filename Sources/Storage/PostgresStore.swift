import Dispatch
public import Ledger
import Linux
public import Policy
import Postgres
import Synchronization

/// The store on PostgreSQL 15 or later: some connections, each on a thread of its own, that take operations from one queue.
public final class PostgresStore: Store {
    private typealias Job = @Sendable (PostgresDatabase) -> Void

    private struct Queue {
        var jobs: [Job] = []
        var next = 0
        var isClosed = false

        var isEmpty: Bool { next == jobs.count }

        mutating func take() -> Job? {
            if isEmpty { return nil }
            defer { next += 1 }
            if next > 1_000, next * 2 > jobs.count {
                jobs.removeFirst(next)
                next = 0
            }
            return jobs[next]
        }
    }

    private let journal: PostgresJournal
    private let queue = Mutex(Queue())
    private let work = DispatchSemaphore(value: 0)
    private let threads: Mutex<[Linux.Thread]>

    /// More only share the server's processors.
    public static let connections = 16

    /// Connects and checks the server, the schema and the role.
    /// - Parameters:
    ///   - uri: `postgresql://...`. libpq's environment and files fill in what it lacks.
    ///   - resolution, timing, waitingLimit, resumption, now: as in `SQLiteStore`.
    /// - Throws: `.noSchema`; `.unavailable` if the server can't be reached or must not be used as it is.
    public convenience init(
        uri: String, resolution: UInt64, timing: LedgerTiming?, waitingLimit: Int = 1_000_000, resumption: [Entry.Op] = [],
        now: @escaping @Sendable () -> UInt64
    ) throws(StoreError) {
        try self.init(
            uri: uri, resolution: resolution, timing: timing, waitingLimit: waitingLimit, resumption: resumption, now: now,
            databaseClock: nil)
    }

    /// - Parameter databaseClock: in tests, replaces the database's clock.
    init(
        uri: String, resolution: UInt64, timing: LedgerTiming?, waitingLimit: Int, resumption: [Entry.Op],
        connections: Int = connections, now: @escaping @Sendable () -> UInt64, databaseClock: (@Sendable () -> UInt64)?
    ) throws(StoreError) {
        let journal = PostgresJournal(
            uri: uri, resolution: resolution, timing: timing ?? .standard, limit: waitingLimit, resumption: resumption, now: now,
            databaseClock: databaseClock)
        self.journal = journal
        threads = Mutex([])
        let first = PostgresDatabase(journal)
        do {
            try first.check()
            journal.note(try first.read { try first.backlog() })
            journal.timing = try first.read { try first.recordedTiming(expecting: timing) } ?? timing ?? .standard
        } catch { throw StoreError(any: error) }
        first.disconnect()
        do {
            for number in 0..<connections {
                let thread = try Linux.Thread.spawn(name: "store-\(number)") { [self] in serve(PostgresDatabase(journal)) }
                threads.withLock { $0.append(thread) }
            }
        } catch {
            close()
            throw .unavailable(error.description)
        }
    }

    /// Creates the tables, unless they exist.
    /// - Throws: `.unavailable` if the tables are of another version.
    public static func makeSchema(uri: String) throws(StoreError) {
        do { try PostgresDatabase(PostgresJournal(uri: uri)).makeSchema() } catch { throw StoreError(any: error) }
    }

    private func serve(_ database: PostgresDatabase) {
        while true {
            work.wait()
            let (job, isClosed) = queue.withLock { ($0.take(), $0.isClosed) }
            if let job { job(database) } else if isClosed { return }
        }
    }

    private func submit(fail: (StoreError) -> Void, _ job: @escaping Job) {
        let isClosed = queue.withLock { queue in
            if !queue.isClosed { queue.jobs.append(job) }
            return queue.isClosed
        }
        if isClosed { return fail(.closed) }
        work.signal()
    }

    public func submit(_ operation: Operation, _ access: Access) {
        submit(fail: operation.fail) { database in
            do {
                let finish: @Sendable () -> Void
                if access == .write {
                    try database.recordAbsence()
                    finish = try database.write { try operation.run(database.transaction) }
                } else {
                    finish = try database.read { try operation.run(database.transaction) }
                }
                finish()
            } catch {
                operation.fail(StoreError(any: error))
            }
        }
    }

    /// Runs `body` on a thread of the store.
    func run<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresDatabase) throws -> Value
    ) async throws(StoreError) -> Value {
        let result: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            submit(fail: { continuation.resume(returning: .failure($0)) }) { database in
                do {
                    continuation.resume(returning: .success(try body(database)))
                } catch {
                    continuation.resume(returning: .failure(StoreError(any: error)))
                }
            }
        }
        return try result.get()
    }

    private func read<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresDatabase) throws -> Value
    ) async throws(StoreError) -> Value {
        try await run { database in try database.read { try body(database) } }
    }

    private func write<Value: Sendable>(
        isSignOfLife: Bool = true, _ body: @escaping @Sendable (PostgresDatabase) throws -> Value
    ) async throws(StoreError) -> Value {
        try await run { database in
            try database.recordAbsence()
            return try database.write(isSignOfLife: isSignOfLife) { try body(database) }
        }
    }

    private func close() {
        queue.withLock { $0.isClosed = true }
        let threads = threads.withLock { $0 }
        for _ in threads { work.signal() }
        for thread in threads { thread.join() }
    }

    /// Finishes queued operations and disconnects.
    public func shutDown() async { close() }

    // MARK: Expiry

    public func sweep(now: UInt64, limit: Int, jobSlack: UInt64) async throws(StoreError) -> SweepResult {
        let journal = journal
        return try await run { database in
            try database.recordAbsence()
            let result = try database.sweep(now: now, limit: limit, jobSlack: jobSlack)
            journal.noteAlive()
            return result
        }
    }

    public func forgetAll(limit: Int) async throws(StoreError) -> SweepResult { try await run { try $0.forgetAll(limit: limit) } }

    public func nextExpiry(jobSlack: UInt64) async throws(StoreError) -> UInt64? {
        try await read { try $0.nextExpiry(jobSlack: jobSlack) }
    }

    public func scrub() async throws(StoreError) -> Bool {
        let now = journal.now()
        try await run { try $0.scrub(now: now) }
        return true
    }

    // MARK: Ledger

    public func start(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await write { try $0.start(events, marks) }
        journal.hasStarted = true
    }

    public func record(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await write { try $0.record(events, marks) }
        for case .brokerStopped in events { journal.hasStarted = false }
    }

    public func latestWindow() async throws(StoreError) -> UInt64 { try await read { try $0.latestWindow() } }

    public func closedEntries(before window: UInt64, limit: Int) async throws(StoreError) -> [ClosedEntry] {
        let open = try await write(isSignOfLife: false) { try $0.close(before: window) }
        return try await read { try $0.closedEntries(before: min(window, open), limit: limit) }
    }

    public func logHead() async throws(StoreError) -> LogHead? { try await read { try $0.logHead() } }

    public func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) async throws(StoreError) -> Bool {
        try await write { try $0.commit(head, after: size, entries: entries) }
    }

    public func unpublished() async throws(StoreError) -> (first: UInt64, entries: [[UInt8]]) {
        try await read { try $0.unpublished() }
    }

    public func published(upTo size: UInt64) async throws(StoreError) { try await write { try $0.published(upTo: size) } }

    public func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) async throws(StoreError) -> Bool {
        let isClosed = try await write { try $0.closeLog(events, next: next, mark: mark) }
        if isClosed { journal.hasStarted = false }
        return isClosed
    }

    public func beginLog(after end: Checkpoint, marks: [StoreMark]) async throws(StoreError) -> Bool {
        try await write { try $0.beginLog(after: end, marks: marks) }
    }

    // MARK: Marks and counts

    public func mark(_ name: String) async throws(StoreError) -> [UInt8]? { try await read { try $0.mark(name) } }

    public func setMark(_ name: String, _ value: [UInt8]) async throws(StoreError) {
        try await write { try $0.setMark(name, value) }
    }

    public func counts() async throws(StoreError) -> StoreCounts { try await read { try $0.counts() } }
}
