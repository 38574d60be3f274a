/// What a push about a room means on this phone. Apple and the broker know neither room nor nickname.
public struct RoomNotification: Sendable {
    public let room: Room
    /// The phone's own name for the other person, to show as the title. The body stays the broker's constant text.
    public let nickname: String

    /// Groups the notifications of one room.
    public var threadIdentifier: String { room.handle ?? "" }

    /// Finds the room that a push is about, by the handle `roomId` in its payload.
    ///
    /// Returns nil if the phone knows no such room. Then show the push as it came.
    /// - Parameters:
    ///   - payload: `userInfo` of the notification.
    ///   - rooms: what the phone knows, with its own nicknames.
    public init?(payload: [AnyHashable: Any], rooms: [(room: Room, nickname: String)]) {
        guard let handle = payload["roomId"] as? String, let found = rooms.first(where: { $0.room.handle == handle }) else {
            return nil
        }
        (room, nickname) = found
    }
}
