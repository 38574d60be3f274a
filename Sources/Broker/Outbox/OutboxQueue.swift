import Storage
import Vocabulary

/// The jobs in the outbox: those that wait for their time, those that are due, and how many are under way. All times are unix ms.
///
/// Jobs with the same time leave in random order. An app may queue at most eight jobs per free place, so that an app whose pushes hang leaves room
/// for others. The same limit applies to jobs under way.
struct OutboxQueue {
    struct Entry: Sendable {
        let job: JobRecord
        /// The unit of the token's budget, in rooms. Nil in audiences, and if a previous run stored the job.
        let reservation: KeyedBudget.Reservation?
        /// Its charge for the queue. Nil if a previous run stored the job, or if no caller asked for it.
        var charge: PushCharge?
        /// Nil in rooms: all pushes to a side are alike, and none replaces another.
        var target: WantedPushes.Target?
        /// The approval that the push asks for. Once it has ended, the push is not sent.
        var asks: RequestID?
        /// A previous run stored the job, and may have sent the push.
        var isFromBefore = false
        /// No time is left at which the push may leave.
        var isMissed = false
    }

    /// Pushes that are checked and rendered at a time, on the loop that answers requests.
    static let maxPreparing = 32
    /// Pushes that are sent at a time. Each has its token open in the arena, which has 40,960 slots for all secrets.
    static let maxUnderWay = 18_432
    /// Further jobs are refused. Otherwise pushes could wait longer than two minutes.
    static let maxQueued = 200_000

    /// Jobs that one app may have for each free place.
    private static let maxJobsPerFreePlace = 8

    private var scheduled: [UInt64: [Entry]] = [:]
    private var due = Queue<Entry>()
    /// All jobs, from before they are stored until their outcomes are recorded.
    private(set) var queued = 0
    private var queuedOf: [App: Int] = [:]
    private var preparing = 0
    private var underWay = 0
    private var underWayOf: [App: Int] = [:]
    /// Due jobs of apps that have too many under way.
    private var held: [App: Queue<Entry>] = [:]
    private var heldCount = 0
    private var looksAtHeldFirst = false
    private var isPaused = false
    private let shuffles: Bool

    /// - Parameter shuffles: false if every push leaves at once. Then a test runs the same way twice.
    init(shuffles: Bool) { self.shuffles = shuffles }

    /// Jobs that are due or under way. A stop waits for these only.
    var openCount: Int { due.count + heldCount + underWay }

    // MARK: Quota

    /// True if no more jobs are taken, for any app.
    var isFull: Bool { queued >= Self.maxQueued }

    /// True if no more jobs for this app are taken. There may be room for other apps.
    func isFull(topic: String, environment: PushEnvironment) -> Bool {
        Self.isFull(queuedOf[App(topic: topic, environment: environment), default: 0], of: queued)
    }

    /// Returns the registrations that fit if one push to each is added in their order.
    func fitting(_ registrations: [RegistrationRecord]) -> [RegistrationRecord] {
        var (queued, queuedOf) = (queued, queuedOf)
        return registrations.filter { registration in
            let app = App(topic: registration.topic, environment: registration.environment)
            guard !Self.isFull(queuedOf[app, default: 0], of: queued) else { return false }
            queued += 1
            queuedOf[app, default: 0] += 1
            return true
        }
    }

    private static func isFull(_ own: Int, of all: Int) -> Bool { own >= maxJobsPerFreePlace * (maxQueued - all) }

    mutating func reserve(_ job: JobRecord) {
        queued += 1
        queuedOf[job.app, default: 0] += 1
    }

    mutating func release(_ job: JobRecord) {
        queued -= 1
        let left = queuedOf[job.app, default: 1] - 1
        queuedOf[job.app] = left > 0 ? left : nil
    }

    // MARK: Order

    /// - Returns: true if this is the first entry for that time.
    mutating func schedule(_ entry: Entry, at time: UInt64) -> Bool {
        scheduled[time, default: []].append(entry)
        return scheduled[time]?.count == 1
    }

    /// Makes the jobs due that are scheduled for this time.
    mutating func makeDue(at time: UInt64) {
        guard let entries = scheduled.removeValue(forKey: time) else { return }
        due.append(contentsOf: shuffles ? entries.shuffled() : entries)
    }

    mutating func makeDue(_ entry: Entry) { due.append(entry) }

    /// Starts the next due entry. Returns nil if none is due, or if a limit is reached.
    mutating func startNext() -> Entry? {
        guard !isPaused, preparing < Self.maxPreparing, underWay < Self.maxUnderWay else { return nil }
        // By turns, so that neither has to wait until the other is empty.
        looksAtHeldFirst.toggle()
        guard let entry = looksAtHeldFirst ? nextHeld() ?? nextDue() : nextDue() ?? nextHeld() else { return nil }
        preparing += 1
        underWay += 1
        underWayOf[entry.job.app, default: 0] += 1
        return entry
    }

    /// Ends the preparation of a push: it is about to be sent, or ends without being sent.
    mutating func endPreparation() { preparing -= 1 }

    /// Ends the delivery of an entry: it has its outcome, or was put back.
    mutating func endDelivery(of entry: Entry) {
        underWay -= 1
        let left = underWayOf[entry.job.app, default: 1] - 1
        underWayOf[entry.job.app] = left > 0 ? left : nil
    }

    /// Starts nothing until `resume`.
    /// - Returns: false if it was paused already.
    mutating func pause() -> Bool {
        defer { isPaused = true }
        return !isPaused
    }

    mutating func resume() { isPaused = false }

    private func mayStart(_ app: App) -> Bool {
        underWayOf[app, default: 0] < Self.maxJobsPerFreePlace * (Self.maxUnderWay - underWay)
    }

    private mutating func nextDue() -> Entry? {
        while let entry = due.popFirst() {
            let app = entry.job.app
            if held[app] == nil, mayStart(app) { return entry }
            held[app, default: Queue()].append(entry)
            heldCount += 1
        }
        return nil
    }

    private mutating func nextHeld() -> Entry? {
        // Few apps: each of them has many pushes under way.
        guard let app = held.keys.first(where: mayStart), let entry = held[app]?.popFirst() else { return nil }
        if held[app]?.isEmpty == true { held[app] = nil }
        heldCount -= 1
        return entry
    }
}

extension OutboxQueue {
    /// Pushes with one key or certificate fail together, so they share one quota.
    fileprivate struct App: Hashable {
        let topic: String
        let environment: PushEnvironment
    }
}

extension JobRecord {
    fileprivate var app: OutboxQueue.App { OutboxQueue.App(topic: topic, environment: environment) }
}

/// Limits how many steps run at the same time. Further steps wait, first come, first served.
///
/// One actor owns it and uses it in its own isolation.
final class Limiter {
    private let limit: Int
    private var running = 0
    private var waiting = Queue<CheckedContinuation<Void, Never>>()

    init(_ limit: Int) { self.limit = limit }

    /// Steps that run or wait.
    var count: Int { running + waiting.count }

    nonisolated(nonsending) func acquire() async {
        if running < limit {
            running += 1
        } else {
            await withCheckedContinuation { waiting.append($0) }
        }
    }

    /// Ends a step. The first one that waits takes its place.
    func release() {
        if let next = waiting.popFirst() { next.resume() } else { running -= 1 }
    }
}
