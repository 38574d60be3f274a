public import Broker
import HTTPServer
import JSON
import Synchronization
import WebSocket

/// The WebSockets that join rooms, by the numbers that the broker uses for them. The broker sends to them, `RoomSocketHandler` adds and removes them.
public final class RoomSocketTable: RoomSockets {
    private struct State {
        var members: [UInt64: WebSocketHandle] = [:]
        /// Events for sockets that haven't got `joined` yet. They are sent after it.
        var early: [UInt64: [RoomEvent]] = [:]
        var last: UInt64 = 0
    }

    private let state = Mutex(State())

    public init() {}

    /// Returns the socket's number.
    func add(_ socket: WebSocketHandle) -> UInt64 {
        state.withLock { state in
            state.last += 1
            state.members[state.last] = socket
            state.early[state.last] = []
            return state.last
        }
    }

    func remove(_ number: UInt64) {
        state.withLock { ($0.members[number], $0.early[number]) = (nil, nil) }
    }

    func has(_ number: UInt64) -> Bool { state.withLock { $0.members[number] != nil } }

    /// Sends the events that came before `joined`.
    func sendEarly(_ number: UInt64) async {
        for event in state.withLock({ $0.early.removeValue(forKey: number) }) ?? [] { await send(number, event) }
    }

    // MARK: From the broker

    public func send(_ socket: UInt64, _ event: RoomEvent) async {
        let handle = state.withLock { $0.early[socket]?.append(event) == nil ? $0.members[socket] : nil }
        guard let handle else { return }
        await handle.send(
            SocketMessage.message(event.name) { json in
                if case .peerLeft(let delivery?) = event { json.add("delivery", delivery.rawValue) }
            })
        if event == .roomClosed { await handle.close(.normal) }
    }

    public func ping(_ socket: UInt64, _ number: UInt64) async { await handle(of: socket)?.ping(number) }

    public func close(_ socket: UInt64) async { await handle(of: socket)?.close(.policyViolation) }

    private func handle(of socket: UInt64) -> WebSocketHandle? { state.withLock { $0.members[socket] } }
}
