public import Ledger

/// A queued task of the store itself: expiry, publication of the ledger, marks. Its rules are written once, over `StoreEngine`.
public struct StoreTask: Sendable {
    /// The function's name, for tests that fail calls.
    let name: StaticString
    let run: @Sendable (any StoreEngine) throws -> @Sendable () -> Void
    let fail: @Sendable (StoreError) -> Void
    /// True if its success shows that the store can write.
    let isSignOfLife: Bool
}

extension Store {
    /// - Parameter durable: called when the work is durable, before this returns.
    private func keep<Value: Sendable>(
        _ access: Access, isSignOfLife: Bool = true, _ name: StaticString = #function,
        _ body: @escaping @Sendable (any StoreEngine) throws -> Value,
        durable: @escaping @Sendable (any LedgerState, Value) -> Void = { _, _ in }
    ) async throws(StoreError) -> Value {
        let result: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            let work = StoreTask(
                name: name,
                run: { engine in
                    let (value, state) = (try body(engine), engine.state)
                    return {
                        durable(state, value)
                        continuation.resume(returning: .success(value))
                    }
                }, fail: { continuation.resume(returning: .failure($0)) }, isSignOfLife: isSignOfLife)
            submit(work, access)
        }
        return try result.get()
    }

    // MARK: Expiry

    /// Purges rows that are due, at most `limit` of each kind. Jobs are overdue `jobSlack` after their deadline. Times are unix ms.
    public func sweep(now: UInt64, limit: Int, jobSlack: UInt64) async throws(StoreError) -> SweepResult {
        try await keep(.apart) { try $0.sweep(now: now, limit: limit, jobSlack: jobSlack) }
    }

    /// Purges everything, at most `limit` rows of each kind, as if each room had been closed.
    public func forgetAll(limit: Int) async throws(StoreError) -> SweepResult {
        try await keep(.apart) { try $0.forgetAll(limit: limit) }
    }

    /// Returns the earliest time at which `sweep` will find something, or nil if nothing will expire.
    public func nextExpiry(jobSlack: UInt64) async throws(StoreError) -> UInt64? {
        try await keep(.read) { try $0.nextExpiry(jobSlack: jobSlack) }
    }

    // MARK: Ledger

    /// Records the start of a broker. From then until `broker.stopped` is recorded, batches are frozen and completed on time.
    public func start(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError) {
        try await keep(.write) {
            try $0.start(events, marks)
        } durable: { state, _ in
            state.hasStarted = true
        }
    }

    /// Records entries that belong to no operation and no batch, and sets marks with them. Fills in `swept` of `keys.ratcheted`.
    public func record(_ events: [Entry.Op], marks: [StoreMark] = []) async throws(StoreError) {
        try await keep(.write) {
            try $0.record(events, marks)
        } durable: { state, _ in
            for case .brokerStopped in events { state.hasStarted = false }
        }
    }

    /// Returns the latest window with an entry, in unix seconds, or 0 if there is none.
    public func latestWindow() async throws(StoreError) -> UInt64 { try await keep(.read) { try $0.latestWindow() } }

    /// Closes all windows before `window`. Call it every window, since batches fall due without a request.
    /// - Returns: their entries and those of their batches in the log's order, at most `limit`. Fewer only if there are no more.
    public func closedEntries(before window: UInt64, limit: Int) async throws(StoreError) -> [ClosedEntry] {
        // Succeeds even on a full disk, so it shows nothing.
        let entries = try await keep(.apart, isSignOfLife: false) { try $0.close(before: window, limit: limit) }
        if let entries { return entries }
        return try await keep(.survey) { try $0.entries(before: window, limit: limit) }
    }

    /// Returns the last signed head, or nil before the first one.
    public func logHead() async throws(StoreError) -> LogHead? { try await keep(.read) { try $0.logHead() } }

    /// Replaces the head by one that also covers `entries`. The current head must be published.
    /// - Returns: false if the current head doesn't have `size`.
    public func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) async throws(StoreError) -> Bool {
        try await keep(.apart) {
            try $0.commit(head, after: size, entries: entries)
        } durable: { state, isDone in
            if isDone { state.note(head: head.size) }
        }
    }

    /// Returns the entries under the head that a folder of `size` entries may lack, perhaps with some before them, and the index of the first.
    public func unpublished(after size: UInt64) async throws(StoreError) -> (first: UInt64, entries: [[UInt8]]) {
        try await keep(.survey) { try $0.unpublished(after: size) }
    }

    /// Deletes the entries that the folder now has: those under the head of `size`.
    public func published(upTo size: UInt64) async throws(StoreError) { try await keep(.apart) { try $0.published(upTo: size) } }

    // MARK: Rotation

    /// Ends the log: records the balance of each open bucket and the origin `next`, and sets `mark`.
    /// - Parameter events: entries that precede these in the same window, e.g. `broker.stopped`.
    /// - Returns: false if there is no log, if entries wait for publication, or if the latest midnight's batch is not complete. Sweep, publish
    ///   and try again then.
    public func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) async throws(StoreError) -> Bool {
        try await keep(.write) {
            try $0.closeLog(events, next: next, mark: mark)
        } durable: { state, isClosed in
            if isClosed { state.hasStarted = false }
        }
    }

    /// Deletes the head of a closed, published log. The next log begins in the same window with the balance of each bucket. Entries that wait
    /// for their batch are kept.
    /// - Parameter end: the closed log's last checkpoint.
    /// - Returns: false if the head has another size, or entries wait for publication.
    public func beginLog(after end: Checkpoint, marks: [StoreMark]) async throws(StoreError) -> Bool {
        try await keep(.write) {
            try $0.beginLog(after: end, marks: marks)
        } durable: { state, hasBegun in
            if hasBegun { state.forgetHead() }
        }
    }

    // MARK: Marks and counts

    /// Returns a mark of this node, or nil if it isn't set.
    public func mark(_ name: String) async throws(StoreError) -> [UInt8]? { try await keep(.read) { try $0.mark(name) } }

    public func setMark(_ name: String, _ value: [UInt8]) async throws(StoreError) {
        try await keep(.write) { try $0.setMark(name, value) }
    }

    /// Replaces a mark if its value is still `old`. A missing mark counts as empty.
    /// - Returns: false if the value differs.
    public func replaceMark(_ name: String, _ old: [UInt8], by new: [UInt8]) async throws(StoreError) -> Bool {
        try await keep(.write) { try $0.replaceMark(name, old, by: new) }
    }

    /// Returns counts for the operator.
    public func counts() async throws(StoreError) -> StoreCounts { try await keep(.survey) { try $0.counts() } }
}

/// The log's signed head.
public struct LogHead: Sendable, Equatable {
    public var size: UInt64
    /// The signed checkpoint's text, as published.
    public var checkpoint: String
    /// The window of the last entry in the log, unix seconds.
    public var window: UInt64

    public init(size: UInt64, checkpoint: String, window: UInt64) {
        (self.size, self.checkpoint, self.window) = (size, checkpoint, window)
    }
}

/// What a sweep purged.
public struct SweepResult: Sendable, Equatable {
    public var tokens = 0
    public var rooms = 0
    public var codes = 0
    public var jobs = 0
    /// The expiry of each purged token.
    public var ends: [UInt64] = []
    /// Sealed answers for retries of creates and accepts.
    public var retries = 0
    /// Sessions, timers, indexes and seen marks.
    public var others = 0
    /// True if sealed data was deleted from a table. The write-ahead log still has it.
    public var hasErased: Bool { tokens + rooms + codes + jobs + retries + others > 0 }
    /// True if the limit was reached, so more may be due.
    public var more = false
}

/// Counts for the operator.
public struct StoreCounts: Sendable, Equatable {
    public var rooms = 0
    public var tokens = 0
    public var codes = 0
    public var jobs = 0
    /// Tokens of audiences.
    public var registrations = 0
    public var sessions = 0
    public var timers = 0
    /// Entries that are not known to be published. Entries of open batches don't count.
    public var waitingEntries = 0
}

/// A named value of this node.
public struct StoreMark: Sendable, Equatable {
    public var name: String
    public var value: [UInt8]

    public init(_ name: String, _ value: [UInt8]) { (self.name, self.value) = (name, value) }
}
