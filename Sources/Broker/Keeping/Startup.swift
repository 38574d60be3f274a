public import Ledger
public import Sealing
public import Storage

/// What a broker does before it serves, in the order in which the log may learn of it.
public struct Startup: Sendable {
    private let store: any Keeping
    private let keys: KeyRing
    private let time: BrokerTime

    public init(store: any Keeping, keys: KeyRing, time: BrokerTime) {
        self.store = store
        self.keys = keys
        self.time = time
    }

    /// Takes up the time where the last run left it. Before anything else reads it.
    /// - Throws: `StaleKeys` when the key file is an old copy.
    public func resumeTime() async throws {
        try await KeyKeeper.checkNotStale(keys, store)
        time.resume(after: try await KeyKeeper.knownTime(keys, store))
    }

    /// Steps the ratchet, mends the log's folder, tells the log of the start, and then does what came due while no broker ran.
    ///
    /// The step waits for nothing: on a full disk, or with a log's folder that can't be written, no start gets further, however often it is
    /// tried.
    /// - Parameters:
    ///   - events: what the log is told, `broker.started` first.
    ///   - marks: what the store remembers of it.
    ///   - policies: the bytes of the policies in force, which the log is told of.
    public func catchUp(
        _ events: [Entry.Op], marks: [StoreMark] = [], policies: [[UInt8]], folder: LedgerFolder, sequencer: Sequencer,
        keeper: KeyKeeper, sweeper: Sweeper
    ) async throws {
        let untold = try await KeyKeeper.untold(keys, store) + keeper.stepAtStart()
        try await sequencer.recover()
        folder.tidy()
        for policy in policies { _ = try folder.writePolicy(policy) }
        try await store.start(events + untold, marks: marks + KeyKeeper.marks(steps: keys.steps, now: time.now))
        try await KeyKeeper.forgetLost(store)
        await keeper.step()
        await keeper.recordAll()
        _ = try await sweeper.sweep()
    }
}
