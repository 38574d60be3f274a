import JSON
import Vocabulary

/// An answer of Apple's.
struct Answer: Sendable, Equatable {
    var status: Int
    /// `other` unless Apple gives the reason with this status: a proxy's or a damaged answer must not purge a token.
    var reason: APNsReason
    /// Since when the token is bad; with 410 only.
    var timestamp: AnswerBody.Timestamp
    /// `Retry-After`.
    var retryAfterMs: UInt64?

    /// - Parameters:
    ///   - body: may be empty; then the status alone counts. So it does with what is not JSON, but for purging.
    ///   - retryAfter: the header's value; whole seconds, other forms are ignored.
    init(status: Int, body: [UInt8], retryAfter: String? = nil) {
        self.status = status
        let fields = AnswerBody(body)
        let named = fields.reason.flatMap { APNsReason(rawValue: $0) }
        reason = named?.status == status ? named ?? .other : .other
        timestamp = fields.timestamp
        retryAfterMs = retryAfter.flatMap { Self.delayMs($0) }
    }

    /// Whole seconds; what no number holds is the longest.
    private static func delayMs(_ text: String) -> UInt64? {
        guard !text.isEmpty, text.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) else { return nil }
        let (ms, isTooLong) = (UInt64(text) ?? .max).multipliedReportingOverflow(by: 1000)
        return isTooLong ? .max : ms
    }

    /// What an answer says about the provider's standing on its connection.
    enum Admission { case admitted, turnedAway, unclear }

    /// Apple looks at the provider first: whatever it finds fault with after that, the provider was let in.
    var admission: Admission {
        switch status {
        case 403: .turnedAway
        case 429 where reason == .tooManyProviderTokenUpdates: .turnedAway
        case 500...: .unclear
        default: .admitted
        }
    }

    /// By the reason, or by the status where that says nothing.
    var reaction: Reaction {
        guard reason == .other else { return reason.reaction }
        return switch status {
        case 403: .configuration
        case 410: .purgeIfOlder
        case 429: .holdToken
        case 500...599: .retry
        default: .drop
        }
    }
}

/// The two members of an answer's JSON object that matter.
struct AnswerBody: Equatable {
    enum Timestamp: Sendable, Equatable {
        case absent
        /// No whole number that fits, or the body is not whole and may have had one. See docs/decisions/0043-answers-that-are-not-whole.md.
        case unreadable
        /// Unix ms.
        case at(UInt64)
    }

    private(set) var reason: String?
    private(set) var timestamp = Timestamp.absent

    init(_ body: [UInt8]) {
        guard !body.isEmpty else { return }
        self.timestamp = .unreadable
        guard case .object(let members)? = try? JSONValue(body.span, deepest: JSONObject.deepest) else { return }
        for member in members where member.key == "reason" {
            if case .string(let text) = member.value { reason = text }
        }
        let timestamps = members.filter { $0.key == "timestamp" }
        if timestamps.isEmpty { timestamp = .absent }
        // Of two, neither is to be believed.
        guard timestamps.count == 1, case .number(let digits) = timestamps[0].value, !digits.hasPrefix("-") else { return }
        if let ms = UInt64(digits) { timestamp = .at(ms) }
    }
}
