import Policy
import Synchronization

/// Assigns windows to ledger entries, plans batches and counts the entries that wait for publication.
///
/// A window is identified by its start in unix seconds. Windows never go back, even if the clock does. A stop publishes the open window
/// early. The next start may add entries to it.
final class Journal: LedgerState {
    private struct State {
        var books = Books()
        var timing: LedgerTiming
        /// The time of the last full success.
        var alive: UInt64 = 0
        /// The time of the current transaction. It is constant during the transaction.
        var moment: UInt64 = 0
        var hasStarted = false
        var alarms: Set<String> = []
        var untold: [String] = []
    }

    private let state: Mutex<State>
    private let resolution: UInt64
    let limit: Int
    private let now: @Sendable () -> UInt64

    /// - Parameters:
    ///   - resolution: a window's length in seconds.
    ///   - now: broker time in unix milliseconds.
    init(resolution: UInt64, timing: LedgerTiming, limit: Int, now: @escaping @Sendable () -> UInt64) {
        (self.resolution, self.limit, self.now) = (resolution, limit, now)
        let start = now()
        state = Mutex(State(timing: timing, alive: start, moment: start))
    }

    /// Fixes the time of a new transaction.
    func begin() {
        let now = now()
        state.withLock { state in
            if state.hasStarted {
                state.moment = max(state.moment, now)
            } else {
                // The file was opened by a clock that may have been set right since. Rooms would end before they are stored, and entries would wait.
                (state.moment, state.alive) = (now, min(state.alive, now))
            }
        }
    }

    var hasStarted: Bool {
        get { state.withLock { $0.hasStarted } }
        set { state.withLock { $0.hasStarted = newValue } }
    }

    /// Only this process writes the file, so no commit is lost.
    func note(head: UInt64) {}
    func forgetHead() {}

    /// True after an absence that must be recorded: the machine slept, its clock jumped, or the disk was full.
    var wasAbsent: Bool { state.withLock { $0.moment > $0.alive && $0.moment - $0.alive > Self.longestSilence } }

    /// Call it when all operations of a transaction have succeeded.
    func noteAlive() { state.withLock { $0.alive = max($0.alive, $0.moment) } }

    /// Adds what the operator should know, once for each text.
    func alarm(_ text: String) { state.withLock { if $0.alarms.insert(text).inserted { $0.untold.append(text) } } }

    /// Returns the alarms since the last call.
    func takeAlarms() -> [String] { state.withLock { $0.untold.takeAll() } }

    /// The time of the current transaction, unix milliseconds.
    var moment: UInt64 { state.withLock { $0.moment } }

    var timing: LedgerTiming {
        get { state.withLock { $0.timing } }
        set { state.withLock { $0.timing = newValue } }
    }

    /// Only the writer changes the books. A rollback restores them.
    var books: Books {
        get { state.withLock { $0.books } }
        set { state.withLock { $0.books = newValue } }
    }

    var limited: Int {
        state.withLock { $0.books.limited(frozenBefore: $0.timing.hourBefore($0.moment / 1_000)) }
    }

    /// Returns the window of an entry that is recorded now.
    func window(rank: UInt8) -> UInt64 {
        state.withLock { $0.books.window(rank: rank, start: start($0.moment), resolution: resolution) }
    }

    /// Closes all windows before `window`.
    /// - Returns: true if `window` is ahead of broker time, so that the last closed window may get more entries.
    func close(before window: UInt64) -> Bool {
        state.withLock { state in
            if state.books.latest < window {
                state.books.closedUpTo = max(state.books.closedUpTo, state.books.latest)
                state.books.isCut = true
            }
            return window > start(state.moment)
        }
    }

    /// True if a boundary has passed, or a frozen batch waits for purges.
    var isBatchDue: Bool {
        state.withLock { state in
            let boundary = state.timing.boundary(upTo: state.moment / 1_000)
            return state.books.incomplete != nil || boundary > state.books.schedule.lastBoundary ?? boundary
        }
    }

    /// The window that a batch would get now.
    var batchWindow: UInt64 {
        state.withLock { state in
            var books = state.books
            return books.window(rank: 3, start: start(state.moment), resolution: resolution)
        }
    }

    private func start(_ moment: UInt64) -> UInt64 { moment / 1_000 / resolution * resolution }
}

/// The writer's in-memory copy of the ledger's state in the database. Times are unix seconds.
struct Books: Sendable, Equatable {
    /// The latest closed window. New entries never get an earlier one.
    var closedUpTo: UInt64 = 0
    /// The window of the latest entry.
    var latest: UInt64 = 0
    /// True if part of the window `closedUpTo` is in the log. Further entries in this window must then start with rank 0.
    var isCut = false
    /// The number of the latest entry without a sort key of its own.
    var recorded: UInt64 = 0
    /// The number of entries that wait for the end of their window.
    var inWindows = 0
    /// Entries under the signed head that the folder may lack.
    var covered = Covered()
    /// The open batches, of short and of long tokens.
    var short = Batch()
    var long = Batch()
    /// Batches that accept no new seals, the earliest first. All but the last are complete.
    var frozen: [FrozenBatch] = []
    var schedule = Schedule()

    /// The number of entries that aren't known to be published. Entries of open batches don't count.
    var waiting: Int { inWindows + covered.count + frozen.reduce(0) { $0 + $1.count } }
    /// Returns the entries that count towards the limit. Purges don't, since the number of tokens bounds them. Batches frozen after `moment`
    /// don't either, since a large one takes a while to publish.
    func limited(frozenBefore moment: UInt64) -> Int {
        inWindows + covered.limited + frozen.reduce(0) { $1.moment <= moment ? $0 + $1.seals : $0 }
    }

    /// The frozen batch that still waits for purges, if any.
    var incomplete: FrozenBatch? { frozen.last.flatMap { $0.window == nil ? $0 : nil } }

    /// Returns the window of a new entry.
    /// - Parameter start: the start of the current window by the clock.
    mutating func window(rank: UInt8, start: UInt64, resolution: UInt64) -> UInt64 {
        var window = start
        if start <= closedUpTo {
            if isCut, rank > 0 { closedUpTo += resolution }
            isCut = false
            window = closedUpTo
        }
        latest = max(latest, window)
        return window
    }

    struct Covered: Sendable, Equatable {
        var count = 0
        /// `count` without purges.
        var limited = 0
    }
}

/// The number of entries in a batch.
struct Batch: Sendable, Equatable {
    var number: Int64 = 0
    var seals = 0
    var purges = 0
    var count: Int { seals + purges }

    mutating func add(rank: UInt8, _ count: Int = 1) { if rank == 3 { seals += count } else { purges += count } }
}

/// A batch without entries from after `moment`.
struct FrozenBatch: Sendable, Equatable {
    var moment: UInt64
    /// The batch's window in the log. Nil until everything that expired before `moment` is purged.
    var window: UInt64?
    var short: Batch
    /// Only at midnight.
    var long: Batch?

    var count: Int { seals + short.purges + (long?.purges ?? 0) }
    var seals: Int { short.seals + (long?.seals ?? 0) }
}

extension Books {
    mutating func removeFromBatch(_ number: Int64, rank: UInt8) {
        for index in frozen.indices {
            if frozen[index].short.number == number { frozen[index].short.add(rank: rank, -1) }
            if frozen[index].long?.number == number { frozen[index].long?.add(rank: rank, -1) }
        }
    }
}
