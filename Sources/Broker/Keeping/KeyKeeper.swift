public import EventLoop
public import Ledger
public import Sealing
public import Storage

/// Steps the ratchet on time, whatever the store and the ledger do; they are told afterwards.
///
/// It has a loop of its own, since replacing the key file waits for the disk.
public actor KeyKeeper: LoopActor {
    public nonisolated let loop: EventLoop
    private let keys: KeyRing
    private let store: any Keeping
    private let time: BrokerTime
    private let metrics: Metrics
    private let log: @Sendable (String) -> Void
    /// Steps that are done and not recorded yet, in order.
    private var unrecorded: [RatchetStep] = []
    private var failing = false
    /// What records them, while there are any.
    private var recorder: Task<Void, Never>?

    /// The store's marks: the last recorded step, and the highest time seen.
    public static let stepMark = "ratchet.steps"
    public static let timeMark = "time.highest"
    /// Set while the store holds what was sealed under a key file that is lost.
    static let lossMark = "ratchet.lost"
    /// The longest sleep: bounds how late a step can be after the clock was set.
    private static let longestSleep: UInt64 = 10_000

    public init(
        loop: EventLoop, keys: KeyRing, store: any Keeping, time: BrokerTime, metrics: Metrics,
        log: @escaping @Sendable (String) -> Void
    ) {
        self.loop = loop
        self.keys = keys
        self.store = store
        self.time = time
        self.metrics = metrics
        self.log = log
    }

    /// A number as a mark: eight bytes, most significant first.
    public static func encode(_ number: UInt64) -> [UInt8] {
        (0..<8).map { UInt8(truncatingIfNeeded: number >> UInt64(56 - 8 * $0)) }
    }
    public static func decode(_ mark: [UInt8]) -> UInt64? { mark.count == 8 ? mark.reduce(0) { $0 << 8 | UInt64($1) } : nil }

    /// What the store keeps of a step.
    public static func marks(steps: UInt64, now: UInt64) -> [StoreMark] {
        [StoreMark(stepMark, encode(steps)), StoreMark(timeMark, encode(now))]
    }

    /// Refuses a key file that is older than this node's last recorded step: what it can open should not exist any more.
    public static func checkNotStale(_ keys: KeyRing, _ store: any Keeping) async throws {
        let recorded = try await store.mark(stepMark).flatMap { decode($0) } ?? 0
        guard keys.steps >= recorded else { throw StaleKeys(recorded: recorded, found: keys.steps) }
    }

    /// The highest time that store and key file know of, in unix milliseconds. The log counts: it never goes back either.
    public static func knownTime(_ keys: KeyRing, _ store: any Keeping) async throws -> UInt64 {
        max(
            try await store.mark(timeMark).flatMap { decode($0) } ?? 0, keys.earliestNowMs,
            try await store.latestWindow() * 1_000)
    }

    /// What the log was not told of the keys: the first generation, which was made with the key file, and steps after which the broker
    /// was killed. The store fills in what is swept.
    public static func untold(_ keys: KeyRing, _ store: any Keeping) async throws -> [Entry.Op] {
        guard let recorded = try await store.mark(stepMark).flatMap({ decode($0) }) else {
            return [.keysGenerated(generation: keys.currentGeneration)]
        }
        guard keys.steps > recorded else { return [] }
        let since = try await store.mark(timeMark).flatMap { decode($0) } ?? 0
        return [.keysRatcheted(epoch: keys.baseEpoch.number - 1, swept: 0)]
            + keys.generations.filter { $0.born.startMs > since }.map { .keysGenerated(generation: $0.id) }
    }

    /// The key file is lost for good, and another takes its place: to be called before that is made. The next start forgets what was sealed
    /// under the lost one.
    public static func noteLoss(_ store: any Keeping) async throws(StoreError) {
        try await store.setMark(lossMark, [1])
        // The new file has other steps.
        try await store.setMark(stepMark, [])
    }

    /// Forgets everything, if that is due: nothing can open it any more. The sweep that follows empties the write-ahead log.
    static func forgetLost(_ store: any Keeping) async throws(StoreError) {
        guard let mark = try await store.mark(lossMark), !mark.isEmpty else { return }
        while try await store.forgetAll(limit: 500).more {}
        try await store.setMark(lossMark, [])
    }

    /// Steps if a step is due.
    public func step() {
        guard let step = advance() else { return }
        unrecorded.append(step)
        if recorder == nil { recorder = Task(executorPreference: loop) { await self.record() } }
    }

    /// The same for a start, before anything that may fail.
    /// - Returns: what the log has to be told of it, with the start.
    func stepAtStart() -> [Entry.Op] { advance().map { Self.events(of: $0) } ?? [] }

    private func advance() -> RatchetStep? {
        for step in time.takeAlarms() {
            metrics.add(.alarms)
            let effect =
                step > 0 ? "the keys follow in a minute" : "broker time runs at half speed until the wall clock catches up"
            log("clock: the wall clock stepped by \(step / 1_000) s; \(effect). Set it right.")
        }
        do {
            let step = try keys.step(nowMs: time.ratchet)
            if failing { log("keys: the ratchet steps again") }
            failing = false
            if step != nil { metrics.add(.ratchetSteps) }
            return step
        } catch {
            if !failing {
                metrics.add(.alarms)
                log(
                    "keys: the ratchet can't step (\(error)); trying every second. Until then the keys of expired tokens are not destroyed."
                )
            }
            failing = true
            return nil
        }
    }

    private static func events(of step: RatchetStep) -> [Entry.Op] {
        var events: [Entry.Op] = []
        if let epoch = step.destroyed { events.append(.keysRatcheted(epoch: epoch.number, swept: 0)) }
        if let generation = step.newGeneration { events.append(.keysGenerated(generation: generation)) }
        return events
    }

    public func run() async {
        while !Task.isCancelled {
            step()
            let wait = keys.nextStepMs - min(keys.nextStepMs, time.ratchet)
            // A leap is made up for within two minutes, whatever the clock does meanwhile.
            try? await loop.sleep(min(max(wait, failing ? 1_000 : 50), time.isHeld ? 1_000 : Self.longestSleep))
        }
    }

    /// Waits until all that was done is recorded, or the store is closed.
    public func recordAll() async { await recorder?.value }

    /// Tells store and ledger of what was destroyed; tries until it is done or the store is closed.
    private func record() async {
        defer { recorder = nil }
        while let step = unrecorded.first {
            do throws(StoreError) {
                try await store.record(Self.events(of: step), marks: Self.marks(steps: step.steps, now: time.now))
                unrecorded.removeFirst()
            } catch {
                if error == .closed { return }
                // A commit may have been done and reported failed: told again and again, one step would hold up those after it.
                if await isRecorded(step) { unrecorded.removeFirst() } else { try? await loop.sleep(1_000) }
            }
        }
    }

    private func isRecorded(_ step: RatchetStep) async -> Bool {
        guard let mark = try? await store.mark(Self.stepMark), let steps = Self.decode(mark) else { return false }
        return steps >= step.steps
    }
}

/// The key file is an old copy.
public struct StaleKeys: Error, CustomStringConvertible {
    let recorded: UInt64
    let found: UInt64

    public var description: String {
        "stale_keys: keys/ratchet.key is older (step \(found)) than this node's last recorded step (\(recorded)). It is an old copy: "
            + "its keys should no longer exist. Remove the copy; if the right file is lost, start with an empty state folder."
    }
}
