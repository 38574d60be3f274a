import EventLoop
import Linux
import TLS

@testable import Courier

/// An HTTP proxy on a loop of its own. It answers CONNECT as told, and connects each tunnel to loopback at the port that the request names.
actor ScriptedProxy: LoopActor {
    enum Manner: Sendable {
        /// Answers with this text, then opens the tunnel.
        case opens(String)
        /// The same one byte at a time.
        case opensSlowly(String)
        /// Answers with this text, and nothing more.
        case says(String)
        /// Reads the request, and ends the connection.
        case hangsUp
        /// Reads the request, and says nothing.
        case mute
    }

    static let opening = Manner.opens("HTTP/1.1 200 Connection established\r\n\r\n")

    nonisolated let loop: EventLoop
    nonisolated let port: UInt16
    private let listener: ProxyListener

    private init(_ loop: EventLoop, _ manner: Manner) throws {
        self.loop = loop
        let socket = try Socket.listen(on: .v4(0x7f00_0001, port: 0))
        port = try socket.localAddress().port!
        listener = ProxyListener(loop, socket, manner)
    }

    static func play(_ manner: Manner, _ body: (ScriptedProxy) async throws -> Void) async throws {
        let loop = try EventLoop(name: "proxy")
        try loop.start()
        let proxy = try ScriptedProxy(loop, manner)
        try await proxy.start()
        try await body(proxy)
        await proxy.stop()
        loop.stop()
    }

    private func start() throws { try listener.start() }
    private func stop() { listener.stop() }

    nonisolated var endpoint: Endpoint { Endpoint(host: "127.0.0.1", port: port) }
    /// The heads of all requests.
    var requests: [String] { listener.requests }
}

private final class ProxyListener: EventSource {
    let loop: EventLoop
    let socket: Socket
    let manner: ScriptedProxy.Manner
    var requests: [String] = []
    var pipes: [Pipe] = []
    private var registration: Registration?

    init(_ loop: EventLoop, _ socket: consuming Socket, _ manner: ScriptedProxy.Manner) {
        self.loop = loop
        self.socket = socket
        self.manner = manner
    }

    func start() throws { registration = try loop.add(socket.raw, .read, self) }

    func stop() {
        if let registration { loop.remove(registration) }
        for pipe in pipes { pipe.end() }
        pipes = []
    }

    func ready(_ events: Events) {
        while let socket = (try? socket.accept())?.take() {
            guard let pipe = try? Pipe(self, socket) else { continue }
            pipes.append(pipe)
        }
    }

    /// - Returns: the other end of the tunnel, or nil if there is none.
    func answer(_ head: String, to pipe: Pipe) -> Pipe? {
        requests.append(head)
        switch manner {
        case .opens(let text):
            pipe.write(Array(text.utf8))
            return connect(head, pipe)
        case .opensSlowly(let text):
            let bytes = Array(text.utf8)
            for (index, byte) in bytes.enumerated() { loop.after(UInt64(index)) { pipe.write([byte]) } }
            return connect(head, pipe)
        case .says(let text): pipe.write(Array(text.utf8))
        case .hangsUp: pipe.end()
        case .mute: break
        }
        return nil
    }

    private func connect(_ head: String, _ pipe: Pipe) -> Pipe? {
        guard let authority = head.split(separator: " ").dropFirst().first,
            let port = UInt16(authority.split(separator: ":").last ?? ""),
            let socket = try? Socket.connect(to: .v4(0x7f00_0001, port: port)), let other = try? Pipe(self, socket)
        else { return nil }
        other.other = pipe
        pipes.append(other)
        return other
    }
}

/// One end of a tunnel.
private final class Pipe: EventSource {
    unowned let proxy: ProxyListener
    let socket: Socket
    var other: Pipe?
    private var registration: Registration?
    private var head: [UInt8] = []
    private var unsent: [UInt8] = []
    private var buffer = [UInt8](repeating: 0, count: 65_536)

    init(_ proxy: ProxyListener, _ socket: consuming Socket) throws {
        self.proxy = proxy
        self.socket = socket
        registration = try proxy.loop.add(self.socket.raw, [.read, .write, .onChange], self)
    }

    func ready(_ events: Events) {
        write([])
        while registration != nil {
            var span = buffer.mutableSpan
            guard let count = try? socket.read(into: &span) else { return }
            guard count > 0 else {
                other?.end()
                return end()
            }
            let bytes = Array(buffer[..<count])
            if let other {
                other.write(bytes)
            } else {
                head += bytes
                guard head.suffix(4).elementsEqual("\r\n\r\n".utf8) else { continue }
                other = proxy.answer(String(decoding: head, as: UTF8.self), to: self)
            }
        }
    }

    func write(_ bytes: [UInt8]) {
        unsent += bytes
        while registration != nil, !unsent.isEmpty, let count = try? socket.write(unsent.span) { unsent.removeFirst(count) }
    }

    func end() {
        if let registration { proxy.loop.remove(registration) }
        registration = nil
        socket.finishWriting()
        other = nil
    }
}
