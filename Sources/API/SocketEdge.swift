public import Broker
public import EventLoop
import HTTPServer
import Linux
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
            await handle(.success(try message.withText { bytes throws(BrokerError) in try Request(bytes) }), on: socket)
        } catch {
            await handle(.failure(error), on: socket)
        }
    }

    private func handle(_ request: Result<Request, BrokerError>, on socket: WebSocketHandle) async {
        do {
            switch (try request.get(), numbers[socket]) {
            case (.join(let caller), nil): try await join(caller, socket)
            case (.ping, _?): await socket.send(Self.message("pong"))
            case (.leave, _?): await socket.close(.normal)
            default: throw BrokerError.wrongType("type", expected: "join_room first, once; then ping or leave_room")
            }
        } catch let error as BrokerError {
            await broker.noteRefusal(error)
            await socket.send(Self.refusal(error))
            await socket.close(.policyViolation)
        } catch {
            await socket.close(.internalError)
        }
    }

    func closed(_ socket: WebSocketHandle) async {
        guard let number = numbers.removeValue(forKey: socket) else { return }
        members[number] = nil
        early[number] = nil
        await broker.leave(socket: number)
    }

    private func join(_ caller: Caller, _ socket: WebSocketHandle) async throws {
        last += 1
        let number = last
        // Known before the broker answers: an event may come in between, and so may the socket's end.
        numbers[socket] = number
        members[number] = socket
        early[number] = []
        do {
            let joined = try await broker.join(caller, socket: number) { [weak self] in
                self?.assumeIsolated { $0.members[number] != nil } ?? false
            }
            guard let joined else { return }
            await socket.send(
                Self.message("joined") { json in
                    json.add("expiresAt", timeMs: joined.expires)
                    json.add("peerPresent", joined.peerPresent)
                    json.add("delivery", joined.delivery.rawValue)
                })
            for event in early.removeValue(forKey: number) ?? [] { await tell(number, event) }
        } catch {
            numbers[socket] = nil
            members[number] = nil
            early[number] = nil
            await broker.leave(socket: number)
            throw error
        }
    }

    // MARK: To the socket

    public func tell(_ socket: UInt64, _ event: RoomEvent) async {
        guard let handle = members[socket] else { return }
        guard early[socket]?.append(event) == nil else { return }
        await handle.send(Self.message(event.rawValue))
        if event == .roomClosed { await handle.close(.normal) }
    }

    private static func message(_ type: String, _ more: (inout JSONWriter) -> Void = { _ in }) -> [UInt8] {
        var json = JSONWriter()
        json.add("type", type)
        more(&json)
        return json.finish()
    }

    private static func refusal(_ error: BrokerError) -> [UInt8] {
        message("error") { json in
            json.add("code", error.code)
            json.add("error", error.detail)
        }
    }

    /// What a socket may say.
    private enum Request: Sendable {
        case join(Caller)
        case ping
        case leave

        init(_ bytes: Span<UInt8>) throws(BrokerError) {
            let body = try RequestBody(bytes)
            switch try body.text("type", bytes) {
            case "join_room":
                guard let room = try body.room(bytes) else { throw .missingField("roomid") }
                self = .join(
                    Caller(room: room, client: try body.client("client", bytes), member: try body.member(bytes)))
            case "ping": self = .ping
            case "leave_room": self = .leave
            case nil: throw .missingField("type")
            default: throw .outOfRange("type", allowed: "join_room, ping or leave_room")
            }
        }
    }
}
