public import Ledger
public import Policy
import SQLite

/// The embedded store: one SQLite file in WAL mode, with one thread for writes, one for reads and one for long reads.
public final class SQLiteStore: Store {
    let writer: StoreThread
    let reader: StoreThread
    /// For long reads, so that no request waits for them.
    private let background: StoreThread
    let journal: Journal

    /// Opens or makes the database.
    /// - Parameters:
    ///   - resolution: length of a ledger window in seconds.
    ///   - timing: from the rooms policy. It can't change during the life of a state folder. Nil for the recorded one.
    ///   - waitingLimit: the number of entries waiting for publication at which operations are refused.
    ///   - resumption: entries to record after an absence of a minute or more without a stop.
    ///   - now: broker time in unix milliseconds.
    /// - Throws: `.otherTiming` if the state folder has another timing.
    public init(
        path: String, resolution: UInt64, timing: LedgerTiming?, waitingLimit: Int = 1_000_000, resumption: [Entry.Op] = [],
        now: @escaping @Sendable () -> UInt64
    ) throws(StoreError) {
        let journal = Journal(resolution: resolution, timing: timing ?? .standard, limit: waitingLimit, now: now)
        self.journal = journal
        let background = try StoreThread(name: "store-background", writes: false) {
            let database = try SQLiteDatabase(path: path, access: .readWrite, journal: journal)
            // Its reads are long and don't repeat, so a cache hardly helps.
            try database.connection.execute("PRAGMA cache_size = -1024")
            return database
        }
        self.background = background
        writer = try StoreThread(name: "store-writer", writes: true) {
            let database = try SQLiteDatabase(path: path, access: .readWrite, journal: journal, resumption: resumption)
            database.connection.takeOverCheckpoints()
            try database.adopt(timing)
            try database.resumeJournal()
            return database
        } committed: { database, writer in
            Self.checkpoint(database, writer, background)
        }
        reader = try StoreThread(name: "store-reader", writes: false) {
            try SQLiteDatabase(path: path, access: .readOnly, journal: journal)
        }
    }

    public func hold() {
        reader.hold()
        writer.hold()
    }

    public func release() {
        reader.release()
        writer.release()
    }

    public func submit(_ operation: Operation, _ access: Access) {
        let thread =
            switch access {
            case .read: reader
            case .write: writer
            case .survey: background
            }
        thread.submit(StoreThread.Job(run: { try operation.run($0.transaction) }, fail: operation.fail))
    }

    // The next three are lengths of the write-ahead log in frames of 4 KiB.

    /// A background thread copies the log into the database each time it has grown by this much. Each copy ends in a sync that delays
    /// commits, so small copies keep the delay short.
    static let copiedFrames = 1_000
    /// At this length the writer then copies the small rest, so that the log can restart.
    private static let restartFrames = 4_000
    /// At this length the writer copies everything, because the background thread can't keep up.
    private static let mostFrames = 16_000

    private static func checkpoint(_ database: SQLiteDatabase, _ writer: StoreThread, _ background: StoreThread) {
        let frames = database.connection.framesInLog
        if frames < copiedFrames { database.checkpointAt = copiedFrames }
        if frames >= max(mostFrames, database.checkpointAt) {
            try? database.connection.checkpoint()
            database.checkpointAt = frames + restartFrames
        }
        guard frames >= database.checkpointAt, !database.isCheckpointing else { return }
        database.isCheckpointing = true
        let rest = StoreThread.Job(
            run: { database in
                database.isCheckpointing = false
                // Readers may have blocked part of it. Don't retry at every commit.
                database.checkpointAt = database.connection.framesInLog + copiedFrames
                if frames >= restartFrames { try database.connection.checkpoint() }
                return {}
            }, fail: { _ in }, turn: .alone)
        background.submit(
            StoreThread.Job(
                run: { database in
                    // The writer's part is due even if this one fails.
                    try? database.connection.checkpoint()
                    return { writer.submit(rest) }
                }, fail: { _ in }))
    }

    /// Finishes queued operations, empties the write-ahead log and closes the file.
    public func shutDown() async {
        reader.close()
        _ = try? await scrub()
        background.close()
        writer.close()
    }
}

extension SQLiteStore {
    /// Runs `body` on a thread of the store.
    func run<Value: Sendable>(
        on thread: StoreThread, _ turn: StoreThread.Turn = .shared, isSignOfLife: Bool = true,
        _ body: @escaping @Sendable (SQLiteDatabase) throws -> Value
    ) async throws(StoreError) -> Value {
        let result: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            let job = StoreThread.Job(
                run: { database in
                    let value = try body(database)
                    return { continuation.resume(returning: .success(value)) }
                }, fail: { continuation.resume(returning: .failure($0)) }, turn: turn, isSignOfLife: isSignOfLife)
            thread.submit(job)
        }
        return try result.get()
    }

    // MARK: Expiry

    public func sweep(now: UInt64, limit: Int, jobSlack: UInt64) async throws(StoreError) -> SweepResult {
        try await run(on: writer, .apart) { try $0.sweep(now: now, limit: limit, jobSlack: jobSlack) }
    }

    public func forgetAll(limit: Int) async throws(StoreError) -> SweepResult {
        try await run(on: writer, .apart) { try $0.forgetAll(limit: limit) }
    }

    public func nextExpiry(jobSlack: UInt64) async throws(StoreError) -> UInt64? {
        try await run(on: reader) { try $0.nextExpiry(jobSlack: jobSlack) }
    }

    /// Long enough for our own short reads, and short enough not to delay writers for another process's read.
    private static let scrubWaitMs: Int32 = 50

    public func scrub() async throws(StoreError) -> Bool {
        // Most of the work happens while others write.
        try await run(on: background) { try $0.connection.checkpoint() }
        return try await run(on: writer, .alone) { try $0.connection.checkpointTruncating(waitMs: Self.scrubWaitMs) }
    }

    // MARK: Ledger

    public func start(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await run(on: writer) { try $0.record(events, marks) }
        journal.noteStart()
    }

    public func record(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await run(on: writer) { try $0.record(events, marks) }
        for case .brokerStopped in events { journal.noteEnd() }
    }

    public func latestWindow() async throws(StoreError) -> UInt64 { try await run(on: reader) { try $0.latestWindow() } }

    public func closedEntries(before window: UInt64, limit: Int) async throws(StoreError) -> [ClosedEntry] {
        // Runs on the writer, so no entry can join a closed window afterwards. An open window's entries are read here too, for the same reason.
        // This succeeds even on a full disk.
        let early = try await run(on: writer, .apart, isSignOfLife: false) { database in
            database.journal.close(before: window) ? try database.closedEntries(before: window, limit: limit) : nil
        }
        if let early { return early }
        return try await run(on: background) { try $0.closedEntries(before: window, limit: limit) }
    }

    public func logHead() async throws(StoreError) -> LogHead? { try await run(on: reader) { try $0.logHead() } }

    public func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) async throws(StoreError) -> Bool {
        try await run(on: writer, .apart) { try $0.commit(head, after: size, entries: entries) }
    }

    public func unpublished(after size: UInt64) async throws(StoreError) -> (first: UInt64, entries: [[UInt8]]) {
        try await run(on: background) { try $0.unpublished(after: size) }
    }

    public func published(upTo size: UInt64) async throws(StoreError) {
        try await run(on: writer, .apart) { try $0.published(upTo: size) }
    }

    public func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) async throws(StoreError) -> Bool {
        let isClosed = try await run(on: writer) { try $0.closeLog(events, next: next, mark: mark) }
        if isClosed { journal.noteEnd() }
        return isClosed
    }

    public func beginLog(after end: Checkpoint, marks: [StoreMark]) async throws(StoreError) -> Bool {
        try await run(on: writer) { try $0.beginLog(after: end, marks: marks) }
    }

    // MARK: Marks, counts, end

    public func mark(_ name: String) async throws(StoreError) -> [UInt8]? { try await run(on: reader) { try $0.mark(name) } }

    public func setMark(_ name: String, _ value: [UInt8]) async throws(StoreError) {
        try await run(on: writer) { try $0.setMark(name, value) }
    }

    public func takeAlarms() -> [String] { journal.takeAlarms() }

    public func counts() async throws(StoreError) -> StoreCounts { try await run(on: background) { try $0.counts() } }
}
