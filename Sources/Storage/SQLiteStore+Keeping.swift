public import Ledger
import SQLite

extension SQLiteStore {
    func keep<Value: Sendable>(
        on thread: StoreThread, _ turn: StoreThread.Turn = .shared, isSignOfLife: Bool = true,
        _ body: @escaping @Sendable (SQLiteDatabase) throws -> Value
    ) async throws(StoreError) -> Value {
        let result = await withCheckedContinuation { continuation in
            let call = WaitingCall(body, continuation)
            thread.submit(StoreThread.Job(run: call.run, finish: call.finish, turn: turn, isSignOfLife: isSignOfLife))
        }
        return try result.get()
    }

    // MARK: Forgetting

    public func sweep(now: UInt64, limit: Int, jobSlack: UInt64) async throws(StoreError) -> SweepResult {
        try await keep(on: writer, .apart) { try $0.sweep(now: now, limit: limit, jobSlack: jobSlack) }
    }

    public func forgetAll(limit: Int) async throws(StoreError) -> SweepResult {
        try await keep(on: writer, .apart) { try $0.forgetAll(limit: limit) }
    }

    public func nextExpiry(jobSlack: UInt64) async throws(StoreError) -> UInt64? {
        try await keep(on: reader) { try $0.nextExpiry(jobSlack: jobSlack) }
    }

    /// Long enough for our own readers, which come and go; too short to hold up writers for those of someone else.
    private static let scrubWaitMs: Int32 = 50

    public func scrub() async throws(StoreError) -> Bool {
        // Most of it while others write.
        try await keep(on: background) { try $0.connection.checkpoint() }
        return try await keep(on: writer, .alone) { try $0.connection.checkpointTruncating(waitMs: Self.scrubWaitMs) }
    }

    // MARK: Ledger

    public func start(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await keep(on: writer) { try $0.record(events, marks) }
        journal.noteStart()
    }

    public func record(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await keep(on: writer) { try $0.record(events, marks) }
        for case .brokerStopped in events { journal.noteEnd() }
    }

    public func latestWindow() async throws(StoreError) -> UInt64 { try await keep(on: reader) { try $0.latestWindow() } }

    public func closedEntries(before window: UInt64, limit: Int) async throws(StoreError) -> [ClosedEntry] {
        // On the writer, so that no entry of a closed window can come after it. Nor may one come between those of an open window.
        // It succeeds on a full disk too.
        let early = try await keep(on: writer, .apart, isSignOfLife: false) { database in
            database.journal.give(before: window) ? try database.closedEntries(before: window, limit: limit) : nil
        }
        if let early { return early }
        return try await keep(on: background) { try $0.closedEntries(before: window, limit: limit) }
    }

    public func logHead() async throws(StoreError) -> LogHead? { try await keep(on: reader) { try $0.logHead() } }

    public func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) async throws(StoreError) -> Bool {
        try await keep(on: writer, .apart) { try $0.commit(head, after: size, entries: entries) }
    }

    public func unpublished() async throws(StoreError) -> (first: UInt64, entries: [[UInt8]]) {
        try await keep(on: background) { try $0.unpublished() }
    }

    public func published(upTo size: UInt64) async throws(StoreError) {
        try await keep(on: writer, .apart) { try $0.published(upTo: size) }
    }

    public func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) async throws(StoreError) -> Bool {
        let isClosed = try await keep(on: writer) { try $0.closeLog(events, next: next, mark: mark) }
        if isClosed { journal.noteEnd() }
        return isClosed
    }

    public func beginLog(after end: Checkpoint, marks: [StoreMark]) async throws(StoreError) -> Bool {
        try await keep(on: writer) { try $0.beginLog(after: end, marks: marks) }
    }

    // MARK: Marks, counts, end

    public func mark(_ name: String) async throws(StoreError) -> [UInt8]? { try await keep(on: reader) { try $0.mark(name) } }

    public func setMark(_ name: String, _ value: [UInt8]) async throws(StoreError) {
        try await keep(on: writer) { try $0.setMark(name, value) }
    }

    public func counts() async throws(StoreError) -> StoreCounts {
        try await keep(on: background) { try $0.counts() }
    }
}
