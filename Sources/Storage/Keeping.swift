public import Ledger

/// What an engine does besides operations on rows, each in its own way: forgetting what has expired, and the ledger's entries until they are
/// published.
///
/// All of a call is durable when it returns, none of it is kept when it throws.
public protocol Keeping: Sendable {
    // Forgetting
    /// Purges at most `limit` rows of each kind that are due. Jobs are overdue `jobSlack` after their deadline.
    func sweep(now: UInt64, limit: Int, jobSlack: UInt64) async throws(StoreError) -> SweepResult
    /// Purges everything, at most `limit` rows of each kind, as if each room had been closed.
    func forgetAll(limit: Int) async throws(StoreError) -> SweepResult
    /// The earliest time at which `sweep` will have something to do.
    func nextExpiry(jobSlack: UInt64) async throws(StoreError) -> UInt64?
    /// Leaves nothing of purged rows in the write-ahead log.
    /// - Returns: false when a reader stood in the way; try again.
    func scrub() async throws(StoreError) -> Bool

    // Ledger
    /// Records that a broker has started. From then on, until `broker.stopped` is recorded, batches are frozen and completed in time.
    func start(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError)
    /// Records entries that belong to no other operation and no batch, and sets marks with them. Fills in `swept` of `keys.ratcheted`.
    func record(_ events: [Entry.Op], marks: [StoreMark]) async throws(StoreError)
    /// The latest window that holds an entry, unix seconds; 0 for none.
    func latestWindow() async throws(StoreError) -> UInt64
    /// Closes all windows before `window`. Call it every window, since batches fall due without a request.
    /// - Returns: their entries and those of their batches in the log's order, at most `limit`; fewer only if there are no more.
    func closedEntries(before window: UInt64, limit: Int) async throws(StoreError) -> [ClosedEntry]
    func logHead() async throws(StoreError) -> LogHead?
    /// Replaces the head, if it still has `size` and is published, by one that covers `entries` as well.
    /// - Returns: false when another head stands there.
    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) async throws(StoreError) -> Bool
    /// The entries that the head covers and the folder is not known to hold, and how many it holds.
    func unpublished() async throws(StoreError) -> (first: UInt64, entries: [[UInt8]])
    /// The folder holds the head of `size`: forgets what lies there now.
    func published(upTo size: UInt64) async throws(StoreError)

    // Another log
    /// Records that the log ends, with the balance of each open bucket, and which origin follows, with a mark that says so.
    /// - Parameter events: come before that in the same window, e.g. that the broker stops.
    /// - Returns: false if there is no log, or while entries wait for log or folder, or the latest midnight's batch does. Sweep, publish and
    ///   try again.
    func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) async throws(StoreError) -> Bool
    /// Forgets the head of a closed log, all of which lies in its folder, and begins the next one in the window in which the old one was
    /// closed, with what each bucket still holds. Entries that wait for their batch stay.
    /// - Parameter end: the closed log's last checkpoint.
    /// - Returns: false when the head has another size, or entries wait.
    func beginLog(after end: Checkpoint, marks: [StoreMark]) async throws(StoreError) -> Bool

    // The node's own marks
    func mark(_ name: String) async throws(StoreError) -> [UInt8]?
    func setMark(_ name: String, _ value: [UInt8]) async throws(StoreError)

    /// Counts for the operator.
    func counts() async throws(StoreError) -> StoreCounts
}

extension Keeping {
    public func record(_ events: [Entry.Op]) async throws(StoreError) { try await record(events, marks: []) }
}

/// The log as the store knows it: what was signed last.
public struct LogHead: Sendable, Equatable {
    public var size: UInt64
    /// The signed checkpoint, as published.
    public var checkpoint: String
    /// The last window whose entries are in the log.
    public var window: UInt64

    public init(size: UInt64, checkpoint: String, window: UInt64) {
        self.size = size
        self.checkpoint = checkpoint
        self.window = window
    }
}

/// What purging what has expired did, and when to look again.
public struct SweepResult: Sendable, Equatable {
    public var tokens = 0
    public var rooms = 0
    public var codes = 0
    public var jobs = 0
    /// Of each token, when it was to end.
    public var ends: [UInt64] = []
    /// Sealed answers to creates and accepts that nobody may ask for again.
    public var retries = 0
    /// Sessions, timers and marks of what was done.
    public var others = 0
    /// Whether anything that was sealed is gone from its table now, and still lies in the write-ahead log.
    public var hasErased: Bool { tokens + rooms + codes + jobs + retries + others > 0 }
    /// Whether the batch was full, so that more may be due already.
    public var more = false

    public init() {}
}

public struct StoreCounts: Sendable, Equatable {
    public var rooms = 0
    public var tokens = 0
    public var codes = 0
    public var jobs = 0
    /// Tokens of audiences.
    public var registrations = 0
    public var sessions = 0
    public var timers = 0
    /// Entries that are not known to be published. What waits for its batch is not counted.
    public var waitingEntries = 0

    public init() {}
}

/// A mark to be set together with something else.
public struct StoreMark: Sendable, Equatable {
    public var name: String
    public var value: [UInt8]

    public init(_ name: String, _ value: [UInt8]) {
        self.name = name
        self.value = value
    }
}
