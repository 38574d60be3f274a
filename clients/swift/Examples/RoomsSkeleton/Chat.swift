import Foundation
import MayflyClient

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// A chat that the user sees. It is `Codable`, so that the storage can keep it. App and extension both have this file.
nonisolated struct Chat: Codable, Sendable, Identifiable {
    let id: UUID
    /// The phone's own name for the other person. It never leaves the phone.
    let nickname: String
    var room: Room

    /// App and extension need this group in their capability Keychain Sharing. `TEAM` is the team's id.
    static let keychain = SharedKeychain(service: "chats", accessGroup: "TEAM.org.example.app.chats")

    /// The rooms with the phone's names for the other person, for `RoomNotification`.
    static func known(in storage: any Storage) throws -> [(room: Room, nickname: String)] {
        try storage.load(Chat.self).map { ($0.room, $0.nickname) }
    }
}
