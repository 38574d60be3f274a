import Broker
import Courier
import Linux
import Sealing
import Storage
import TLS
import Vocabulary
import WebPush

/// The configuration of Web Push: keys, contact, web app, and the hosts that messages may go to.
struct WebPushSettings: Sendable {
    static let keys: [Setting] = [.vapidKey, .vapidPreviousKey, .vapidContact, .webOrigin, .webPushHosts]

    static func areGiven(_ configuration: Configuration) -> Bool { keys.contains { configuration[$0] != nil } }

    let service: WebPushService
    /// The certificates in the files that the list of hosts names.
    let authorities: [String: [UInt8]]
    let proxy: Proxy?

    /// Returns nil if there is no VAPID key. Then no Web Push is sent.
    /// - Parameter readsProxy: false for a command that sends nothing.
    init?(_ configuration: Configuration, readsProxy: Bool = true) throws {
        guard let file = try configuration.file(.vapidKey) else {
            if let other = Self.keys.first(where: { configuration[$0] != nil }) {
                throw configuration.invalid(other, "has no effect without \(Setting.vapidKey.named)")
            }
            return nil
        }
        var keys = [try Self.key(file)]
        if let previous = try configuration.file(.vapidPreviousKey) {
            let key = try Self.key(previous)
            guard key.number != keys[0].number else {
                throw configuration.invalid(
                    .vapidPreviousKey,
                    key.publicKey == keys[0].publicKey
                        ? "is the same key as \(Setting.vapidKey.named)"
                        : "can't be told from \(Setting.vapidKey.named) in sealed addresses: make another new key")
            }
            keys.append(key)
        }
        let contact = try configuration.required(.vapidContact)
        guard VAPIDKey.isContact(contact) else {
            throw configuration.invalid(
                .vapidContact, "must be mailto: with an address, or an https URL: Apple's service refuses anything else")
        }
        let (hosts, authorities) = try Self.hosts(configuration)
        service = WebPushService(keys: keys, contact: contact, origin: try Self.origin(configuration), hosts: hosts)
        self.authorities = authorities
        proxy = readsProxy ? try ProxySettings.read(configuration) : nil
    }

    private static func key(_ file: GivenFile) throws -> VAPIDKey {
        file.warnIfExposed("the VAPID key")
        let text = try file.read(limit: 16_384)
        do throws(TLSError) {
            return try VAPIDKey(ES256.PrivateKey(pem: text.span))
        } catch {
            throw file.failure("is not a VAPID key: \(KeyFault(text.span)). `mayfly push keys` makes one")
        }
    }

    private static func origin(_ configuration: Configuration) throws -> String {
        let origin = try configuration.required(.webOrigin)
        let bytes = Array(origin.utf8)
        let isOrigin = bytes.count <= 200 && origin.hasPrefix("https://") && !origin.hasSuffix("/")
        guard isOrigin, let endpoint = try? PushEndpoint(bytes.span, nil), endpoint.origin == origin else {
            throw configuration.invalid(
                .webOrigin, "must be https:// and a host in lower case, at most 200 characters, without a path or final slash")
        }
        return origin
    }

    private static func hosts(_ configuration: Configuration) throws -> (PushHosts, [String: [UInt8]]) {
        guard configuration.value(.webPushHosts) != "public", let file = try configuration.file(.webPushHosts) else {
            return (.public, [:])
        }
        let text = try file.read(limit: 1_048_576)
        let hosts: PushHosts
        do throws(PushHosts.Fault) {
            hosts = try PushHosts(String(decoding: text, as: UTF8.self))
        } catch { throw file.failure("\(error)") }
        var authorities: [String: [UInt8]] = [:]
        for path in Set(hosts.rules.compactMap(\.authority)) {
            let named = GivenFile(path, file.source, in: File.folder(of: file.path))
            let text = try named.read(limit: 1_048_576)
            _ = try CommandFailed.naming("\(named.source): \(named)") {
                try TLSContext.client(trust: .authorities(text), alpn: [])
            }
            authorities[path] = text
        }
        return (hosts, authorities)
    }

    /// The courier's configuration.
    func courier(_ onAlarm: @escaping @Sendable (Alarm) -> Void) -> WebPushCourier.Configuration {
        var sending = WebPushCourier.Configuration(keys: service.keys, contact: service.contact, onAlarm: onAlarm)
        sending.hosts = service.hosts
        sending.authorities = authorities
        sending.proxy = proxy
        return sending
    }

    // MARK: The keys that the deployment has recorded

    /// The SHA-256 of each public key that all nodes must have, the one in force first. Empty while Web Push is switched off.
    private static let mark = "vapid.key"
    /// The same of the keys that one node has.
    private static func mark(of node: String) -> String { "vapid.key of \(node)" }

    /// Records the keys that a node has, for `checkNodes`.
    static func report(_ settings: WebPushSettings?, by node: String, in store: any Store) async throws {
        let digests = settings?.digests ?? []
        guard try await store.mark(mark(of: node)) ?? [] != digests else { return }
        try await store.setMark(mark(of: node), digests)
    }

    /// Returns the service to which new subscriptions belong, with the key in force first. Nil unless `push enable` has recorded it.
    ///
    /// - Throws: `CommandFailed` if this node lacks a recorded key. It would fail messages that other nodes queued.
    static func inForce(_ settings: WebPushSettings?, _ store: any Store) async throws -> WebPushService? {
        let recorded = try await store.mark(mark)
        let size = try await AddressSize.recorded(in: store)
        return try inForce(settings, recorded, size)
    }
    static func inForce(_ settings: WebPushSettings?, _ store: StoreSnapshot) throws -> WebPushService? {
        try inForce(settings, store.mark(mark), AddressSize.recorded(in: store))
    }

    private static func inForce(
        _ settings: WebPushSettings?, _ recorded: [UInt8]?, _ size: AddressSize
    ) throws -> WebPushService? {
        let recorded = split(recorded ?? [])
        guard let first = recorded.first else { return nil }
        guard let settings else {
            throw CommandFailed(
                "this deployment sends Web Push, and \(Setting.vapidKey.named) is not set. Set it as at the other nodes or as before. To send no Web Push any more, run `mayfly push disable`"
            )
        }
        let keys = settings.service.keys
        guard let current = keys.first(where: { digest($0) == first }) else { throw settings.otherKey }
        guard recorded.allSatisfy({ digest in keys.contains { Self.digest($0) == digest } }) else {
            throw CommandFailed(
                keys.count == 1
                    ? "\(Setting.vapidPreviousKey.named) is missing: set it as before, or, once those addresses have expired, run `mayfly push enable` without it"
                    : "\(Setting.vapidPreviousKey.named) is not the key that subscriptions were made for before. Use that one. Once they have expired, run `mayfly push enable` without it"
            )
        }
        if digest(settings.service.current) != first {
            Terminal.log(
                .warning,
                "\(Setting.vapidKey.named) is not in force yet: browsers get the key before. Run `mayfly push enable` once all nodes have both, then start this broker again"
            )
        }
        guard size == .anyService else { return nil }
        return WebPushService(
            keys: [current] + keys.filter { $0.number != current.number && recorded.contains(digest($0)) },
            contact: settings.service.contact, origin: settings.service.origin, hosts: settings.service.hosts)
    }

    /// Logs that subscriptions are not taken although they could be, or once were.
    static func warn(_ settings: WebPushSettings?, _ inForce: WebPushService?, _ size: AddressSize) {
        guard inForce == nil else { return }
        switch (settings != nil, size == .anyService) {
        case (true, false):
            Terminal.log(
                .warning,
                "no Web Push subscription is taken yet: run `mayfly push enable` with these settings once all nodes have them, then start this broker again"
            )
        case (true, true):
            Terminal.log(
                .warning,
                "Web Push is switched off: remove \(Setting.vapidKey.named) and its other settings, or run `mayfly push enable` and start this broker again"
            )
        case (false, true):
            Terminal.log(
                .warning,
                "Web Push is switched off: pushes to addresses of before fail, with one alarm a run. mayfly_pushes_failed_total counts them"
            )
        case (false, false): break
        }
    }

    private var otherKey: CommandFailed {
        CommandFailed(
            "\(Setting.vapidKey.named) is not the key that this deployment's subscriptions were made for. Use that one. To replace it, keep it as \(Setting.vapidPreviousKey.named) and run `mayfly push enable`"
        )
    }

    /// Records the keys, and makes room for addresses of Web Push.
    ///
    /// - Returns: whether a recorded key was dropped, and whether new addresses get another size.
    /// - Throws: `CommandFailed` if the deployment has recorded another key than these, or if a node lacks one of them.
    func enable(in state: StateFolder) async throws -> (dropsKey: Bool, changesSize: Bool) {
        try await Self.change(state) { store in
            let before = try await store.mark(Self.mark) ?? []
            let (recorded, given) = (Self.split(before), Self.split(digests))
            if let first = recorded.first, !given.contains(first) { throw otherKey }
            if state.database.isServer { try checkNodes(StoreSnapshot(state.database)) }
            let isReplaced = try await store.replaceMark(Self.mark, before, by: digests)
            // Another command may have recorded the same keys since.
            if !isReplaced, try await store.mark(Self.mark) != digests {
                throw CommandFailed(
                    "another `mayfly push` changed the recorded keys at the same time. This command changed nothing. Run it again"
                )
            }
            // One that joined since has reported its keys, but may not have read the mark.
            do {
                if state.database.isServer { try checkNodes(StoreSnapshot(state.database)) }
            } catch {
                if isReplaced { try await takeBack(to: before, in: store, because: error) }
                throw error
            }
            let size = try await AddressSize.recorded(in: store)
            try await AddressSize.anyService.record(in: store)
            return (!recorded.allSatisfy(given.contains), size != .anyService)
        }
    }

    /// Restores the recorded keys after `failure`.
    private func takeBack(to before: [UInt8], in store: any Store, because failure: any Error) async throws {
        do {
            _ = try await store.replaceMark(Self.mark, digests, by: before)
        } catch {
            throw CommandFailed("\(failure). The keys that were recorded before could not be restored: \(error)")
        }
    }

    private func checkNodes(_ store: StoreSnapshot) throws {
        var lacking: [String] = []
        for node in try store.recentNodes(besides: "") {
            let theirs = Self.split(try store.mark(Self.mark(of: node)) ?? [])
            if !Self.split(digests).allSatisfy(theirs.contains) { lacking.append(node) }
        }
        guard lacking.isEmpty else {
            throw CommandFailed(
                "all nodes need this key first, and some serve that would end pushes without it: \(lacking.joined(separator: ", ")). Give each of them the same keys, start it again, and repeat this. A killed node counts for a minute"
            )
        }
    }

    /// Lets nodes serve without a key.
    static func disable(in state: StateFolder) async throws {
        try await change(state) { store in try await store.setMark(mark, []) }
    }

    private static func change<Value>(
        _ state: StateFolder, _ body: (any Store) async throws -> Value
    ) async throws -> Value {
        // A running broker has the SQLite file open. A server serves both.
        let lock = state.database.isServer ? nil : try state.lock()
        defer { extendLifetime(lock) }
        let store = try state.database.open(resolution: 1, timing: nil, now: { Clock.wallMs })
        let value: Value
        do {
            value = try await body(store)
        } catch {
            await store.shutDown()
            throw error
        }
        await store.shutDown()
        return value
    }

    private var digests: [UInt8] { service.keys.flatMap(Self.digest) }

    private static func digest(_ key: VAPIDKey) -> [UInt8] { Digest.sha256(Array(key.publicKey.utf8).span).bytes }

    private static func split(_ digests: [UInt8]) -> [[UInt8]] {
        stride(from: 0, to: digests.count, by: Digest.count).map { Array(digests[$0..<min($0 + Digest.count, digests.count)]) }
    }
}
