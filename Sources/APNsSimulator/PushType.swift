/// What `apns-push-type` may say, and what each type asks of the other headers. Source: Apple, "Sending notification requests to APNs".
enum PushType: String, Sendable, CaseIterable {
    case alert, background, voip, liveactivity, pushtotalk, location, complication, fileprovider, widgets, controls

    /// What follows the app's bundle id in the topic.
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

    /// Refused with a client certificate.
    var needsToken: Bool { self == .voip || self == .liveactivity || self == .location }

    init?(_ name: Span<UInt8>) {
        for type in Self.allCases where name.equals(type.rawValue) {
            self = type
            return
        }
        return nil
    }

    /// Whether `topic` is the one for pushes of this type to `bundleID`.
    func fits(_ topic: Span<UInt8>, bundleID: String) -> Bool {
        let (suffix, length) = (topicSuffix, bundleID.utf8.count)
        guard topic.count == length + suffix.utf8.count, topic.hasPrefix(bundleID) else { return false }
        return topic.extracting(length..<topic.count).hasPrefix(suffix)
    }

    /// The type a request without the header is taken for: what its topic says.
    init?(topic: Span<UInt8>, bundleID: String) {
        for type in Self.allCases where type.fits(topic, bundleID: bundleID) {
            self = type
            return
        }
        return nil
    }
}
