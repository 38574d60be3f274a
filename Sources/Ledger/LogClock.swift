/// The log's own time, and since when it has not been silent: what is due is judged by these alone.
struct LogClock {
    enum Lateness { case none, excused, late }

    private struct Start {
        /// `at` of the last window before the start's own, 0 for none: the log is silent between the two.
        var silentFromMs: UInt64
        /// Until when what came due in the silence may be made up for.
        var excusesToMs: UInt64
    }

    private(set) var atMs: UInt64 = 0
    private var beforeMs: UInt64 = 0
    /// Length of the windows; nil before any start.
    private var resolutionMs: UInt64?
    /// Those that still excuse something; each is silent from later on than the one before it, and excuses to a later time.
    private var starts: [Start] = []
    /// Until when the last start excuses the ratchet.
    private var ratchetExcusedToMs: UInt64 = 0

    var hasStarted: Bool { resolutionMs != nil }

    /// The latest moment, to the second, at which an entry of this window can have happened. A window goes on past a start that names
    /// longer ones, to the first multiple of those.
    var latestMs: UInt64 { rounded(0) + (resolutionMs ?? 1000) - 1000 }

    /// Whether a window may begin at `atMs`: a multiple of the length in force or, when its first entry is a start, of the one that this names.
    /// Nil: no start.
    func allowsWindow(at atMs: UInt64, beginningWith startMs: UInt64?) -> Bool {
        if let resolutionMs, atMs % resolutionMs == 0 { return true }
        return startMs.map { atMs % $0 == 0 } ?? false
    }

    /// Opens a later window.
    mutating func advance(to atMs: UInt64) {
        beforeMs = self.atMs
        self.atMs = atMs
        if let first = starts.first, first.excusesToMs < atMs { starts.removeAll { $0.excusesToMs < atMs } }
    }

    /// A broker has started in this window; its windows are that long from now on.
    mutating func start(resolutionMs: UInt64) {
        self.resolutionMs = resolutionMs
        var start = Start(silentFromMs: beforeMs, excusesToMs: rounded(LifeCycle.graceMs))
        // An earlier one came earlier, whatever lengths of windows they name: it excuses nothing for longer.
        while let last = starts.last, last.excusesToMs >= start.excusesToMs || last.silentFromMs == start.silentFromMs {
            start.silentFromMs = last.silentFromMs
            starts.removeLast()
        }
        starts.append(start)
        ratchetExcusedToMs = rounded(LifeCycle.graceMs + LifeCycle.epochMs)
    }

    /// The latest window that what happens up to so long after an event of this window can come into.
    private func rounded(_ durationMs: UInt64) -> UInt64 {
        let length = resolutionMs ?? 1000
        return (atMs / length + (durationMs + length - 1) / length) * length
    }

    /// How an event in this window stands to its due time.
    ///
    /// Late is excused when no broker ran from the due time to a start: no window from the due time on comes before the start's. (A start
    /// from before the due time has ceased to excuse when the event is late.)
    func lateness(of dueMs: UInt64) -> Lateness {
        if atMs <= dueMs + LifeCycle.graceMs { return .none }
        return starts.contains { $0.silentFromMs < dueMs && atMs <= $0.excusesToMs } ? .excused : .late
    }

    /// Whether a ratchet that was due then, and is not done yet, is late. Any start gives it its time anew: it was not late before, or
    /// the log would not have been read so far.
    func isRatchetLate(dueMs: UInt64) -> Bool { atMs > dueMs + LifeCycle.graceMs && atMs > ratchetExcusedToMs }
}
