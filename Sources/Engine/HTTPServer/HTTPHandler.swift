import EventLoop
import HTTP1
import Shares
public import WebSocket

/// The application behind a server. All calls arrive on the server's loop, those of one WebSocket one after the other.
public protocol HTTPHandler: Sendable {
    /// Answers a request. Requests of different connections run concurrently, those of one HTTP/1.1 connection in order.
    func respond(to request: HTTPRequest) async -> HTTPResponse

    /// Whether to accept a WebSocket request. Otherwise `respond` answers it.
    func shouldUpgrade(_ request: HTTPRequest) -> Bool

    /// A WebSocket was opened. The request's bytes are zeroed after this call.
    func opened(_ socket: WebSocketHandle, request: HTTPRequest) async

    /// A message arrived. The next one is delivered after this call returns, and this message is zeroed then.
    func received(_ message: TextMessage, on socket: WebSocketHandle) async

    /// The peer answered the ping with this number for the first time.
    func ponged(_ socket: WebSocketHandle, number: UInt64) async

    /// The WebSocket was closed for any reason. No more calls follow.
    /// - Parameter code: the code of the peer's close frame; `abnormal` without one.
    func closed(_ socket: WebSocketHandle, code: CloseCode) async
}

/// A handler without WebSockets only implements `respond`.
extension HTTPHandler {
    public func shouldUpgrade(_ request: HTTPRequest) -> Bool { false }
    public func opened(_ socket: WebSocketHandle, request: HTTPRequest) async {}
    public func received(_ message: TextMessage, on socket: WebSocketHandle) async {}
    public func ponged(_ socket: WebSocketHandle, number: UInt64) async {}
    public func closed(_ socket: WebSocketHandle, code: CloseCode) async {}
}

/// Identifies a WebSocket of a server. Calls have no effect once it is closed.
public struct WebSocketHandle: Sendable, Hashable {
    let id: ConnectionID
    let server: HTTPServer

    /// Queues a text message.
    /// - Returns: false if the message was dropped: the socket is closed or closing, or the peer reads too slowly.
    @discardableResult public func send(_ text: [UInt8]) async -> Bool { await server.send(text, to: id) }

    /// Call it once the peer has authenticated. The socket no longer counts as unjoined.
    /// - Parameter maximumBytes: a higher limit for its messages. Those in memory are then charged as `streamBytes`.
    public func markJoined(maximumBytes: Int? = nil) async { await server.markJoined(id, maximumBytes) }

    /// Pings the peer in addition to the server's periodic pings. `HTTPHandler.ponged` reports the answer.
    public func ping(_ number: UInt64) async { await server.ping(id, number: number) }

    /// Starts the closing handshake. Undelivered messages are dropped.
    public func close(_ code: CloseCode) async { await server.close(id, code) }

    public static func == (a: WebSocketHandle, b: WebSocketHandle) -> Bool { a.id == b.id && a.server === b.server }
    public func hash(into hasher: inout Hasher) { hasher.combine(id) }
}

/// A call of the handler. A task can't capture a request, which isn't `Sendable`, so the call waits in the server.
enum HandlerCall {
    case respond(HTTP1Exchange)
    case respondOnStream(HTTP2Stream, ConnectionID)
    case open(WebSocketConnection, HTTP1Exchange)
    case deliver(WebSocketConnection)
}

extension HTTPServer {
    /// More calls in one turn than these leave no memory reserved for the next.
    private static let callsKept = 1_024

    /// Calls the handler in a task, in this turn of the loop.
    func callHandler(_ call: HandlerCall) {
        calls.append(call)
        createCaller()
    }

    /// Creates a task for the next calls, unless one has not run yet. A task per call would cost more than many calls do.
    private func createCaller() {
        guard !isCallerCreated else { return }
        isCallerCreated = true
        // With the loop as preference, continuations of the handler resume on it directly. Otherwise they take a detour through the global pool.
        Task(executorPreference: loop) { await self.makeCalls() }
    }

    private func makeCalls() async {
        isCallerCreated = false
        while let call = takeCall() {
            // This call may have to wait for something, and the others must not wait for it.
            if firstCall < calls.count { createCaller() }
            switch call {
            case .respond(let exchange): await respond(to: exchange)
            case .respondOnStream(let stream, let id): await respond(to: stream, id)
            case .open(let webSocket, let exchange): await webSocket.open(exchange, on: self)
            case .deliver(let webSocket): await webSocket.deliver(on: self)
            }
        }
    }

    private func takeCall() -> HandlerCall? {
        guard firstCall < calls.count else { return nil }
        let call = calls[firstCall]
        firstCall += 1
        if firstCall == calls.count {
            calls.removeAll(keepingCapacity: firstCall <= Self.callsKept)
            firstCall = 0
        }
        return call
    }

    private func respond(to exchange: HTTP1Exchange) async {
        guard let request = exchange.request.take() else { return }
        let longBody = exchange.longBody.take()
        var response = await handler.respond(to: request)
        request.message.wipe()
        if let longBody { configuration.shares.refund(longBody) }
        answer(exchange.id, &response)
    }

    private func respond(to stream: HTTP2Stream, _ id: ConnectionID) async {
        guard let request = stream.request.take() else { return }
        var response = await handler.respond(to: request)
        request.message.wipe()
        answer(id, stream, &response)
    }
}
