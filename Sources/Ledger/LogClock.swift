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
    private var resolutionMs: UInt64 = 1_000
    /// Those that still excuse something.
    private var starts: [Start] = []
    /// Until when the last start excuses the ratchet.
    private var ratchetExcusedToMs: UInt64 = 0

    /// The latest moment, to the second, at which an entry of this window can have happened.
    var latestMs: UInt64 { atMs + resolutionMs - 1000 }

    /// Opens a later window.
    mutating func advance(to atMs: UInt64) {
        beforeMs = self.atMs
        self.atMs = atMs
        starts.removeAll { $0.excusesToMs < atMs }
    }

    /// A broker has started in this window; its windows are that long from now on.
    mutating func start(resolutionMs: UInt64) {
        self.resolutionMs = max(resolutionMs, 1000)
        starts.append(Start(silentFromMs: beforeMs, excusesToMs: atMs + rounded(LifeCycle.graceMs)))
        ratchetExcusedToMs = max(ratchetExcusedToMs, atMs + rounded(LifeCycle.graceMs + LifeCycle.epochMs))
    }

    /// How much so long a time can look like between two windows.
    private func rounded(_ durationMs: UInt64) -> UInt64 { (durationMs + resolutionMs - 1) / resolutionMs * resolutionMs }

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
