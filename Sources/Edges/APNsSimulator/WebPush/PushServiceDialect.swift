import HTTP1

/// The push services whose answers the Web Push face imitates.
public enum PushServiceDialect: String, Sendable, CaseIterable {
    case mozilla, google, apple, microsoft, ntfy
}

/// Why a message is not delivered. Each dialect answers in its own form.
public enum PushProblem: String, Sendable, CaseIterable {
    /// No such subscription ever existed.
    case notFound
    case expired
    /// The user has withdrawn the permission.
    case unsubscribed
    case wrongMethod
    /// The request names another host than the endpoint.
    case wrongHost
    case noToken
    case badToken
    /// The token is valid, but of another key than the subscription's.
    case otherKey
    case badTTL
    case badUrgency
    case badTopic
    case badEncoding
    /// The body is too short to be one encrypted record.
    case tooShort
    case tooLarge
    /// A header field is repeated.
    case badRequest
    // The following occur on demand only.
    case throttled
    case overQuota
    case unavailable
    /// The message is accepted and thrown away. Only Microsoft's answer shows it.
    case dropped
    case channelThrottled
}

extension PushServiceDialect {
    /// Returns the dialect's answer to a message that is not delivered.
    /// - Parameters:
    ///   - detail: one clause for the sender's developer. Apple's answers have none.
    ///   - nowMs: unix milliseconds.
    func answer(to problem: PushProblem, _ detail: String, nowMs: UInt64) -> Answer {
        switch self {
        case .mozilla: mozilla(problem, detail)
        case .google: google(problem, detail)
        case .apple: apple(problem)
        case .microsoft: microsoft(problem, detail)
        case .ntfy: ntfy(problem, detail, nowMs)
        }
    }

    /// Returns the dialect's answer to an accepted message.
    /// - Parameter id: the message's.
    func answer(to push: WebPushMessage, id: String, nowMs: UInt64) -> Answer {
        let location = ("location", "\(push.subscription.origin)/m/\(id)")
        switch self {
        // Mozilla caps the TTL silently and returns the result.
        case .mozilla:
            return Answer(status: 201, more: [location, ("ttl", "\(min(push.ttl, Self.longestTTL))")])
        case .google: return Answer(status: 201, more: [location])
        case .apple: return Answer(status: 201, more: [("apns-id", id)])
        case .microsoft: return Self.microsoftAnswer(201, "received")
        case .ntfy:
            let seconds = nowMs / 1_000
            let text =
                #"{"id":"\#(id.prefix(12))","time":\#(seconds),"expires":\#(seconds + 43_200),"event":"message","#
                + #""topic":"\#(push.subscription.id)","message":"triggered"}"#
            return Answer(status: 200, more: [("content-type", "application/json")], body: Array((text + "\n").utf8))
        }
    }

    /// 60 days.
    private static let longestTTL: UInt64 = 5_184_000

    /// The status of a problem, where all dialects agree.
    private static func commonStatus(_ problem: PushProblem) -> Int {
        switch problem {
        case .notFound: 404
        case .expired, .unsubscribed: 410
        case .wrongMethod: 405
        case .wrongHost: 421
        case .noToken, .badToken, .otherKey: 401
        case .badTTL, .badUrgency, .badTopic, .badEncoding, .tooShort, .badRequest: 400
        case .tooLarge: 413
        case .throttled, .overQuota: 429
        case .unavailable: 503
        case .dropped, .channelThrottled: 201
        }
    }
}

/// Mozilla: JSON with an error number. Source: autopush-rs, `autoendpoint/src/error.rs`.
extension PushServiceDialect {
    private func mozilla(_ problem: PushProblem, _ detail: String) -> Answer {
        let status = Self.commonStatus(problem)
        guard status >= 400 else { return Answer(status: status, more: [("ttl", "0")]) }
        let number: Int? =
            switch problem {
            case .notFound: 102
            case .expired: 103
            case .tooLarge: 104
            case .unsubscribed: 106
            case .noToken, .badToken, .otherKey: 109
            case .badEncoding, .tooShort: 110
            case .badTTL: 111
            case .badTopic: 113
            case .throttled, .overQuota, .unavailable: 201
            default: nil
            }
        var body = Array(
            #"{"code":\#(status),"errno":\#(number.map(String.init) ?? "null"),"error":"\#(Self.phrase(status))","#.utf8)
        body += #""message":"#.utf8
        JSON.append(detail, to: &body)
        body += #","more_info":"http://autopush.readthedocs.io/en/latest/http.html#error-codes"}"#.utf8
        var more = [("content-type", "application/json")]
        if status == 410 { more.append(("cache-control", "max-age=86400")) }
        return Answer(status: status, retryAfter: status == 503 || status == 429 ? 120 : nil, more: more, body: body)
    }

    private static func phrase(_ status: Int) -> String {
        switch status {
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 410: "Gone"
        case 413: "Payload Too Large"
        case 421: "Misdirected Request"
        case 429: "Too Many Requests"
        default: "Service Unavailable"
        }
    }
}

/// Google: plain text. Others have published the texts for 401, 403, 404 and 410 from real answers.
extension PushServiceDialect {
    private func google(_ problem: PushProblem, _ detail: String) -> Answer {
        let (status, text): (Int, String) =
            switch problem {
            case .notFound: (404, "A valid push subscription endpoint should be specified in the URL.")
            case .expired, .unsubscribed: (410, "push subscription has unsubscribed or expired.")
            case .noToken: (401, "authorization header must be specified.")
            case .badToken: (403, "invalid JWT provided: \(detail)")
            case .otherKey:
                (
                    403,
                    "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions."
                )
            default: (Self.commonStatus(problem), detail)
            }
        guard status >= 400 else { return Answer(status: status) }
        return Answer(
            status: status, retryAfter: status == 429 || status == 503 ? 60 : nil,
            more: [("content-type", "text/plain; charset=utf-8")], body: Array((text + "\n").utf8))
    }
}

/// Apple: JSON with a reason. Source: Apple, "Sending web push notifications in web apps and browsers". Others have
/// published `VapidPkHashMismatch` with 400 from real answers.
extension PushServiceDialect {
    private func apple(_ problem: PushProblem) -> Answer {
        let (status, reason): (Int, String) =
            switch problem {
            case .notFound: (404, "BadPath")
            case .expired, .unsubscribed: (410, "Unregistered")
            case .wrongMethod: (405, "MethodNotAllowed")
            case .noToken, .badToken: (403, "BadJwtToken")
            case .otherKey: (400, "VapidPkHashMismatch")
            case .badTTL: (400, "BadTtl")
            case .badUrgency: (400, "BadUrgency")
            case .badTopic: (400, "BadWebPushTopic")
            case .tooShort: (400, "PayloadEmpty")
            case .tooLarge: (413, "PayloadTooLarge")
            case .throttled, .overQuota: (429, "TooManyRequests")
            case .unavailable: (503, "ServiceUnavailable")
            case .wrongHost, .badEncoding, .badRequest: (Self.commonStatus(problem), "BadWebPushRequest")
            case .dropped, .channelThrottled: (201, "")
            }
        guard status >= 400 else { return Answer(status: status) }
        return Answer(status: status, more: [("content-type", "application/json")], body: Answer.json(reason, nil))
    }
}

/// Microsoft: header fields, no body. Source: Microsoft, "Push notification service request and response headers".
extension PushServiceDialect {
    private func microsoft(_ problem: PushProblem, _ detail: String) -> Answer {
        switch problem {
        case .dropped: Self.microsoftAnswer(201, "dropped")
        case .channelThrottled: Self.microsoftAnswer(201, "channelthrottled")
        case .throttled, .overQuota: Self.microsoftAnswer(406, "dropped", retryAfter: 30)
        default: Self.microsoftAnswer(Self.commonStatus(problem), "dropped", more: [("x-wns-error-description", detail)])
        }
    }

    private static func microsoftAnswer(
        _ status: Int, _ state: String, retryAfter: Int? = nil, more: [(String, String)] = []
    ) -> Answer {
        Answer(
            status: status, retryAfter: retryAfter,
            more: [("x-wns-status", state), ("x-wns-notificationstatus", state), ("x-wns-deviceconnectionstatus", "connected")]
                + more)
    }
}

/// ntfy: JSON with a number. Source: ntfy, `server/errors.go`. A real ntfy has no expired subscriptions and verifies no tokens. The
/// answers to both are ours.
extension PushServiceDialect {
    private func ntfy(_ problem: PushProblem, _ detail: String, _ nowMs: UInt64) -> Answer {
        let (number, text): (Int, String) =
            switch problem {
            case .notFound, .expired, .unsubscribed: (40_401, "page not found")
            case .noToken: (40_101, "unauthorized")
            case .badToken, .otherKey: (40_301, "forbidden")
            case .tooLarge: (41_301, "attachment too large, or bandwidth limit reached")
            case .throttled: (42_901, "limit reached: too many requests, please be nice")
            case .overQuota: (50_701, "cannot publish to UnifiedPush topic without previously active subscriber")
            case .unavailable: (50_301, "service unavailable")
            case .dropped, .channelThrottled: (20_000, "")
            default: (Self.commonStatus(problem) * 100, detail)
            }
        guard number >= 40_000 else {
            return Answer(status: 200, more: [("content-type", "application/json")], body: Array("{}\n".utf8))
        }
        var body = Array(#"{"code":\#(number),"http":\#(number / 100),"error":"#.utf8)
        JSON.append(text, to: &body)
        body += "}\n".utf8
        var more = [("content-type", "application/json")]
        if problem == .throttled { more.append(("retry-after", HTTPDate.text(nowMs / 1_000 + 60))) }
        return Answer(status: number / 100, more: more, body: body)
    }
}
