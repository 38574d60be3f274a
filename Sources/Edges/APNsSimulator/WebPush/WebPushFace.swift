import Sodium
import TLS
import Vocabulary

/// The simulator as a Web Push service (RFC 8030): its subscriptions, the checks of messages, and what it accepted. Without I/O. Used only on
/// the loop's thread.
final class WebPushFace {
    private(set) var subscriptions: [String: WebPushSubscription] = [:]
    var log: WebPushLog
    private var verifier = VAPIDVerifier()
    /// The origin of endpoints, unless another is given: `https://` with the address of the listener.
    var origin = ""
    private static let longestID = 512

    init(capacity: Int) { log = WebPushLog(capacity: capacity) }

    /// Creates a subscription.
    /// - Parameters:
    ///   - key: the application server's public key in base64url.
    ///   - origin: scheme, host and port of the endpoint. Nil: the listener's address.
    ///   - id: in lower-case hex. Nil: a new one.
    ///   - keys: the browser's keys. Nil if a real browser keeps them.
    /// - Throws: `Malformed`, or `TLSError` if no key could be made.
    func subscribe(
        _ dialect: PushServiceDialect, key: String, origin: String? = nil, id: String? = nil, keys: WebPushSubscription.Keys?
    ) throws(Malformed) -> WebPushSubscription {
        // Firefox sends padding.
        let trimmed = key.utf8.reversed().drop { $0 == UInt8(ascii: "=") }.reversed()
        guard let point = Base64URL.decode(trimmed), VAPIDVerifier.publicKey(point) != nil else {
            throw Malformed(explanation: "applicationServerKey must be a point of P-256 in base64url.")
        }
        let origin = origin ?? self.origin
        guard origin.hasPrefix("https://"), !origin.dropFirst("https://".count).contains("/"), origin == origin.lowercased(),
            origin.utf8.allSatisfy({ (0x21...0x7e).contains($0) })
        else { throw Malformed(explanation: "origin must be https:// with a host in lower case, without a path.") }
        let id = id ?? Self.makeID()
        guard (1...Self.longestID).contains(id.utf8.count),
            id.utf8.allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }),
            subscriptions[id] == nil
        else { throw Malformed(explanation: "id must be up to 512 digits of lower-case hex, and of no other subscription.") }
        let made = WebPushSubscription(id: id, dialect, origin: origin, applicationKey: point, keys: keys)
        subscriptions[id] = made
        return made
    }

    /// The reason why a subscription was refused.
    struct Malformed: Error, Equatable {
        let explanation: String
    }

    /// Returns 32 digits of hex.
    static func makeID() -> String {
        let bytes = Sodium.randomBytes(16)
        return Hex.encode(bytes.span)
    }

    /// Forgets a subscription.
    /// - Returns: false if there is none.
    func remove(_ id: String) -> Bool { subscriptions.removeValue(forKey: id) != nil }

    /// - Parameter nowMs: unix milliseconds.
    /// - Returns: false if there is no such subscription.
    func set(_ state: WebPushSubscription.State, of id: String, nowMs: UInt64) -> Bool {
        guard let subscription = subscriptions[id] else { return false }
        subscription.set(state, nowMs: nowMs)
        return true
    }

    /// Checks a request: its endpoint, its token, the subscription's state, and the rest. Services document no order; this one is ours.
    /// - Parameter nowMs: unix milliseconds.
    func check(_ request: WebPushRequest, nowMs: UInt64) throws(PushRejection) -> WebPushMessage {
        guard let (dialect, id) = request.target, let subscription = subscriptions[id], subscription.dialect == dialect else {
            throw PushRejection(.notFound, "no such subscription")
        }
        guard request.method == "POST" else { throw PushRejection(.wrongMethod, "an endpoint accepts POST only") }
        guard "https://" + request.authority.lowercased() == subscription.origin else {
            throw PushRejection(.wrongHost, "the request's host is not the endpoint's")
        }
        guard let header = request.headers["authorization"] else { throw PushRejection(.noToken, "authorization is missing") }
        let token = try verifier.verify(header)
        try token.check(for: subscription, nowS: nowMs / 1_000)
        switch subscription.state {
        case .online, .offline: break
        case .expired: throw PushRejection(.expired, "the subscription has expired")
        case .unsubscribed: throw PushRejection(.unsubscribed, "the user has unsubscribed")
        }
        return try WebPushMessage(request, to: subscription)
    }

    /// Keeps and delivers a message.
    /// - Parameters:
    ///   - id: a new UUID.
    ///   - nowMs: unix milliseconds.
    func accept(_ message: WebPushMessage, id: String, nowMs: UInt64) {
        let entry = WebPushEntry(id: id, message, at: nowMs)
        log.append(entry)
        message.subscription.receive(entry)
    }
}
