public import Broker
public import EventLoop
import HTTPServer
import JSON
import WebSocket

/// The meaning of messages from the WebSockets of rooms.
public actor RoomSocketHandler: LoopActor {
    public nonisolated let loop: EventLoop
    private let broker: Broker
    private let table: RoomSocketTable
    /// The numbers in the table of sockets that joined a room.
    private var numbers: [WebSocketHandle: UInt64] = [:]

    /// - Parameter table: the one that the broker sends to.
    public init(broker: Broker, table: RoomSocketTable) {
        loop = broker.loop
        self.broker = broker
        self.table = table
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
        table.remove(number)
        await broker.presence.leave(socket: number, isDeliberate: isDeliberate)
    }

    func ponged(_ socket: WebSocketHandle, number: UInt64) async {
        if let member = numbers[socket] { await broker.presence.pong(socket: member, number: number) }
    }

    private func join(_ caller: Caller, _ socket: WebSocketHandle, _ charges: RequestCharges) async throws {
        // Registered before the broker answers, because an event or the socket's end may come first.
        let number = table.add(socket)
        numbers[socket] = number
        do {
            let joined = try await broker.rooms.join(caller, socket: number, charging: charges) { [table] in table.has(number) }
            guard let joined else { return }
            await socket.markJoined()
            await socket.send(
                SocketMessage.message("joined") { json in
                    json.add("expiresAt", timeMs: joined.expires)
                    json.add("peerPresent", joined.peerPresent)
                    json.add("delivery", joined.delivery.rawValue)
                })
            await table.sendEarly(number)
        } catch {
            await end(socket, isDeliberate: false)
            throw error
        }
    }

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
