import Foundation

/// What happens in a room while this side is present.
public enum RoomEvent: Hashable, Sendable {
    /// This side is present. Comes again after each reconnection. `delivery` says what became of the knock at the other side.
    case joined(peerPresent: Bool, delivery: Delivery)
    case peerJoined
    /// The other side is away. `delivery` says what became of the push to it; nil if it left deliberately.
    case peerLeft(delivery: Delivery?)
    /// The other person has used the join code.
    case peerAccepted
    /// The connection broke, or could not be made. The session tries again by itself, and `joined` follows. ``Client/status(of:)`` says why.
    case disconnected
    /// The last event.
    case ended(Ending)

    public enum Ending: Hashable, Sendable {
        /// Either side closed the room, or its time was over.
        case closed
        /// The room had ended before this side came back.
        case gone
        /// The app called ``RoomSession/leave()``.
        case left
        /// The broker refuses this side for good, the other end is no broker, or this system has no WebSockets.
        case failed(MayflyError)
    }
}

/// This side's presence in a room, as a sequence of events. It lasts from ``Client/join(_:over:)`` to ``leave()`` or the room's end.
///
/// The newest 64 events wait for the loop. The session reconnects by itself. Call ``suspend()`` when the app goes to the background and
/// ``resume()`` when it returns; on iOS `AppLifecycle` does both. The session leaves when the loop over its events ends, also by `break`. Use one loop.
public struct RoomSession: AsyncSequence, LiveConnection {
    public typealias Element = RoomEvent

    /// How the broker learns that this side is present.
    public enum Channel: Sendable {
        /// A WebSocket, with events at once. On Linux that needs a libcurl with WebSockets; otherwise the session ends with
        /// ``MayflyError/invalidConfiguration(_:)``.
        case webSocket
        /// A report over HTTP every 30 seconds, for apps with a realtime server of their own. Events come with the reports.
        case reports
    }

    public let room: Room
    private let connection: Connection<RoomDialogue>

    init(_ room: Room, client: Client, channel: Channel, timing: ConnectionTiming = ConnectionTiming()) {
        self.room = room
        connection = Connection(RoomDialogue(room: room, client: client, channel: channel, timing: timing), timing: timing)
    }

    public func makeAsyncIterator() -> ConnectionIterator<RoomEvent> { connection.makeIterator() }

    /// Becomes present again after ``suspend()``. Does nothing while the session is present or has ended.
    public func resume() async { await connection.resume() }

    /// Leaves until ``resume()``, and returns when the broker knows, or after 3 seconds. Over reports it may take 15.
    ///
    /// The other side learns at once that this one is away, and its next arrival is followed by a push.
    public func suspend() async { await connection.suspend() }

    /// Leaves for good and ends the sequence. The room goes on: `join` it again whenever its chat opens.
    public func leave() async { await connection.leave() }

    var hasEnded: Bool { get async { await connection.hasEnded } }
}

/// What is said about a room on `/ws`, or in reports.
private struct RoomDialogue: Dialogue {
    let room: Room
    let client: Client
    let channel: RoomSession.Channel
    let timing: ConnectionTiming

    static var disconnected: RoomEvent { .disconnected }

    static func ended(_ ending: Ending) -> RoomEvent {
        switch ending {
        case .left: .ended(.left)
        case .gone: .ended(.gone)
        case .failed(let error): .ended(.failed(error))
        }
    }

    var transport: any Transport { client.transport }
    var url: URL { client.socketURL("ws") }
    /// More than a room's two sides can cause.
    var mostMessages: Int { 100 }
    var farewell: String? { #"{"type":"leave_room"}"# }

    func opening() throws -> String {
        struct Join: Encodable {
            let type = "join_room"
            let roomid: Secret
            let client: Secret
            let member: Secret
        }
        let join = Join(roomid: room.roomID, client: room.clientID, member: room.member)
        return String(decoding: try JSONEncoder().encode(join), as: UTF8.self)
    }

    func read(_ type: String, _ message: Message) throws -> Heard<RoomEvent> {
        struct Joined: Decodable {
            let expiresAt: Date
            let peerPresent: Bool
            let delivery: Delivery
        }
        struct Left: Decodable { let delivery: Delivery? }
        switch type {
        case "joined":
            let joined = try message.read(Joined.self)
            return .connected(.joined(peerPresent: joined.peerPresent, delivery: joined.delivery))
        case "peer_joined": return .event(.peerJoined)
        case "peer_left": return .event(.peerLeft(delivery: try message.read(Left.self).delivery))
        case "peer_accepted": return .event(.peerAccepted)
        case "room_closed": return .ended(.ended(.closed))
        case "error": throw MayflyError.refused(try message.refusal())
        default: return .nothing
        }
    }

    func hold(_ connection: isolated Connection<Self>) async throws {
        switch channel {
        case .webSocket: try await connection.holdSocket()
        case .reports: try await sendReports(connection)
        }
    }

    private func sendReports(_ connection: isolated Connection<Self>) async throws {
        var wasPeerHere = false
        while connection.isStaying {
            let delivery = try await client.reportPresence(in: room)
            try Task.checkCancellation()
            let isPeerHere = delivery == .peerPresent
            let change: RoomEvent = isPeerHere ? .peerJoined : .peerLeft(delivery: delivery)
            connection.report(
                .joined(peerPresent: isPeerHere, delivery: delivery), ifConnected: isPeerHere == wasPeerHere ? nil : change)
            wasPeerHere = isPeerHere
            try await Task.sleep(for: timing.report)
        }
    }

    var departWithoutSocket: (@Sendable () async -> Void)? {
        guard channel == .reports else { return nil }
        return {
            var hasty = client
            hasty.patience = timing.departure
            _ = try? await hasty.reportPresence(in: room, leaving: true)
        }
    }
}

extension Client {
    /// Makes this side present in a room, and returns its session at once. Iterate over the session for its events.
    public func join(_ room: Room, over channel: RoomSession.Channel = .webSocket) async -> RoomSession {
        let session = RoomSession(room, client: self, channel: channel)
        await session.resume()
        return session
    }
}
