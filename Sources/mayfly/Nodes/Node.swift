import Broker
import EventLoop
import HTTP1
import HTTPServer
import Ledger
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import Vocabulary

/// A node of a deployment. It serves once it has the latest keys and the whole log.
///
/// One node leads: it publishes the log and steps the keys. The others follow: they copy each step and each published entry, and one of them leads next.
/// Keys are lost only if no node has them any more.
actor Node: LoopActor {
    /// A node's keys and term when it begins to serve.
    struct Admission: Sendable {
        let keys: KeyRing
        let lease: LeaseKeeper
        /// True if no node had the keys any more, so that everything sealed is forgotten.
        var isLoss = false
    }

    /// The calls of a serving node to the broker.
    struct Duties: Sendable {
        /// Called once, when this node begins to lead.
        let lead: @Sendable () async throws -> Void
        /// Takes over stored jobs.
        let resume: @Sendable ([JobRecord]) async -> Void
        /// Called at each step of the keys that another node has made.
        let stepped: @Sendable () -> Void
        /// Returns the refusals since the last call. While this node leads, the sequencer records them instead.
        let refusals: @Sendable () -> [Entry.Op]
    }

    /// Keys of another node, and when it last confirmed them.
    private struct Copy: Sendable {
        let keys: ReceivedKeys
        let edition: UInt64
        var confirmed: UInt64
    }

    nonisolated let loop: EventLoop
    private let settings: ServiceSettings
    private let store: PostgresStore
    private let log: FolderCopy
    private let client: HTTPClient?
    private let wrapping: WrappingKey?
    private let copy = Mutex<Copy?>(nil)
    /// The keys in use, once this node serves.
    private let keys = Mutex<KeyRing?>(nil)
    private nonisolated let folderSize = Mutex<UInt64>(0)
    private nonisolated let leading = Mutex(false)
    private var stepped: (@Sendable () -> Void)?
    private var term: LeaseKeeper?
    /// False while the log and the keys of the node that led before are not taken over yet.
    private var hasTakenOver = true
    /// When a new generation may take seals, monotonic ms.
    private var holdBackEnds: UInt64 = 0
    /// The address of the node that leads. Nil if there is none, or if it is this one.
    private let server = Mutex<String?>(nil)
    /// The step of the keys in the key file, or 0 without one.
    private var storedSteps: UInt64
    /// The last reason for waiting of each kind, which is logged once.
    private var reasons: [Wait: String] = [:]

    private enum Wait { case lease, keys, log }

    /// How long a follower seals with the previous generation after it got a new one. Longer than the 5 s in which the other followers get it.
    private static let holdBackMs: UInt64 = 6_000

    private static let periodMs: UInt64 = 1_000
    private var name: String { settings.node.description }
    private var address: String { settings.nodes?.listen.description ?? "" }
    /// Since when this node's name has been in use, ms since boot.
    private var refusedSince: UInt64?
    /// The lease of another process when this node first saw it.
    private var firstSeen: Lease?
    private var longestLife: UInt64 { UInt64(settings.policies.longestLifeSeconds) }

    init(_ settings: ServiceSettings, _ store: PostgresStore, key: VerifierKey, loop: EventLoop) throws {
        (self.settings, self.store, self.loop) = (settings, store, loop)
        log = FolderCopy(store: store, folder: LedgerFolder(settings.state.ledger), key: key)
        client = settings.nodes.map { HTTPClient(loop: loop, tls: $0.client) }
        wrapping = try settings.wrapping?.get()
        let state = settings.state
        storedSteps =
            File.exists(state.ratchetKey)
            ? try state.loadKeys(wrapping, longestLifeSeconds: UInt64(settings.policies.longestLifeSeconds)).steps : 0
    }

    // MARK: Before it serves

    /// Returns when this node may serve.
    /// - Throws: if it must not serve in this deployment.
    func admit() async throws -> Admission {
        if let client { Task { await self.fetchKeys(with: client) } }
        while true {
            do {
                if let admission = try await round() { return admission }
            } catch let error as StoreError where error.isPassing {
                wait(for: "the database (\(error))")
            }
            endIfSilent()
            try await loop.sleep(Self.periodMs)
        }
    }

    private func round() async throws -> Admission? {
        let lease = try await store.lease()
        try checkHolder(lease)
        guard try await checkDeployment(lease) else {
            wait(for: "the end of the term of a node that served by other rules")
            return nil
        }
        let isComplete = try await copyLog(lease)
        try await store.recheckCommits { try await self.log.isContinued() }
        try await store.report(report(copy.withLock(\.self)?.keys.steps ?? storedSteps))
        if let fault = store.fault {
            wait(for: "the database. \(fault)")
            return nil
        }
        guard isComplete else {
            wait(for: "ledger entries that only another node has. Start that node, or copy its folder ledger/ to this one")
            return nil
        }
        return lease.isFree ? try await takeLease(lease) : try await join(lease)
    }

    /// Joins the node that leads, once its keys are here.
    private func join(_ lease: Lease) async throws -> Admission? {
        let holder = lease.holder ?? ""
        let recorded = try await RecordedTimes(store).steps
        guard !isOwn(lease), let steps = copy.withLock(\.self)?.keys.steps, steps >= recorded else {
            wait(for: isOwn(lease) ? "the end of its own lease, which an earlier run has left" : "the keys of \(holder)")
            return nil
        }
        let start = Clock.boottimeMs
        guard try await store.join(name) else {
            refusedSince = refusedSince ?? start
            // An earlier run's term would be over.
            let isRenewed = try await store.reports().contains { $0.name == name && $0.life == .renewed }
            if isRenewed, let since = refusedSince, start - since > 2 * PostgresStore.leaseMs { throw Self.nameInUse(name) }
            wait(for: "the end of its own term, which an earlier run has left")
            return nil
        }
        // From here to `use` nothing else runs on this actor, so that no step is missed.
        guard let received = copy.withLock(\.self)?.keys else { return nil }
        let keys = try use(ring(of: received))
        keys.beginFollowing()
        sealWithNewest(keys)
        Terminal.log("nodes: this node has the keys of \(holder) and serves beside it")
        return Admission(keys: keys, lease: keeper(keys, start))
    }

    /// From now on this node follows each step of the node that leads.
    private func use(_ ring: KeyRing) -> KeyRing {
        keys.withLock { $0 = ring }
        return ring
    }

    private func ring(of received: ReceivedKeys) throws -> KeyRing {
        try KeyRing(
            received, path: wrapping == nil ? nil : settings.state.ratchetKey, wrapping: wrapping, longestLifeSeconds: longestLife
        )
    }

    private func keeper(_ keys: KeyRing, _ start: UInt64) -> LeaseKeeper {
        let keepsFile = wrapping != nil
        let keeper = LeaseKeeper(store, loop: loop, taken: start) { isLeaving in
            // Nobody should wait for keys that end with the process.
            self.report(isLeaving && !keepsFile ? 0 : keys.steps)
        }
        term = keeper
        Task { await keeper.run() }
        return keeper
    }

    private nonisolated func report(_ steps: UInt64) -> NodeReport {
        NodeReport(name: settings.node.description, steps: steps, ledgerSize: folderSize.withLock(\.self))
    }

    // MARK: While it serves

    /// True if this node publishes the log and steps the keys.
    nonisolated var leads: Bool { leading.withLock(\.self) }

    /// Follows the node that leads, and takes the lease once it is free. Takes over the jobs of dead nodes. Runs until the task is cancelled.
    func run(_ duties: Duties) async {
        stepped = duties.stepped
        var windowsEnd = Clock.monotonicMs + settings.resolution * 1_000
        while !Task.isCancelled {
            do {
                try await store.recheckCommits { try await self.log.isContinued() }
                // A node that can't lead does this too, since the log allows no late outcomes.
                if isSettled {
                    let jobs = try await store.takeJobsOfGoneNodes()
                    if !jobs.isEmpty { await duties.resume(jobs) }
                }
                if leads, !hasTakenOver {
                    try await duties.lead()
                    hasTakenOver = true
                } else if !leads {
                    try await follow(duties)
                    if Clock.monotonicMs >= windowsEnd {
                        windowsEnd = Clock.monotonicMs + settings.resolution * 1_000
                        let refused = duties.refusals()
                        if !refused.isEmpty { try await store.record(refused) }
                    }
                }
                reasons[.lease] = nil
            } catch let error as StoreError {
                wait(for: "the database (\(error))")
            } catch {
                // E.g. the disk of the ledger folder is full.
                wait(for: "its ledger folder (\(error))")
            }
            endIfSilent()
            do { try await loop.sleep(Self.periodMs) } catch { return }
        }
    }

    private var isSettled: Bool { term.map { $0.isCurrent && $0.isSettled } ?? true }

    private func follow(_ duties: Duties) async throws {
        let lease = try await store.lease()
        let isComplete = try await copyLog(lease)
        guard lease.isFree, isSettled, isComplete, store.fault == nil, let keys = keys.withLock(\.self) else { return }
        guard try await keys.steps >= RecordedTimes(store).steps,
            try await UInt64(keys.generations.last?.id ?? 0) >= store.latestGeneration()
        else {
            return wait(.keys, for: "a node with the latest keys. Without one for ten minutes, all that is sealed is lost")
        }
        guard try await store.takeLease(name, address: address, after: lease.term, mark: deploymentMark) else { return }
        leading.withLock { $0 = true }
        server.withLock { $0 = nil }
        copy.withLock { $0 = nil }
        // Others may get it from this node only.
        sealWithNewest(keys)
        Terminal.log("nodes: this node leads now")
        hasTakenOver = false
    }

    /// Copies the entries that the ledger folder lacks. See `FolderCopy.update`.
    private func copyLog(_ lease: Lease) async throws -> Bool {
        let isOther = !lease.isFree && !isOwn(lease)
        server.withLock { $0 = isOther && !lease.address.isEmpty ? lease.address : nil }
        var source: (any LogSource)?
        if let client, isOther, !lease.address.isEmpty {
            let prefix = "https://\(lease.address)/audit/"
            source = FunctionSource { path in
                let answer = try await client.send(prefix + path, timeoutMs: 30_000, maximumBytes: 17_000_000)
                if answer.status == 404 { return nil }
                guard answer.status == 200 else { throw ClientError.refused(answer.status) }
                return answer.body
            }
        }
        let (size, isComplete) = try await copyLog(from: source)
        folderSize.withLock { $0 = size }
        store.noteFolder(size: size)
        return isComplete
    }

    /// An unreachable node must not keep this one from serving: its last entries are in the database.
    private func copyLog(from source: (any LogSource)?) async throws -> (size: UInt64, isComplete: Bool) {
        do {
            return try await log.update(from: source)
        } catch let error as ClientError {
            wait(.log, for: "the node that leads, whose log can't be read (\(error))")
        } catch let error as VerificationFailure where error.code == .unreadable {
            wait(.log, for: "the node that leads, whose log can't be read (\(error))")
        }
        return try await log.update(from: nil)
    }

    /// Leads, with the keys that are here or with new ones.
    private func takeLease(_ lease: Lease) async throws -> Admission? {
        let times = try await RecordedTimes(store)
        let (recorded, latest, now) = (times.steps, try await store.latestGeneration(), Clock.wallMs)
        var keys: KeyRing?
        if let received = copy.withLock(\.self)?.keys, received.steps >= recorded, received.currentGeneration >= latest {
            keys = try ring(of: received)
        } else if File.exists(settings.state.ratchetKey) {
            let stored = try settings.state.loadKeys(wrapping, longestLifeSeconds: longestLife)
            do throws(StaleKeys) {
                try times.check(stored)
                keys = stored
            } catch {
                // Other nodes must not wait for keys that are refused.
                storedSteps = 0
            }
        }
        let isLoss = keys == nil && (recorded > 0 || latest > 0)
        if isLoss, let other = try await holderOfKeys(recorded, lease) {
            wait(for: "\(other), which has the latest keys. Without it for ten minutes, all that is sealed is lost")
            return nil
        }
        let start = Clock.boottimeMs
        guard try await store.takeLease(name, address: address, after: lease.term, mark: deploymentMark) else { return nil }
        if isLoss {
            Terminal.log(.error, "keys: no node has the latest keys any more. All that was sealed under them is forgotten now")
            try await KeyKeeper.recordLoss(store, nowMs: now)
        }
        let ring = try use(keys ?? makeKeys(now))
        leading.withLock { $0 = true }
        server.withLock { $0 = nil }
        copy.withLock { $0 = nil }
        return Admission(keys: ring, lease: keeper(ring, start), isLoss: isLoss)
    }

    private func makeKeys(_ now: UInt64) throws -> KeyRing {
        guard let wrapping else { return try KeyRing.make(nowMs: now, longestLifeSeconds: longestLife) }
        let path = settings.state.ratchetKey
        if File.exists(path) { try File.removeAndErase(path) }
        try KeyRing.create(path: path, wrapping: wrapping, nowMs: now)
        return try settings.state.loadKeys(wrapping, longestLifeSeconds: longestLife)
    }

    /// Returns another node that may have the latest keys: the last one that led, or one that reported them. Nil once it has been silent for ten
    /// minutes while this one looked: then it has wiped its keys.
    private func holderOfKeys(_ recorded: UInt64, _ lease: Lease) async throws -> String? {
        try await store.reports().first {
            guard $0.name != name, $0.steps > 0, $0.silentMs < PostgresStore.longestSilenceMs else { return false }
            return $0.steps >= recorded || $0.name == lease.holder
        }?.name
    }

    // MARK: The deployment

    /// Returns true if an earlier process of this node took the lease.
    private func isOwn(_ lease: Lease) -> Bool { lease.holder == name && lease.address == address }

    /// Refuses settings with which this node would wait for ever. A lease that is still renewed belongs to another process.
    private func checkHolder(_ lease: Lease) throws {
        guard !lease.isFree else { return }
        if firstSeen?.term != lease.term { firstSeen = lease }
        guard let first = firstSeen, lease.stamp > first.stamp, let holder = lease.holder else { return }
        if holder == name {
            throw Self.nameInUse(name)
        }
        if client == nil {
            throw CommandFailed(
                "\(holder) serves. A node beside it needs \(Key.nodeListen.named), \(Key.nodeCertificate.named) and \(Key.nodeCA.named)"
            )
        }
        if lease.address.isEmpty {
            throw CommandFailed("\(holder) serves, but gives its keys to nobody: it needs \(Key.nodeListen.named) too")
        }
    }

    private static func nameInUse(_ name: String) -> CommandFailed {
        CommandFailed("another node serves under the name \(name). Give each node a name of its own with \(Key.node.named)")
    }

    private static let deploymentName = "deployment"
    private var deploymentMark: StoreMark { StoreMark(Self.deploymentName, Array(deployment.utf8)) }

    /// The settings that all nodes have in common.
    private var deployment: String {
        ([log.key.description, "\(settings.resolution)"] + settings.policies.all.map(\.digest.hex)).joined(separator: "\n")
    }

    /// Refuses to serve beside a node that works by other rules.
    /// - Returns: false if it is not known yet whether such a node still serves.
    private func checkDeployment(_ lease: Lease) async throws -> Bool {
        let lives = try await store.reports().filter { $0.name != name }.map(\.life)
        guard lives.contains(where: { $0 != .over }), let mark = try await store.mark(Self.deploymentName) else { return true }
        let (own, others) = (deployment.split(separator: "\n"), String(decoding: mark, as: UTF8.self).split(separator: "\n"))
        if own == others { return true }
        guard lives.contains(.renewed) else { return false }
        let what =
            if own.first != others.first {
                "another log key or origin: copy keys/ledger.key and ledger.vkey from it"
            } else if own.dropFirst().first != others.dropFirst().first {
                "another --resolution: set the same"
            } else {
                "other policies: set the same --policy. To change it, stop all nodes, then start them with it"
            }
        throw CommandFailed("the node that leads has \(what)")
    }

    // MARK: Keys

    private func fetchKeys(with client: HTTPClient) async {
        var failures = 0
        while !Task.isCancelled {
            guard let address = server.withLock(\.self) else {
                guard (try? await loop.sleep(200)) != nil else { return }
                continue
            }
            do {
                try await fetchOnce(address, client)
                failures = 0
                reasons[.keys] = nil
            } catch {
                failures += 1
                // The first may only show that the other node stops.
                if failures > 1 { wait(.keys, for: "keys from the node at \(address) (\(error))") }
                guard (try? await loop.sleep(Self.periodMs)) != nil else { return }
            }
        }
    }

    private func fetchOnce(_ address: String, _ client: HTTPClient) async throws {
        let receiver = try KeyReceiver()
        let edition = copy.withLock { $0?.edition } ?? 0
        let answer = try await client.send(
            "https://\(address)/keys?\(name)&\(edition)", method: .post, body: receiver.publicKey, timeoutMs: 15_000,
            maximumBytes: 65_536)
        let now = Clock.boottimeMs
        // This node may lead by now. Then it makes the steps.
        if leads { return }
        switch answer.status {
        case 204: copy.withLock { $0?.confirmed = now }
        case 200 where answer.body.count > 16:
            let received = try receiver.open(Array(answer.body[16...]))
            try follow(received)
            copy.withLock { $0 = Copy(keys: received, edition: answer.body.span.bigEndian64(at: 0), confirmed: now) }
        default: throw ClientError.refused(answer.status)
        }
    }

    /// Follows a step of the node that leads, if this node serves.
    private func follow(_ received: ReceivedKeys) throws {
        guard let ring = keys.withLock(\.self) else { return }
        do throws(KeyFileError) {
            let waits = try ring.follow(received)
            stepped?()
            if waits { sealWithNewest(ring) }
        } catch {
            guard case .otherKeys = error else { throw error }
            Terminal.log(.error, "keys: \(error). It stops; its next start fetches them")
            ProcessControl.exit(1)
        }
    }

    /// Lets the newest generation take seals once all nodes can have it.
    private func sealWithNewest(_ ring: KeyRing) {
        holdBackEnds = Clock.monotonicMs + Self.holdBackMs
        Task {
            try? await loop.sleep(Self.holdBackMs + 1)
            // Another one may have replaced it meanwhile.
            if Clock.monotonicMs >= holdBackEnds { ring.sealWithNewest() }
        }
    }

    /// Ends the process if no node has confirmed its keys for ten minutes. A machine that is cut off must not keep them.
    private func endIfSilent() {
        let now = Clock.boottimeMs
        guard let confirmed = copy.withLock({ $0?.confirmed }), now - confirmed > PostgresStore.longestSilenceMs else { return }
        Terminal.log(.error, "keys: no contact with the node that leads for ten minutes. This node stops and forgets its keys")
        ProcessControl.exit(1)
    }

    private func wait(_ kind: Wait = .lease, for reason: String) {
        if reason != reasons[kind] { Terminal.log("nodes: waiting for \(reason)") }
        reasons[kind] = reason
    }
}

extension StoreError {
    /// True if a retry may succeed.
    fileprivate var isPassing: Bool {
        switch self {
        case .unavailable, .full, .readOnly, .ledgerBehind, .wrongClock, .lostCommits: true
        case .damaged, .otherVersion, .noSchema, .otherTiming, .superseded, .closed: false
        }
    }
}
