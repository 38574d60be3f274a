public import Broker
public import EventLoop
import HTTPServer
import JSON
import WebSocket

/// The WebSocket side of rooms: who has said hello, what each message means, what each event looks like.
public actor SocketEdge: LoopActor, RoomSockets {
    public nonisolated let loop: EventLoop
    private let broker: Broker
    /// Sockets that joined a room, by the number the broker knows them by.
    private var members: [UInt64: WebSocketHandle] = [:]
    private var numbers: [WebSocketHandle: UInt64] = [:]
    /// Events for sockets that have not been told yet that they joined.
    private var early: [UInt64: [RoomEvent]] = [:]
    private var last: UInt64 = 0

    public init(loop: EventLoop, broker: Broker) {
        self.loop = loop
        self.broker = broker
    }

    // MARK: From the socket

    nonisolated func received(_ message: TextMessage, on socket: WebSocketHandle) async {
        do {
            await handle(.success(try message.fields { Request($0) }), on: socket)
        } catch {
            await handle(.failure(error), on: socket)
        }
    }

    private func handle(_ request: Result<Request, InvalidRequest>, on socket: WebSocketHandle) async {
        do {
            switch (try request.get(), numbers[socket]) {
            case (.join(let caller), nil): try await join(caller, socket)
            case (.ping, _?): await socket.send(SocketMessage.message("pong"))
            case (.leave, _?):
                await end(socket, isDeliberate: true)
                await socket.close(.normal)
            default: throw BrokerError.wrongType("type", expected: "join_room first and only once, then ping or leave_room")
            }
        } catch {
            guard let invalid = InvalidRequest(error) else { return await socket.close(.internalError) }
            await refuse(invalid, socket)
        }
    }

    private func refuse(_ invalid: InvalidRequest, _ socket: WebSocketHandle) async {
        broker.noteRefusal(invalid.errors[0])
        await socket.send(SocketMessage.message("error") { SocketMessage.write(invalid, to: &$0) })
        await socket.close(.policyViolation)
    }

    /// - Parameter code: of the peer's close frame. An app that leaves sends 1000 or 1001; anything else is a connection that broke.
    func closed(_ socket: WebSocketHandle, code: CloseCode) async {
        await end(socket, isDeliberate: code == .normal || code == .goingAway)
    }

    private func end(_ socket: WebSocketHandle, isDeliberate: Bool) async {
        guard let number = numbers.removeValue(forKey: socket) else { return }
        members[number] = nil
        early[number] = nil
        await broker.presence.leave(socket: number, isDeliberate: isDeliberate)
    }

    func ponged(_ socket: WebSocketHandle, number: UInt64) async {
        if let member = numbers[socket] { await broker.presence.pong(socket: member, number: number) }
    }

    private func join(_ caller: Caller, _ socket: WebSocketHandle) async throws {
        last += 1
        let number = last
        // Known before the broker answers: an event may come in between, and so may the socket's end.
        numbers[socket] = number
        members[number] = socket
        early[number] = []
        do {
            let joined = try await broker.rooms.join(caller, socket: number) { [weak self] in
                self?.assumeIsolated { $0.members[number] != nil } ?? false
            }
            guard let joined else { return }
            await socket.markJoined()
            await socket.send(
                SocketMessage.message("joined") { json in
                    json.add("expiresAt", timeMs: joined.expires)
                    json.add("peerPresent", joined.peerPresent)
                    json.add("delivery", joined.delivery.rawValue)
                })
            for event in early.removeValue(forKey: number) ?? [] { await tell(number, event) }
        } catch {
            await end(socket, isDeliberate: false)
            throw error
        }
    }

    // MARK: To the socket

    public func tell(_ socket: UInt64, _ event: RoomEvent) async {
        guard let handle = members[socket] else { return }
        guard early[socket]?.append(event) == nil else { return }
        await handle.send(
            SocketMessage.message(event.name) { json in
                if case .peerLeft(let delivery?) = event { json.add("delivery", delivery.rawValue) }
            })
        if event == .roomClosed { await handle.close(.normal) }
    }

    public func ping(_ socket: UInt64, _ number: UInt64) async { await members[socket]?.ping(number) }

    public func close(_ socket: UInt64) async { await members[socket]?.close(.policyViolation) }

    /// What a socket may say.
    private enum Request: Sendable {
        case join(Caller)
        case ping
        case leave

        /// - Returns: nil only after a fault.
        init?(_ body: RequestBody) {
            switch body.text("type", required: true) {
            case "join_room":
                let room = body.room(required: true)
                let client = body.name("client", required: true)
                let member = body.member()
                guard let room, let client else { return nil }
                self = .join(Caller(room: room, client: client, member: member))
            case "ping": self = .ping
            case "leave_room": self = .leave
            case nil: return nil
            default:
                body.note(.outOfRange("type", allowed: "join_room, ping or leave_room"))
                return nil
            }
        }
    }
}
