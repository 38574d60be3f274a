public import EventLoop
import HTTP1
import Linux
public import TLS
public import WebSocket

/// A small WebSocket client for text messages (RFC 6455). Pings are answered while `receive` waits.
public actor WebSocketClient: LoopActor {
    public nonisolated let loop: EventLoop
    private let tls: TLSContext?
    private let machine = WebSocketMachine(role: .client, maximumBytes: 1 << 20)
    private var stream: ClientStream?

    /// - Parameter tls: the context for wss, with ALPN `http/1.1`.
    public init(loop: EventLoop, tls: TLSContext? = nil) {
        self.loop = loop
        self.tls = tls
    }

    /// Opens the WebSocket. Call it once per client.
    /// - Parameter url: absolute, ws or wss.
    public func connect(_ url: String, headers: [HTTPResponse.Header] = [], timeoutMs: UInt64 = 10_000) async throws(ClientError)
    {
        let (origin, target) = try Origin.parse(url)
        let stream = try await ClientStream.open(origin, tls: tls, loop: loop, deadlineMs: Clock.monotonicMs + timeoutMs)
        do throws(ClientError) {
            try await shakeHands(stream, origin, target, headers)
            self.stream = stream
        } catch {
            stream.close()
            throw error
        }
    }

    private func shakeHands(
        _ stream: ClientStream, _ origin: Origin, _ target: String, _ headers: [HTTPResponse.Header]
    ) async throws(ClientError) {
        let key = WebSocketHandshake.makeKey()
        var request = "GET \(target) HTTP/1.1\r\nHost: \(origin.authority)\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        request += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \(key)\r\n"
        for header in headers { request += "\(header.name): \(header.value)\r\n" }
        try stream.write(Array((request + "\r\n").utf8))
        let parser = ResponseParser()
        while true {
            let bytes = try await stream.read()
            if bytes.isEmpty { throw .closedEarly }
            switch parser.parse(bytes.span) {
            case .incomplete: break
            case .failed(let failure): throw .badAnswer(failure)
            case .complete(let consumed):
                let answer = parser.takeMessage()
                let isAccepted =
                    answer.status == 101 && answer.header("sec-websocket-accept") == WebSocketHandshake.answer(to: key)
                guard isAccepted else { throw .notUpgraded(answer.status) }
                return machine.receive(bytes.span.extracting(droppingFirst: consumed), nowMs: loop.now)
            }
        }
    }

    /// The code of the server's close frame; `abnormal` until one arrives.
    public var closeCode: CloseCode { machine.peerCloseCode }

    /// Sends a text message.
    /// - Throws: `closedEarly` if the WebSocket is not open.
    public func send(_ text: [UInt8]) throws(ClientError) {
        machine.send(text.span)
        try flush()
    }

    /// Returns the next message, or nil once the server has closed.
    /// - Throws: `timedOut` after `timeoutMs`. The connection stays open.
    public func receive(timeoutMs: UInt64 = 10_000) async throws(ClientError) -> [UInt8]? {
        guard let stream else { throw .closedEarly }
        stream.deadlineMs = Clock.monotonicMs + timeoutMs
        while true {
            if let message = machine.nextMessage() { return message.withText { text in text.indices.map { text[$0] } } }
            if machine.isFinished { return nil }
            let bytes = try await stream.read()
            if bytes.isEmpty { return nil }
            machine.receive(bytes.span, nowMs: loop.now)
            try flush()
        }
    }

    /// Closes and waits at most `timeoutMs` for the server to close.
    public func close(_ code: CloseCode = .normal, timeoutMs: UInt64 = 2_000) async {
        machine.close(code)
        try? flush()
        while !machine.isFinished, let message = try? await receive(timeoutMs: timeoutMs) { _ = message }
        stream?.close()
        stream = nil
    }

    private func flush() throws(ClientError) {
        var bytes: [UInt8] = []
        machine.takeOutput(into: &bytes)
        guard let stream else { throw .closedEarly }
        if !bytes.isEmpty { try stream.write(bytes) }
    }
}
