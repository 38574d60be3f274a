public import EventLoop
import Ledger
public import Sealing
public import Storage
import Vocabulary

/// Steps the ratchet on time, even if store and ledger fail. They learn of each step afterwards.
///
/// It has a loop of its own, because replacing the key file waits for the disk.
public actor KeyKeeper: LoopActor {
    public nonisolated let loop: EventLoop
    private let keys: KeyRing
    private let store: any Store
    private let time: BrokerTime
    private let metrics: Metrics
    private let log: Logger
    /// Called at each step, when other nodes can get the new keys. Returns when they have them.
    private let share: @Sendable () async -> Void
    /// Steps that are done and not recorded yet, in order.
    private var unrecorded: [RatchetStep] = []
    private var failing = false
    /// The task that records steps, while there are any.
    private var recorder: Task<Void, Never>?

    /// The longest sleep, which bounds how late a step can be after the clock was set.
    private static let longestSleep: UInt64 = 10_000

    public init(
        loop: EventLoop, keys: KeyRing, store: any Store, time: BrokerTime, metrics: Metrics,
        log: Logger, share: @escaping @Sendable () async -> Void = {}
    ) {
        self.loop = loop
        self.keys = keys
        self.store = store
        self.time = time
        self.metrics = metrics
        self.log = log
        self.share = share
    }

    /// Steps the ratchet if a step is due.
    public func step() async {
        guard let step = await advance() else { return }
        unrecorded.append(step)
        if recorder == nil { recorder = Task(executorPreference: loop) { await self.record() } }
    }

    /// Steps the ratchet at a start, before anything is written.
    /// - Returns: the step's events, to be recorded with the start.
    func stepAtStart() async -> [Entry.Op] { await advance().map { Self.events(of: $0) } ?? [] }

    private func advance() async -> RatchetStep? {
        for step in time.takeAlarms() {
            metrics.add(.alarms)
            let effect =
                switch step {
                case Int64(BrokerClock.shortestLeapMs)...: "the keys follow in a minute"
                case 0...: "broker time catches up, a quarter faster"
                default: "broker time runs at half speed until the wall clock catches up"
                }
            log.error("clock: the wall clock stepped by \(step / 1_000) s; \(effect). Set it right.")
        }
        do {
            let offered = try keys.offer(nowMs: time.ratchet)
            if offered != nil { await share() }
            let step = try offered.map { try keys.finish($0) }
            if failing { log.info("keys: the ratchet steps again") }
            failing = false
            if step != nil { metrics.add(.ratchetSteps) }
            return step
        } catch {
            if !failing {
                metrics.add(.alarms)
                log.error(
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

    /// Steps the ratchet until the task is cancelled.
    public func run() async {
        while !Task.isCancelled {
            await step()
            let wait = keys.nextStepMs - min(keys.nextStepMs, time.ratchet)
            // While the ratchet is held, check every second: it must catch up within two minutes, even if the clock steps again.
            try? await loop.sleep(min(max(wait, failing ? 1_000 : 50), time.isHeld ? 1_000 : Self.longestSleep))
        }
    }

    /// Waits until all steps are recorded, or the store is closed.
    public func recordAll() async { await recorder?.value }

    /// Records the steps in store and ledger. Retries until that succeeds or the store is closed.
    private func record() async {
        defer { recorder = nil }
        while let step = unrecorded.first {
            do throws(StoreError) {
                try await store.record(Self.events(of: step), marks: KeyMarks.of(steps: step.steps, now: time.now))
                unrecorded.removeFirst()
            } catch {
                if error == .closed { return }
                // A commit may be durable although it was reported as failed. Recorded again and again, one step would delay those after it.
                if await isRecorded(step) { unrecorded.removeFirst() } else { try? await loop.sleep(1_000) }
            }
        }
    }

    private func isRecorded(_ step: RatchetStep) async -> Bool {
        guard let steps = try? await KeyMarks.number(KeyMarks.step, in: store) else { return false }
        return steps >= step.steps
    }

    /// Records that the key file is lost for good. Must be called before a new one is created. The next start deletes all rows that were sealed
    /// under the lost one. A copy of the lost one is refused from now on.
    /// - Parameter nowMs: the time, unix ms.
    /// - Returns: the birth of the new keys, unix ms. See `RecordedTimes.birth`.
    public static func recordLoss(_ store: any Store, nowMs: UInt64) async throws(StoreError) -> UInt64 {
        let born = try await RecordedTimes(store).birth(nowMs: nowMs)
        try await store.setMark(KeyMarks.loss, [1])
        try await store.setMark(KeyMarks.birth, [UInt8](bigEndian: Epoch(atMs: born).number))
        // The new file counts its own steps.
        try await store.setMark(KeyMarks.step, [])
        return born
    }
}
