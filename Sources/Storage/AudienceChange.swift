public import Vocabulary

/// One event and every push that follows from it: all of it is kept, or nothing.
public struct AudienceChange: Sendable, Equatable {
    public var jobs: [AudienceJob]
    public var waits: [WaitingUpdate]
    public var purges: [RegistrationPurge]
    public var session: SessionChange?
    public var timer: TimerChange?
    public var seen: SeenRecord?
    /// Jobs whose registration is gone are left out, and do not stand in the way of the others.
    public var leavesOutGone = false

    public init(
        jobs: [AudienceJob] = [], waits: [WaitingUpdate] = [], purges: [RegistrationPurge] = [], session: SessionChange? = nil,
        timer: TimerChange? = nil, seen: SeenRecord? = nil
    ) {
        self.jobs = jobs
        self.waits = waits
        self.purges = purges
        self.session = session
        self.timer = timer
        self.seen = seen
    }

    /// Whether there is nothing to do.
    public var isEmpty: Bool {
        jobs.isEmpty && waits.isEmpty && purges.isEmpty && session == nil && timer == nil && seen == nil
    }
}

/// A push to a registration.
public struct AudienceJob: Sendable, Equatable {
    /// Its slot is 0 and its room empty.
    public var job: NewJob
    /// Set when it is the update of an activity, whose window it takes.
    public var update: ActivityUpdate?
    /// Destroys the registration together with the push, which is its last.
    public var purge: PurgeCause?

    public init(_ job: NewJob, update: ActivityUpdate? = nil, purge: PurgeCause? = nil) {
        self.job = job
        self.update = update
        self.purge = purge
    }

    /// Its registration's row.
    public var row: RowName { job.record.row }
}

/// What an update that leaves makes of an activity's throttle. What waited is forgotten.
public struct ActivityUpdate: Sendable, Equatable {
    /// `opens` as it was read.
    public var wasOpens: UInt64
    /// What waited as it was read, for an update that is sent for it; nil for one that is newer than whatever waits.
    public var wasWaiting: [UInt8]?
    public var opens: UInt64
    public var stamp: UInt64

    public init(wasOpens: UInt64, wasWaiting: [UInt8]? = nil, opens: UInt64, stamp: UInt64) {
        self.wasOpens = wasOpens
        self.wasWaiting = wasWaiting
        self.opens = opens
        self.stamp = stamp
    }
}

/// An update that waits in the place of any earlier one; nil for none any more.
public struct WaitingUpdate: Sendable, Equatable {
    public var row: RowName
    /// `opens` as it was read.
    public var wasOpens: UInt64
    /// From when on it may leave.
    public var opens: UInt64
    public var waiting: [UInt8]?

    /// - Parameter opens: nil for `wasOpens`.
    public init(row: RowName, wasOpens: UInt64, opens: UInt64? = nil, waiting: [UInt8]?) {
        self.row = row
        self.wasOpens = wasOpens
        self.opens = opens ?? wasOpens
        self.waiting = waiting
    }
}

public struct RegistrationPurge: Sendable, Equatable {
    public var row: RowName
    public var cause: PurgeCause

    public init(_ row: RowName, _ cause: PurgeCause) {
        self.row = row
        self.cause = cause
    }
}

public enum SessionChange: Sendable, Equatable {
    /// Puts it in the place of the version that was read; nil for none. `replacing`: that one's index, where it lies in another place.
    case set(SessionRecord, after: UInt64?, replacing: Digest? = nil)
    /// One that is gone already is left at that.
    case delete(expires: UInt64, session: Digest)
    /// Changes when it began, whatever version it has by now. A session that is gone stays gone.
    case restart(session: Digest, started: UInt64)
}

public enum TimerChange: Sendable, Equatable {
    case begin(TimerRecord)
    case settle(id: RequestID, expires: UInt64, answer: UInt8)
}

/// What a change came to.
public enum ChangeOutcome: Sendable, Equatable {
    case done
    /// Something that was read is no longer so: read again.
    case changed
    /// It was done already.
    case repeated
    /// The timer has its answer.
    case settled
    /// Done, but for the jobs of these registrations, which are gone.
    case leftOut(Set<RowName>)
}
