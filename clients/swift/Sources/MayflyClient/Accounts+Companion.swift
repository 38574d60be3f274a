import Foundation

/// Approvals and sessions of a companion.
extension Accounts {
    /// Answers an approval, once. All other devices clear it.
    ///
    /// Not retried after a lost answer, because a second response is refused. Call ``approval(_:)`` for the result.
    /// - Parameters:
    ///   - requestID: of the push or ``SessionNews``, or the back end's own.
    ///   - approved: false denies.
    ///   - device: this device's token. Then it gets no push.
    /// - Returns: false if the approval was answered before, is over, or is not the user's.
    public func respond(to requestID: String, approved: Bool, from device: PushToken? = nil) async throws -> Bool {
        var body: [String: Client.Field] = ["approved": .flag(approved)]
        body["deviceToken"] = device.map { .text($0.hex) }
        let answer: Success = try await call("POST", "api/approval/\(Client.segment(requestID))/respond", body)
        return answer.success
    }

    /// Returns an approval to its user and to the back end that asked, until ten minutes after it expired.
    ///
    /// - Throws: a refusal of the kind ``Refusal/Kind/gone`` if there is none.
    public func approval(_ requestID: String) async throws -> Approval {
        try await call("GET", "api/approval/\(Client.segment(requestID))", isRepeatable: true)
    }

    /// Removes the notification of an approval or a question from the user's devices. The approval stays pending.
    ///
    /// A back end's JWT withdraws its approval instead: nobody can answer it any more.
    /// - Parameter device: the device that needs no push.
    /// - Returns: the number of devices that get a push. 0 if the id is unknown.
    @discardableResult
    public func clearApproval(_ requestID: String, except device: PushToken? = nil) async throws -> Int {
        struct Answer: Decodable { let devicesNotified: Int }
        var body: [String: Client.Field] = ["requestId": .text(requestID)]
        body["excludeDeviceToken"] = device.map { .text($0.hex) }
        let answer: Answer = try await call("POST", "api/push/clear-approval", body)
        return answer.devicesNotified
    }

    /// Removes a session's notifications from the user's devices, and ends its Live Activities. An unknown session is no error.
    ///
    /// - Parameter user: for back ends, whose pending approvals of the session are withdrawn.
    /// - Returns: the number of devices and Live Activities that get a push.
    @discardableResult
    public func clearSession(_ sessionID: String, of user: String? = nil) async throws -> Int {
        struct Answer: Decodable { let clearedCount: Int }
        let body: [String: Client.Field]? = user.map { ["userId": .text($0)] }
        let answer: Answer = try await call("DELETE", "api/push/session/\(Client.segment(sessionID))/notifications", body)
        return answer.clearedCount
    }

    /// Returns what the user has registered for a companion.
    public func companionStatus() async throws -> CompanionStatus { try await call("GET", "api/push/status", isRepeatable: true) }

    /// Reports an event of a session. What it pushes is durable before the answer.
    ///
    /// - Parameters:
    ///   - user: whose session it is. A back end must say so.
    ///   - eventID: idempotency key, 1 to 128 bytes. A repeat within twelve hours does nothing, so lost answers are retried.
    ///     Choose it yourself if your app may call again for the same event.
    @discardableResult
    public func report(
        _ event: SessionEvent, in sessionID: String, of user: String? = nil, eventID: String = UUID().uuidString
    ) async throws -> SessionReceipt {
        var body = event.fields
        body["userId"] = user.map { .text($0) }
        body["eventId"] = .text(eventID)
        return try await call("POST", "api/sessions/\(Client.segment(sessionID))/events", body, isRepeatable: true)
    }
}

/// An approval that an assistant waits for.
public struct Approval: Hashable, Sendable, Decodable {
    public enum Status: BrokerWord {
        case pending, approved, denied, timedOut
        /// Its back end no longer needs an answer.
        case withdrawn
        /// A word of a later broker.
        case unknown(String)

        private static let words = Words<Self>([.pending, .approved, .denied, .timedOut, .withdrawn])

        public init(rawValue: String) { self = Self.words[rawValue] ?? .unknown(rawValue) }

        public var rawValue: String {
            switch self {
            case .pending: "pending"
            case .approved: "approved"
            case .denied: "denied"
            case .timedOut: "timed_out"
            case .withdrawn: "withdrawn"
            case .unknown(let word): word
            }
        }
    }

    /// As the call named it.
    public let requestID: String
    public let sessionID: String
    public let status: Status
    /// When it times out or timed out.
    public let expiresAt: Date

    private enum CodingKeys: String, CodingKey {
        case requestID = "requestId"
        case sessionID = "sessionId"
        case status, expiresAt
    }
}

/// What a user has registered for a companion.
public struct CompanionStatus: Hashable, Sendable, Decodable {
    public struct Activity: Hashable, Sendable, Decodable {
        public let activityID: String
        public let sessionID: String
        /// When its present token was sealed.
        public let registeredAt: Date

        private enum CodingKeys: String, CodingKey {
            case activityID = "activityId"
            case sessionID = "sessionId"
            case registeredAt
        }
    }

    /// Whether there is any device.
    public let hasDevice: Bool
    /// Oldest first.
    public let activities: [Activity]

    private enum CodingKeys: String, CodingKey {
        case hasDevice = "deviceTokenRegistered"
        case activities = "liveActivityTokens"
    }
}

/// What became of a ``SessionEvent``.
public struct SessionReceipt: Hashable, Sendable, Decodable {
    /// The broker's id of an approval or a question. Nil for other events, and for a repeat whose approval can no longer be read.
    public let requestID: String?
    /// When an approval times out.
    public let expiresAt: Date?
    public let pushes: PushCounts
    /// The broker had handled the event before, so this call did nothing.
    public let isRepeated: Bool

    private enum CodingKeys: String, CodingKey {
        case requestID = "requestId"
        case expiresAt, repeated
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        requestID = try container.decodeIfPresent(String.self, forKey: .requestID)
        expiresAt = try container.decodeIfPresent(Date.self, forKey: .expiresAt)
        pushes = try PushCounts(from: decoder)
        isRepeated = try container.decodeIfPresent(Bool.self, forKey: .repeated) ?? false
    }
}
