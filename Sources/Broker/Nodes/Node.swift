public import EventLoop
public import Ledger
import Linux
public import Policy
public import Sealing
public import Storage
import Synchronization
import Vocabulary

/// A node of a deployment. It serves once it has the latest keys and the whole log.
///
/// One node leads: it publishes the log and steps the keys. The others follow: they copy each step and each published entry, and one of them leads next.
/// Keys are lost only if no node has them any more.
public actor Node: LoopActor {
    /// What a node has to know about itself and its deployment.
    public struct Settings: Sendable {
        let name: EntryText
        let address: String
        /// Length of a window of the log in seconds.
        let resolution: UInt64
        let policies: Policies
        let folder: LedgerFolder
        let key: VerifierKey
        let keyFile: String
        let wrapping: WrappingKey?
        let storedKeys: @Sendable () throws -> KeyRing?

        /// - Parameters:
        ///   - address: where other nodes reach this one. Empty if it gives its keys to none.
        ///   - resolution: length of a window of the log in seconds.
        ///   - key: the key of the log in `folder`.
        ///   - keyFile: the path of the key file, which is kept only with a wrapping key.
        ///   - storedKeys: reads the key file. Returns nil if there is none.
        public init(
            name: EntryText, address: String, resolution: UInt64, policies: Policies, folder: LedgerFolder, key: VerifierKey,
            keyFile: String, wrapping: WrappingKey?, storedKeys: @escaping @Sendable () throws -> KeyRing?
        ) {
            (self.name, self.address, self.resolution, self.policies) = (name, address, resolution, policies)
            (self.folder, self.key, self.keyFile, self.wrapping) = (folder, key, keyFile, wrapping)
            self.storedKeys = storedKeys
        }
    }

    /// A node's keys and term when it begins to serve.
    public struct Admission: Sendable {
        public let keys: KeyRing
        public let lease: LeaseKeeper
        /// True if no node had the keys any more, so that everything sealed is forgotten.
        public var isLoss = false
    }

    /// The calls of a serving node to the broker.
    public struct Duties: Sendable {
        let lead: @Sendable () async throws -> Void
        let resume: @Sendable ([JobRecord]) async -> Void
        let stepped: @Sendable () -> Void
        let refusals: @Sendable () -> [Entry.Op]

        /// - Parameters:
        ///   - lead: called once, when this node begins to lead.
        ///   - resume: takes over stored jobs.
        ///   - stepped: called at each step of the keys that another node has made.
        ///   - refusals: returns the refusals since the last call. While this node leads, the sequencer records them instead.
        public init(
            lead: @escaping @Sendable () async throws -> Void, resume: @escaping @Sendable ([JobRecord]) async -> Void,
            stepped: @escaping @Sendable () -> Void, refusals: @escaping @Sendable () -> [Entry.Op]
        ) {
            (self.lead, self.resume, self.stepped, self.refusals) = (lead, resume, stepped, refusals)
        }
    }

    /// Keys of another node, and when it last confirmed them.
    private struct Copy: Sendable {
        let keys: ReceivedKeys
        let edition: UInt64
        /// Ms since the boot.
        var confirmed: UInt64
    }

    public nonisolated let loop: EventLoop
    private nonisolated let settings: Settings
    private let store: PostgresStore
    private let log: FolderCopy
    private let link: (any NodeLink)?
    private let process: NodeProcess
    private let copy = Mutex<Copy?>(nil)
    /// The keys in use, once this node serves.
    private let keys = Mutex<KeyRing?>(nil)
    private nonisolated let folderSize = Mutex<UInt64>(0)
    private nonisolated let leading = Mutex(false)
    private var stepped: (@Sendable () -> Void)?
    private var term: LeaseKeeper?
    /// False while the log and the keys of the node that led before are not taken over yet.
    private var hasTakenOver = true
    /// When a new generation may take seals, on the loop's clock.
    private var holdBackEnds: UInt64 = 0
    /// The address of the node that leads. Nil if there is none, or if it is this one.
    private var server: String? {
        didSet { if server != nil { continueFetching() } }
    }
    /// The task that fetches keys, while there is no `server`.
    private var idleFetch: CheckedContinuation<Void, Never>?
    /// The tasks beside `run`.
    private var tasks: [Task<Void, Never>] = []
    private var isStopped = false
    /// The step of the keys in the key file, or 0 without one.
    private var storedSteps: UInt64
    /// The last reason for waiting of each kind, which is logged once.
    private var reasons: [Wait: String] = [:]

    private enum Wait { case lease, keys, log }

    /// How long a follower seals with the previous generation after it got a new one. Longer than the 5 s in which the other followers get it.
    private static let holdBackMs: UInt64 = 6_000

    private static let periodMs: UInt64 = 1_000
    private var name: String { settings.name.description }
    /// Since when this node's name has been in use, ms since boot.
    private var refusedSince: UInt64?
    /// The lease of another process when this node first saw it.
    private var firstSeen: Lease?
    private var longestLife: UInt64 { UInt64(settings.policies.longestLifeSeconds) }

    /// - Parameter link: nil if this node is alone.
    /// - Throws: what `storedKeys` throws.
    public init(
        _ settings: Settings, _ store: PostgresStore, link: (any NodeLink)?, process: NodeProcess, loop: EventLoop
    ) throws {
        (self.settings, self.store, self.link, self.process, self.loop) = (settings, store, link, process, loop)
        log = FolderCopy(store: store, folder: settings.folder, key: settings.key)
        storedSteps = try settings.storedKeys()?.steps ?? 0
    }

    // MARK: Before it serves

    /// Returns when this node may serve.
    /// - Throws: `NodeRefusal` if it must not serve in this deployment.
    public func admit() async throws -> Admission {
        if let link { tasks.append(Task(executorPreference: loop) { await self.fetchKeys(by: link) }) }
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
        let start = process.bootMs()
        guard try await store.join(name) else {
            refusedSince = refusedSince ?? start
            // An earlier run's term would be over.
            let isRenewed = try await store.reports().contains { $0.name == name && $0.life == .renewed }
            if isRenewed, let since = refusedSince, start > since + 2 * PostgresStore.leaseMs {
                throw NodeRefusal.nameInUse(name)
            }
            wait(for: "the end of its own term, which an earlier run has left")
            return nil
        }
        // From here to `use` nothing else runs on this actor, so that no step is missed.
        guard let received = copy.withLock(\.self)?.keys else { return nil }
        let keys = try use(ring(of: received))
        keys.beginFollowing()
        sealWithNewest(keys)
        process.log.info("nodes: this node has the keys of \(holder) and serves beside it")
        return Admission(keys: keys, lease: keeper(keys, start))
    }

    /// From now on this node follows each step of the node that leads.
    private func use(_ ring: KeyRing) -> KeyRing {
        keys.withLock { $0 = ring }
        return ring
    }

    private func ring(of received: ReceivedKeys) throws -> KeyRing {
        try KeyRing(
            received, path: settings.wrapping == nil ? nil : settings.keyFile, wrapping: settings.wrapping,
            longestLifeSeconds: longestLife)
    }

    private func keeper(_ keys: KeyRing, _ start: UInt64) -> LeaseKeeper {
        let keepsFile = settings.wrapping != nil
        let keeper = LeaseKeeper(store, loop: loop, process: process, taken: start) { isLeaving in
            // Nobody should wait for keys that end with the process.
            self.report(isLeaving && !keepsFile ? 0 : keys.steps)
        }
        term = keeper
        tasks.append(Task(executorPreference: loop) { await keeper.run() })
        return keeper
    }

    private nonisolated func report(_ steps: UInt64) -> NodeReport {
        NodeReport(name: settings.name.description, steps: steps, ledgerSize: folderSize.withLock(\.self))
    }

    // MARK: While it serves

    /// True if this node publishes the log and steps the keys.
    public nonisolated var leads: Bool { leading.withLock(\.self) }

    /// Follows the node that leads, and takes the lease once it is free. Takes over the jobs of dead nodes. Runs until the task is cancelled.
    public func run(_ duties: Duties) async {
        stepped = duties.stepped
        var windowsEnd = loop.now + settings.resolution * 1_000
        while !Task.isCancelled {
            do {
                try await store.recheckCommits { try await self.log.isContinued() }
                // A node that can't lead does this too, since the log allows no late outcomes.
                if isSettled {
                    let jobs = try await store.takeJobsOfGoneNodes()
                    // They are this node's from now on, so queue them before anything fails.
                    if !jobs.isEmpty { await duties.resume(jobs) }
                    let own = try await store.jobsAfterUnknownCommit()
                    if !own.isEmpty { await duties.resume(own) }
                }
                if leads, !hasTakenOver {
                    try await duties.lead()
                    hasTakenOver = true
                } else if !leads {
                    try await follow(duties)
                    if loop.now >= windowsEnd {
                        windowsEnd = loop.now + settings.resolution * 1_000
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

    /// Ends what this node does beside `run` and `admit`: it renews its term no more and asks for no keys.
    public func stop() {
        isStopped = true
        for task in tasks { task.cancel() }
        continueFetching()
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
        guard try await store.takeLease(name, address: settings.address, after: lease.term, mark: deploymentMark) else { return }
        leading.withLock { $0 = true }
        server = nil
        copy.withLock { $0 = nil }
        // Others may get it from this node only.
        sealWithNewest(keys)
        process.log.info("nodes: this node leads now")
        hasTakenOver = false
    }

    /// Copies the entries that the ledger folder lacks. See `FolderCopy.update`.
    private func copyLog(_ lease: Lease) async throws -> Bool {
        let isOther = !lease.isFree && !isOwn(lease)
        server = isOther && !lease.address.isEmpty ? lease.address : nil
        let source = isOther && !lease.address.isEmpty ? link?.log(of: lease.address) : nil
        let (size, isComplete) = try await copyLog(from: source)
        folderSize.withLock { $0 = size }
        store.noteFolder(size: size)
        return isComplete
    }

    /// An unreachable node must not keep this one from serving: its last entries are in the database.
    private func copyLog(from source: (any LogSource)?) async throws -> (size: UInt64, isComplete: Bool) {
        do {
            return try await log.update(from: source)
        } catch let error as LinkFailure {
            wait(.log, for: "the node that leads, whose log can't be read (\(error))")
        } catch let error as VerificationFailure where error.code == .unreadable {
            wait(.log, for: "the node that leads, whose log can't be read (\(error))")
        }
        return try await log.update(from: nil)
    }

    /// Leads, with the keys that are here or with new ones.
    private func takeLease(_ lease: Lease) async throws -> Admission? {
        let times = try await RecordedTimes(store)
        let (recorded, latest) = (times.steps, try await store.latestGeneration())
        var keys: KeyRing?
        if let received = copy.withLock(\.self)?.keys, received.steps >= recorded, received.currentGeneration >= latest {
            keys = try ring(of: received)
        } else if let stored = try settings.storedKeys() {
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
        let start = process.bootMs()
        guard try await store.takeLease(name, address: settings.address, after: lease.term, mark: deploymentMark) else {
            return nil
        }
        var born = times.birth(nowMs: process.wallMs())
        if isLoss {
            process.log.error("keys: no node has the latest keys any more. All that was sealed under them is forgotten now")
            born = try await KeyKeeper.recordLoss(store, nowMs: born)
        }
        let ring = try use(keys ?? makeKeys(born))
        leading.withLock { $0 = true }
        server = nil
        copy.withLock { $0 = nil }
        return Admission(keys: ring, lease: keeper(ring, start), isLoss: isLoss)
    }

    private func makeKeys(_ now: UInt64) throws -> KeyRing {
        guard let wrapping = settings.wrapping else { return try KeyRing.make(nowMs: now, longestLifeSeconds: longestLife) }
        if File.exists(settings.keyFile) { try File.removeAndErase(settings.keyFile) }
        try KeyRing.create(path: settings.keyFile, wrapping: wrapping, nowMs: now)
        return try KeyRing.load(path: settings.keyFile, wrapping: wrapping, longestLifeSeconds: longestLife)
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
    private func isOwn(_ lease: Lease) -> Bool { lease.holder == name && lease.address == settings.address }

    /// Refuses settings with which this node would wait for ever. A lease that is still renewed belongs to another process.
    private func checkHolder(_ lease: Lease) throws {
        guard !lease.isFree else { return }
        if firstSeen?.term != lease.term { firstSeen = lease }
        guard let first = firstSeen, lease.stamp > first.stamp, let holder = lease.holder else { return }
        if holder == name { throw NodeRefusal.nameInUse(name) }
        if link == nil { throw NodeRefusal.noLink(to: holder) }
        if lease.address.isEmpty { throw NodeRefusal.givesNoKeys(holder) }
    }

    private static let deploymentName = "deployment"
    private var deploymentMark: StoreMark { StoreMark(Self.deploymentName, Array(deployment.utf8)) }

    /// The settings that all nodes have in common.
    private var deployment: String {
        ([settings.key.description, "\(settings.resolution)"] + settings.policies.all.map(\.digest.hex)).joined(separator: "\n")
    }

    /// Refuses to serve beside a node that works by other rules.
    /// - Returns: false if it is not known yet whether such a node still serves.
    private func checkDeployment(_ lease: Lease) async throws -> Bool {
        let lives = try await store.reports().filter { $0.name != name }.map(\.life)
        guard lives.contains(where: { $0 != .over }), let mark = try await store.mark(Self.deploymentName) else { return true }
        let (own, others) = (deployment.split(separator: "\n"), String(decoding: mark, as: UTF8.self).split(separator: "\n"))
        if own == others { return true }
        guard lives.contains(.renewed) else { return false }
        if own.first != others.first { throw NodeRefusal.otherLog }
        if own.dropFirst().first != others.dropFirst().first { throw NodeRefusal.otherResolution }
        throw NodeRefusal.otherPolicies
    }

    // MARK: Keys

    private func fetchKeys(by link: any NodeLink) async {
        var failures = 0
        while !isStopped {
            guard let address = server else {
                await withCheckedContinuation { idleFetch = $0 }
                continue
            }
            do {
                try await fetchOnce(address, link)
                failures = 0
                reasons[.keys] = nil
            } catch {
                failures += 1
                // The first may only show that the other node stops.
                if failures > 1 { wait(.keys, for: "keys from the node at \(address) (\(error))") }
                do { try await loop.sleep(Self.periodMs) } catch { return }
            }
        }
    }

    private func continueFetching() {
        idleFetch?.resume()
        idleFetch = nil
    }

    private func fetchOnce(_ address: String, _ link: any NodeLink) async throws {
        let receiver = try KeyReceiver()
        let edition = copy.withLock { $0?.edition } ?? 0
        let answer = try await link.keys(
            of: address, KeyRequest(name: settings.name, edition: edition, publicKey: receiver.publicKey))
        let now = process.bootMs()
        // This node may lead by now. Then it makes the steps.
        if leads { return }
        switch answer {
        case .unchanged: copy.withLock { $0?.confirmed = now }
        case .changed(let sealed):
            let received = try receiver.open(sealed.box)
            try follow(received)
            copy.withLock { $0 = Copy(keys: received, edition: sealed.edition, confirmed: now) }
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
            process.log.error("keys: \(error). It stops; its next start fetches them")
            process.end()
            throw error
        }
    }

    /// Lets the newest generation take seals once all nodes can have it.
    private func sealWithNewest(_ ring: KeyRing) {
        holdBackEnds = loop.now + Self.holdBackMs
        loop.after(Self.holdBackMs + 1) {
            // Another one may have replaced it meanwhile.
            self.assumeIsolated { if $0.loop.now >= $0.holdBackEnds { ring.sealWithNewest() } }
        }
    }

    /// Ends the process if no node has confirmed its keys for ten minutes. A machine that is cut off must not keep them.
    private func endIfSilent() {
        let now = process.bootMs()
        guard let confirmed = copy.withLock({ $0?.confirmed }), now > confirmed + PostgresStore.longestSilenceMs else { return }
        process.log.error("keys: no contact with the node that leads for ten minutes. This node stops and forgets its keys")
        process.end()
    }

    private func wait(_ kind: Wait = .lease, for reason: String) {
        if reason != reasons[kind] { process.log.info("nodes: waiting for \(reason)") }
        reasons[kind] = reason
    }
}

/// Why a node must not serve in its deployment.
public enum NodeRefusal: Error, Sendable, Equatable {
    /// Another node serves under this name.
    case nameInUse(String)
    /// This node leads, and the one that starts has no way to it.
    case noLink(to: String)
    /// This node leads, and gives its keys to none.
    case givesNoKeys(String)
    /// The node that leads has another log key or origin.
    case otherLog
    /// The node that leads has windows of another length.
    case otherResolution
    case otherPolicies
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
