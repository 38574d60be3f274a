import Storage
import Vocabulary

/// The pushes that wait for their time, and those whose time has come but not their turn. In unix ms.
///
/// Those of one time leave in an order that says nothing about the order in which they were asked for. An app whose pushes are not answered
/// leaves others room: it may have at most eight times as many under way, and in the queue, as there are places free.
struct Departures {
    struct Departure: Sendable {
        let job: JobRecord
        /// What the push took of its token's share among rooms; nil where that is not counted, or was counted by a previous run.
        let place: KeyedBudget.Place?
        /// Its charge for the queue; nil if a previous run stored it, or no caller asked for it.
        var charge: PushCharge?
        /// Where it replaces what is older, and is replaced; nil in rooms, where all pushes to a token are alike.
        var replaces: NewestPushes.Place?
        /// A previous run stored it, and may have sent it.
        var isFromBefore = false
        /// There is no time left at which it may leave.
        var isMissed = false
    }

    /// So many are made ready at a time: read, opened and rendered on the loop that answers requests.
    static let mostGettingReady = 32
    /// A push under way holds its token open in the arena, which has 40,960 places for everything; one that waits is sealed.
    static let mostUnderWay = 18_432
    /// So many outcomes are on their way into the store at a time. When APNs is back they come by the thousand, and whatever else is asked of
    /// the store would stand behind all of them.
    static let mostRecording = 256
    /// More than this many are not taken: what Apple can't be given within two minutes is better refused at once.
    static let mostQueued = 200_000

    /// What one app may have, of these two, for each place that is free.
    private static let mostTimesFree = 8

    private var waiting: [UInt64: [Departure]] = [:]
    private var due = Queue<Departure>()
    /// All of them, from before they are stored until their outcomes are.
    private(set) var queued = 0
    private var queuedOf: [App: Int] = [:]
    private var gettingReady = 0
    private var underWay = 0
    private var underWayOf: [App: Int] = [:]
    /// Due, and of apps that have too many under way.
    private var held: [App: Queue<Departure>] = [:]
    private var heldCount = 0
    private var looksAtHeldFirst = false
    private var isPaused = false
    private var recording = 0
    /// What begins the recording of outcomes that are not on their way yet, the first first.
    private var unrecorded = Queue<() -> Void>()
    private let shuffles: Bool

    /// - Parameter shuffles: not where every push leaves at once, so that a story told twice goes the same way.
    init(shuffles: Bool) { self.shuffles = shuffles }

    /// Whose time has come, and who is under way: a stop waits for them and for no others.
    var open: Int { due.count + heldCount + underWay }

    /// Whether no more pushes are taken, to whatever app.
    var isFull: Bool { queued >= Self.mostQueued }

    /// Whether no more pushes to this app are taken. Others' may still be: one whose pushes hang does not fill the queue for all.
    func isFull(topic: String, environment: PushEnvironment) -> Bool {
        Self.isFull(queuedOf[App(topic: topic, environment: environment), default: 0], of: queued)
    }

    /// Those of these, in their order, that are taken when one push to each comes after the other.
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

    private static func isFull(_ own: Int, of all: Int) -> Bool { own >= mostTimesFree * (mostQueued - all) }

    mutating func enter(_ job: JobRecord) {
        queued += 1
        queuedOf[job.app, default: 0] += 1
    }

    mutating func leave(_ job: JobRecord) {
        queued -= 1
        let left = queuedOf[job.app, default: 1] - 1
        queuedOf[job.app] = left > 0 ? left : nil
    }

    /// - Returns: whether it is the first to wait for that time.
    mutating func wait(_ departure: Departure, until time: UInt64) -> Bool {
        waiting[time, default: []].append(departure)
        return waiting[time]?.count == 1
    }

    mutating func add(_ departure: Departure) { due.append(departure) }

    /// The time has come.
    mutating func arrive(at time: UInt64) {
        guard let arrived = waiting.removeValue(forKey: time) else { return }
        due.append(contentsOf: shuffles ? arrived.shuffled() : arrived)
    }

    /// The next to be made ready, if there may be one more.
    mutating func start() -> Departure? {
        guard !isPaused, gettingReady < Self.mostGettingReady, underWay < Self.mostUnderWay else { return nil }
        // By turns, so that neither waits for the other's end.
        looksAtHeldFirst.toggle()
        guard let departure = looksAtHeldFirst ? nextHeld() ?? nextDue() : nextDue() ?? nextHeld() else { return nil }
        gettingReady += 1
        underWay += 1
        underWayOf[departure.app, default: 0] += 1
        return departure
    }

    /// Lets nothing start until `resume`.
    /// - Returns: whether anything could start before.
    mutating func pause() -> Bool {
        defer { isPaused = true }
        return !isPaused
    }

    mutating func resume() { isPaused = false }

    private func mayStart(_ app: App) -> Bool {
        underWayOf[app, default: 0] < Self.mostTimesFree * (Self.mostUnderWay - underWay)
    }

    private mutating func nextDue() -> Departure? {
        while let departure = due.popFirst() {
            if held[departure.app] == nil, mayStart(departure.app) { return departure }
            held[departure.app, default: Queue()].append(departure)
            heldCount += 1
        }
        return nil
    }

    private mutating func nextHeld() -> Departure? {
        // Few: each has its many under way.
        guard let app = held.keys.first(where: mayStart), let departure = held[app]?.popFirst() else { return nil }
        if held[app]?.isEmpty == true { held[app] = nil }
        heldCount -= 1
        return departure
    }

    /// Whether an outcome may be recorded at once; otherwise it waits for its turn.
    mutating func mayRecord() -> Bool {
        guard recording < Self.mostRecording else { return false }
        recording += 1
        return true
    }

    /// On their way into the store, or waiting for their turn.
    var unrecordedOutcomes: Int { recording + unrecorded.count }

    mutating func waitToRecord(_ begin: @escaping () -> Void) { unrecorded.append(begin) }

    /// - Returns: the recording whose turn it is now, to be begun.
    mutating func isRecorded() -> (() -> Void)? {
        guard let begin = unrecorded.popFirst() else {
            recording -= 1
            return nil
        }
        return begin
    }

    mutating func isReady() { gettingReady -= 1 }

    mutating func end(_ departure: Departure) {
        underWay -= 1
        let left = underWayOf[departure.app, default: 1] - 1
        underWayOf[departure.app] = left > 0 ? left : nil
    }
}

extension Departures {
    /// What shares one fate with Apple at most: one key or certificate is for it.
    fileprivate struct App: Hashable {
        let topic: String
        let environment: PushEnvironment
    }
}

extension Departures.Departure {
    fileprivate var app: Departures.App { job.app }
}

extension JobRecord {
    fileprivate var app: Departures.App { Departures.App(topic: topic, environment: environment) }
}
