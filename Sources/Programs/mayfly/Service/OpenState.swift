import Broker
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Storage
import TLS
import Vocabulary

/// The state folder of a starting broker: locked, with loaded keys and an open database.
struct OpenState: Sendable {
    let lock: FolderLock
    let folder: StateFolder
    let keys: KeyRing
    let ledgerKey: SigningKey
    let store: any Store
    /// Never earlier than any time recorded in the store or the keys.
    let time: BrokerTime
    let node: EntryText
    /// Is nil with an embedded database, which no other node uses.
    let member: (node: Node, lease: LeaseKeeper)?
    /// True if this start forgot everything sealed, because no node had the keys any more. The log says so.
    let hasLostKeys: Bool
    /// The log entries of this start: `broker.started`, then one `policy.loaded` per policy in force.
    let starts: [Entry.Op]

    /// - Throws: the reason, as text for the operator. The database is then closed.
    init(_ settings: ServiceSettings, _ report: WaitingReport) async throws {
        folder = settings.state
        try folder.checkUsable()
        try folder.checkMoved()
        for exposure in try folder.exposures() { Terminal.log(.warning, exposure.text) }
        lock = try folder.lock()
        ledgerKey = try Self.ledgerKey(folder, origin: settings.origin, settings.witnesses)
        node = settings.node
        let starts = try Self.starts(settings, node)
        let stored =
            folder.database.isServer
            ? nil
            : try folder.loadKeys(try settings.wrapping?.get(), longestLifeSeconds: UInt64(settings.policies.longestLifeSeconds))
        // A broker with an embedded database has nobody to ask for the time.
        let clock = AgreedClock()
        time =
            folder.database.isServer
            ? BrokerTime(persisted: 0, wall: { clock.nowMs }) : BrokerTime(persisted: stored?.earliestNowMs ?? 0)
        try folder.makeDatabase(lock)
        store = try Self.store(settings, starts, time, clock)
        do {
            if let stored {
                (keys, member, hasLostKeys) = (stored, nil, false)
            } else {
                let (node, admission) = try await Self.admission(settings, store, ledgerKey.verifierKey, report)
                (keys, member, hasLostKeys) = (admission.keys, (node, admission.lease), admission.isLoss)
            }
            try await RotationMark.refuse(folder, store)
            try await Self.resume(time, store, keys, folder)
            self.starts = starts + (try await RotationMark.carriedPolicies(store, LedgerFolder(folder.ledger), besides: starts))
        } catch {
            await store.shutDown()
            throw error
        }
    }

    /// True if this node publishes the log and steps the keys.
    var leads: Bool { member?.node.leads ?? true }

    /// Waits until this node may serve. A signal ends the process meanwhile.
    private static func admission(
        _ settings: ServiceSettings, _ store: any Store, _ key: VerifierKey, _ report: WaitingReport
    ) async throws -> (Node, Node.Admission) {
        guard let store = store as? PostgresStore else { throw CommandFailed("a lease needs a PostgreSQL database") }
        let (loop, signals) = (try EventLoop(name: "node"), try EventLoop(name: "signals"))
        try loop.start()
        try signals.start()
        defer { signals.stop() }
        await report.begin(on: signals)
        let (state, wrapping) = (settings.state, try settings.wrapping?.get())
        let life = UInt64(settings.policies.longestLifeSeconds)
        let own = Node.Settings(
            name: settings.node, address: settings.nodes?.listen.description ?? "", resolution: settings.resolution,
            policies: settings.policies, folder: LedgerFolder(state.ledger), key: key, keyFile: state.ratchetKey,
            wrapping: wrapping,
            storedKeys: {
                File.exists(state.ratchetKey) ? try state.loadKeys(wrapping, longestLifeSeconds: life) : nil
            })
        let link = settings.nodes.map { HTTPNodeLink($0, loop: loop) }
        let node = try Node(own, store, link: link, process: .own, loop: loop)
        do { return (node, try await node.admit()) } catch let refusal as NodeRefusal { throw CommandFailed(refusal.text) }
    }

    /// Returns how many other nodes serve.
    func otherNodes() async throws -> Int {
        guard let store = store as? PostgresStore else { return 0 }
        return try await store.reports().count { $0.life != .over && $0.name != node.description }
    }

    /// Beside a server only a wrapped key file is kept. Call it last, since a start that fails later would lose the keys.
    func leaveKeyFile(_ settings: ServiceSettings) throws {
        guard folder.database.isServer, settings.wrapping == nil, File.exists(folder.ratchetKey) else { return }
        try keys.destroyFile(folder.ratchetKey)
        Terminal.log("keys: \(folder.shown(folder.ratchetKey)) is destroyed. From now on the keys are only in the nodes' memory")
    }

    /// Reads the log's key.
    /// - Parameter origin: nil for the key's.
    /// - Throws: `UsageError` if the key is for another origin.
    static func ledgerKey(_ folder: StateFolder, origin: String?, _ witnesses: WitnessSettings?) throws -> SigningKey {
        let key = try SigningKey.load(folder.ledgerKey)
        if let origin, origin != key.verifierKey.name {
            throw UsageError(
                "the ledger key is for \(key.verifierKey.name), not for the origin in \(Setting.origin.named). Correct --origin, or leave it out: the key already names its origin"
            )
        }
        try witnesses?.check(key.verifierKey)
        return key
    }

    private static func starts(_ settings: ServiceSettings, _ node: EntryText) throws -> [Entry.Op] {
        let loaded = try settings.policies.all.map { policy in
            guard let name = EntryText(policy.name) else { throw CommandFailed("the policy's name is invalid in the log") }
            return (name: name, digest: policy.digest)
        }
        let start = try Entry.Op.programStarted(
            node: node, policy: loaded[0].digest, resolutionSeconds: UInt32(settings.resolution))
        return [start] + loaded.map { .policyLoaded(name: $0.name, policy: $0.digest) }
    }

    private static func store(
        _ settings: ServiceSettings, _ starts: [Entry.Op], _ time: BrokerTime, _ clock: AgreedClock
    ) throws -> any Store {
        try CommandFailed.naming(settings.state.shownDatabase) {
            try settings.state.database.open(
                resolution: settings.resolution, timing: settings.policies.ledger, resumption: starts, now: { time.now },
                isBehind: { time.raise(to: $0) }, clock: clock)
        }
    }

    private static func resume(_ time: BrokerTime, _ store: any Store, _ keys: KeyRing, _ folder: StateFolder) async throws {
        do {
            try await Startup(store: store, keys: keys, time: time).resumeTime()
        } catch let error as StaleKeys {
            throw CommandFailed("\(folder.shown(folder.ratchetKey)): \(error)")
        }
    }
}

extension NodeRefusal {
    fileprivate var text: String {
        switch self {
        case .nameInUse(let name):
            "another node serves under the name \(name). Give each node a name of its own with \(Setting.node.named)"
        case .noLink(let holder):
            "\(holder) serves. A node beside it needs \(Setting.nodeListen.named), \(Setting.nodeCertificate.named) and \(Setting.nodeCA.named)"
        case .givesNoKeys(let holder): "\(holder) serves, but gives its keys to nobody: it needs \(Setting.nodeListen.named) too"
        case .otherLog:
            "the node that leads has another log key or origin: copy keys/ledger.key and ledger.vkey from it"
        case .otherResolution: "the node that leads has another --resolution: set the same"
        case .otherPolicies:
            "the node that leads has other policies: set the same --policy. To change it, stop all nodes, then start them with it"
        }
    }
}

extension Entry.Op {
    /// The start of this program, with its version and the SHA-256 of its file.
    /// - Parameter policy: the digest of the policy for rooms.
    static func programStarted(node: EntryText, policy: Digest, resolutionSeconds: UInt32) throws -> Entry.Op {
        guard let version = EntryText(Mayfly.version) else {
            throw CommandFailed("the version's name is invalid in the log")
        }
        return .brokerStarted(
            node: node, version: version, policy: policy, resolutionSeconds: resolutionSeconds, binary: try programDigest())
    }

    /// Hashes the executable of this process, even if another file now has its name.
    private static func programDigest() throws -> Digest {
        let file = try OpenFile("/proc/self/exe", .read)
        var hash = StreamedSHA256()
        var chunk = [UInt8](repeating: 0, count: 65_536)
        var offset = 0
        while true {
            var buffer = chunk.mutableSpan
            let count = try file.read(into: &buffer, at: offset)
            hash.update(chunk.span.extracting(first: count))
            offset += count
            if count < chunk.count { break }
        }
        let bytes = hash.finish()
        guard let digest = Digest(bytes: bytes.span) else { preconditionFailure("SHA-256 has 32 bytes") }
        return digest
    }
}
