import Policy
import Synchronization

/// Dates ledger entries, plans batches, and counts what waits for publication.
///
/// Windows are unix seconds at which a window starts. They never go back, whatever the clock says. At a stop the open window is
/// published as it stands; what the next start adds to it follows under the same window.
final class Journal: Sendable {
    private struct State {
        var books = Books()
        var timing: LedgerTiming
        /// When the store last could do what was asked of it.
        var alive: UInt64 = 0
        /// The moment of the transaction under way: nothing of it happens at another, whatever the clock does meanwhile.
        var moment: UInt64 = 0
        var hasStarted = false
    }

    private let state: Mutex<State>
    private let resolution: UInt64
    private let limit: Int
    private let now: @Sendable () -> UInt64
    /// A longer time without a sign of life is an absence; the sweeper gives one at least twice as often.
    private static let longestSilence: UInt64 = 60_000

    /// - Parameters:
    ///   - resolution: a window's length in seconds.
    ///   - limit: how many entries, purges not counted, may wait before operations are refused.
    ///   - now: broker time in unix milliseconds.
    init(resolution: UInt64, timing: LedgerTiming, limit: Int, now: @escaping @Sendable () -> UInt64) {
        self.resolution = resolution
        self.limit = limit
        self.now = now
        let start = now()
        state = Mutex(State(timing: timing, alive: start, moment: start))
    }

    /// A transaction begins.
    func begin() {
        let now = now()
        state.withLock { $0.moment = max($0.moment, now) }
    }

    /// `broker.started` is recorded.
    func noteStart() { state.withLock { $0.hasStarted = true } }

    /// `broker.stopped` or `ledger.closed` is recorded.
    func noteEnd() { state.withLock { $0.hasStarted = false } }

    var hasStarted: Bool { state.withLock { $0.hasStarted } }

    /// Whether nothing was done for so long that the log has to say so before it goes on: the machine slept, its clock jumped, or
    /// the disk was full.
    var wasAbsent: Bool { state.withLock { $0.moment > $0.alive && $0.moment - $0.alive > Self.longestSilence } }

    /// Everything that was asked for was done.
    func noteAlive() { state.withLock { $0.alive = max($0.alive, $0.moment) } }

    /// Unix milliseconds.
    var moment: UInt64 { state.withLock { $0.moment } }

    var timing: LedgerTiming {
        get { state.withLock { $0.timing } }
        set { state.withLock { $0.timing = newValue } }
    }

    /// Only the writer changes them. A transaction that is rolled back sets them back.
    var books: Books {
        get { state.withLock { $0.books } }
        set { state.withLock { $0.books = newValue } }
    }

    /// Whether so many thousandths of the limit are reached.
    func isFull(_ thousandths: Int) -> Bool {
        state.withLock { state in
            let seconds = state.moment / 1_000
            let hourAgo = seconds - min(seconds, state.timing.hourSeconds)
            return state.books.limited(frozenBefore: hourAgo) * 1_000 >= limit * thousandths
        }
    }

    /// The window of an entry that is recorded now.
    func window(rank: UInt8) -> UInt64 {
        state.withLock { $0.books.place(rank: rank, start: start($0.moment), resolution: resolution) }
    }

    /// Entries before `window` are given to the log.
    /// - Returns: whether `window` lies ahead of broker time, so that later entries may come into one that was given.
    func give(before window: UInt64) -> Bool {
        state.withLock { state in
            if state.books.latest < window {
                state.books.given = max(state.books.given, state.books.latest)
                state.books.isCut = true
            }
            return window > start(state.moment)
        }
    }

    /// The boundary at which a batch may be frozen now, and whether it is a midnight; nil if there is no new one.
    var boundary: (moment: UInt64, isMidnight: Bool)? {
        state.withLock { state in
            var books = state.books
            let moment = state.moment / 1_000 / state.timing.hourSeconds * state.timing.hourSeconds
            let looked = books.looked ?? moment
            guard moment > looked,
                books.place(rank: 3, start: start(state.moment), resolution: resolution) > books.lastBatch
            else { return nil }
            let day = state.timing.daySeconds
            return (moment, moment / day > looked / day)
        }
    }

    private func start(_ moment: UInt64) -> UInt64 { moment / 1_000 / resolution * resolution }
}

/// The writer's copy of what the database says of the ledger. Times are unix seconds.
struct Books: Sendable, Equatable {
    /// The latest window that was given to the log: no entry gets an earlier one.
    var given: UInt64 = 0
    /// The window of the latest entry.
    var latest: UInt64 = 0
    /// Whether some of `given` is in the log, so that what follows in this window must begin anew, with rank 0.
    var isCut = false
    /// The number of the latest entry that has no key of its own.
    var recorded: UInt64 = 0
    /// Entries that wait for their window's end.
    var inWindows = 0
    /// Entries that the signed head covers and the folder may lack; `limited` without purges.
    var covered = Covered()
    /// What collects the entries of tokens for the next batches.
    var short = Batch()
    var long = Batch()
    /// Batches that take no later entries, the earliest first. All but the last are complete.
    var frozen: [FrozenBatch] = []
    /// The latest boundary at which batches were looked at; nil before the log's first entry.
    var looked: UInt64?
    /// The window of the latest complete batch.
    var lastBatch: UInt64 = 0
    /// The latest bucket that the log has closed, or the start of its first day. Nil before the log's first entry.
    var closed: UInt64?

    /// Entries that aren't known to be published. What waits for its batch is not counted.
    var waiting: Int { inWindows + covered.count + frozen.reduce(0) { $0 + $1.count } }
    /// Of these, what counts towards the limit: no purges, which are bounded by the tokens there are, and no later batches,
    /// since one of many seals takes a while to publish.
    func limited(frozenBefore moment: UInt64) -> Int {
        inWindows + covered.limited + frozen.reduce(0) { $1.moment <= moment ? $0 + $1.seals : $0 }
    }

    /// The batch that waits for purges.
    var incomplete: FrozenBatch? { frozen.last.flatMap { $0.window == nil ? $0 : nil } }

    mutating func place(rank: UInt8, start: UInt64, resolution: UInt64) -> UInt64 {
        var window = start
        if start <= given {
            if isCut, rank > 0 { given += resolution }
            isCut = false
            window = given
        }
        latest = max(latest, window)
        return window
    }

    struct Covered: Sendable, Equatable {
        var count = 0
        var limited = 0
    }
}

/// Waiting entries under one number.
struct Batch: Sendable, Equatable {
    var number: Int64 = 0
    var seals = 0
    var purges = 0

    mutating func add(rank: UInt8, _ count: Int = 1) { if rank == 3 { seals += count } else { purges += count } }
}

/// A batch that takes no entries of later than `moment`.
struct FrozenBatch: Sendable, Equatable {
    var moment: UInt64
    /// Its window in the log; nil until everything that expired before `moment` is purged.
    var window: UInt64?
    var short: Batch
    /// At midnight only.
    var long: Batch?

    var count: Int { seals + short.purges + (long?.purges ?? 0) }
    var seals: Int { short.seals + (long?.seals ?? 0) }
}
