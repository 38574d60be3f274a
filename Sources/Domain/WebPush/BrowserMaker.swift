/// A maker of browsers with a push service. Many users share the service, so its refusals can be about our settings.
public enum BrowserMaker: String, Sendable, Hashable {
    case apple, google, microsoft, mozilla

    public init?(host: String) {
        switch host {
        case "fcm.googleapis.com", "android.googleapis.com": self = .google
        case "updates.push.services.mozilla.com": self = .mozilla
        case "web.push.apple.com": self = .apple
        case let name where name.hasSuffix(Self.microsoftEnd):
            guard !name.dropLast(Self.microsoftEnd.count).contains(".") else { return nil }
            self = .microsoft
        default: return nil
        }
    }

    /// False for Microsoft, whose host names have numbers. Anybody can make such names up, so these hosts share the limits of strangers' hosts.
    public var hasFixedHosts: Bool { self != .microsoft }

    private static let microsoftEnd = ".notify.windows.com"
}
