import Sodium
import TLS

/// A subscription of a simulated browser. Used only on the loop's thread.
final class WebPushSubscription {
    /// Whether messages reach the browser.
    enum State: String, CaseIterable {
        case online
        /// Messages wait until the browser is online, or until their TTL ends.
        case offline
        case expired
        case unsubscribed
    }

    /// In lower-case hex.
    let id: String
    let dialect: PushServiceDialect
    /// Scheme, host and port of the endpoint.
    let origin: String
    /// The application server's public key, an uncompressed point.
    let applicationKey: [UInt8]
    /// The browser's keys. Nil for a real browser, which keeps them.
    let keys: Keys?
    fileprivate(set) var state = State.online
    /// Undelivered messages, oldest first. A real browser's until it acknowledges them.
    fileprivate var waiting: [WebPushEntry] = []
    /// How many messages showed the user nothing.
    fileprivate var silentPushes = 0
    /// Sends a message to a real browser, which acknowledges it. Nil for a simulated one.
    var forward: ((WebPushEntry) -> Void)?

    struct Keys {
        let key: ECDHKey
        let auth: [UInt8]

        init() throws(TLSError) {
            key = try ECDHKey()
            auth = Sodium.randomBytes(16)
        }
    }

    init(id: String, _ dialect: PushServiceDialect, origin: String, applicationKey: [UInt8], keys: Keys?) {
        (self.id, self.dialect, self.origin, self.applicationKey, self.keys) = (id, dialect, origin, applicationKey, keys)
    }

    var endpoint: String { "\(origin)\(WebPushRequest.pathPrefix)\(dialect.rawValue)/\(id)" }

    /// The form of `PushSubscription.toJSON()` (W3C Push API).
    var json: [UInt8] {
        var out = Array(#"{"endpoint":"#.utf8)
        JSON.append(endpoint, to: &out)
        out += #","expirationTime":null,"keys":{"p256dh":""#.utf8
        out += Base64URL.encode(keys?.key.point ?? []).utf8
        out += #"","auth":""#.utf8
        out += Base64URL.encode(keys?.auth ?? []).utf8
        out += #""}}"#.utf8
        return out
    }
}

/// Delivery.
extension WebPushSubscription {
    /// Apple ends a subscription after so many messages that show nothing.
    private static let allowedSilentPushes = 3

    /// Delivers a message, or keeps it until the browser is online.
    func receive(_ entry: WebPushEntry) {
        if dialect == .apple { countSilence(of: entry) }
        guard state == .offline else { return deliver(entry) }
        replace(entry)
        if entry.message.ttl == 0 { entry.state = .expired } else { waiting.append(entry) }
    }

    /// - Parameter nowMs: unix milliseconds.
    func set(_ new: State, nowMs: UInt64) {
        state = new
        guard new != .offline else { return }
        for entry in exchange(&waiting, with: []) {
            if new != .online || entry.at + entry.message.ttl * 1_000 < nowMs { entry.state = .expired } else { deliver(entry) }
        }
    }

    private func deliver(_ entry: WebPushEntry) {
        guard let forward else {
            entry.state = .delivered
            return
        }
        waiting.append(entry)
        forward(entry)
    }

    /// Records a real browser's acknowledgement.
    /// - Parameter code: see `AcceptedWebPush.acknowledgement`.
    func acknowledge(_ id: String, _ code: Int) {
        guard let index = waiting.firstIndex(where: { $0.id == id }) else { return }
        let entry = waiting.remove(at: index)
        (entry.state, entry.acknowledgement) = (.delivered, code)
    }

    /// A message replaces an undelivered one of the same topic (RFC 8030, 5.4).
    private func replace(_ entry: WebPushEntry) {
        guard let topic = entry.message.topic else { return }
        for old in waiting where old.message.topic == topic { old.state = .replaced }
        waiting.removeAll { $0.state == .replaced }
    }

    private func countSilence(of entry: WebPushEntry) {
        guard keys != nil else { return }
        let title = entry.text.flatMap { JSON(parsing: $0)?["notification"]?["title"]?.text }
        guard title?.isEmpty ?? true else { return }
        silentPushes += 1
        if silentPushes == Self.allowedSilentPushes { state = .expired }
    }
}
