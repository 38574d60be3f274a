import Foundation

/// A phone's push address, as Apple gave it to the app. Nothing prints it. Keep it in the Keychain only.
public struct PushToken: Hashable, Sendable, Codable {
    let secret: Secret

    /// Takes the token of `didRegisterForRemoteNotificationsWithDeviceToken`, of PushKit or of an activity, 1 to 100 bytes.
    public init(_ data: Data) {
        let digits = Array("0123456789abcdef")
        secret = Secret(String(data.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }))
    }

    /// The token in lower-case hexadecimal.
    public var hex: String { secret.value }
}

/// Which of Apple's services a token belongs to.
public enum PushEnvironment: String, Sendable, Codable {
    /// Builds that Xcode installs.
    case sandbox
    /// TestFlight and the App Store.
    case production
}
