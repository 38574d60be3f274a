/// Why a push was not delivered: Apple's reasons by Apple's names, and the broker's own. Source of Apple's: "Handling notification responses
/// from APNs". A closed list, so that no text from outside enters the ledger: what Apple adds is `other`.
public enum APNsReason: String, Sendable, CaseIterable {
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
    /// The same under the name it was also seen with.
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

    /// The deadline passed and Apple could not be reached, or not be trusted.
    case unreachable
    /// It was sent and no answer came before the deadline: Apple may have it.
    case unknown
    /// The deadline passed before its turn came.
    case late
    /// The courier was stopped first.
    case stopped
    /// The token was destroyed before an attempt succeeded.
    case revoked
    /// There is no account at all: no key, no certificate.
    case notConfigured = "not_configured"
    /// An answer that is not in this list.
    case other
    /// The ledger's one reason for whatever kept a push from being sent.
    case unsent
}

extension APNsReason {
    /// What the ledger says for it.
    public var recorded: APNsReason {
        switch self {
        case .late: .unsent
        case .notConfigured: .unreachable
        case .stopped, .revoked: .other
        default: self
        }
    }

    /// All that the ledger says.
    public static let allRecorded = allCases.filter { $0.recorded == $0 }

    /// The status Apple gives it with ("Handling notification responses from APNs"); nil for the broker's own, which no answer can claim.
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
