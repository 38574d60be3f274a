import Foundation
import MayflyClient

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// What stays when iOS ends the app. App and extension both have this file.
nonisolated struct CompanionMemory: Codable, Sendable {
    /// A Live Activity at the broker. The next launch needs its token, which Apple may have changed meanwhile.
    struct Activity: Codable, Sendable {
        let token: PushToken
        let registration: Registration
    }

    /// Whose login it is.
    var user: String?
    /// A real app keeps what its login needs to get a new one.
    var jwt: Secret?
    var token: PushToken?
    var device = Registered()
    /// Live Activities, by session.
    var activities: [String: Activity] = [:]
    /// The phone's own names, by session.
    var names: [String: String] = [:]

    /// The names that a push may mean.
    var sessions: HandleTable { device.current?.table(.session, names.keys) ?? HandleTable() }

    /// App and extension need this group in their capability Keychain Sharing. `TEAM` is the team's id.
    static let keychain = SharedKeychain(service: "companion", accessGroup: "TEAM.org.example.companion")
}
