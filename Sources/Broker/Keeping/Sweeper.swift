public import EventLoop
import Linux
public import Storage

/// Purges expired rows, and empties the write-ahead log of them. It sleeps until the next expiry and works in bounded batches.
///
/// No request waits for the sweeper, and the sweeper waits for none.
public actor Sweeper: LoopActor {
    public nonisolated let loop: EventLoop
    private let store: any Store
    private let time: BrokerTime
    private let metrics: Metrics
    private let log: Logger

    /// Rows of each kind in one transaction. It adapts, so that a request at the same time waits for about `patienceNs`.
    private var batch = 200
    private static let batches = 200...1_000
    private static let patienceNs: UInt64 = 1_500_000
    /// If rows expire all the time, those that expire within this time are purged together.
    private static let shortestSleep: UInt64 = 20
    /// Rows that a sweep leaves although they have been due for this long are left for another node. Then the sweeper comes back after as long.
    private static let patience: UInt64 = 1_000
    /// How long after its deadline a job is purged that the outbox does not own. Its outcome is unknown.
    private static let jobSlack: UInt64 = 30_000
    /// The longest time that the design allows for it. Later there is an alarm.
    private static let longestScrub: UInt64 = 60_000
    /// How long sweeps must succeed after an error before the recovery is logged: on a full disk a transaction succeeds now and then.
    private static let recovery: UInt64 = 10_000
    /// The longest sleep, which bounds the delay after a step of the wall clock.
    private static let longestSleep: UInt64 = 30_000

    /// The number of jobs that the outbox owns, by the second of their deadlines.
    private var held: [UInt64: Int] = [:]
    /// The earliest expiry that was announced since the store was last read.
    private var announced: UInt64 = .max
    /// The next expiry after the last sweep.
    private var nextExpiry = UInt64.max
    private var wakeAt: UInt64 = 0
    private let sleeper: WakeableSleep
    /// Since when the write-ahead log has purged rows.
    private var unscrubbedSince: UInt64?
    /// When to empty the write-ahead log. At once after a start, because a crash may have left purged rows.
    private var scrubAt: UInt64? = 0
    private var isScrubLate = false

    public init(
        loop: EventLoop, store: any Store, time: BrokerTime, metrics: Metrics,
        log: Logger
    ) {
        self.loop = loop
        sleeper = WakeableSleep(loop)
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
                    log.info("sweeper: purging again")
                    failedAt = nil
                }
                if failedAt != nil { next = min(next, time.now + 1_000) }
                await sleep(until: next)
            } catch {
                if failedAt == nil {
                    metrics.add(.alarms)
                    log.error(
                        "sweeper: can't purge (\(error)); trying every second. The keys of expired tokens are destroyed anyway."
                    )
                }
                failedAt = time.now
                await sleep(until: time.now + 1_000)
            }
        }
    }

    /// Purges everything that is due, or one batch of it if the task is cancelled.
    /// - Returns: when to come again.
    public func sweep() async throws(StoreError) -> UInt64 {
        let start = time.now
        let isDue = start >= min(nextExpiry, announced)
        announced = .max
        var result: SweepResult
        repeat {
            let began = Clock.monotonicNs
            result = try await store.sweep(now: time.now, limit: batch, jobSlack: jobSlack)
            if result.more { adapt(to: Clock.monotonicNs - began) }
            metrics.add(.tokensPurged, result.tokens)
            metrics.recordPurges(of: result.ends, at: time.now)
            if result.hasErased { scheduleScrub() }
            // A stop leaves the rest to the next start, or to another node.
            if Task.isCancelled { return time.now }
            // A long sweep must not delay it. A failure must not stop the sweep: the log is emptied again after a second.
            if result.more { try? await scrub() }
        } while result.more
        // A create that reuses a code may have purged the due rows a moment ago.
        if isDue { scheduleScrub() }
        try await scrub()
        nextExpiry = try await store.nextExpiry(jobSlack: jobSlack) ?? .max
        let now = time.now
        let sleep = nextExpiry < start - min(start, Self.patience) ? Self.patience : Self.shortestSleep
        return min(max(nextExpiry, now + sleep), scrubAt ?? .max, now + Self.longestSleep)
    }

    /// Exempts a job that the outbox owns. Only the outbox knows whether the push was sent, so it ends the job itself, however late.
    func hold(jobDue deadline: UInt64) {
        held[deadline / 1_000, default: 0] += 1
        expect(deadline + Self.jobSlack)
    }

    func release(jobDue deadline: UInt64) {
        let left = held[deadline / 1_000, default: 1] - 1
        held[deadline / 1_000] = left > 0 ? left : nil
    }

    /// The slack that exempts every job of the outbox for the next second.
    private var jobSlack: UInt64 {
        let now = time.now
        guard let first = held.keys.min().map({ $0 * 1_000 }), first < now else { return Self.jobSlack }
        return max(Self.jobSlack, now - first + 1_000)
    }

    private func adapt(to took: UInt64) {
        let fitting = UInt64(batch) * Self.patienceNs / max(took, 1)
        // Go half the way, because one transaction is a small sample.
        batch = min(max((batch + Int(clamping: fitting)) / 2, Self.batches.lowerBound), Self.batches.upperBound)
    }

    /// Announces that rows expire at `expiry`, unix ms.
    public func expect(_ expiry: UInt64) {
        announced = min(announced, expiry)
        if expiry < wakeAt { sleeper.wake() }
    }

    /// Announces that rows were purged or replaced, so that the write-ahead log is emptied.
    public func scheduleScrub() {
        guard scrubAt == nil else { return }
        unscrubbedSince = time.now
        scrubAt = time.now + store.scrubDelayMs
        expect(scrubAt ?? 0)
    }

    /// Empties the write-ahead log if that is due. If a reader or an error prevents that, it is tried again after a second.
    private func scrub() async throws(StoreError) {
        guard let due = scrubAt, time.now >= due else { return }
        let since = unscrubbedSince ?? time.now
        // Rows that are purged meanwhile may come too late for this run, so `scheduleScrub` must schedule another.
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
                log.error(
                    "sweeper: the write-ahead log can't be emptied: another process reads the database. Purged rows stay in it until that process ends; trying every second."
                )
            }
            return
        }
        if isScrubLate { log.info("sweeper: the write-ahead log was emptied again") }
        isScrubLate = false
    }

    /// Wakes `run`, so that it notices at once that its task was cancelled.
    public func stop() { sleeper.wake() }

    private func sleep(until latest: UInt64) async {
        let now = time.now
        let due = min(latest, announced)
        guard due > now, !Task.isCancelled else { return }
        wakeAt = due
        await sleeper.sleep(due - now)
        wakeAt = 0
    }
}
