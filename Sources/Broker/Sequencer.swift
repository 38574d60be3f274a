public import EventLoop
public import Ledger
public import Storage

/// Brings the entries of closed windows into the log and the log into its folder.
///
/// Order: sign the new head and commit it to the store by compare-and-swap, write tiles and bundles, write the checkpoint, let
/// the store forget its copies. After a crash anywhere in between, `recover` finds the folder equal to the store's head or
/// behind it, and publishes the rest again. It has a loop of its own, since the folder waits for the disk.
public actor Sequencer: LoopActor {
    public nonisolated let loop: EventLoop
    private let store: any Store
    private let folder: LedgerFolder
    private let key: SigningKey
    /// Length of a window in seconds.
    private let resolution: UInt64
    private let time: BrokerTime
    private let metrics: Metrics
    private let log: @Sendable (String) -> Void
    /// What was refused since the last window.
    private let refusals: @Sendable () async -> [Entry.Op]
    private var tiles = TileLog()

    /// Entries in one publication.
    private static let batch = 16_384

    public init(
        loop: EventLoop, store: any Store, folder: LedgerFolder, key: SigningKey, resolution: UInt64, time: BrokerTime,
        metrics: Metrics, log: @escaping @Sendable (String) -> Void, refusals: @escaping @Sendable () async -> [Entry.Op]
    ) {
        self.loop = loop
        self.store = store
        self.folder = folder
        self.key = key
        self.resolution = resolution
        self.time = time
        self.metrics = metrics
        self.log = log
        self.refusals = refusals
    }

    public enum Failure: Error, CustomStringConvertible {
        /// The store's head is not a checkpoint of this key's log.
        case foreignHead
        /// The store has lost entries that its head covers and the folder lacks.
        case gap
        /// Another process moved the head.
        case overtaken

        public var description: String {
            switch self {
            case .foreignHead:
                "the database's log head is not signed by keys/ledger.key: key and database belong to different logs"
            case .gap: "the ledger folder is behind the database, and the entries between are in neither: restore the folder"
            case .overtaken: "another broker writes to this ledger: one state folder takes one broker"
            }
        }
    }

    /// Compares folder and store, and publishes what the folder lacks.
    /// - Throws: when the folder is ahead of the store or differs from it: then nothing may be started.
    public func recover() async throws {
        guard let head = try await store.logHead() else {
            if case .current(let log) = try folder.standing(comparedWith: nil, key: key.verifierKey) { tiles = log }
            // The head of the empty log: from its first moment on there is something to keep and compare with.
            let plan = tiles.append([])
            let note = key.sign(size: 0, root: plan.root)
            let head = LogHead(size: 0, checkpoint: String(decoding: note.encoded, as: UTF8.self), window: 0)
            guard try await store.commit(head, after: 0, entries: []) else { throw Failure.overtaken }
            try folder.publish(plan, checkpoint: note)
            return
        }
        guard let note = SignedNote(Array(head.checkpoint.utf8)), let checkpoint = note.checkpoint(signedBy: key.verifierKey),
            checkpoint.size == head.size
        else { throw Failure.foreignHead }
        switch try folder.standing(comparedWith: checkpoint, key: key.verifierKey) {
        case .current(let log):
            tiles = log
        case .behind(let log):
            let (first, entries) = try await store.unpublished()
            guard first <= log.size, first + UInt64(entries.count) == head.size else { throw Failure.gap }
            let plan = log.append(Array(entries[Int(log.size - first)...]))
            guard plan.newSize == checkpoint.size, plan.root == checkpoint.root else { throw Failure.gap }
            try folder.publish(plan, checkpoint: note)
            tiles = plan.log
        }
        try await store.published(upTo: head.size)
    }

    /// Publishes window after window until the task is cancelled.
    public func run() async {
        var failing = false
        while !Task.isCancelled {
            let now = time.now
            let next = (now / 1_000 / resolution + 1) * resolution * 1_000
            try? await loop.sleep(next - now + 2)
            do {
                // What was committed and not published has to be found again, whether more has come since or not.
                if failing { try await recover() }
                try await publish(before: time.now / 1_000 / resolution * resolution)
                if failing { log("ledger: publishing again") }
                failing = false
            } catch {
                if !failing { log("ledger: can't publish (\(error)); entries wait in the database, trying again every window") }
                failing = true
                metrics.add(.alarms)
            }
        }
    }

    /// Publishes everything, the open window included: what comes later belongs to a later window.
    public func flush() async throws {
        // What was committed and could not be written may still lie between.
        try await recover()
        try await publish(before: .max)
    }

    /// Publishes the entries of all windows before `window` (unix seconds).
    private func publish(before window: UInt64) async throws {
        let refused = await refusals()
        if !refused.isEmpty { try await store.record(refused) }
        while true {
            let entries = try await store.closedEntries(before: window, limit: Self.batch)
            guard let last = entries.last else { return }
            let plan = tiles.append(entries.map(\.bytes))
            let note = key.sign(size: plan.newSize, root: plan.root)
            let head = LogHead(size: plan.newSize, checkpoint: String(decoding: note.encoded, as: UTF8.self), window: last.window)
            guard try await store.commit(head, after: plan.oldSize, entries: entries) else { throw Failure.overtaken }
            try folder.publish(plan, checkpoint: note)
            tiles = plan.log
            try await store.published(upTo: plan.newSize)
            metrics.add(.entriesPublished, entries.count)
            if entries.count < Self.batch { return }
        }
    }
}
