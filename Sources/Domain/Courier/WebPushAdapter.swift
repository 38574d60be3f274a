import HTTP2
import Sealing
import Sodium
import Synchronization
import TLS
import Vocabulary
import WebPush

/// Web Push services (RFC 8030, RFC 8291, RFC 8292): those of browsers' makers, and hosts that a stranger chose.
final class WebPushAdapter: PushServiceAdapter {
    /// True while two VAPID keys are in force. Then a refusal may only mean that a subscription was made for the other one.
    private let hasTwoKeys: Bool
    /// When a device's endpoint was first missing (404), by its hash, on the loop's clock.
    private let missing = Mutex<[Int: UInt64]>([:])
    /// The devices that each browser maker has refused since it last accepted a message, by their hashes.
    private let refused = Mutex<[BrowserMaker: Set<Int>]>([:])

    /// A 404 of a stranger's host ends a subscription only if it is repeated after this time: a broken proxy answers 404 to everything.
    private static let missingMs: UInt64 = 3_600_000
    private static let mostMissing = 10_000

    /// The clock of the addresses' ends, in Unix ms.
    private let clock: @Sendable () -> UInt64

    init(hasTwoKeys: Bool, clock: @escaping @Sendable () -> UInt64) { (self.hasTwoKeys, self.clock) = (hasTwoKeys, clock) }

    func fault(of push: Push) -> PushReason? {
        push.payload.isEmpty ? .payloadEmpty : push.payload.count > MessageEncryption.textCount ? .payloadTooLarge : nil
    }

    func requestWriter(to endpoint: Endpoint) -> any RequestWriter { WebPushRequestWriter(clock) }

    var traceField: String? { nil }
    var remarkField: String? { "x-wns-status" }

    func answer(_ flight: Flight, status: Int, nowMs: UInt64) -> Answer {
        func refusal() -> Answer { Answer(.refused, isRefusedForAll(flight.delivery) ? .configuration : .drop) }
        if status != 404 { noteFound(flight.delivery) }
        switch status {
        case 200...299:
            noteTaken(flight.delivery)
            // Microsoft's service accepts pushes that it then drops.
            if let remark = flight.remark, ["dropped", "channelthrottled"].contains(remark.lowercased()) {
                return Answer(.throttled, .drop)
            }
            return Answer(.taken, .drop)
        case 410: return Answer(.gone, .purgeIfOlder)
        case 404:
            if maker(of: flight.delivery) != nil { return Answer(.gone, .purge) }
            return Answer(.gone, isMissingForLong(flight) ? .purgeIfOlder : .drop)
        case 401, 403: return refusal()
        // Apple's answer to a subscription for another key.
        case 400 where AnswerBody(flight.body).reason == "VapidPkHashMismatch": return refusal()
        case 413: return Answer(.tooLarge, maker(of: flight.delivery) == nil ? .drop : .configuration)
        case 406, 429: return Answer(.throttled, .holdToken, retryAfter: flight.retryAfter, nowMs: nowMs)
        // The message was not taken: a slow or reused connection (RFC 9110 section 15.5, RFC 8470).
        case 408, 421, 425, 500...599:
            return Answer(.busy, .retry, retryAfter: flight.retryAfter, nowMs: nowMs)
        default: return Answer(.invalid, .drop)
        }
    }

    /// True after refusals of several subscriptions without an accepted message. One refusal proves nothing about this deployment, because anybody can
    /// register a subscription that was made for another key.
    private func isRefusedForAll(_ delivery: Delivery) -> Bool {
        guard !hasTwoKeys, let maker = maker(of: delivery) else { return false }
        return refused.withLock { refused in
            if refused[maker, default: []].count < Self.severalRefused { refused[maker, default: []].insert(delivery.tokenKey) }
            return refused[maker, default: []].count >= Self.severalRefused
        }
    }

    private static let severalRefused = 3

    private func noteTaken(_ delivery: Delivery) {
        guard let maker = maker(of: delivery) else { return }
        refused.withLock { $0[maker] = nil }
    }

    private func maker(of delivery: Delivery) -> BrowserMaker? {
        (Subscription(delivery.push.address.token)?.endpoint?.host).flatMap(BrowserMaker.init(host:))
    }

    private func isMissingForLong(_ flight: Flight) -> Bool {
        let (key, now) = (flight.delivery.tokenKey, flight.attempt.startedAt)
        return missing.withLock { missing in
            if let since = missing[key] { return now >= since + Self.missingMs }
            if missing.count >= Self.mostMissing { missing.removeAll() }
            missing[key] = now
            return false
        }
    }

    private func noteFound(_ delivery: Delivery) {
        missing.withLock { if !$0.isEmpty { $0[delivery.tokenKey] = nil } }
    }
}

/// The meaning of a Web Push service's answer. Services use different statuses for the same meaning.
enum WebPushAnswer {
    case taken, invalid, refused, gone, tooLarge, throttled, busy

    /// The status and reason that are logged, stored and counted.
    var recorded: (status: Int, reason: PushReason) {
        switch self {
        case .taken: (200, .other)
        case .invalid: (400, .other)
        case .refused: (403, .invalidProviderToken)
        case .gone: (410, .unregistered)
        case .tooLarge: (413, .payloadTooLarge)
        case .throttled: (429, .tooManyRequests)
        case .busy: (503, .serviceUnavailable)
        }
    }
}

/// Writes requests to one origin.
private final class WebPushRequestWriter: RequestWriter {
    private let clock: @Sendable () -> UInt64

    init(_ clock: @escaping @Sendable () -> UInt64) { self.clock = clock }

    func submit(_ delivery: Delivery, _ authorization: Authorization?, to session: PushSession) throws(HTTP2Error) -> Int32 {
        guard let request = WebPushRequest(delivery, authorization, nowMs: clock()) else { throw .badMessage }
        switch session {
        case .http2(let session): return try session.submitRequest(request.headers(), body: request.body)
        case .http1(let session): return try session.submit(request.text())
        }
    }
}

/// One message and its header fields.
private struct WebPushRequest {
    private let endpoint: PushEndpoint
    private let fields: [(name: String, value: String, isSecret: Bool)]
    let body: [UInt8]

    /// Returns nil if the address is damaged.
    init?(_ delivery: Delivery, _ authorization: Authorization?, nowMs: UInt64) {
        let push = delivery.push
        guard let subscription = Subscription(push.address.token), let endpoint = subscription.endpoint,
            let body = try? subscription.encrypt(push.payload)
        else { return nil }
        (self.endpoint, self.body) = (endpoint, body)
        var fields = [
            ("ttl", String(push.timeToLiveS(nowMs: nowMs)), false), ("urgency", push.priority == 10 ? "high" : "normal", false),
            ("content-encoding", "aes128gcm", false), ("content-type", "application/octet-stream", false),
            ("content-length", String(body.count), false),
        ]
        if let topic = push.collapseID { fields.append(("topic", topic, true)) }
        if let authorization { fields.append(("authorization", authorization.value, true)) }
        self.fields = fields.map { (name: $0.0, value: $0.1, isSecret: $0.2) }
    }

    func headers() -> HTTP2Headers {
        var headers = HTTP2Headers(capacity: 1_024)
        headers.append(":method", "POST")
        headers.append(":scheme", "https")
        headers.append(":authority", endpoint.authority)
        headers.append(":path", endpoint.target, .never)
        for field in fields { headers.append(field.name, field.value, field.isSecret ? .never : .incremental) }
        return headers
    }

    /// The request as HTTP/1.1 writes it.
    func text() -> [UInt8] {
        var text = Array("POST \(endpoint.target) HTTP/1.1\r\nhost: \(endpoint.authority)\r\n".utf8)
        for field in fields { text += "\(field.name): \(field.value)\r\n".utf8 }
        text += [0x0D, 0x0A]
        return text + body
    }
}

/// Signs the tokens of one VAPID key for one origin (RFC 8292).
final class VAPIDSigner: Signer {
    private let key: VAPIDKey
    private let origin: String
    private let contact: String
    private var current: Authorization?

    init(_ key: VAPIDKey, origin: String, contact: String) { (self.key, self.origin, self.contact) = (key, origin, contact) }

    func current(nowMs: UInt64, monotonicMs: UInt64) throws(TLSError) -> Authorization? {
        let expiry = VAPIDKey.expiryS(nowS: nowMs / 1_000)
        if let current, current.issuedAtS == expiry { return current }
        let token = try key.token(for: origin, contact: contact, expiresS: expiry)
        current = Authorization(issuedAtS: expiry, scheme: "vapid", token: "t=\(token),k=\(key.publicKey)")
        return current
    }

    /// Another token would say the same.
    func renew(
        after refused: Authorization, isExpired: Bool, laneAdmittedAtMs: UInt64?, nowMs: UInt64, monotonicMs: UInt64
    ) -> Bool { false }

    func noteAdmission(of admitted: Authorization, afterRefusalOf refusedIssuedAtS: UInt64?, monotonicMs: UInt64) -> Bool {
        false
    }
}
