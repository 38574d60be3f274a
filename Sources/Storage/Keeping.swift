public import Ledger

/// Expiry, the ledger's entries until they are published, and the node's marks. Each engine has its own.
public protocol Keeping: Sendable {
    // MARK: Expiry

    /// Purges rows that are due, at most `limit` of each kind. Jobs are overdue `jobSlack` after their deadline. Times are unix ms.
    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) async throws(StoreError) -> SweepResult
    /// Purges everything, at most `limit` rows of each kind, as if each room had been closed.
    func forgetAll(limit: Int) async throws(StoreError) -> SweepResult
    /// Returns the earliest time at which `sweep` will find something, or nil if nothing will expire.
    func nextExpiry(jobSlack: UInt64) async throws(StoreError) -> UInt64?
    /// Removes purged rows from the write-ahead log.
    /// - Returns: false if a reader blocked it. Try again then.
    func scrub() async throws(StoreError) -> Bool
    /// How long after a purge `scrub` is due, milliseconds.
    var scrubDelayMs: UInt64 { get }

    // MARK: Ledger

    /// Records the start of a broker. From then until `broker.stopped` is recorded, batches are frozen and completed on time.
    func start(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError)
    /// Records entries that belong to no operation and no batch, and sets marks with them. Fills in `swept` of `keys.ratcheted`.
    func record(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError)
    /// Returns the latest window with an entry, in unix seconds, or 0 if there is none.
    func latestWindow() async throws(StoreError) -> UInt64
    /// Closes all windows before `window`. Call it every window, since batches fall due without a request.
    /// - Returns: their entries and those of their batches in the log's order, at most `limit`. Fewer only if there are no more.
    func closedEntries(before window: UInt64, limit: Int) async throws(StoreError) -> [ClosedEntry]
    /// Returns the last signed head, or nil before the first one.
    func logHead() async throws(StoreError) -> LogHead?
    /// Replaces the head by one that also covers `entries`. The current head must be published.
    /// - Returns: false if the current head doesn't have `size`.
    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) async throws(StoreError) -> Bool
    /// Returns the entries under the head that a folder of `size` entries may lack, perhaps with some before them, and the index of the first.
    func unpublished(after size: UInt64) async throws(StoreError) -> (first: UInt64, entries: [[UInt8]])
    /// Deletes the entries that the folder now has: those under the head of `size`.
    func published(upTo size: UInt64) async throws(StoreError)

    // MARK: Rotation

    /// Ends the log: records the balance of each open bucket and the origin `next`, and sets `mark`.
    /// - Parameter events: entries that precede these in the same window, e.g. `broker.stopped`.
    /// - Returns: false if there is no log, if entries wait for publication, or if the latest midnight's batch is not complete. Sweep, publish
    ///   and try again then.
    func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) async throws(StoreError) -> Bool
    /// Deletes the head of a closed, published log. The next log begins in the same window with the balance of each bucket. Entries that wait
    /// for their batch are kept.
    /// - Parameter end: the closed log's last checkpoint.
    /// - Returns: false if the head has another size, or entries wait for publication.
    func beginLog(after end: Checkpoint, marks: [StoreMark]) async throws(StoreError) -> Bool

    // MARK: Marks and counts

    /// Returns a mark of this node, or nil if it isn't set.
    func mark(_ name: String) async throws(StoreError) -> [UInt8]?
    func setMark(_ name: String, _ value: [UInt8]) async throws(StoreError)

    /// Returns what the operator should know since the last call, as text for the log.
    func takeAlarms() -> [String]
    /// Returns counts for the operator.
    func counts() async throws(StoreError) -> StoreCounts
}

extension Keeping {
    public func record(_ events: [Entry.Op]) async throws(StoreError) { try await record(events, marks: []) }
    public func takeAlarms() -> [String] { [] }
}

/// The log's signed head.
public struct LogHead: Sendable, Equatable {
    public var size: UInt64
    /// The signed checkpoint's text, as published.
    public var checkpoint: String
    /// The window of the last entry in the log, unix seconds.
    public var window: UInt64

    public init(size: UInt64, checkpoint: String, window: UInt64) {
        self.size = size
        self.checkpoint = checkpoint
        self.window = window
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

    public init() {}
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

    public init() {}
}

/// A named value of this node.
public struct StoreMark: Sendable, Equatable {
    public var name: String
    public var value: [UInt8]

    public init(_ name: String, _ value: [UInt8]) {
        self.name = name
        self.value = value
    }
}
