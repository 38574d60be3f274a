import EventLoop
import HTTP2
import Linux
import Synchronization
import TLS

/// An HTTP/2 server over TLS that does what a script says, on the courier's own loop.
actor ScriptedServer: LoopActor {
    /// A request as it came.
    struct Request: Sendable {
        /// From 1: of the server, and on its connection.
        var number: Int, onConnection: Int
        /// Which connection, from 1.
        var connection: Int
        /// Streams open on it, with this one.
        var openStreams: Int
        var stream: Int32
        var fields: [String: String]
        var body: String
        var atMs: UInt64

        var apnsID: String { fields["apns-id"] ?? "" }
        var token: String { String((fields[":path"] ?? "").dropFirst("/3/device/".count)) }
    }

    enum Act: Sendable {
        case answer(Int, _ body: String = "", _ fields: [String: String] = [:])
        case reset(HTTP2ErrorCode)
        case goAway(lastStream: Int32, HTTP2ErrorCode = .noError, debug: String = "")
        case settings(UInt32)
        /// Sends what there is so far.
        case send
        case hangUp
        /// Reads and writes nothing more.
        case freeze
    }

    typealias Script = @Sendable (Request) -> [Act]

    static let accepting: Script = { _ in [.settings(1000), .answer(200)] }
    static let silent: Script = { _ in [] }

    nonisolated let loop: EventLoop
    nonisolated let address: SocketAddress
    private let listener: Listener

    init(
        on loop: EventLoop, _ identity: SelfSignedCertificate, firstStreams: UInt32 = 1, onePiece: Bool = true,
        greeting: [Act] = [], script: @escaping Script
    ) throws {
        self.loop = loop
        let context = try TLSContext.server(
            certificateChain: identity.certificate, privateKey: identity.privateKey.span, alpn: ["h2"])
        let socket = try Socket.listen(on: .v4(0x7f00_0001, port: 0))
        address = try socket.localAddress()
        listener = Listener(loop, socket, context, firstStreams, onePiece, greeting, script)
    }

    func start() throws { try listener.start() }
    func stop() { listener.stop() }

    nonisolated var port: UInt16 { address.port! }
    var requests: [Request] { listener.requests }
    var connections: Int { listener.accepted }
    var openConnections: Int { listener.peers.count }
}

private final class Listener: EventSource {
    let loop: EventLoop
    let socket: Socket
    let context: TLSContext
    let firstStreams: UInt32
    let onePiece: Bool
    let greeting: [ScriptedServer.Act]
    let script: ScriptedServer.Script
    var requests: [ScriptedServer.Request] = []
    var accepted = 0
    var registration: Registration?
    var peers: [ObjectIdentifier: Peer] = [:]

    init(
        _ loop: EventLoop, _ socket: consuming Socket, _ context: TLSContext, _ firstStreams: UInt32, _ onePiece: Bool,
        _ greeting: [ScriptedServer.Act], _ script: @escaping ScriptedServer.Script
    ) {
        self.loop = loop
        self.socket = socket
        self.context = context
        self.firstStreams = firstStreams
        self.onePiece = onePiece
        self.greeting = greeting
        self.script = script
    }

    func start() throws { registration = try loop.add(socket.raw, .read, self) }

    func stop() {
        if let registration { loop.remove(registration) }
        for peer in peers.values { peer.end() }
    }

    func ready(_ events: Events) {
        while let socket = (try? socket.accept())?.take() {
            accepted += 1
            guard let peer = try? Peer(self, accepted, socket) else { continue }
            peers[ObjectIdentifier(peer)] = peer
        }
    }
}

private final class Peer: EventSource {
    unowned let server: Listener
    let number: Int
    let socket: Socket
    let tls: TLSSession
    let http2: HTTP2Session
    var registration: Registration?
    var incoming = [UInt8](repeating: 0, count: 65536)
    var outgoing: [UInt8] = []
    var pending: [Int32: ScriptedServer.Request] = [:]
    var count = 0
    var frozen = false
    var greeted = false

    init(_ server: Listener, _ number: Int, _ socket: consuming Socket) throws {
        self.server = server
        self.number = number
        self.socket = socket
        tls = try TLSSession(accepting: server.context)
        http2 = try HTTP2Session(.server, limits: HTTP2Limits(bodyBytes: 16384, concurrentStreams: server.firstStreams))
        registration = try server.loop.add(self.socket.raw, .read, self)
    }

    func end() {
        if let registration { server.loop.remove(registration) }
        registration = nil
        socket.finishWriting()
        server.peers[ObjectIdentifier(self)] = nil
    }

    func ready(_ events: Events) {
        guard !frozen else { return }
        var span = incoming.mutableSpan
        guard let count = try? socket.read(into: &span) else { return end() }
        guard count > 0 else { return end() }
        var plaintext: [UInt8] = []
        try? tls.receive(incoming.span.extracting(first: count), into: &plaintext)
        if tls.state == .established, !greeted {
            greeted = true
            for act in server.greeting { perform(act, 0) }
        }
        if !plaintext.isEmpty { try? http2.receive(plaintext.span) }
        for event in http2.takeEvents() { handle(event) }
        flush()
    }

    func handle(_ event: HTTP2Event) {
        switch event {
        case .headers(let stream, let headers):
            let fields = (0..<headers.count).map { headers[$0] }
            self.count += 1
            pending[stream] = ScriptedServer.Request(
                number: 0, onConnection: self.count, connection: number, openStreams: http2.openStreams, stream: stream,
                fields: Dictionary(fields.map { ($0.name, $0.value) }, uniquingKeysWith: { $0 + "," + $1 }), body: "",
                atMs: server.loop.now)
        case .data(let stream, let bytes): pending[stream]?.body += String(decoding: bytes.bytes, as: UTF8.self)
        case .end(let stream):
            guard var request = pending.removeValue(forKey: stream) else { return }
            request.number = server.requests.count + 1
            server.requests.append(request)
            for act in server.script(request) { perform(act, stream) }
        default: break
        }
    }

    func perform(_ act: ScriptedServer.Act, _ stream: Int32) {
        guard !frozen, registration != nil else { return }
        switch act {
        case .answer(let status, let body, let fields):
            var headers: HTTP2Headers = [":status": String(status)]
            for (name, value) in fields { headers.append(name, value) }
            try? http2.submitResponse(stream: stream, headers, body: Array(body.utf8))
        case .reset(let code): try? http2.reset(stream: stream, code)
        case .goAway(let last, let code, let debug):
            try? http2.submitGoAway(lastStream: last, code, debugData: Array(debug.utf8))
        case .settings(let streams): try? http2.submitSettings(concurrentStreams: streams)
        case .send: flush()
        case .hangUp: end()
        case .freeze:
            frozen = true
            if let registration { server.loop.modify(registration, []) }
        }
    }

    func flush() {
        guard !frozen, registration != nil else { return }
        if tls.state == .established {
            var bytes: [UInt8] = []
            try? http2.takeOutbound(into: &bytes)
            if !server.onePiece { bytes = Self.inPieces(bytes) }
            if !bytes.isEmpty { try? tls.send(bytes.span) }
        }
        tls.takeCiphertext(into: &outgoing)
        while !outgoing.isEmpty {
            guard let count = try? socket.write(outgoing.span) else { return end() }
            outgoing.removeFirst(count)
        }
    }

    /// Cuts each DATA frame into frames of one byte.
    static func inPieces(_ bytes: [UInt8]) -> [UInt8] {
        var cut: [UInt8] = []
        var rest = bytes[...]
        while rest.count >= 9 {
            let length = rest.prefix(3).reduce(0) { $0 << 8 | Int($1) }
            let header = Array(rest.prefix(9))
            let payload = Array(rest.dropFirst(9).prefix(length))
            rest = rest.dropFirst(9 + length)
            if header[3] == 0 {
                for (index, byte) in payload.enumerated() {
                    let flags = index == payload.count - 1 ? header[4] : 0
                    cut += [0, 0, 1, 0, flags] + header[5...] + [byte]
                }
            } else {
                cut += header + payload
            }
        }
        return cut
    }
}
