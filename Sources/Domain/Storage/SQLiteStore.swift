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
        submit(StoreThread.Job(run: { try operation.run($0.transaction) }, fail: operation.fail), access)
    }

    public func submit(_ work: StoreTask, _ access: Access) {
        submit(
            StoreThread.Job(run: { try work.run($0) }, fail: work.fail, isSignOfLife: work.isSignOfLife), access)
    }

    private func submit(_ job: StoreThread.Job, _ access: Access) {
        var job = job
        if access == .apart { job.turn = .apart }
        switch access {
        case .read: reader.submit(job)
        case .survey: background.submit(job)
        case .write, .apart: writer.submit(job)
        }
    }

    // The next four are lengths of the write-ahead log in frames of 4 KiB.

    /// A background thread copies the log into the database each time it has grown by this much. Longer copies write a page less often.
    private static let copiedFrames = 4_000
    /// The same while a sweep goes on, whose commits are large. Each copy ends in a sync that delays others' commits, so small ones keep that
    /// delay short.
    private static let copiedFramesOfSweep = 200
    /// At this length the writer then copies the small rest, so that the log can restart.
    private static let restartFrames = 4_000
    /// At this length the writer copies everything, because the background thread can't keep up.
    private static let mostFrames = 16_000

    private static func checkpoint(_ database: SQLiteDatabase, _ writer: StoreThread, _ background: StoreThread) {
        let frames = database.connection.framesInLog
        // The log has restarted.
        if frames < database.framesCopied { database.framesCopied = 0 }
        if frames >= mostFrames, frames - database.framesCopied >= restartFrames {
            try? database.connection.checkpoint()
            database.framesCopied = frames
        }
        let due = database.isSweeping ? copiedFramesOfSweep : copiedFrames
        guard frames - database.framesCopied >= due, !database.isCheckpointing else { return }
        database.isCheckpointing = true
        let rest = StoreThread.Job(
            run: { database in
                database.isCheckpointing = false
                // Readers may have blocked part of it. Don't retry at every commit.
                database.framesCopied = database.connection.framesInLog
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
        on thread: StoreThread, _ turn: StoreThread.Turn = .shared, _ body: @escaping @Sendable (SQLiteDatabase) throws -> Value
    ) async throws(StoreError) -> Value {
        let result: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            let job = StoreThread.Job(
                run: { database in
                    let value = try body(database)
                    return { continuation.resume(returning: .success(value)) }
                }, fail: { continuation.resume(returning: .failure($0)) }, turn: turn)
            thread.submit(job)
        }
        return try result.get()
    }

    /// Long enough for our own short reads, and short enough not to delay writers for another process's read.
    private static let scrubWaitMs: Int32 = 50

    public func scrub() async throws(StoreError) -> Bool {
        // Most of the work happens while others write.
        try await run(on: background) { try $0.connection.checkpoint() }
        return try await run(on: writer, .alone) { try $0.connection.checkpointTruncating(waitMs: Self.scrubWaitMs) }
    }

    public func takeAlarms() -> [String] { journal.takeAlarms() }
}
