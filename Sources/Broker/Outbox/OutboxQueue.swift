import Sealing
import Storage
import Vocabulary
import WebPush

/// Pushes that share a limit of those under way.
enum SendGroup: Hashable {
    /// An app at Apple, in one environment.
    case app(Destination)
    /// The push services of browsers' makers with fixed names.
    case webPush
    /// All other hosts of Web Push, whose names strangers choose.
    case foreignHosts

    init(_ address: PushAddress) {
        switch address.destination {
        case .apns, .other: self = .app(address.destination)
        case .webPush:
            let maker = (Subscription(address.token)?.endpoint?.host).flatMap(BrowserMaker.init(host:))
            self = maker?.hasFixedHosts == true ? .webPush : .foreignHosts
        }
    }

    /// The most that may be under way. `Arena.pushedAddresses` has a slot for each, and for those in preparation.
    var mostUnderWay: Int {
        switch self {
        case .app: .max
        case .webPush: 1_024
        case .foreignHosts: 512
        }
    }
}

/// The jobs in the outbox: those that wait for their time, those that are due, and how many are under way. All times are unix ms.
///
/// Jobs with the same time leave in random order. An app may have at most eight jobs under way per free place, so that an app whose pushes hang
/// leaves room for others. Only an opened job names its app, so its push is held back after that.
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
        /// Known once the job was opened.
        fileprivate(set) var group: SendGroup?
        /// True for a test push, which is sent even if its side is present. Not stored: after a restart it counts as a knock, and may end the throttle of a
        /// real one.
        var isTest = false
        /// A previous run stored the job, and may have sent the push.
        var isFromBefore = false
        /// No time is left at which the push may leave.
        var isMissed = false
    }

    /// Pushes that are checked and rendered at a time, on the loop that answers requests.
    static let maxPreparing = 32
    /// Pushes that are sent at a time. Each has its token open in the arena, which has 40,960 slots for all secrets.
    static let maxUnderWay = 18_432

    /// Jobs that one app may have under way for each free place.
    private static let maxJobsPerFreePlace = 8
    /// Pushes to strangers' hosts may fill a quarter of the queue.
    private static let foreignPart = 4

    private var scheduled: [UInt64: [Entry]] = [:]
    private var due = Queue<Entry>()
    /// All jobs, from before they are stored until their outcomes are recorded.
    var queued = 0
    private var preparing = 0
    private var underWay = 0
    private var underWayOf: [SendGroup: Int] = [:]
    /// Opened jobs of apps that have too many under way.
    private var held: [SendGroup: Queue<Entry>] = [:]
    private var heldCount = 0
    private var looksAtHeldFirst = false
    private var isPaused = false
    let limit: Int
    private let shuffles: Bool

    /// - Parameters:
    ///   - limit: the most jobs that are held. With more, a push could wait longer than two minutes.
    ///   - shuffles: false if every push leaves at once. Then a test runs the same way twice.
    init(limit: Int, shuffles: Bool) {
        self.limit = limit
        self.shuffles = shuffles
    }

    /// Jobs that are due or under way. A stop waits for these only.
    var openCount: Int { due.count + heldCount + underWay }

    /// How many more jobs are taken.
    var freePlaces: Int { max(0, limit - queued) }

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
        if let group = entry.group { underWayOf[group, default: 0] += 1 }
        return entry
    }

    /// Counts a started entry for its group, which its opened job names.
    /// - Returns: false if too many of that group are under way. Then `hold` the entry, and end its delivery.
    mutating func admit(_ entry: inout Entry, to group: SendGroup) -> Bool {
        // It was held back before, and counted when it started again.
        if entry.group != nil { return true }
        let mayStart = held[group] == nil && mayStart(group, beside: underWay - 1)
        entry.group = group
        underWayOf[group, default: 0] += 1
        return mayStart
    }

    /// Holds an entry back until fewer of its group are under way.
    /// - Returns: false if the push goes to a stranger's host and their part of the queue is full.
    mutating func hold(_ entry: Entry) -> Bool {
        guard let group = entry.group else {
            makeDue(entry)
            return true
        }
        if group == .foreignHosts, held[group]?.count ?? 0 >= limit / Self.foreignPart { return false }
        keep(entry, group)
        return true
    }

    private mutating func keep(_ entry: Entry, _ group: SendGroup) {
        held[group, default: Queue()].append(entry)
        heldCount += 1
    }

    /// Ends the preparation of a push: it is about to be sent, or ends without being sent.
    mutating func endPreparation() { preparing -= 1 }

    /// Ends the delivery of an entry: it has its outcome, or was put back.
    mutating func endDelivery(of entry: Entry) {
        underWay -= 1
        guard let group = entry.group else { return }
        let left = underWayOf[group, default: 1] - 1
        underWayOf[group] = left > 0 ? left : nil
    }

    /// Starts nothing until `resume`.
    /// - Returns: false if it was paused already.
    mutating func pause() -> Bool {
        defer { isPaused = true }
        return !isPaused
    }

    mutating func resume() { isPaused = false }

    private func mayStart(_ group: SendGroup, beside underWay: Int) -> Bool {
        underWayOf[group, default: 0] < min(group.mostUnderWay, Self.maxJobsPerFreePlace * (Self.maxUnderWay - underWay))
    }

    private mutating func nextDue() -> Entry? {
        while let entry = due.popFirst() {
            guard let group = entry.group else { return entry }
            if held[group] == nil, mayStart(group, beside: underWay) { return entry }
            keep(entry, group)
        }
        return nil
    }

    private mutating func nextHeld() -> Entry? {
        // Few apps: each of them has many pushes under way.
        guard let group = held.keys.first(where: { mayStart($0, beside: underWay) }),
            let entry = held[group]?.popFirst()
        else { return nil }
        if held[group]?.isEmpty == true { held[group] = nil }
        heldCount -= 1
        return entry
    }
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
