public import Broker
public import EventLoop
import HTTPServer
import JSON
import WebSocket

/// The WebSockets of rooms: their members, the meaning of messages and the form of events.
public actor RoomSocketHandler: LoopActor, RoomSockets {
    public nonisolated let loop: EventLoop
    private let broker: Broker
    /// Sockets that joined a room, by the number that the broker uses for them.
    private var members: [UInt64: WebSocketHandle] = [:]
    private var numbers: [WebSocketHandle: UInt64] = [:]
    /// Events for sockets that haven't got `joined` yet. They are sent after it.
    private var early: [UInt64: [RoomEvent]] = [:]
    private var last: UInt64 = 0

    public init(loop: EventLoop, broker: Broker) {
        self.loop = loop
        self.broker = broker
    }

    // MARK: From the socket

    nonisolated func received(_ message: TextMessage, on socket: WebSocketHandle, charging charges: RequestCharges) async {
        do {
            await handle(.success(try message.fields { Request($0) }), on: socket, charges)
        } catch {
            await handle(.failure(error), on: socket, charges)
        }
    }

    private func handle(
        _ request: Result<Request, InvalidRequest>, on socket: WebSocketHandle, _ charges: RequestCharges
    ) async {
        do {
            switch (try request.get(), numbers[socket]) {
            case (.join(let caller), nil): try await join(caller, socket, charges)
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
        broker.recordRefusal(invalid.errors[0])
        await socket.send(SocketMessage.message("error") { SocketMessage.write(invalid, to: &$0) })
        await socket.close(.policyViolation)
    }

    /// - Parameter code: the code of the peer's close frame. An app that leaves sends 1000 or 1001. Any other code means a broken connection.
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

    private func join(_ caller: Caller, _ socket: WebSocketHandle, _ charges: RequestCharges) async throws {
        last += 1
        let number = last
        // Registered before the broker answers, because an event or the socket's end may come first.
        numbers[socket] = number
        members[number] = socket
        early[number] = []
        do {
            let joined = try await broker.rooms.join(caller, socket: number, charging: charges) { [weak self] in
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
            for event in early.removeValue(forKey: number) ?? [] { await send(number, event) }
        } catch {
            await end(socket, isDeliberate: false)
            throw error
        }
    }

    // MARK: To the socket

    public func send(_ socket: UInt64, _ event: RoomEvent) async {
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

    /// A message from a socket.
    private enum Request: Sendable {
        case join(Caller)
        case ping
        case leave

        /// Returns nil only after noting an error.
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

/// Messages to sockets.
enum SocketMessage {
    static func message(_ type: String, _ more: (inout JSONWriter) -> Void = { _ in }) -> [UInt8] {
        var json = JSONWriter()
        json.add("type", type)
        more(&json)
        return json.finish()
    }

    /// Writes the first error, and `details` with the error of each faulty field.
    static func write(_ invalid: InvalidRequest, to json: inout JSONWriter) {
        let error = invalid.errors[0]
        json.add("code", error.code)
        json.add("error", error.detail)
        if !invalid.details.isEmpty { json.add("details", invalid.details) }
        if let seconds = error.retryAfter { json.add("retryAfterSeconds", seconds) }
    }

    /// - Parameter name: the name of the refused message.
    static func refusal(_ invalid: InvalidRequest, to name: String?) -> [UInt8] {
        message("error") { json in
            if let name { json.add("to", name) }
            write(invalid, to: &json)
        }
    }
}
