import Vocabulary

/// An accepted Web Push message.
public struct AcceptedWebPush: Sendable, Equatable {
    public enum State: String, Sendable {
        case delivered
        /// The browser is offline, or a real one that has not acknowledged it.
        case waiting
        /// Another message of the same topic came before the browser was online.
        case replaced
        /// The TTL ended before the browser was online.
        case expired
    }

    public let dialect: PushServiceDialect
    /// The subscription's id, the end of its endpoint.
    public let subscription: String
    public let state: State
    /// The decrypted text without its padding. Nil if the message can't be decrypted, and for a real browser.
    public let text: [UInt8]?
    /// Seconds.
    public let ttl: UInt64
    public let urgency: String?
    public let topic: String?
    /// The length of the encrypted body.
    public let bodyBytes: Int
    /// The encrypted body, if there is no `text`. Only the receiver has its keys.
    public let body: [UInt8]?
    /// `2` or `1.1`.
    public let http: String
    /// The point of the sender's key of this message, in base64url.
    public let keyID: String
    /// The code of a real browser's acknowledgement: 100 delivered, 101 not decrypted, 102 not delivered, 301 to 303 not handled by the page.
    /// Nil without one.
    public let acknowledgement: Int?
    /// The headers without pseudo-headers and `authorization`.
    public let headers: [String: String]
    /// Unix milliseconds.
    public let at: UInt64
}

/// An accepted message in the log. Used only on the loop's thread.
final class WebPushEntry {
    let id: String
    let message: WebPushMessage
    /// Unix milliseconds.
    let at: UInt64
    var state = AcceptedWebPush.State.waiting
    var acknowledgement: Int?
    /// Decrypted when it is read: decrypting costs more than the rest of a request.
    private(set) lazy var text: [UInt8]? = message.subscription.keys.flatMap {
        MessageOpener.open(message.body, key: $0.key, auth: $0.auth)
    }

    init(id: String, _ message: WebPushMessage, at: UInt64) { (self.id, self.message, self.at) = (id, message, at) }

    var push: AcceptedWebPush {
        AcceptedWebPush(
            dialect: message.subscription.dialect, subscription: message.subscription.id, state: state, text: text,
            ttl: message.ttl, urgency: message.urgency, topic: message.topic, bodyBytes: message.body.count,
            body: text == nil ? message.body : nil, http: message.http,
            keyID: Base64URL.encode(MessageOpener.keyID(of: message.body) ?? []), acknowledgement: acknowledgement,
            headers: message.headers, at: at)
    }
}

/// The last accepted messages.
struct WebPushLog {
    private let capacity: Int
    private var kept: [WebPushEntry] = []

    init(capacity: Int) { self.capacity = capacity }

    mutating func append(_ entry: WebPushEntry) {
        if kept.count == 2 * capacity { kept.removeFirst(capacity) }
        kept.append(entry)
    }

    func entry(_ id: String) -> WebPushEntry? { kept.last { $0.id == id } }

    mutating func removeAll() { kept = [] }

    /// Oldest first.
    var pushes: [AcceptedWebPush] { kept.suffix(capacity).map(\.push) }
}

extension AcceptedWebPush {
    /// See docs/simulator.md.
    func append(to out: inout [UInt8]) {
        var isFirst = true
        func name(_ name: String) {
            out += "\(isFirst ? "{" : ",")\"\(name)\":".utf8
            isFirst = false
        }
        func put(_ key: String, _ value: String?) {
            name(key)
            if let value { JSON.append(value, to: &out) } else { out += "null".utf8 }
        }
        func put(_ key: String, _ value: Int?) {
            name(key)
            out += (value.map { "\($0)" } ?? "null").utf8
        }
        put("dialect", dialect.rawValue)
        put("subscription", subscription)
        put("state", state.rawValue)
        put("text", text.map { String(decoding: $0, as: UTF8.self) })
        put("ttl", Int(clamping: ttl))
        put("urgency", urgency)
        put("topic", topic)
        put("bodyBytes", bodyBytes)
        put("body", body.map { Base64URL.encode($0) })
        put("http", http)
        put("keyID", keyID)
        put("acknowledgement", acknowledgement)
        name("headers")
        JSON.append(headers, to: &out)
        put("at", Timestamp.preciseText(at))
        out.append(UInt8(ascii: "}"))
    }
}
