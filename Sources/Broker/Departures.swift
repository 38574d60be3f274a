import Storage

/// The pushes that wait for their time, and those whose time has come but not their turn. In unix ms.
///
/// Those of one time leave in an order that says nothing about the order in which they were asked for.
struct Departures {
    struct Departure: Sendable {
        let job: JobRecord
        /// What the push took of its token's share; nil for one from before the start, which nobody counted.
        let place: TokenBudget.Place?
        /// A previous run stored it, and may have sent it.
        var isFromBefore: Bool { place == nil }
        /// There is no time left at which it may leave.
        var isMissed = false
    }

    /// So many are made ready at a time: read, opened and rendered on the loop that answers requests.
    static let mostGettingReady = 32
    /// A push under way holds its token open in the arena, which has 40,960 places for everything; one that waits is sealed.
    static let mostUnderWay = 16_384
    /// More than this many are not taken: what Apple can't be given within two minutes is better refused at once.
    static let mostQueued = 200_000

    private var waiting: [UInt64: [Departure]] = [:]
    private var due: [Departure] = []
    private var waitingCount = 0
    private var next = 0
    private var gettingReady = 0
    private var underWay = 0
    private let shuffles: Bool

    /// - Parameter shuffles: not where every push leaves at once, so that a story told twice goes the same way.
    init(shuffles: Bool) { self.shuffles = shuffles }

    /// Whose time has come, and who is under way: a stop waits for them and for no others.
    var open: Int { due.count - next + underWay }
    /// All of them.
    var queued: Int { waitingCount + open }
    var isFull: Bool { queued >= Self.mostQueued }
    private var mayStart: Bool {
        next < due.count && gettingReady < Self.mostGettingReady && underWay < Self.mostUnderWay
    }

    /// - Returns: whether it is the first to wait for that time.
    mutating func wait(_ departure: Departure, until time: UInt64) -> Bool {
        waiting[time, default: []].append(departure)
        waitingCount += 1
        return waiting[time]?.count == 1
    }

    mutating func add(_ departure: Departure) { due.append(departure) }

    /// The time has come.
    mutating func arrive(at time: UInt64) {
        guard let arrived = waiting.removeValue(forKey: time) else { return }
        waitingCount -= arrived.count
        due += shuffles ? arrived.shuffled() : arrived
    }

    /// The next to be made ready, if there may be one more.
    mutating func start() -> Departure? {
        guard mayStart else { return nil }
        let departure = due[next]
        next += 1
        gettingReady += 1
        underWay += 1
        if next == due.count {
            due = []
            next = 0
        } else if next > 1_024, next * 2 > due.count {
            due.removeFirst(next)
            next = 0
        }
        return departure
    }

    mutating func isReady() { gettingReady -= 1 }
    mutating func end() { underWay -= 1 }
}
