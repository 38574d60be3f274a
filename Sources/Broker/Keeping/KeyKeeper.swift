public import EventLoop
public import Ledger
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

/// The store's marks of keys and time.
private enum KeyMarks {
    /// The last recorded step.
    static let step = "ratchet.steps"
    /// The highest time seen, unix ms.
    static let time = "time.highest"
    /// Set while the store has rows that were sealed under a key file that is lost.
    static let loss = "ratchet.lost"
    /// The epoch in which the first of these keys was born, once others were lost.
    static let birth = "ratchet.born"

    static func of(steps: UInt64, now: UInt64) -> [StoreMark] {
        [StoreMark(step, [UInt8](bigEndian: steps)), StoreMark(time, [UInt8](bigEndian: now))]
    }

    /// Returns nil if the mark is not set.
    static func number(_ name: String, in store: any Store) async throws(StoreError) -> UInt64? {
        number(try await store.mark(name))
    }

    static func number(_ mark: [UInt8]?) -> UInt64? {
        guard let mark, mark.count == 8 else { return nil }
        return mark.span.bigEndian64(at: 0)
    }
}

/// The steps of a start, in the order in which the log may learn of them.
public struct Startup: Sendable {
    private let store: any Store
    private let keys: KeyRing
    private let time: BrokerTime

    public init(store: any Store, keys: KeyRing, time: BrokerTime) {
        self.store = store
        self.keys = keys
        self.time = time
    }

    /// Checks the key file, and continues broker time after the highest time that store, key file and log know of. Must be called before anything
    /// else reads the time.
    /// - Throws: `StaleKeys` if the key file is older than this node's last recorded step: the keys in it should no longer exist.
    public func resumeTime() async throws {
        let recorded = try await RecordedTimes(store)
        try recorded.check(keys)
        time.resume(after: max(recorded.highestMs, keys.earliestNowMs, try await store.latestWindow() * 1_000))
    }

    /// Steps the ratchet, repairs the log's folder, records the start, and then does all work that became due while no broker ran.
    ///
    /// The step comes before all writes. A start on a full disk fails at the first of them, and keys must be destroyed even then.
    /// - Parameters:
    ///   - events: the log's entries of the start, `broker.started` first.
    ///   - marks: the store's marks of the start.
    ///   - policies: the bytes of the policies in force, which are published with the log.
    ///   - sequencer: nil if another node leads. Then that one steps the keys, too.
    public func catchUp(
        _ events: [Entry.Op], marks: [StoreMark] = [], policies: [[UInt8]], folder: LedgerFolder, sequencer: Sequencer?,
        keeper: KeyKeeper, sweeper: Sweeper
    ) async throws {
        var keyEvents: [Entry.Op] = []
        var keyMarks: [StoreMark] = []
        if let sequencer { (keyEvents, keyMarks) = try await step(sequencer, keeper) }
        folder.tidy()
        for policy in policies { _ = try folder.writePolicy(policy) }
        try await store.start(events + keyEvents, marks: marks + keyMarks)
        if sequencer != nil {
            try await deleteLost()
            await keeper.step()
            await keeper.recordAll()
        }
        _ = try await sweeper.sweep()
    }

    /// Continues the log and the keys of the node that led before. `run` of both goes on from there. A log that can't be published now, or contradicts
    /// a witness, holds up nothing else.
    public func takeOver(sequencer: Sequencer) async throws(StoreError) {
        let unrecorded = try await unrecordedKeys()
        if !unrecorded.isEmpty {
            try await store.record(unrecorded, marks: KeyMarks.of(steps: keys.steps, now: time.now))
        }
        await sequencer.takeOver()
    }

    /// - Returns: what the log and the store have to learn about the keys.
    private func step(_ sequencer: Sequencer, _ keeper: KeyKeeper) async throws -> ([Entry.Op], [StoreMark]) {
        // Before the step: it changes `keys.steps`.
        let unrecorded = try await unrecordedKeys()
        let stepped = await keeper.stepAtStart()
        try await sequencer.recover()
        return (unrecorded + stepped, KeyMarks.of(steps: keys.steps, now: time.now))
    }

    /// Returns the events of the keys that are not in the log: the first generation, which was created with the key file, and steps after which
    /// the broker was killed. The store fills in `swept`.
    private func unrecordedKeys() async throws(StoreError) -> [Entry.Op] {
        guard let recorded = try await KeyMarks.number(KeyMarks.step, in: store) else {
            return [.keysGenerated(generation: keys.currentGeneration)]
        }
        guard keys.steps > recorded else { return [] }
        let since = try await KeyMarks.number(KeyMarks.time, in: store) ?? 0
        return [.keysRatcheted(epoch: keys.baseEpoch.number - 1, swept: 0)]
            + keys.generations.filter { $0.born.startMs > since }.map { .keysGenerated(generation: $0.id) }
    }

    /// Deletes all rows if their key file is lost: nothing can open them any more. The sweep that follows empties the write-ahead log.
    private func deleteLost() async throws(StoreError) {
        guard let mark = try await store.mark(KeyMarks.loss), !mark.isEmpty else { return }
        while try await store.forgetAll(limit: 500).more {}
        try await store.setMark(KeyMarks.loss, [])
    }
}

/// The steps of the key file and the highest time that a store has recorded for its node.
public struct RecordedTimes: Sendable {
    public let steps: UInt64
    /// The highest time seen, unix ms. 0 before the first start.
    public let highestMs: UInt64
    /// The number of an epoch. No key is older. 0 unless keys were lost.
    private let birth: UInt64

    /// Read them before the key file: a running broker replaces the file first.
    public init(_ store: StoreSnapshot) throws(StoreError) {
        steps = KeyMarks.number(try store.mark(KeyMarks.step)) ?? 0
        highestMs = KeyMarks.number(try store.mark(KeyMarks.time)) ?? 0
        birth = KeyMarks.number(try store.mark(KeyMarks.birth)) ?? 0
    }

    public init(_ store: any Store) async throws(StoreError) {
        steps = try await KeyMarks.number(KeyMarks.step, in: store) ?? 0
        highestMs = try await KeyMarks.number(KeyMarks.time, in: store) ?? 0
        birth = try await KeyMarks.number(KeyMarks.birth, in: store) ?? 0
    }

    /// Returns the birth of new keys, unix ms: the latest time recorded if the clock was set back. An earlier birth could not be distinguished from that
    /// of lost keys, so the next start would refuse the new ones.
    public func birth(nowMs: UInt64) -> UInt64 { max(nowMs, highestMs, Epoch(birth).startMs) }

    /// - Throws: if the key file is an old copy.
    public func check(_ keys: KeyRing) throws(StaleKeys) {
        guard keys.generations.allSatisfy({ $0.born.number >= birth }) else {
            throw StaleKeys(reason: "was given up as lost before the present keys were made")
        }
        guard keys.steps >= steps else {
            throw StaleKeys(reason: "is older (step \(keys.steps)) than this node's last recorded step (\(steps))")
        }
    }
}

/// The key file is an old copy.
public struct StaleKeys: Error, CustomStringConvertible {
    fileprivate let reason: String

    public var description: String {
        "stale_keys: this key file \(reason). It is an old copy: its keys should no longer exist. Put the right file back, or if that is lost, "
            + "remove the copy and run `mayfly keys renew`, which forgets all rooms and tokens."
    }
}
