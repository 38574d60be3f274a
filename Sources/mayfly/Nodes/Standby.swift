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

/// A node that waits until it may serve. Meanwhile it gets each new generation of keys and each published entry.
///
/// It serves once it has the lease, the latest keys and the whole log. Keys are lost only if no node has them any more.
actor Standby: LoopActor {
    /// What a node has when it begins to serve.
    struct Promotion: Sendable {
        let keys: KeyRing
        let lease: LeaseKeeper
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
    /// Where the serving node is, while there is another one.
    private let server = Mutex<String?>(nil)
    /// The step of the keys in the key file, or 0 without one.
    private let storedSteps: UInt64
    /// The last reason for waiting of each kind, which is logged once.
    private var reasons: [Wait: String] = [:]

    private enum Wait { case lease, keys }

    private static let periodMs: UInt64 = 1_000
    private var name: String { settings.node.description }
    private var address: String { settings.nodes?.listen.description ?? "" }
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

    /// Returns when this node has the lease and the keys.
    /// - Throws: if it must not serve in this deployment.
    func wait() async throws -> Promotion {
        let fetching = client.map { client in Task { await self.fetchKeys(with: client) } }
        defer { fetching?.cancel() }
        while true {
            do {
                if let promotion = try await round() { return promotion }
            } catch let error as StoreError where error.isPassing {
                wait(for: "the database (\(error))")
            }
            endIfSilent()
            try await loop.sleep(Self.periodMs)
        }
    }

    private func round() async throws -> Promotion? {
        let lease = try await store.lease()
        try checkHolder(lease)
        let isOther = !lease.isFree && !isOwn(lease)
        server.withLock { $0 = isOther && !lease.address.isEmpty ? lease.address : nil }
        try await checkDeployment(lease)
        var source: (any LogSource)?
        if let client, isOther, !lease.address.isEmpty {
            let prefix = "https://\(lease.address)/audit/"
            source = FunctionSource { path in
                let answer = try await client.send(prefix + path, timeoutMs: 30_000, maximumBytes: 17_000_000)
                return answer.status == 200 ? answer.body : nil
            }
        }
        let (size, isComplete) = try await copyLog(from: source)
        let steps = copy.withLock(\.self)?.keys.steps ?? storedSteps
        try await store.report(NodeReport(name: name, steps: steps, ledgerSize: size))
        guard lease.isFree else {
            let holder = lease.holder ?? ""
            wait(
                for: copy.withLock(\.self) == nil
                    ? "the lease of \(holder)" : "the lease of \(holder). This node has its keys and can take over")
            return nil
        }
        if NodeClock.isWrong(lease.now) {
            wait(for: "the right time. \(NodeClock.explanation)")
            return nil
        }
        guard isComplete else {
            wait(for: "ledger entries that only another node has. Start that node, or copy its folder ledger/ to this one")
            return nil
        }
        return try await promote(lease)
    }

    /// An unreachable node must not keep this one from serving: its last entries are in the database.
    private func copyLog(from source: (any LogSource)?) async throws -> (size: UInt64, isComplete: Bool) {
        do {
            return try await log.update(from: source)
        } catch let error as ClientError {
            wait(.keys, for: "the serving node, whose log can't be read (\(error))")
            return try await log.update(from: nil)
        }
    }

    private func promote(_ lease: Lease) async throws -> Promotion? {
        let recorded = try await RecordedTimes(store).steps
        let latest = try await store.latestGeneration()
        var keys: KeyRing?
        if let received = copy.withLock(\.self)?.keys, received.steps >= recorded, received.currentGeneration >= latest {
            keys = try KeyRing(
                received, path: wrapping == nil ? nil : settings.state.ratchetKey, wrapping: wrapping,
                longestLifeSeconds: longestLife)
        } else if File.exists(settings.state.ratchetKey) {
            let stored = try settings.state.loadKeys(wrapping, longestLifeSeconds: longestLife)
            if stored.steps >= recorded { keys = stored }
        }
        let isLoss = keys == nil && (recorded > 0 || latest > 0)
        if isLoss, let other = try await holderOfKeys(recorded, lease) {
            wait(for: "\(other), which has the latest keys. Without it for ten minutes, all that is sealed is lost")
            return nil
        }
        let start = Clock.monotonicMs
        guard try await store.takeLease(name, address: address, after: lease.term) else {
            return nil
        }
        let keeper = LeaseKeeper(store, loop: loop, taken: start)
        Task { await keeper.run() }
        if isLoss {
            Terminal.log(.error, "keys: no node has the latest keys any more. All that was sealed under them is forgotten now")
            try await KeyKeeper.recordLoss(store)
        }
        try await store.setMark(Self.deploymentMark, Array(deployment.utf8))
        return Promotion(keys: try keys ?? makeKeys(), lease: keeper)
    }

    private func makeKeys() throws -> KeyRing {
        guard let wrapping else { return try KeyRing.make(nowMs: Clock.wallMs, longestLifeSeconds: longestLife) }
        let path = settings.state.ratchetKey
        if File.exists(path) { try File.removeAndErase(path) }
        try KeyRing.create(path: path, wrapping: wrapping, nowMs: Clock.wallMs)
        return try settings.state.loadKeys(wrapping, longestLifeSeconds: longestLife)
    }

    /// Returns another node that may have the latest keys: the last one that served, or one that reported them, if it was heard of in ten minutes.
    private func holderOfKeys(_ recorded: UInt64, _ lease: Lease) async throws -> String? {
        if let holder = lease.holder, !isOwn(lease), lease.until + PostgresStore.longestSilenceMs > lease.now { return holder }
        return try await store.reports().first {
            $0.name != name && $0.steps > 0 && $0.steps >= recorded && $0.seen + PostgresStore.longestSilenceMs > lease.now
        }?.name
    }

    // MARK: The deployment

    /// Returns true if an earlier process of this node took it.
    private func isOwn(_ lease: Lease) -> Bool { lease.holder == name && lease.address == address }

    /// Refuses to stand by where that can't work. A lease that is renewed is not that of an earlier process.
    private func checkHolder(_ lease: Lease) throws {
        guard !lease.isFree else { return }
        if firstSeen?.term != lease.term { firstSeen = lease }
        guard let first = firstSeen, lease.until > first.until, let holder = lease.holder else { return }
        if holder == name {
            throw CommandFailed(
                "another node serves under the name \(name). Give each node a name of its own with \(Key.node.named)")
        }
        if client == nil {
            throw CommandFailed(
                "\(holder) serves. A node that stands by for it needs \(Key.nodeListen.named), \(Key.nodeCertificate.named) and \(Key.nodeCA.named)"
            )
        }
        if lease.address.isEmpty {
            throw CommandFailed("\(holder) serves, but gives its keys to nobody: it needs \(Key.nodeListen.named) too")
        }
    }

    private static let deploymentMark = "deployment"

    /// What all nodes have in common.
    private var deployment: String {
        ([log.key.description, "\(settings.resolution)"] + settings.policies.all.map(\.digest.hex)).joined(separator: "\n")
    }

    /// Refuses to stand by for a node that works by other rules: a takeover would change them.
    private func checkDeployment(_ lease: Lease) async throws {
        guard !lease.isFree, !isOwn(lease), let mark = try await store.mark(Self.deploymentMark) else { return }
        let (own, others) = (deployment.split(separator: "\n"), String(decoding: mark, as: UTF8.self).split(separator: "\n"))
        if own == others { return }
        let what =
            if own.first != others.first {
                "another log key or origin: copy keys/ledger.key and ledger.vkey from it"
            } else if own.dropFirst().first != others.dropFirst().first {
                "another --resolution: set the same"
            } else {
                "other policies: set the same --policy. To change it, stop this node, restart the serving one with it, then start this one"
            }
        throw CommandFailed("the serving node has \(what)")
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
        let now = Clock.monotonicMs
        switch answer.status {
        case 204: copy.withLock { $0?.confirmed = now }
        case 200 where answer.body.count > 16:
            let keys = try receiver.open(Array(answer.body[16...]))
            copy.withLock { $0 = Copy(keys: keys, edition: answer.body.span.bigEndian64(at: 0), confirmed: now) }
        default: throw CheckFailed("it answered \(answer.status)")
        }
    }

    /// Ends the process if no node has confirmed the keys for ten minutes: they may exist no longer.
    private func endIfSilent() {
        let now = Clock.monotonicMs
        guard let confirmed = copy.withLock({ $0?.confirmed }), now - confirmed > PostgresStore.longestSilenceMs else { return }
        Terminal.log(.error, "keys: no contact to the serving node for ten minutes. This node stops and forgets its keys")
        ProcessControl.exit(1)
    }

    private func wait(_ kind: Wait = .lease, for reason: String) {
        if reason != reasons[kind] { Terminal.log("standby: waiting for \(reason)") }
        reasons[kind] = reason
    }
}

extension StoreError {
    /// True if a retry may succeed.
    fileprivate var isPassing: Bool {
        switch self {
        case .unavailable, .full, .readOnly, .ledgerBehind: true
        case .damaged, .previousVersion, .noSchema, .otherTiming, .superseded, .closed: false
        }
    }
}
