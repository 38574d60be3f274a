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

    indirect enum Act: Sendable {
        case answer(Int, _ body: String = "", _ fields: [String: String] = [:])
        /// Answers an earlier request.
        case answerTo(Int32, Int)
        case reset(HTTP2ErrorCode)
        case goAway(lastStream: Int32, HTTP2ErrorCode = .noError, debug: String = "")
        case settings(UInt32)
        /// Sends what there is so far.
        case send
        case hangUp
        /// Ends with a reset.
        case abort
        /// Reads and writes nothing more.
        case freeze
        /// These a little later.
        case after(_ ms: UInt64, [Act])
        /// Bytes of no session's making, inside TLS.
        case raw([UInt8])
    }

    /// What it is.
    enum Manner: Sendable {
        case http2
        /// Takes a connection and says nothing.
        case mute
        /// The same of the first connection only.
        case muteAtFirst
        /// Ends the connection at its first bytes.
        case hangsUp
        /// Says this before any TLS.
        case speaks([UInt8])
        /// Says this inside TLS, without a protocol agreed upon.
        case speaksInTLS([UInt8])
        /// Agrees on another protocol than HTTP/2 only.
        case alpn(String)
        /// HTTP/2 that lets requests in without their bodies: streams' windows are shut.
        case shutWindows
        /// HTTP/2 without ALPN.
        case withoutALPN
        /// HTTP/2 for who shows a certificate of these authorities.
        case clientAuthorities([UInt8])
    }

    typealias Script = @Sendable (Request) -> [Act]

    static let accepting: Script = { _ in [.settings(1000), .answer(200)] }
    static let silent: Script = { _ in [] }

    nonisolated let loop: EventLoop
    nonisolated let address: SocketAddress
    private let listener: Listener

    init(
        on loop: EventLoop, _ identity: SelfSignedCertificate, firstStreams: UInt32 = 1, onePiece: Bool = true,
        greeting: [Act] = [], manner: Manner = .http2, at listenAddress: SocketAddress = .v4(0x7f00_0001, port: 0),
        script: @escaping Script
    ) throws {
        self.loop = loop
        var protocols = ["h2"]
        var authorities: [UInt8]?
        switch manner {
        case .alpn(let name): protocols = [name]
        case .speaksInTLS, .withoutALPN: protocols = []
        case .clientAuthorities(let pem): authorities = pem
        default: break
        }
        let context = try TLSContext.server(
            certificateChain: identity.certificate, privateKey: identity.privateKey.span, alpn: protocols,
            clientAuthorities: authorities)
        let socket = try Socket.listen(on: listenAddress)
        address = try socket.localAddress()
        listener = Listener(loop, socket, context, firstStreams, onePiece, greeting, manner, script)
    }

    func start() throws { try listener.start() }
    func stop() { listener.stop() }

    nonisolated var port: UInt16 { address.port! }
    var requests: [Request] { listener.requests }
    var connections: Int { listener.accepted }
    /// Packets to it are lost from now on, as if nobody were there.
    func vanish() { listener.socket.rejectNewConnections() }
    var connectedAt: [UInt64] { listener.connectedAt }
    var openConnections: Int { listener.peers.count }
    /// The connections that are open read and write nothing more.
    func freezeAll() { for peer in listener.peers.values { peer.perform(.freeze, 0) } }
    /// Frozen connections read and write again.
    func thawAll() { for peer in listener.peers.values { peer.thaw() } }
}

private final class Listener: EventSource {
    let loop: EventLoop
    let socket: Socket
    let context: TLSContext
    let firstStreams: UInt32
    let onePiece: Bool
    let greeting: [ScriptedServer.Act]
    let manner: ScriptedServer.Manner
    let script: ScriptedServer.Script
    var requests: [ScriptedServer.Request] = []
    var accepted = 0
    var connectedAt: [UInt64] = []
    var registration: Registration?
    var peers: [ObjectIdentifier: Peer] = [:]

    init(
        _ loop: EventLoop, _ socket: consuming Socket, _ context: TLSContext, _ firstStreams: UInt32, _ onePiece: Bool,
        _ greeting: [ScriptedServer.Act], _ manner: ScriptedServer.Manner, _ script: @escaping ScriptedServer.Script
    ) {
        self.loop = loop
        self.socket = socket
        self.context = context
        self.firstStreams = firstStreams
        self.onePiece = onePiece
        self.greeting = greeting
        self.manner = manner
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
            connectedAt.append(loop.now)
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
    var hasSpoken = false

    init(_ server: Listener, _ number: Int, _ socket: consuming Socket) throws {
        self.server = server
        self.number = number
        self.socket = socket
        tls = try TLSSession(accepting: server.context)
        http2 = try HTTP2Session(.server, limits: HTTP2Limits(bodyBytes: 16384, concurrentStreams: server.firstStreams))
        registration = try server.loop.add(self.socket.raw, .read, self)
        if case .speaks(let bytes) = server.manner { _ = try? self.socket.write(bytes.span) }
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
        switch server.manner {
        case .mute, .speaks: return
        case .muteAtFirst where number == 1: return
        case .hangsUp: return end()
        default: break
        }
        var plaintext: [UInt8] = []
        try? tls.receive(incoming.span.extracting(first: count), into: &plaintext)
        if tls.state == .established, !greeted {
            greeted = true
            if case .speaksInTLS(let bytes) = server.manner { perform(.raw(bytes), 0) }
            for act in server.greeting { perform(act, 0) }
        }
        if !plaintext.isEmpty { try? http2.receive(plaintext.span) }
        // What came with the request at which it ended was not taken.
        for event in http2.takeEvents() where registration != nil { handle(event) }
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
        guard registration != nil else { return }
        switch act {
        case .answer(let status, let body, let fields):
            var headers: HTTP2Headers = [":status": String(status)]
            for (name, value) in fields { headers.append(name, value) }
            try? http2.submitResponse(stream: stream, headers, body: Array(body.utf8))
        case .answerTo(let stream, let status): perform(.answer(status), stream)
        case .reset(let code): try? http2.reset(stream: stream, code)
        case .goAway(let last, let code, let debug):
            try? http2.submitGoAway(lastStream: last, code, debugData: Array(debug.utf8))
        case .settings(let streams): try? http2.submitSettings(concurrentStreams: streams)
        case .send: flush()
        case .hangUp: end()
        case .abort:
            socket.resetOnClose()
            end()
        case .after(let ms, let acts):
            server.loop.after(ms) { [weak self] in
                for act in acts { self?.perform(act, stream) }
                self?.flush()
            }
        case .raw(let bytes):
            flush()
            try? tls.send(bytes.span)
        case .freeze:
            frozen = true
            if let registration { server.loop.modify(registration, []) }
        }
    }

    func thaw() {
        frozen = false
        if let registration { server.loop.modify(registration, .read) }
        flush()
    }

    func flush() {
        guard !frozen, registration != nil else { return }
        if tls.state == .established, speaksHTTP2 {
            var bytes: [UInt8] = []
            try? http2.takeOutbound(into: &bytes)
            if case .shutWindows = server.manner, !hasSpoken { bytes = Self.shuttingWindows(bytes) }
            hasSpoken = hasSpoken || !bytes.isEmpty
            if !server.onePiece { bytes = Self.inPieces(bytes) }
            if !bytes.isEmpty { try? tls.send(bytes.span) }
        }
        tls.takeCiphertext(into: &outgoing)
        while !outgoing.isEmpty {
            guard let count = try? socket.write(outgoing.span) else { return end() }
            outgoing.removeFirst(count)
        }
    }

    var speaksHTTP2: Bool { if case .speaksInTLS = server.manner { false } else { true } }

    /// The session's first frame, its settings, with an initial window of 0.
    static func shuttingWindows(_ bytes: [UInt8]) -> [UInt8] {
        var bytes = bytes
        for start in stride(from: 9, to: 9 + Int(bytes[2]), by: 6) where bytes[start + 1] == 4 {
            for index in start + 2..<start + 6 { bytes[index] = 0 }
        }
        return bytes
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
