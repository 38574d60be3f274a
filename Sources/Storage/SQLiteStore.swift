public import Ledger
public import Policy
import SQLite

/// The embedded store: one SQLite file in WAL mode, one thread that writes, one that reads, one for what takes long.
public final class SQLiteStore: Store {
    let writer: StoreThread
    let reader: StoreThread
    /// For what takes long: nobody who asks for a room waits behind it.
    let background: StoreThread
    let journal: Journal

    /// Opens or makes the database.
    /// - Parameters:
    ///   - resolution: length of a ledger window in seconds.
    ///   - timing: of the rooms policy. The state folder keeps its first one. Nil for the one that it has.
    ///   - waitingLimit: how many ledger entries may wait to be published before operations are refused.
    ///   - resumption: what the log is told after the broker was away for a minute or more without having stopped.
    ///   - now: broker time in unix milliseconds; gives entries their window.
    /// - Throws: `otherTiming` if the state folder began with another timing.
    public init(
        path: String, resolution: UInt64, timing: LedgerTiming?, waitingLimit: Int = 1_000_000, resumption: [Entry.Op] = [],
        now: @escaping @Sendable () -> UInt64
    ) throws(StoreError) {
        let journal = Journal(resolution: resolution, timing: timing ?? .standard, limit: waitingLimit, now: now)
        self.journal = journal
        let background = try StoreThread(name: "store-background", writes: false) {
            let database = try SQLiteDatabase(path: path, access: .readWrite, journal: journal)
            // It reads much, and nothing twice.
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

    public func submit(_ operation: any Operation, _ access: Access) {
        let thread =
            switch access {
            case .read: reader
            case .write: writer
            case .survey: background
            }
        thread.submit(StoreThread.Job(operation))
    }

    /// The write-ahead log's length at which it is copied into the database, and the one at which writers have to wait for that. In frames of
    /// 4 KiB.
    static let checkpointFrames = 4_000
    private static let mostFrames = 16_000

    /// Has the write-ahead log copied into the database while others write; then the writer does the rest, which is little, so that the log
    /// can begin anew.
    private static func checkpoint(_ database: SQLiteDatabase, _ writer: StoreThread, _ background: StoreThread) {
        let frames = database.connection.framesInLog
        if frames < checkpointFrames { database.checkpointAt = checkpointFrames }
        if frames >= max(mostFrames, database.checkpointAt) {
            try? database.connection.checkpoint()
            database.checkpointAt = frames + checkpointFrames
        }
        guard frames >= database.checkpointAt, !database.isCheckpointing else { return }
        database.isCheckpointing = true
        let rest = StoreThread.Job(
            run: { database in
                database.isCheckpointing = false
                // Readers may have stood in the way: not again at every commit.
                database.checkpointAt = database.connection.framesInLog + checkpointFrames / 4
                try database.connection.checkpoint()
            }, finish: { _ in }, turn: .alone)
        background.submit(
            StoreThread.Job(run: { try $0.connection.checkpoint() }, finish: { _ in writer.submit(rest) }))
    }

    /// Finishes what was queued, empties the write-ahead log and closes the file.
    public func shutDown() async {
        reader.close()
        _ = try? await scrub()
        background.close()
        writer.close()
    }
}
