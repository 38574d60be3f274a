/// Why a push was not delivered: Apple's reasons by Apple's names, and the courier's own. A closed list: what Apple adds is `other`.
public enum Reason: String, Sendable, CaseIterable {
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
}

/// What the courier does about an answer other than 200.
public enum Reaction: Sendable, Equatable {
    /// The token is bad: purge it, unless the configuration may be wrong (`PurgeBreaker`).
    case purge
    /// The token is bad since a moment Apple names: purge it if it was sealed by then.
    case purgeIfOlder
    /// Keys, certificates or topics are wrong: keep every token, raise an alarm, try no more.
    case configuration
    /// Our mistake: try no more.
    case drop
    /// Later again.
    case retry
    /// Again, on a new connection.
    case reconnect
    /// Again, with a new provider token on a new connection, once.
    case renewProviderToken
    /// Again on a new connection, once.
    case reconnectOnce
    /// Later again; until then nothing for this token.
    case holdToken
}

extension Reason {
    public var reaction: Reaction {
        switch self {
        case .badDeviceToken, .deviceTokenNotForTopic: .purge
        case .unregistered, .expiredToken: .purgeIfOlder
        case .badTopic, .missingTopic, .topicDisallowed, .badCertificate, .badCertificateEnvironment, .invalidProviderToken,
            .missingProviderToken, .forbidden, .badEnvironmentKeyIDInToken, .badEnvironmentKeyInToken:
            .configuration
        case .badCollapseID, .badExpirationDate, .badMessageID, .badPriority, .duplicateHeaders, .invalidPushType,
            .missingDeviceToken, .payloadEmpty, .badPath, .methodNotAllowed, .payloadTooLarge:
            .drop
        case .idleTimeout, .shutdown, .tooManyProviderTokenUpdates: .reconnect
        case .expiredProviderToken: .renewProviderToken
        case .unrelatedKeyIDInToken: .reconnectOnce
        case .tooManyRequests: .holdToken
        case .internalServerError, .serviceUnavailable: .retry
        case .unreachable, .unknown, .late, .stopped, .revoked, .notConfigured, .other: .drop
        }
    }

    /// The status Apple gives it with ("Handling notification responses from APNs"); nil for the courier's own, which no answer can claim.
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
        case .unreachable, .unknown, .late, .stopped, .revoked, .notConfigured, .other: nil
        }
    }
}
