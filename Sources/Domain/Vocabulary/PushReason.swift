/// Why a push was not delivered: Apple's reasons under Apple's names ("Handling notification responses from APNs"), and the broker's own.
///
/// Web Push answers are mapped to Apple's reasons (`WebPushAnswer`), so that the ledger doesn't show which service a phone uses. The list is closed,
/// so that no text from outside enters the ledger. Unknown reasons are `other`.
public enum PushReason: String, Sendable, CaseIterable {
    case badCollapseID = "BadCollapseId"
    case badDeviceToken = "BadDeviceToken"
    case badExpirationDate = "BadExpirationDate"
    case badMessageID = "BadMessageId"
    case badPriority = "BadPriority"
    case badTopic = "BadTopic"
    case deviceTokenNotForTopic = "DeviceTokenNotForTopic"
    case duplicateHeaders = "DuplicateHeaders"
    case idleTimeout = "IdleTimeout"
    case invalidPushType = "InvalidPushType"
    case missingDeviceToken = "MissingDeviceToken"
    case missingTopic = "MissingTopic"
    case payloadEmpty = "PayloadEmpty"
    case topicDisallowed = "TopicDisallowed"
    case badCertificate = "BadCertificate"
    case badCertificateEnvironment = "BadCertificateEnvironment"
    case expiredProviderToken = "ExpiredProviderToken"
    case forbidden = "Forbidden"
    case invalidProviderToken = "InvalidProviderToken"
    case missingProviderToken = "MissingProviderToken"
    case unrelatedKeyIDInToken = "UnrelatedKeyIdInToken"
    case badEnvironmentKeyIDInToken = "BadEnvironmentKeyIdInToken"
    /// The same reason under another name that Apple has used.
    case badEnvironmentKeyInToken = "BadEnvironmentKeyInToken"
    case badPath = "BadPath"
    case methodNotAllowed = "MethodNotAllowed"
    case expiredToken = "ExpiredToken"
    case unregistered = "Unregistered"
    case payloadTooLarge = "PayloadTooLarge"
    case tooManyProviderTokenUpdates = "TooManyProviderTokenUpdates"
    case tooManyRequests = "TooManyRequests"
    case internalServerError = "InternalServerError"
    case serviceUnavailable = "ServiceUnavailable"
    case shutdown = "Shutdown"

    /// The deadline passed while the push service could not be reached or not be trusted.
    case unreachable
    /// The push was sent, but no response arrived before the deadline. The push service may have it.
    case unknown
    /// The deadline passed before the push was sent.
    case late
    /// The courier was stopped before the push was sent.
    case stopped
    /// The token was destroyed before an attempt succeeded.
    case revoked
    /// No credentials are configured: no key, no certificate.
    case notConfigured = "not_configured"
    /// A response that is not in this list.
    case other
    /// The ledger's reason for any push that was not sent.
    case unsent
}

extension PushReason {
    /// The reason that the ledger records.
    public var recorded: PushReason {
        switch self {
        case .late: .unsent
        case .notConfigured: .unreachable
        case .stopped, .revoked: .other
        default: self
        }
    }

    /// Says how a push with a recorded reason ended, or that it never left.
    /// - Parameter status: the push service's HTTP status, 0 without an answer.
    public func outcome(status: UInt16) -> String {
        switch (self, status) {
        case (.unsent, 0): "never sent: too late, no longer needed, or its token was destroyed"
        case (.unsent, _): "the push service was busy (\(status)), and it was not retried"
        case (.unreachable, _): "never sent: the push service could not be reached"
        case (.unknown, _): "sent without an answer: the push service may have delivered it"
        case (.other, 0): "never sent: a newer push replaced it, or it was invalid"
        case (.other, _): "the push service refused it for an unlisted reason with status \(status)"
        case (_, 0): "never sent: \(rawValue)"
        default: "the push service refused it: \(rawValue), status \(status)"
        }
    }

    /// All reasons that the ledger records.
    public static let allRecorded = allCases.filter { $0.recorded == $0 }

    /// Apple's HTTP status for the reason. Nil for the broker's own reasons, which no response can contain.
    public var status: Int? {
        switch self {
        case .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic, .deviceTokenNotForTopic,
            .duplicateHeaders, .idleTimeout, .invalidPushType, .missingDeviceToken, .missingTopic, .payloadEmpty,
            .topicDisallowed:
            400
        case .badCertificate, .badCertificateEnvironment, .expiredProviderToken, .forbidden, .invalidProviderToken,
            .missingProviderToken, .unrelatedKeyIDInToken, .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            403
        case .badPath: 404
        case .methodNotAllowed: 405
        case .expiredToken, .unregistered: 410
        case .payloadTooLarge: 413
        case .tooManyProviderTokenUpdates, .tooManyRequests: 429
        case .internalServerError: 500
        case .serviceUnavailable, .shutdown: 503
        case .unreachable, .unknown, .late, .stopped, .revoked, .notConfigured, .other, .unsent: nil
        }
    }
}
