import HTTP1
import HTTP2

/// A request to the Web Push face, of either version of HTTP.
struct WebPushRequest {
    static let pathPrefix = "/wp/"

    /// `2` or `1.1`.
    let http: String
    private(set) var method = ""
    private(set) var path = ""
    private(set) var authority = ""
    /// Without pseudo-headers. Names are in lower case.
    private(set) var headers: [String: String] = [:]
    private(set) var repeatsAField = false
    let body: [UInt8]

    init(_ request: PushRequest) {
        http = "2"
        body = request.body
        request.forEachField { add(String($0), String($1)) }
    }

    init(_ message: Message) {
        http = "1.1"
        body = message.withBody { [UInt8]($0) }
        method = message.method.name.description
        path = message.withTarget { String($0) }
        message.forEachHeader { add(String($0).lowercased(), String($1)) }
        authority = headers.removeValue(forKey: "host") ?? ""
    }

    private mutating func add(_ name: String, _ value: String) {
        switch name {
        case ":method": method = value
        case ":path": path = value
        case ":authority": authority = value
        case ":scheme": break
        default: if headers.updateValue(value, forKey: name) != nil { repeatsAField = true }
        }
    }

    /// The dialect and the subscription's id. Nil for a path of another form.
    var target: (dialect: PushServiceDialect, id: String)? { Self.target(ofPath: path) }

    static func target(ofPath path: String) -> (dialect: PushServiceDialect, id: String)? {
        guard path.hasPrefix(pathPrefix) else { return nil }
        let parts = path.dropFirst(pathPrefix.count).split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, let dialect = PushServiceDialect(rawValue: String(parts[0])) else { return nil }
        return (dialect, String(parts[1]))
    }
}

/// A message that was checked and can be delivered.
struct WebPushMessage {
    let subscription: WebPushSubscription
    /// Seconds.
    let ttl: UInt64
    let urgency: String?
    let topic: String?
    let body: [UInt8]
    /// `2` or `1.1`.
    let http: String
    /// Without `authorization`.
    let headers: [String: String]
}

extension WebPushMessage {
    private static let longestBody = 4_096
    private static let longestTopic = 32
    private static let urgencies = ["very-low", "low", "normal", "high"]

    /// Checks the header fields and the length of the body. The simulator requires what most services require, at every dialect.
    init(_ request: WebPushRequest, to subscription: WebPushSubscription) throws(PushRejection) {
        guard !request.repeatsAField else { throw PushRejection(.badRequest, "a header field is repeated") }
        guard let text = request.headers["ttl"], text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let ttl = UInt64(text),
            ttl <= UInt64(Int32.max)
        else { throw PushRejection(.badTTL, "TTL is not a number of seconds") }
        let urgency = request.headers["urgency"]
        guard urgency.map({ Self.urgencies.contains($0) }) ?? true else {
            throw PushRejection(.badUrgency, "Urgency is none of \(Self.urgencies.joined(separator: ", "))")
        }
        let topic = request.headers["topic"]
        // Seen: Apple refuses lengths that base64url can't have.
        guard
            topic.map({ (1...Self.longestTopic).contains($0.utf8.count) && $0.utf8.count % 4 != 1 && Self.isBase64URL($0) })
                ?? true
        else { throw PushRejection(.badTopic, "Topic is not 1 to 32 characters of base64url") }
        guard request.headers["content-encoding"] == "aes128gcm" else {
            throw PushRejection(.badEncoding, "Content-Encoding is not aes128gcm")
        }
        guard request.headers["encryption"] == nil, request.headers["crypto-key"] == nil else {
            throw PushRejection(.badEncoding, "Encryption and Crypto-Key belong to an older encoding")
        }
        guard request.body.count <= Self.longestBody else { throw PushRejection(.tooLarge, "the body has more than 4,096 bytes") }
        guard MessageOpener.keyID(of: request.body) != nil else {
            throw PushRejection(.tooShort, "the body is not one encrypted record")
        }
        var headers = request.headers
        headers["authorization"] = nil
        self.init(
            subscription: subscription, ttl: ttl, urgency: urgency, topic: topic, body: request.body, http: request.http,
            headers: headers)
    }

    private static func isBase64URL(_ text: String) -> Bool {
        text.utf8.allSatisfy { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5a, 0x61...0x7a, UInt8(ascii: "-"), UInt8(ascii: "_"): true
            default: false
            }
        }
    }
}
