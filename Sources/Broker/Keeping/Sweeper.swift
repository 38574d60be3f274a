public import EventLoop
import Linux
public import Storage

/// Purges what has expired: sleeps until the next expiry, works in bounded batches, leaves nothing in the write-ahead log.
///
/// No request waits for it, and it waits for none.
public actor Sweeper: LoopActor {
    public nonisolated let loop: EventLoop
    private let store: any Keeping
    private let time: BrokerTime
    private let metrics: Metrics
    private let log: @Sendable (String) -> Void

    /// Rows of each kind in one transaction: so many that a request which comes with it waits for about `patience`.
    private var batch = 500
    private static let batches = 100...2_000
    private static let patienceNs: UInt64 = 5_000_000
    /// Where something ends every moment, what ends in this time is purged together.
    private static let shortestSleep: UInt64 = 10
    /// How long after its deadline a job is given up that nobody has in hand: what became of it is not known.
    private static let jobSlack: UInt64 = 30_000
    /// Purged bytes leave the write-ahead log this long after they were purged.
    private static let scrubDelay: UInt64 = 10_000
    /// What the rule allows. Later, someone must look.
    private static let longestScrub: UInt64 = 60_000
    /// So long it must have done well before it is said to: a full disk takes the odd transaction.
    private static let recovery: UInt64 = 10_000
    /// The longest sleep: bounds what a step of the wall clock can delay.
    private static let longestSleep: UInt64 = 30_000

    /// The jobs that the broker has in hand, by the second of their deadlines.
    private var held: [UInt64: Int] = [:]
    /// The earliest expiry that was announced since the last look into the store.
    private var announced: UInt64 = .max
    /// The next expiry, as the last sweep left it.
    private var nextExpiry = UInt64.max
    private var wakeAt: UInt64 = 0
    private var waiting: CheckedContinuation<Void, Never>?
    private var timer: TimerID?
    /// Since when the write-ahead log holds what was purged, and when to empty it. A crash may have left some from before.
    private var unscrubbedSince: UInt64?
    private var scrubAt: UInt64? = 0
    private var isScrubLate = false

    public init(
        loop: EventLoop, store: any Keeping, time: BrokerTime, metrics: Metrics,
        log: @escaping @Sendable (String) -> Void
    ) {
        self.loop = loop
        self.store = store
        self.time = time
        self.metrics = metrics
        self.log = log
    }

    /// Sweeps until the task is cancelled.
    public func run() async {
        var failedAt: UInt64?
        while !Task.isCancelled {
            do {
                var next = try await sweep()
                if let since = failedAt, time.now - min(time.now, since) >= Self.recovery {
                    log("sweeper: purging again")
                    failedAt = nil
                }
                if failedAt != nil { next = min(next, time.now + 1_000) }
                await sleep(until: next)
            } catch {
                if failedAt == nil {
                    metrics.add(.alarms)
                    log(
                        "sweeper: can't purge (\(error)); trying every second. The keys of expired tokens are destroyed anyway."
                    )
                }
                failedAt = time.now
                await sleep(until: time.now + 1_000)
            }
        }
    }

    /// Purges everything that is due.
    /// - Returns: when to come again.
    public func sweep() async throws(StoreError) -> UInt64 {
        let isDue = time.now >= min(nextExpiry, announced)
        announced = .max
        var result: SweepResult
        repeat {
            let start = Clock.monotonicNs
            result = try await store.sweep(now: time.now, limit: batch, jobSlack: jobSlack)
            if result.more { adapt(to: Clock.monotonicNs - start) }
            metrics.add(.tokensPurged, result.tokens)
            metrics.notePurges(of: result.ends, at: time.now)
            if result.hasErased { noteErasure() }
            // A long sweep does not hold it up, nor it the sweep where it fails: it is tried again after a second.
            if result.more { try? await scrub() }
        } while result.more
        // What fell due may have been purged a moment ago by the create that took its code.
        if isDue { noteErasure() }
        try await scrub()
        nextExpiry = try await store.nextExpiry(jobSlack: jobSlack) ?? .max
        let now = time.now
        return min(max(nextExpiry, now + Self.shortestSleep), scrubAt ?? .max, now + Self.longestSleep)
    }

    /// The broker ends this job itself, however late: it alone knows whether the push was sent.
    func hold(jobDue deadline: UInt64) {
        held[deadline / 1_000, default: 0] += 1
        expect(deadline + Self.jobSlack)
    }

    func release(jobDue deadline: UInt64) {
        let left = held[deadline / 1_000, default: 1] - 1
        held[deadline / 1_000] = left > 0 ? left : nil
    }

    /// Long enough to spare the first of the jobs that are held, and to look again a second later.
    private var jobSlack: UInt64 {
        let now = time.now
        guard let first = held.keys.min().map({ $0 * 1_000 }), first < now else { return Self.jobSlack }
        return max(Self.jobSlack, now - first + 1_000)
    }

    private func adapt(to took: UInt64) {
        let fitting = UInt64(batch) * Self.patienceNs / max(took, 1)
        // Half the way, since one transaction says little.
        batch = min(max((batch + Int(clamping: fitting)) / 2, Self.batches.lowerBound), Self.batches.upperBound)
    }

    /// Something will expire at `expiry`: be there.
    public func expect(_ expiry: UInt64) {
        announced = min(announced, expiry)
        if expiry < wakeAt { wake() }
    }

    /// Something was purged or replaced just now.
    public func noteErasure() {
        guard scrubAt == nil else { return }
        unscrubbedSince = time.now
        scrubAt = time.now + Self.scrubDelay
        expect(scrubAt ?? 0)
    }

    /// Empties the write-ahead log when that is due, unless a reader stands in the way: then again in a second.
    private func scrub() async throws(StoreError) {
        guard let due = scrubAt, time.now >= due else { return }
        let since = unscrubbedSince ?? time.now
        // What is purged while this runs may come too late for it, and is noted anew.
        scrubAt = nil
        var isDone = false
        do throws(StoreError) {
            isDone = try await store.scrub()
        } catch {
            (unscrubbedSince, scrubAt) = (since, time.now + 1_000)
            throw error
        }
        guard isDone else {
            (unscrubbedSince, scrubAt) = (since, time.now + 1_000)
            if !isScrubLate, time.now - min(time.now, since) >= Self.longestScrub {
                isScrubLate = true
                metrics.add(.alarms)
                log(
                    "sweeper: the write-ahead log can't be emptied: another process reads the database. Purged rows stay in it until that process ends; trying every second."
                )
            }
            return
        }
        if isScrubLate { log("sweeper: the write-ahead log was emptied again") }
        isScrubLate = false
    }

    public func stop() { wake() }

    private func sleep(until latest: UInt64) async {
        let now = time.now
        let due = min(latest, announced)
        guard due > now, !Task.isCancelled else { return }
        wakeAt = due
        await withCheckedContinuation { continuation in
            waiting = continuation
            timer = loop.after(due - now) { self.assumeIsolated { $0.wake() } }
        }
        wakeAt = 0
    }

    private func wake() {
        if let timer { loop.cancel(timer) }
        timer = nil
        waiting?.resume()
        waiting = nil
    }
}
