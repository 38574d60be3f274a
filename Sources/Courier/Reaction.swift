public import Vocabulary

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

extension APNsReason {
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
        case .unreachable, .unknown, .late, .stopped, .revoked, .notConfigured, .other, .unsent: .drop
        }
    }
}
