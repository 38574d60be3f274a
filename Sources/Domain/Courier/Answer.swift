import HTTP1
import JSON
public import Vocabulary

/// One response from a push service.
struct Answer: Sendable, Equatable {
    var status: Int
    /// `other` unless Apple uses the reason with this status. A proxy's or a damaged response must not purge a token.
    var reason: PushReason
    /// When the token became invalid. Only a 410 has one.
    var timestamp: AnswerBody.Timestamp
    /// `Retry-After`.
    var retryAfterMs: UInt64?
    let reaction: Reaction
    let admission: Admission

    /// - Parameters:
    ///   - body: JSON. If it is empty or invalid, only the status counts.
    ///   - retryAfter: the header's value: whole seconds or a date (RFC 9110 section 10.2.3). Other text is ignored.
    ///   - nowMs: when the response arrived, unix ms. A date counts from it.
    init(status: Int, body: [UInt8], retryAfter: String? = nil, nowMs: UInt64 = 0) {
        self.status = status
        let fields = AnswerBody(body)
        let named = fields.reason.flatMap { PushReason(rawValue: $0) }
        reason = named?.status == status ? named ?? .other : .other
        timestamp = fields.timestamp
        retryAfterMs = retryAfter.flatMap { Self.delayMs($0, nowMs) }
        reaction = reason.reaction(status: status)
        // Apple checks the provider first, so any later error shows that it accepted the provider.
        admission =
            switch status {
            case 403: .turnedAway
            case 429 where reason == .tooManyProviderTokenUpdates: .turnedAway
            case 500...: .unclear
            default: .admitted
            }
    }

    /// A response of a Web Push service. Such a service refuses single subscriptions, not the provider.
    init(_ answer: WebPushAnswer, _ reaction: Reaction, retryAfter: String? = nil, nowMs: UInt64 = 0) {
        (status, reason) = answer.recorded
        (self.reaction, timestamp) = (reaction, .absent)
        admission = status >= 500 ? .unclear : .admitted
        retryAfterMs = retryAfter.flatMap { Self.delayMs($0, nowMs) }
    }

    /// Parses whole seconds or a date. A number that overflows becomes the longest delay, and a date in the past none.
    private static func delayMs(_ text: String, _ nowMs: UInt64) -> UInt64? {
        if let date = HTTPDate.seconds(text, nowS: nowMs / 1000) { return max(nowMs, date * 1000) - nowMs }
        guard !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else { return nil }
        let (ms, isTooLong) = (UInt64(text) ?? .max).multipliedReportingOverflow(by: 1000)
        return isTooLong ? .max : ms
    }

    /// Apple's verdict on the provider token or certificate, as far as a response shows one.
    enum Admission: Sendable { case admitted, turnedAway, unclear }
}

/// The `reason` and `timestamp` of a response's JSON object.
struct AnswerBody: Equatable {
    enum Timestamp: Sendable, Equatable {
        case absent
        /// The number is invalid, or the body is truncated and may have had one. A 410 without its time must not purge a token
        /// that may have been registered again since.
        case unreadable
        /// Unix ms.
        case at(UInt64)
    }

    private(set) var reason: String?
    private(set) var timestamp = Timestamp.absent

    init(_ body: [UInt8]) {
        guard !body.isEmpty else { return }
        self.timestamp = .unreadable
        guard let object = JSONObject(body.span) else { return }
        reason = (try? object.bytes("reason", in: body.span)).map { String(decoding: $0, as: UTF8.self) }
        if !object.has("timestamp", in: body.span) { timestamp = .absent }
        // With two timestamps, neither can be trusted.
        if let ms = try? object.integer("timestamp", in: body.span), ms >= 0 { timestamp = .at(UInt64(ms)) }
    }
}

/// The courier's reaction to a response other than 200.
public enum Reaction: Sendable, Equatable {
    /// The token is invalid. Purge it unless the configuration may be wrong (`PurgeBreaker`).
    case purge
    /// The token became invalid at a time that Apple reports. Purge it if it was sealed before.
    case purgeIfOlder
    /// Keys, certificates or topics are wrong. Keep every token, raise an alarm and stop.
    case configuration
    /// Mayfly's own error. Stop.
    case drop
    /// Retry after a wait.
    case retry
    /// Retry on a new connection.
    case reconnect
    /// Retry on a new connection, with a new provider token if it may be renewed.
    case renewProviderToken
    /// Retry once, on a new connection.
    case reconnectOnce
    /// Retry after a wait. Send nothing else to this token until then.
    case holdToken

    /// False if such a push is retried until its deadline although nothing is wrong with it or the settings.
    public var isFinal: Bool {
        switch self {
        case .retry, .reconnect, .holdToken: false
        case .purge, .purgeIfOlder, .configuration, .drop, .renewProviderToken, .reconnectOnce: true
        }
    }
}

extension PushReason {
    /// The reaction to a response. Unknown reasons count by their status.
    public func reaction(status: Int) -> Reaction {
        guard self == .other else { return reaction }
        return switch status {
        case 403: .configuration
        case 410: .purgeIfOlder
        case 429: .holdToken
        case 500...599: .retry
        default: .drop
        }
    }

    public var reaction: Reaction {
        switch self {
        case .badDeviceToken, .deviceTokenNotForTopic: .purge
        case .unregistered, .expiredToken: .purgeIfOlder
        case .badTopic, .missingTopic, .topicDisallowed, .badCertificate, .badCertificateEnvironment, .missingProviderToken,
            .forbidden, .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            .configuration
        case .badCollapseID, .badExpirationDate, .badMessageID, .badPriority, .duplicateHeaders, .invalidPushType,
            .missingDeviceToken, .payloadEmpty, .badPath, .methodNotAllowed, .payloadTooLarge:
            .drop
        case .idleTimeout, .shutdown, .tooManyProviderTokenUpdates: .reconnect
        case .expiredProviderToken, .invalidProviderToken: .renewProviderToken
        case .unrelatedKeyIDInToken: .reconnectOnce
        case .tooManyRequests: .holdToken
        case .internalServerError, .serviceUnavailable: .retry
        case .unreachable, .unknown, .late, .stopped, .revoked, .notConfigured, .other, .unsent: .drop
        }
    }
}

/// The next step for a push after a response.
enum Step: Sendable, Equatable {
    case finish(Outcome)
    case retry(Retry)
}

struct Retry: Sendable, Equatable {
    /// False if the connection is at fault: then retry without a wait.
    var waits = true
    /// The least wait that the peer asked for.
    var leastMs: UInt64 = 0
    /// No more requests are sent on this connection.
    var replacesConnection = false
    /// The service refused the authorization. The lane renews it if it may, and retries without a wait then.
    var renewsAuthorization = false
    /// No other push is sent to this token until the retry.
    var holdsToken = false
}

/// The attempts of a push so far. Steps that may be taken only once are recorded here.
struct History: Sendable, Equatable {
    /// Attempts that were followed by a wait.
    var failures = 0
    var reconnected = false
}

extension Answer {
    /// One hour. If the clocks differ more, Apple rejects provider tokens anyway.
    private static var clocksApartMs: UInt64 { 3_600_000 }

    /// When the token became invalid according to a 410. Returns nil if unknown: the token may be from a newer registration.
    private func badSinceMs(sentAtMs: UInt64) -> UInt64? {
        switch timestamp {
        // A token sealed after the attempt began is from another registration.
        case .absent: sentAtMs
        case .unreadable: nil
        case .at(let ms): ms < sentAtMs || ms - sentAtMs <= Self.clocksApartMs ? ms : nil
        }
    }

    /// Decides the next step.
    /// - Parameters:
    ///   - history: of this push. Changed if the step may be taken only once.
    ///   - sentAtMs: when the attempt began, unix ms.
    ///   - breaker: the state after this response.
    func step(_ history: inout History, sealedAtMs: UInt64, sentAtMs: UInt64, breaker: PurgeBreaker.State) -> Step {
        if status == 200 { return .finish(.delivered) }
        let configuration = Step.finish(.failed(status: status, reason: reason, verdict: .configuration))
        let keep = Step.finish(.failed(status: status, reason: reason, verdict: .keep))
        switch reaction {
        case .purge:
            return switch breaker {
            case .closed: .finish(.failed(status: status, reason: reason, verdict: .purge(ifSealedBefore: nil)))
            case .unproven: keep
            case .open: configuration
            }
        case .purgeIfOlder:
            guard let badSinceMs = badSinceMs(sentAtMs: sentAtMs), sealedAtMs <= badSinceMs else { return keep }
            return .finish(.failed(status: status, reason: reason, verdict: .purge(ifSealedBefore: badSinceMs)))
        case .configuration: return configuration
        case .drop: return keep
        case .retry: return .retry(Retry(leastMs: retryAfterMs ?? 0))
        case .holdToken: return .retry(Retry(leastMs: retryAfterMs ?? 0, holdsToken: true))
        case .reconnect:
            // Retry at once the first time, later with a wait, so that a faulty server isn't hammered.
            defer { history.reconnected = true }
            let waits = history.reconnected || reason == .tooManyProviderTokenUpdates
            return .retry(Retry(waits: waits, leastMs: retryAfterMs ?? 0, replacesConnection: true))
        case .renewProviderToken: return .retry(Retry(replacesConnection: true, renewsAuthorization: true))
        case .reconnectOnce:
            guard !history.reconnected else { return configuration }
            history.reconnected = true
            return .retry(Retry(waits: false, replacesConnection: true))
        }
    }
}
