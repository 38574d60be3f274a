/// The values of `apns-push-type`, and their requirements for other headers. Source: Apple, "Sending notification requests to APNs".
enum PushType: String, Sendable, CaseIterable {
    case alert, background, voip, liveactivity, pushtotalk, location, complication, fileprovider, widgets, controls

    /// The suffix of the topic after the bundle id.
    var topicSuffix: String {
        switch self {
        case .alert, .background: ""
        case .voip: ".voip"
        case .liveactivity: ".push-type.liveactivity"
        case .pushtotalk: ".voip-ptt"
        case .location: ".location-query"
        case .complication: ".complication"
        case .fileprovider: ".pushkit.fileprovider"
        case .widgets: ".push-type.widgets"
        case .controls: ".push-type.controls"
        }
    }

    func allows(priority: Int) -> Bool {
        switch self {
        case .background: priority == 5
        case .voip, .pushtotalk: priority == 10
        case .liveactivity: priority == 5 || priority == 10
        default: priority == 1 || priority == 5 || priority == 10
        }
    }

    /// In bytes.
    var payloadLimit: Int { self == .voip ? 5120 : 4096 }

    /// True if Apple refuses the type with a client certificate.
    var needsToken: Bool { self == .voip || self == .liveactivity || self == .location }

    init?(_ name: Span<UInt8>) {
        for type in Self.allCases where name.equals(type.rawValue) {
            self = type
            return
        }
        return nil
    }

    /// Returns whether `topic` is the topic of this type for `bundleID`.
    func fits(_ topic: Span<UInt8>, bundleID: String) -> Bool {
        let (suffix, length) = (topicSuffix, bundleID.utf8.count)
        guard topic.count == length + suffix.utf8.count, topic.hasPrefix(bundleID) else { return false }
        return topic.extracting(length..<topic.count).hasPrefix(suffix)
    }

    /// The type of a request without the header, inferred from its topic.
    init?(topic: Span<UInt8>, bundleID: String) {
        for type in Self.allCases where type.fits(topic, bundleID: bundleID) {
            self = type
            return
        }
        return nil
    }
}

/// The `reason` of an APNs answer. Source: Apple, "Handling notification responses from APNs".
///
/// This list is separate from the broker's, so that tests with the simulator find a wrong reason there.
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
    case badEnvironmentKeyID = "BadEnvironmentKeyIdInToken"
    /// Seen instead of `BadEnvironmentKeyIdInToken`.
    case badEnvironmentKey = "BadEnvironmentKeyInToken"
    case expiredProviderToken = "ExpiredProviderToken"
    case forbidden = "Forbidden"
    case invalidProviderToken = "InvalidProviderToken"
    case missingProviderToken = "MissingProviderToken"
    case unrelatedKeyID = "UnrelatedKeyIdInToken"
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

    public var status: Int {
        switch self {
        case .badCollapseID, .badDeviceToken, .badExpirationDate, .badMessageID, .badPriority, .badTopic,
            .deviceTokenNotForTopic, .duplicateHeaders, .idleTimeout, .invalidPushType, .missingDeviceToken, .missingTopic,
            .payloadEmpty, .topicDisallowed:
            400
        case .badCertificate, .badCertificateEnvironment, .badEnvironmentKeyID, .badEnvironmentKey, .expiredProviderToken,
            .forbidden, .invalidProviderToken, .missingProviderToken, .unrelatedKeyID:
            403
        case .badPath: 404
        case .methodNotAllowed: 405
        case .expiredToken, .unregistered: 410
        case .payloadTooLarge: 413
        case .tooManyProviderTokenUpdates, .tooManyRequests: 429
        case .internalServerError: 500
        case .serviceUnavailable, .shutdown: 503
        }
    }
}
