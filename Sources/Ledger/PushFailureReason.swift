extension Entry {
    /// Why a push failed: APNs' own reasons, the broker's, and `other` for a reason that Apple adds one day.
    ///
    /// A closed list, so that no text from outside enters the ledger. Source: Apple, "Handling notification responses from APNs".
    public enum PushFailureReason: String, Sendable, CaseIterable {
        // 400
        case badCollapseId = "BadCollapseId"
        case badDeviceToken = "BadDeviceToken"
        case badExpirationDate = "BadExpirationDate"
        case badMessageId = "BadMessageId"
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
        // 403
        case badCertificate = "BadCertificate"
        case badCertificateEnvironment = "BadCertificateEnvironment"
        case badEnvironmentKeyIdInToken = "BadEnvironmentKeyIdInToken"
        case badEnvironmentKeyInToken = "BadEnvironmentKeyInToken"
        case expiredProviderToken = "ExpiredProviderToken"
        case forbidden = "Forbidden"
        case invalidProviderToken = "InvalidProviderToken"
        case missingProviderToken = "MissingProviderToken"
        case unrelatedKeyIdInToken = "UnrelatedKeyIdInToken"
        // 404, 405, 410, 413
        case badPath = "BadPath"
        case methodNotAllowed = "MethodNotAllowed"
        case expiredToken = "ExpiredToken"
        case unregistered = "Unregistered"
        case payloadTooLarge = "PayloadTooLarge"
        // 429, 500, 503
        case tooManyProviderTokenUpdates = "TooManyProviderTokenUpdates"
        case tooManyRequests = "TooManyRequests"
        case internalServerError = "InternalServerError"
        case serviceUnavailable = "ServiceUnavailable"
        case shutdown = "Shutdown"
        // The broker's own.
        /// No connection to APNs within the job's deadline.
        case unreachable
        /// Never sent: the job or its token expired, or the peer came back, or the room was closed.
        case unsent
        /// Sent, and no answer; or lost by a restart.
        case unknown
        case other

        /// The reason in APNs' answer, or `other`.
        public init(apns reason: String) { self = Self(rawValue: reason) ?? .other }
    }
}
