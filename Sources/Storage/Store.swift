public import Ledger
public import Vocabulary

/// What creating a room came to.
public enum CreateOutcome: Sendable, Equatable {
    case created
    /// The code is taken: the caller may own it (a repeat), or not.
    case taken(CodeRecord)
    /// As many pending rooms with short codes stand as the policy lets.
    case tooManyShort
}

/// What accepting came to.
public enum AcceptOutcome: Sendable, Equatable {
    case accepted
    /// Code or room changed since they were read: read again.
    case changed
}

/// What asking for a push came to.
public enum KnockOutcome: Sendable, Equatable {
    case queued
    /// The side may be knocked at again from then on, in broker time.
    case throttled(until: UInt64)
    /// The token is no longer the one that was opened: read again.
    case changed
}

/// A push's end, for the ledger.
public struct JobOutcome: Sendable, Equatable {
    /// The HTTP status APNs gave; 0 when there was no answer.
    public var status: UInt16
    /// One that the ledger says; nil when APNs took the push.
    public var reason: APNsReason?
    /// Whether the token is to be destroyed as no longer registered.
    public var purge: Bool
    /// Whether the side may be knocked at again at once, because nothing was sent.
    public var releaseThrottle: Bool

    public init(status: UInt16, reason: APNsReason?, purge: Bool = false, releaseThrottle: Bool = false) {
        self.status = status
        self.reason = reason
        self.purge = purge
        self.releaseThrottle = releaseThrottle
    }
}

/// The durable part of the broker.
///
/// Each method is one whole operation together with its ledger entries: all of it is durable when the method returns, none of
/// it is kept when it throws. Reads see what is durable. `code` arguments list the join code's index under each day key it may
/// have been written with, today's first. No method is given a key or a secret.
public protocol Store: Sendable {
    // Rooms
    func room(_ room: Digest) async throws(StoreError) -> RoomRecord?
    func joinable(_ code: [Digest], now: UInt64) async throws(StoreError) -> JoinableRoom?
    func token(_ purgeID: EntryID, expires: UInt64) async throws(StoreError) -> TokenRecord?
    /// Inserts room, code and token unless the code stands under any of its indexes.
    func create(
        _ room: RoomRecord, code: PendingCode, otherIndexes: [Digest], token: NewToken?, shortLimit: Int, now: UInt64
    ) async throws(StoreError) -> CreateOutcome
    /// Gives the room its joiner if `code` is still pending, and turns the code into a used one.
    func accept(
        _ code: PendingCode, joiner: SideRecord, token: NewToken?, used: UsedCode, now: UInt64
    ) async throws(StoreError) -> AcceptOutcome
    /// Puts a token in a side's place; one that stood there is purged as replaced.
    /// - Parameter proven: whether the caller has shown the side's member secret.
    /// - Returns: false when the room is gone, or the side has used its secret meanwhile and the caller has not shown it.
    func replaceToken(
        room: Digest, slot: UInt8, proven: Bool, token: NewToken
    ) async throws(StoreError) -> Bool
    /// - Returns: how many tokens were purged, or nil where `replaceToken` gives false.
    func withdrawToken(room: Digest, slot: UInt8, proven: Bool) async throws(StoreError) -> Int?
    /// Records that a side has used its member secret. The sealed copy that answers a repeated create is deleted with it.
    /// - Returns: false if the room is gone.
    func markProven(room: Digest, slot: UInt8) async throws(StoreError) -> Bool
    /// Deletes the room, its tokens and its code.
    /// - Returns: how many tokens were purged, or nil when the room was gone already.
    func close(room: Digest) async throws(StoreError) -> Int?

    // Pushes
    /// Stores the job if the side still has this token and was not knocked at in the last `throttle` milliseconds.
    /// - Parameter knocked: when the side has been knocked at from now on, which may lie ahead.
    func knock(_ job: NewJob, throttle: UInt64, now: UInt64, knocked: UInt64) async throws(StoreError) -> KnockOutcome
    /// Ends a job. A job that is gone already is left as it is.
    func finish(_ job: JobRecord, _ outcome: JobOutcome) async throws(StoreError)
    func jobs() async throws(StoreError) -> [JobRecord]

    // Audiences
    /// The registrations that stand under one of the indexes.
    func registrations(
        _ lookup: RegistrationLookup, _ indexes: [Digest]
    ) async throws(StoreError) -> [RegistrationRecord]
    /// Where registrations lie, each place once: what their indexes can be made by. It reads all of them.
    func registrationPlaces() async throws(StoreError) -> [RegistrationPlace]
    /// Whether a registration stands, for a push about to leave.
    func holds(_ row: RowName) async throws(StoreError) -> Bool
    /// Inserts a registration, and purges as replaced those in whose place it comes, all of which must stand with the throttle that was read.
    /// - Parameters:
    ///   - devices: its token's indexes in all places where it may stand: a row there that is not replaced gives `changed`.
    ///   - owners: the owner's indexes in all places, by which the registrations of this kind are counted.
    ///   - limit: how many of this kind the owner may have.
    func register(
        _ registration: NewRegistration, replacing: [RegistrationRecord], devices: [Digest], owners: [Digest], limit: Int
    ) async throws(StoreError) -> RegisterOutcome
    /// - Returns: how many were purged.
    func unregister(_ rows: [RowName], cause: PurgeCause) async throws(StoreError) -> Int
    /// Takes some bits out of the mask of what a registration asks for, and puts others in.
    /// - Returns: false when the registration is gone.
    func setPreferences(_ row: RowName, removing: UInt32, adding: UInt32) async throws(StoreError) -> Bool
    /// The session that stands under the first of the indexes that has one.
    func session(_ indexes: [Digest]) async throws(StoreError) -> SessionRecord?
    func timer(_ id: RequestID) async throws(StoreError) -> TimerRecord?
    /// The newest timer under one of these indexes of its back end's own id.
    func timer(named names: [Digest], by namer: RequestNamer) async throws(StoreError) -> TimerRecord?
    /// What has fallen due at `now`, at most `limit` of each kind, the earliest first.
    func due(now: UInt64, limit: Int) async throws(StoreError) -> DueWork
    /// Does all of a change, or nothing. A job whose registration is gone gives `changed`, or `leftOut` where the change leaves it out.
    func apply(_ change: AudienceChange, now: UInt64) async throws(StoreError) -> ChangeOutcome

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
    func shutDown() async

    /// What is asked for until `release` may wait for it, so that it is done together.
    func hold()
    func release()
}

extension Store {
    public func code(_ code: [Digest], now: UInt64) async throws(StoreError) -> CodeRecord? {
        try await joinable(code, now: now)?.code
    }

    /// For who knows that the token stands nowhere else.
    public func register(
        _ registration: NewRegistration, replacing: [RegistrationRecord], owners: [Digest], limit: Int
    ) async throws(StoreError) -> RegisterOutcome {
        try await register(
            registration, replacing: replacing, devices: [registration.record.device], owners: owners, limit: limit)
    }

    /// Whether the token that a job is for stands, of a room or an audience.
    public func holdsToken(of job: JobRecord) async throws(StoreError) -> Bool {
        if job.room == nil { return try await holds(job.row) }
        return try await token(job.purgeID, expires: job.expires) != nil
    }

    public func record(_ events: [Entry.Op]) async throws(StoreError) { try await record(events, marks: []) }

    public func hold() {}
    public func release() {}
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
