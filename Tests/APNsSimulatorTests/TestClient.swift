import APNsSimulator
import EventLoop
import HTTP2
import Linux
import TLS

struct TestResponse: Sendable, Equatable {
    var status = 0
    var headers: [String: String] = [:]
    var body = ""
}

enum TestFailure: Error, Equatable {
    case stream(HTTP2ErrorCode)
    case connectionClosed
}

/// An HTTP/2 connection to the simulator that records what it receives.
actor TestClient: LoopActor {
    nonisolated let loop: EventLoop
    private let connection: ClientConnection

    init(
        to address: SocketAddress, certificate: [UInt8], alpn: [String] = ["h2"], identity: ClientCertificate? = nil,
        loop: EventLoop
    ) throws {
        self.loop = loop
        connection = try ClientConnection(to: address, certificate: certificate, alpn: alpn, identity: identity, loop: loop)
    }

    func open() throws { try connection.open() }

    /// Queues requests before connecting.
    func openSending(_ count: Int, _ headers: HTTP2Headers, _ body: String) async -> [Result<TestResponse, any Error>] {
        let requests = (0..<count).map { _ in Task { try await send(headers, body) } }
        // The loop runs its jobs in order.
        let opening = Task { try open() }
        _ = await opening.result
        var results: [Result<TestResponse, any Error>] = []
        for request in requests { results.append(await request.result) }
        return results
    }

    /// Sends one request and waits for its answer.
    func send(_ headers: HTTP2Headers, _ body: String) async throws -> TestResponse {
        try await send(headers, Array(body.utf8))
    }

    func send(_ headers: HTTP2Headers, _ body: [UInt8]) async throws -> TestResponse {
        try await withCheckedThrowingContinuation { connection.send(headers, body, $0) }
    }

    /// The server's limit of open streams.
    var streamsAllowed: Int { connection.http.remoteConcurrentStreams }
    var openStreams: Int { connection.http.openStreams }
    var negotiated: String? { connection.tls.negotiatedProtocol }
    var goAways: [String] { connection.goAways }
    /// The size of each received DATA frame.
    var pieces: [Int] { connection.pieces }
    /// All received frames.
    var frames: [(kind: UInt8, flags: UInt8, stream: Int32, payload: [UInt8])] { connection.frames }

    /// Sends frames past nghttp2.
    func sendBytes(_ bytes: [UInt8]) throws { try connection.sendBytes(bytes) }

    /// Returns a HEADERS frame of literals with END_HEADERS.
    static func head(_ headers: HTTP2Headers, stream: UInt8) -> [UInt8] {
        var block: [UInt8] = []
        for index in 0..<headers.count {
            block.append(0)
            for text in [headers[index].name, headers[index].value] {
                // RFC 7541, 5.1, up to 254 bytes.
                block += text.utf8.count < 127 ? [UInt8(text.utf8.count)] : [127] + varint(text.utf8.count - 127)
                block += Array(text.utf8)
            }
        }
        return [0, UInt8(block.count >> 8), UInt8(block.count & 255), 1, 4, 0, 0, 0, stream] + block
    }

    private static func varint(_ value: Int) -> [UInt8] {
        value < 128 ? [UInt8(value)] : [UInt8(value & 127 | 128), UInt8(value >> 7)]
    }

    /// Sends the headers of a request without its body, and waits for the answer.
    func sendHead(_ headers: HTTP2Headers) async throws -> TestResponse {
        try await withCheckedThrowingContinuation { connection.sendHead(headers, $0) }
    }

    func untilClosed() async {
        await withCheckedContinuation { connection.onClose($0) }
    }
}

private final class ClientConnection: EventSource {
    let tls: TLSSession
    let http: HTTP2Session
    var goAways: [String] = []
    var pieces: [Int] = []
    private var received: [UInt8] = []
    private let socket: Socket
    private let loop: EventLoop
    private var registration: Registration?
    private var waiting: [Int32: CheckedContinuation<TestResponse, any Error>] = [:]
    private var responses: [Int32: TestResponse] = [:]
    private var closeWaiters: [CheckedContinuation<Void, Never>] = []
    private var isClosed = false

    init(to address: SocketAddress, certificate: [UInt8], alpn: [String], identity: ClientCertificate?, loop: EventLoop) throws {
        socket = try Socket.connect(to: address)
        tls = try TLSSession(
            connecting: TLSContext.client(trust: .authorities(certificate), alpn: alpn, certificate: identity), to: "127.0.0.1")
        http = try HTTP2Session(.client, limits: HTTP2Limits(bodyBytes: 1 << 16))
        self.loop = loop
    }

    func open() throws {
        registration = try loop.add(socket.raw, [.read, .write], self)
    }

    func send(_ headers: HTTP2Headers, _ body: [UInt8], _ continuation: CheckedContinuation<TestResponse, any Error>) {
        do {
            guard !isClosed else { throw TestFailure.connectionClosed }
            let stream = try http.submitRequest(headers, body: body)
            waiting[stream] = continuation
            try flush()
        } catch {
            continuation.resume(throwing: error)
        }
    }

    var frames: [(kind: UInt8, flags: UInt8, stream: Int32, payload: [UInt8])] {
        var found: [(kind: UInt8, flags: UInt8, stream: Int32, payload: [UInt8])] = []
        var rest = received[...]
        while rest.count >= 9 {
            let head = Array(rest.prefix(9))
            let length = head[..<3].reduce(0) { $0 << 8 | Int($1) }
            let payload = rest.dropFirst(9).prefix(length)
            found.append((head[3], head[4], head[5...].reduce(0) { $0 << 8 | Int32($1) }, Array(payload)))
            rest = rest.dropFirst(9 + length)
        }
        return found
    }

    func sendBytes(_ bytes: [UInt8]) throws {
        try tls.send(bytes.span)
        try flush()
    }

    func sendHead(_ headers: HTTP2Headers, _ continuation: CheckedContinuation<TestResponse, any Error>) {
        do {
            let stream = try http.submitRequest(headers, body: [0])
            waiting[stream] = continuation
            var outbound: [UInt8] = []
            try http.takeOutbound(into: &outbound)
            // Leaves out the DATA frame, which has one byte.
            try tls.send(outbound.span.extracting(0..<outbound.count - 10))
            try flush()
        } catch {
            continuation.resume(throwing: error)
        }
    }

    func onClose(_ continuation: CheckedContinuation<Void, Never>) {
        if isClosed { continuation.resume() } else { closeWaiters.append(continuation) }
    }

    func ready(_ events: Events) {
        do {
            if !events.isDisjoint(with: [.read, .hangup, .failure]) { try receive() }
            if !isClosed { try flush() }
            // Sending a reset closes its stream.
            for event in http.takeEvents() { handle(event) }
        } catch {
            close()
        }
    }

    private func receive() throws {
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        var room = buffer.mutableSpan
        guard let count = try socket.read(into: &room) else { return }
        guard count > 0 else { return close() }
        var plaintext: [UInt8] = []
        try tls.receive(buffer.span.extracting(0..<count), into: &plaintext)
        received += plaintext
        try http.receive(plaintext.span)
        for event in http.takeEvents() { handle(event) }
    }

    private func handle(_ event: HTTP2Event) {
        switch event {
        case .headers(let stream, let head):
            var response = TestResponse(status: head.status ?? 0)
            for index in 0..<head.count where head[index].name != ":status" {
                response.headers[head[index].name] = head[index].value
            }
            responses[stream] = response
        case .data(let stream, let bytes):
            pieces.append(bytes.count)
            responses[stream]?.body += String(decoding: bytes.bytes, as: UTF8.self)
        case .end(let stream):
            if let response = responses.removeValue(forKey: stream) {
                waiting.removeValue(forKey: stream)?.resume(returning: response)
            }
        case .closed(let stream, let code): waiting.removeValue(forKey: stream)?.resume(throwing: TestFailure.stream(code))
        case .goAway(let last, _, let debug): goAways.append("\(last) \(String(decoding: debug, as: UTF8.self))")
        case .settings, .tooLarge, .pingAcknowledged: break
        }
    }

    private func flush() throws {
        var outbound: [UInt8] = []
        if tls.state == .established {
            try http.takeOutbound(into: &outbound)
            if !outbound.isEmpty { try tls.send(outbound.span) }
        }
        var ciphertext: [UInt8] = []
        tls.takeCiphertext(into: &ciphertext)
        var sent = 0
        // Tests send small requests, so this loop ends soon.
        while sent < ciphertext.count {
            sent += try socket.write(ciphertext.span.extracting(sent..<ciphertext.count)) ?? 0
        }
        if let registration { loop.modify(registration, .read) }
    }

    private func close() {
        guard !isClosed else { return }
        isClosed = true
        if let registration { loop.remove(registration) }
        for continuation in waiting.values { continuation.resume(throwing: TestFailure.connectionClosed) }
        waiting = [:]
        for waiter in closeWaiters { waiter.resume() }
        closeWaiters = []
    }
}
