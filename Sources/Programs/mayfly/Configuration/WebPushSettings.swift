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

    let service: WebPushService
    /// The certificates in the files that the list of hosts names.
    let authorities: [String: [UInt8]]

    /// Returns nil if there is no VAPID key. Then no Web Push is sent.
    init?(_ configuration: Configuration) throws {
        guard let file = try configuration.file(.vapidKey) else {
            if let other = Self.keys.first(where: { configuration[$0] != nil }) {
                throw configuration.invalid(other, "has no effect without \(Setting.vapidKey.named)")
            }
            return nil
        }
        guard configuration[.apnsProxy] == nil else {
            throw configuration.invalid(
                .vapidKey, "can't be used with \(Setting.apnsProxy.named) yet: Web Push doesn't go through a proxy")
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
        return sending
    }

    // MARK: The key that the deployment has recorded

    /// The SHA-256 of the public key in force. All nodes must have it.
    private static let mark = "vapid.key"

    /// - Throws: `CommandFailed` if the key in force isn't the one that the deployment has recorded.
    func check(_ store: any Store) async throws { try check(try await store.mark(Self.mark), isEnabling: false) }
    func check(_ store: StoreSnapshot) throws { try check(try store.mark(Self.mark), isEnabling: false) }

    /// - Parameter isEnabling: true if the key before may be the recorded one, since the new one is about to be recorded.
    private func check(_ recorded: [UInt8]?, isEnabling: Bool) throws {
        guard let recorded, !recorded.isEmpty, Self.digest(service.current) != recorded else { return }
        guard service.keys.contains(where: { Self.digest($0) == recorded }) else {
            throw CommandFailed(
                "\(Setting.vapidKey.named) is not the key that this deployment's subscriptions were made for. Use that one. To replace it, keep it as \(Setting.vapidPreviousKey.named) and run `mayfly push enable`"
            )
        }
        // Other nodes can't send what is sealed for a key that they don't have.
        guard isEnabling else {
            throw CommandFailed(
                "\(Setting.vapidKey.named) is not in force yet: run `mayfly push enable` once with these settings, and then start this broker again"
            )
        }
    }

    /// Records the key, and makes room for addresses of Web Push.
    ///
    /// - Throws: `CommandFailed` if the deployment has recorded another key than these.
    func record(in store: any Store) async throws {
        try check(try await store.mark(Self.mark), isEnabling: true)
        try await store.setMark(Self.mark, Self.digest(service.current))
        try await AddressSize.anyService.record(in: store)
    }

    private static func digest(_ key: VAPIDKey) -> [UInt8] { Digest.sha256(Array(key.publicKey.utf8).span).bytes }
}
