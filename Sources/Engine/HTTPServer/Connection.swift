import EventLoop
import HTTP1
import Linux
import Shares
import TLS

/// Identifies a connection of a server. The generation distinguishes connections in the same slot.
struct ConnectionID: Sendable, Hashable {
    let slot: Int32
    let generation: UInt32
}

/// An accepted connection: its socket, its TLS, and the bytes between them and the protocol.
///
/// A task must hold the id instead of the connection, because the socket closes on deinit.
final class Connection: EventSource {
    enum Stage {
        /// The protocol decides what is read and written.
        case open
        /// Pending output is sent, then the connection closes.
        case finishing
        /// All output was sent. Input is discarded until the peer closes, so that it can read the last response.
        case lingering
        case closed
    }

    enum Role {
        /// The connection has closed.
        case none
        /// Also during a TLS handshake.
        case http1(HTTP1Connection)
        case http2(HTTP2Connection)
        case webSocket(WebSocketConnection)
    }

    /// Consecutive reads of one connection before the others get their turn.
    private static let readsATurn = 8
    private static let discardLimit = 262_144

    let id: ConnectionID
    let remote: SocketAddress
    let socket: Socket
    let tls: TLSSession?
    private let ready: ReadyList
    var registration: Registration?
    private(set) var role = Role.none
    private(set) var stage = Stage.open

    /// Unparsed bytes, from `inputOffset` on.
    private var input: [UInt8] = []
    private var inputOffset = 0
    /// Plaintext of this turn, and the bytes (ciphertext, with TLS) that the socket has not accepted, from `wireOffset` on.
    private(set) var output: [UInt8] = []
    var wire: [UInt8] = []
    var wireOffset = 0

    /// Edge-triggered: true until a read returns nothing.
    private(set) var isReadable = false
    /// The peer has closed its direction; the end of the stream may be unread.
    private var isPeerFinished = false
    private(set) var hasEnded = false
    /// The socket accepts no more bytes for now.
    var isBlocked = false
    /// The connection's owners and charge. Without a charge it stays open only until it was refused.
    let owners: Owners
    var charge: Charge?
    /// The charge for the TLS handshake, until it has succeeded. A connection whose handshake has failed keeps it until it is closed.
    var handshake: Charge?
    let overflow: Refusal?
    /// The charge for HTTP/1.1 responses that the peer has not read.
    var blockedBytes: Charge?
    /// This connection's turn to read the next flight of its TLS handshake.
    enum HandshakeTurn { case none, awaited, granted }
    var handshakeTurn = HandshakeTurn.none
    /// Output waits for the end of the turn.
    var isDirty = false
    /// Whether there was traffic since the last check of OpenSSL's buffers, and whether checks are scheduled.
    var isWarm = false
    var isCooling = false
    private var discarded = 0

    init(
        id: ConnectionID, remote: SocketAddress, owners: Owners, socket: consuming Socket, limits: MessageLimits,
        tls: TLSSession?, overflow: Refusal?, ready: ReadyList
    ) {
        self.id = id
        self.owners = owners
        self.remote = remote
        self.socket = socket
        self.tls = tls
        self.overflow = overflow
        self.ready = ready
        role = .http1(HTTP1Connection(self, limits))
    }

    var slot: Int { Int(id.slot) }
    var hasInput: Bool { inputOffset < input.count }
    /// TLS may end before the TCP stream.
    var isTLSClosed: Bool { tls?.state == .closed }
    var queuedBytes: Int { output.count + wire.count - wireOffset }

    var http1: HTTP1Connection? { if case .http1(let http1) = role { http1 } else { nil } }
    var http2: HTTP2Connection? { if case .http2(let http2) = role { http2 } else { nil } }
    var webSocket: WebSocketConnection? { if case .webSocket(let webSocket) = role { webSocket } else { nil } }

    /// Switches the connection to another protocol.
    func become(_ role: Role) { self.role = role }

    // MARK: Lent arrays

    // Arrays are lent as locals, which saves an exclusivity check per access.

    func withInput<R, E: Error>(_ use: (inout [UInt8]) throws(E) -> R) throws(E) -> R {
        var bytes: [UInt8] = []
        swap(&bytes, &input)
        defer { swap(&bytes, &input) }
        return try use(&bytes)
    }

    func withOutput<R, E: Error>(_ use: (inout [UInt8]) throws(E) -> R) throws(E) -> R {
        var bytes: [UInt8] = []
        swap(&bytes, &output)
        defer { swap(&bytes, &output) }
        return try use(&bytes)
    }

    func dropInput() {
        withInput {
            wipe(&$0)
            $0 = []
        }
        inputOffset = 0
    }

    // MARK: Events

    func ready(_ events: Events) { ready.add(id, events) }

    func handle(_ events: Events, on server: isolated HTTPServer) {
        if !events.isDisjoint(with: [.failure, .hangup]) { return close(on: server) }
        if events.contains(.write), isBlocked {
            isBlocked = false
            flush(on: server)
        }
        if events.contains(.peerFinished) { isPeerFinished = true }
        if !events.isDisjoint(with: [.read, .peerFinished]) {
            isReadable = true
            advance(on: server)
        }
    }

    /// Handles an expired deadline.
    func expire(_ kind: Deadlines.Kind, on server: isolated HTTPServer) {
        switch kind {
        case .handshake, .linger, .pong, .close: return close(on: server)
        case .write:
            socket.resetOnClose()
            return close(on: server)
        case .header, .body, .idle, .streams, .firstMessage, .ping: break
        }
        switch role {
        case .http1(let http1): http1.expire(kind, on: server)
        case .http2(let http2): http2.expire(kind, on: server)
        case .webSocket(let webSocket): webSocket.expire(kind, on: server)
        case .none: break
        }
    }

    // MARK: Reading

    /// Reads and parses while the connection's state allows it and input is available.
    func advance(on server: isolated HTTPServer) {
        defer { if server.isIdleOver { http1?.finishIfIdle(on: server) } }
        for _ in 0..<Self.readsATurn {
            while hasInput, isTaking { takeInput(on: server) }
            if isTLSClosed, !hasInput { return end(on: server) }
            guard isReadable, isTaking else { return }
            if tls?.state == .handshaking, !server.takesHandshakeTurn(self) { return }
            read(on: server)
        }
        server.advanceInNextTurn(id)
    }

    private var isTaking: Bool {
        switch stage {
        case .open:
            switch role {
            case .http1(let http1): http1.isTaking
            case .http2(let http2): http2.isTaking
            case .webSocket(let webSocket): webSocket.isTaking
            case .none: false
            }
        case .lingering: true
        case .finishing, .closed: false
        }
    }

    private func takeInput(on server: isolated HTTPServer) {
        var bytes: [UInt8] = []
        swap(&bytes, &input)
        let taken = take(bytes.span.extracting(droppingFirst: inputOffset), on: server)
        inputOffset += taken
        if inputOffset < bytes.count, stage != .finishing, stage != .closed {
            swap(&bytes, &input)
        } else {
            inputOffset = 0
            server.buffers.recycle(&bytes)
        }
    }

    private func read(on server: isolated HTTPServer) {
        // A local while in use, because each access to an actor's array is checked.
        var buffer: [UInt8] = []
        swap(&buffer, &server.readBuffer)
        defer { swap(&buffer, &server.readBuffer) }
        do throws(Errno) {
            var room = buffer.mutableSpan
            let count = try socket.read(into: &room)
            guard let count else {
                isReadable = false
                return
            }
            if count == 0 { return end(on: server) }
            // A short read has emptied the socket, unless the end of the stream follows.
            if count < buffer.count, !isPeerFinished { isReadable = false }
            defer { wipe(&buffer, first: count) }
            // The input is ignored.
            if stage == .lingering { return discard(count, on: server) }
            if let tls { return decrypt(buffer.span.extracting(first: count), tls, on: server) }
            let taken = take(buffer.span.extracting(first: count), on: server)
            if taken < count, stage != .finishing, stage != .closed {
                withInput { $0.append(contentsOf: buffer[taken..<count]) }
            }
        } catch {
            close(on: server)
        }
    }

    /// Passes plaintext to the protocol.
    /// - Returns: the number of bytes consumed. The rest waits.
    private func take(_ bytes: Span<UInt8>, on server: isolated HTTPServer) -> Int {
        switch stage {
        case .open:
            switch role {
            case .http1(let http1): return http1.take(bytes, on: server)
            case .http2(let http2): http2.take(bytes, on: server)
            case .webSocket(let webSocket): webSocket.take(bytes, on: server)
            case .none: break
            }
        case .lingering: discard(bytes.count, on: server)
        case .finishing, .closed: break
        }
        return bytes.count
    }

    private func discard(_ count: Int, on server: isolated HTTPServer) {
        discarded += count
        if discarded > Self.discardLimit { close(on: server) }
    }

    // MARK: The end

    /// Handles the end of the peer's stream.
    func end(on server: isolated HTTPServer) {
        isReadable = false
        hasEnded = true
        switch stage {
        case .open:
            switch role {
            case .http1(let http1): http1.end(on: server)
            case .http2(let http2): http2.end(on: server)
            case .webSocket, .none: close(on: server)
            }
        case .lingering: close(on: server)
        case .finishing, .closed: break
        }
    }

    /// Closes after all pending output was sent.
    func finish(on server: isolated HTTPServer) {
        stage = .finishing
        server.flushAtEndOfTurn(self)
    }

    /// Half-closes and drains the input. Closing with unread bytes would reset the connection, and the peer might lose the response.
    func linger(on server: isolated HTTPServer) {
        if let tls {
            tls.close()
            var last: [UInt8] = []
            tls.takeCiphertext(into: &last)
            _ = try? socket.write(last.span)
        }
        dropInput()
        socket.finishWriting()
        if hasEnded { return close(on: server) }
        stage = .lingering
        server.setDeadline(self, .linger)
        if isReadable { advance(on: server) }
    }

    /// Closes at once.
    func close(on server: isolated HTTPServer) {
        guard stage != .closed else { return }
        stage = .closed
        dropInput()
        withOutput { wipe(&$0) }
        wipe(&wire)
        let last = role
        // Breaks the reference cycle.
        role = .none
        server.forget(self)
        switch last {
        case .none: break
        case .http1(let http1): http1.releaseBody(on: server)
        case .http2(let http2): http2.close(on: server)
        case .webSocket(let webSocket): webSocket.close(on: server)
        }
        server.checkDrained()
    }
}

/// The events of a turn. They are collected because entering the server for each costs more than handling it.
final class ReadyList {
    private var waiting = Batch<(id: ConnectionID, events: Events)>()
    private unowned let server: HTTPServer

    init(server: HTTPServer) { self.server = server }

    func add(_ id: ConnectionID, _ events: Events) {
        guard waiting.add((id, events)) else { return }
        server.loop.atEndOfEvents { [server] in server.assumeIsolated { $0.takeReady() } }
    }

    func takeAll(_ use: (ConnectionID, Events) -> Void) {
        var taken = waiting.take()
        for (id, events) in taken { use(id, events) }
        waiting.reuse(&taken)
    }
}

/// Elements that are collected and then handled together. Its array is reused.
struct Batch<Element> {
    private var elements: [Element] = []

    /// Returns true for the first element. This is one call because every access to an object's property is checked.
    mutating func add(_ element: Element) -> Bool {
        elements.append(element)
        return elements.count == 1
    }

    mutating func take() -> [Element] {
        var taken: [Element] = []
        swap(&taken, &elements)
        return taken
    }

    /// Reuses the capacity of the array that `take` returned.
    mutating func reuse(_ taken: inout [Element]) {
        guard elements.isEmpty else { return }
        taken.removeAll(keepingCapacity: true)
        swap(&taken, &elements)
    }
}
