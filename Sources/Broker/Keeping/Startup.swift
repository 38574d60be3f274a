public import Ledger
public import Sealing
public import Storage

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
