public import EventLoop
public import Ledger
public import Storage

/// Appends the entries of closed windows to the log, and publishes the log in its folder.
///
/// The order: sign the new head and commit it to the store by compare-and-swap, get it cosigned, write tiles and bundles, write the
/// checkpoint, delete the store's copies. After a crash anywhere in between, `recover` finds the folder equal to the store's head or behind
/// it, and publishes the same head again.
///
/// It has a loop of its own, because the folder waits for the disk.
public actor Sequencer: LoopActor {
    /// How to handle a head that lacks the witnesses' quorum.
    public enum WitnessFailureMode: String, Sendable {
        /// Publish it with the cosignatures that it has.
        case open
        /// Keep it in the store, with all entries after it.
        case closed
    }

    public nonisolated let loop: EventLoop
    private let store: any Store
    private let folder: LedgerFolder
    private let key: SigningKey
    /// Length of a window in seconds.
    private let resolution: UInt64
    private let time: BrokerTime
    private let metrics: Metrics
    private let log: Logger
    private let witnesses: Witnesses?
    private let witnessFailure: WitnessFailureMode
    /// Returns the refusals since the last window.
    private let refusals: @Sendable () async -> [Entry.Op]
    /// Called after entries were committed and their rows deleted. The rows' bytes stay in the write-ahead log until it is emptied.
    private let erased: @Sendable () async -> Void
    /// Called when the log has caught up with all closed windows.
    private let caughtUp: @Sendable () -> Void
    private var tiles = TileLog()
    /// True if the last publication failed. Then the store may be ahead of the folder.
    private var isFailing = false
    /// True if another node published before.
    private var isNewcomer = false
    /// True if the last failure was a kept checkpoint's contradiction, which has been logged.
    private var isContradicted = false
    /// Checkpoints kept elsewhere with which the log has not been compared yet.
    private var uncompared: [KeptCheckpoint]
    /// True if the last head was published without the witnesses' quorum.
    private var isUnwitnessed = false
    /// The published head, while it lacks cosignatures.
    private var lacking: Witnesses.Head?

    /// Entries in one publication.
    private static let batch = 4_096

    public init(
        loop: EventLoop, store: any Store, folder: LedgerFolder, key: SigningKey, resolution: UInt64, time: BrokerTime,
        metrics: Metrics, log: Logger, witnesses: Witnesses? = nil,
        witnessFailure: WitnessFailureMode = .closed, kept: [KeptCheckpoint] = [],
        refusals: @escaping @Sendable () async -> [Entry.Op], erased: @escaping @Sendable () async -> Void = {},
        caughtUp: @escaping @Sendable () -> Void = {}
    ) {
        self.loop = loop
        self.store = store
        self.folder = folder
        self.key = key
        self.resolution = resolution
        self.time = time
        self.metrics = metrics
        self.log = log
        self.witnesses = witnesses
        self.witnessFailure = witnessFailure
        uncompared = kept
        self.refusals = refusals
        self.erased = erased
        self.caughtUp = caughtUp
    }

    public enum Failure: Error, CustomStringConvertible {
        /// The store's head is not a checkpoint of this key's log.
        case foreignHead
        /// The store has lost entries that its head covers and the folder lacks.
        case gap
        /// Another process moved the head.
        case overtaken
        /// Too few witnesses cosigned.
        case quorumMissed
        /// Witnesses that the quorum needs contradict this log: it was rewritten or set back.
        case contradicted(String)

        public var description: String {
            switch self {
            case .foreignHead:
                "the database's log head is not signed by keys/ledger.key: key and database belong to different logs"
            case .gap: "the ledger folder is behind the database, and the entries between are in neither. Restore the folder"
            case .overtaken: "another broker writes to this ledger. Stop it: a state folder is for one broker"
            case .quorumMissed: "the witnesses' quorum was not reached"
            case .contradicted(let said):
                "restored_state: witnesses contradict this ledger, and there is no quorum without them. \(said). Nothing is published. If "
                    + "the state folder is an old copy, restore the newer one, or start with an empty one under another origin. Remove a "
                    + "lying witness from the witness policy"
            }
        }
    }

    /// Compares folder, store and kept checkpoints. Publishes the entries that the folder lacks. Then asks all witnesses to cosign the head again.
    ///
    /// A missed quorum, or a kept checkpoint that can't be read now, does not stop a start. Entries wait until later.
    /// - Throws: if the folder is ahead of the store or differs from it, or if a kept checkpoint or witnesses contradict the log. Then
    ///   nothing may be started.
    public func recover() async throws {
        do {
            try await catchUp(asksAll: true)
        } catch Failure.quorumMissed {
            recordFailure(Failure.quorumMissed)
        } catch let failure as KeptCheckpoint.Failure where !failure.isFinal {
            recordFailure(failure)
        }
    }

    /// Continues another node's log at the next window.
    public func takeOver() { isNewcomer = true }

    /// Publishes window after window until the task is cancelled.
    public func run() async {
        while !Task.isCancelled {
            let now = time.now
            let next = (now / 1_000 / resolution + 1) * resolution * 1_000
            try? await loop.sleep(next - now + 2)
            // Broker time goes slower while the wall clock is behind it.
            if time.now < next { continue }
            for alarm in store.takeAlarms() {
                metrics.add(.alarms)
                log.error("store: \(alarm)")
            }
            do {
                // After a failure, entries may be committed but not published.
                if isFailing || isNewcomer { try await catchUp(asksAll: isNewcomer) }
                isNewcomer = false
                // Only here, so that a window has at most one entry of each cause. The refusals of a stop's last window are lost.
                let refused = await refusals()
                if !refused.isEmpty { try await store.record(refused) }
                try await publish(before: time.now / 1_000 / resolution * resolution)
                if isFailing { log.info("ledger: publishing again") }
                caughtUp()
                (isFailing, isContradicted) = (false, false)
            } catch {
                recordFailure(error)
            }
        }
    }

    /// Publishes all entries, including those of the open window. Later entries belong to a later window.
    public func flush() async throws {
        // Earlier entries may be committed but not published.
        try await catchUp()
        try await publish(before: .max)
    }

    private func recordFailure(_ error: any Error) {
        // A kept checkpoint's contradiction is logged even if publication failed before for another reason.
        let contradicts = (error as? KeptCheckpoint.Failure)?.isFinal ?? false
        if !isFailing || contradicts && !isContradicted {
            metrics.add(.alarms)
            log.error("ledger: can't publish (\(error)); entries wait in the database, trying again every window")
        }
        (isFailing, isContradicted) = (true, contradicts)
    }

    private func catchUp(asksAll: Bool = false) async throws {
        guard let head = try await store.logHead() else {
            if case .current(let log) = try folder.compare(with: nil, key: key.verifierKey) { tiles = log }
            // Publish the head of the empty log, so that a checkpoint can be kept and compared from the start.
            let plan = tiles.append([])
            let empty = Checkpoint(origin: key.verifierKey.name, size: 0, root: plan.root)
            if let unread = try await compare(empty, folder.source(after: plan)) { throw unread }
            let note = key.sign(size: 0, root: plan.root)
            let head = LogHead(size: 0, checkpoint: String(decoding: note.encoded, as: UTF8.self), window: 0)
            guard try await store.commit(head, after: 0, entries: []) else { throw Failure.overtaken }
            return try await publish(plan, note, window: 0)
        }
        let (note, checkpoint) = try Self.signed(head, key.verifierKey)
        if asksAll, let witnesses, let published = try folder.checkpoint().flatMap({ SignedNote($0) }),
            let size = published.checkpoint(signedBy: key.verifierKey)?.size
        {
            await witnesses.adopt(published, size: size)
        }
        switch try folder.compare(with: checkpoint, key: key.verifierKey) {
        case .current(let log):
            tiles = log
            let plan = log.append([])
            let unread = try await compare(checkpoint, folder.source(after: plan))
            // Ask the witnesses before the error is thrown: they may contradict the log even if a mirror can't be read.
            if asksAll { try await renew(witnessed(plan, note, window: head.window), asksAll: true) }
            if let unread { throw unread }
            try await store.published(upTo: head.size)
        case .behind(let log):
            let plan = try Self.repair(log, checkpoint, try await store.unpublished(after: log.size))
            if let unread = try await compare(checkpoint, folder.source(after: plan)) { throw unread }
            try await publish(plan, note, window: head.window)
        }
    }

    private static func signed(_ head: LogHead, _ key: VerifierKey) throws(Failure) -> (note: SignedNote, checkpoint: Checkpoint)
    {
        guard let note = SignedNote(Array(head.checkpoint.utf8)), let checkpoint = note.checkpoint(signedBy: key),
            checkpoint.size == head.size
        else { throw .foreignHead }
        return (note, checkpoint)
    }

    /// Returns the publication of the entries that the folder lacks.
    private static func repair(
        _ log: TileLog, _ head: Checkpoint, _ unpublished: (first: UInt64, entries: [[UInt8]])
    ) throws(Failure) -> PublicationPlan {
        let (first, entries) = unpublished
        guard first <= log.size, first + UInt64(entries.count) == head.size else { throw .gap }
        let plan = log.append(Array(entries[Int(log.size - first)...]))
        guard plan.newSize == head.size, plan.root == head.root else { throw .gap }
        return plan
    }

    /// The log of a state folder as a start would find it.
    public struct Inspection: Sendable {
        public let head: Checkpoint
        /// How many entries the start would publish, because the folder lacks them.
        public let lacking: UInt64
        let source: any LogSource
    }

    /// Compares folder and store as `recover` does, and changes neither. Returns nil if no broker has run yet.
    /// - Throws: what `recover` would throw.
    public static func inspect(_ store: StoreSnapshot, _ folder: LedgerFolder, key: VerifierKey) throws -> Inspection? {
        guard let head = try store.logHead() else {
            _ = try folder.compare(with: nil, key: key)
            return nil
        }
        let checkpoint = try signed(head, key).checkpoint
        let plan =
            switch try folder.compare(with: checkpoint, key: key) {
            case .current(let log): log.append([])
            case .behind(let log): try repair(log, checkpoint, try store.unpublished(after: log.size))
            }
        return Inspection(head: checkpoint, lacking: plan.newSize - plan.oldSize, source: folder.source(after: plan))
    }

    /// Compares the log with each kept checkpoint, once. No other process can change the state folder while this process has it locked.
    /// - Returns: why one could not be read, or nil if all are compared.
    /// - Throws: if one contradicts the log.
    private func compare(_ head: Checkpoint, _ source: any LogSource) async throws -> KeptCheckpoint.Failure? {
        var unread: [(KeptCheckpoint, KeptCheckpoint.Failure)] = []
        for kept in uncompared {
            do {
                try await kept.check(head, of: key.verifierKey, source)
            } catch let failure as KeptCheckpoint.Failure where !failure.isFinal {
                unread.append((kept, failure))
            }
        }
        uncompared = unread.map(\.0)
        return unread.first?.1
    }

    /// Publishes complete batches, and the entries of all windows before `window`, unix seconds. Call this every window, because `closedEntries`
    /// also freezes and completes batches.
    private func publish(before window: UInt64) async throws {
        while true {
            let entries = try await store.closedEntries(before: window, limit: Self.batch)
            guard let last = entries.last else { break }
            let plan = tiles.append(entries.map(\.bytes))
            let note = key.sign(size: plan.newSize, root: plan.root)
            let head = LogHead(size: plan.newSize, checkpoint: String(decoding: note.encoded, as: UTF8.self), window: last.window)
            guard try await store.commit(head, after: plan.oldSize, entries: entries) else { throw Failure.overtaken }
            await erased()
            try await publish(plan, note, window: last.window)
            metrics.add(.entriesPublished, entries.count)
            if entries.count < Self.batch { return }
        }
        if let lacking { try await renew(lacking) }
    }

    /// Gets a committed head cosigned, publishes it, deletes the store's copies.
    private func publish(_ plan: PublicationPlan, _ note: SignedNote, window: UInt64) async throws {
        let note = try await cosigned(witnessed(plan, note, window: window))
        try folder.publish(plan, checkpoint: note)
        tiles = plan.log
        try await store.published(upTo: plan.newSize)
    }

    // MARK: Witnesses

    private func witnessed(_ plan: PublicationPlan, _ note: SignedNote, window: UInt64) -> Witnesses.Head {
        Witnesses.Head(note: note, size: plan.newSize, root: plan.root, window: window, source: folder.source(after: plan))
    }

    /// Returns the head with its cosignatures.
    /// - Throws: `.contradicted`; `.quorumMissed` in the mode `.closed`.
    private func cosigned(_ head: Witnesses.Head) async throws -> SignedNote {
        guard let witnesses else { return head.note }
        let round = await witnesses.cosign(head)
        if let said = round.contradiction { throw Failure.contradicted(said) }
        if !round.isSatisfied {
            metrics.add(.quorumMissed)
            if witnessFailure == .closed { throw Failure.quorumMissed }
            if !isUnwitnessed {
                metrics.add(.alarms)
                log.error("ledger: publishing without the witnesses' quorum, because of --witness-failure open")
            }
        } else if isUnwitnessed {
            log.info("ledger: the witnesses' quorum is reached again")
        }
        isUnwitnessed = !round.isSatisfied
        lacking = round.isComplete ? nil : head
        return round.note
    }

    /// Adds later cosignatures to the published head.
    private func renew(_ head: Witnesses.Head, asksAll: Bool = false) async throws {
        guard let witnesses else { return }
        let round = await witnesses.cosign(head, asksAll: asksAll)
        // The head is public already, but nothing may follow it.
        if let said = round.contradiction { throw Failure.contradicted(said) }
        if round.isSatisfied, isUnwitnessed {
            log.info("ledger: the witnesses' quorum is reached again")
            isUnwitnessed = false
        }
        if round.note.encoded != (try folder.checkpoint()) { try folder.publish(tiles.append([]), checkpoint: round.note) }
        lacking = round.isComplete ? nil : head
    }
}

/// A checkpoint of this log that is kept outside the state folder, e.g. in a published copy. The log must continue it.
///
/// After a restored snapshot, database, keys and ledger folder agree with each other. Only a checkpoint from outside shows that entries are lost.
public struct KeptCheckpoint: Sendable {
    let name: String
    /// True if it is read over the network.
    public let isRemote: Bool
    private let read: @Sendable () async throws -> [UInt8]?

    /// - Parameters:
    ///   - name: the place's name in errors and in the log.
    ///   - read: returns nil if nothing is published there. May throw any error. Its text is logged.
    public init(name: String, isRemote: Bool = false, read: @escaping @Sendable () async throws -> [UInt8]?) {
        (self.name, self.isRemote, self.read) = (name, isRemote, read)
    }

    /// Compares an inspected log with this checkpoint.
    public func check(_ log: Sequencer.Inspection, of key: VerifierKey) async throws {
        try await check(log.head, of: key, log.source)
    }

    /// Compares the log under `head` with this checkpoint.
    /// - Throws: `.unread` if the checkpoint can't be read now, `.foreign` if another key signed it, `.restored` if the log does not
    ///   continue it.
    func check(_ head: Checkpoint, of key: VerifierKey, _ source: any LogSource) async throws {
        let bytes: [UInt8]?
        do { bytes = try await read() } catch { throw Failure.unread(name: name, reason: "\(error)") }
        guard let bytes else { throw Failure.unread(name: name, reason: "it has no checkpoint") }
        guard let kept = SignedNote(bytes)?.checkpoint(signedBy: key) else { throw Failure.foreign(name: name, origin: key.name) }
        guard kept.size <= head.size else { throw Failure.restored(.behind(name: name, kept: kept.size, own: head.size)) }
        var tiles = TileReader(source, size: head.size)
        guard try await tiles.continues(kept, root: head.root) else {
            throw Failure.restored(.forked(name: name, size: kept.size))
        }
    }

    public enum Failure: Error, Sendable, CustomStringConvertible {
        case unread(name: String, reason: String)
        case foreign(name: String, origin: String)
        case restored(Contradiction)

        public var description: String {
            switch self {
            case .unread(let name, let reason):
                "\(name) can't be read (\(reason)). Nothing is signed until this ledger is compared with it"
            case .foreign(let name, let origin):
                "\(name) has no checkpoint signed by the key of \(origin): it belongs to another log, or is damaged. "
                    + "Name a copy of this log"
            case .restored(let contradiction):
                "restored_state: \(contradiction). To continue would fork the log, so nothing was signed or published. Restore the newer state "
                    + "folder; if it is lost, start with an empty one under another origin"
            }
        }

        /// True if a retry can't succeed. Then the start is refused.
        public var isFinal: Bool {
            if case .unread = self { false } else { true }
        }
    }

    /// How a log fails to continue a checkpoint.
    public enum Contradiction: Sendable, CustomStringConvertible {
        case behind(name: String, kept: UInt64, own: UInt64)
        case forked(name: String, size: UInt64)

        public var description: String {
            switch self {
            case .behind(let name, let kept, let own):
                "\(name) has \(kept) entries of this log, and the state folder has only \(own): the state folder is an old copy"
            case .forked(let name, let size):
                "\(name) has \(size) entries of this log, and the state folder has different ones: the state folder is an old copy that was continued"
            }
        }
    }
}
