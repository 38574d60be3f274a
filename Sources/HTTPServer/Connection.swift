import EventLoop
import HTTP1
import Linux
import Shares
import TLS

/// Names one connection of a server. The generation tells it from the next one in the same slot.
struct ConnectionID: Sendable, Hashable {
    let slot: Int32
    let generation: UInt32
}

/// The events of a turn: collected, since entering the server for each costs more than handling it.
final class ReadyList {
    private var waiting: [(id: ConnectionID, events: Events)] = []
    private unowned let server: HTTPServer

    init(server: HTTPServer) { self.server = server }

    func add(_ id: ConnectionID, _ events: Events) {
        if waiting.isEmpty { server.loop.atEndOfEvents { [server] in server.assumeIsolated { $0.takeReady() } } }
        waiting.append((id, events))
    }

    func takeAll(_ use: (ConnectionID, Events) -> Void) {
        var taken: [(id: ConnectionID, events: Events)] = []
        swap(&taken, &waiting)
        for (id, events) in taken { use(id, events) }
        taken.removeAll(keepingCapacity: true)
        if waiting.isEmpty { swap(&taken, &waiting) }
    }
}

/// One accepted connection: its socket, its bytes, and how far it is. All decisions are the server's.
final class Connection: EventSource {
    enum State {
        case reading
        /// The handler has a request; nothing is read until it has answered.
        case answering
        case webSocket
        /// HTTP/2: requests come and are answered side by side.
        case streams
        /// What was written goes out, then the connection ends.
        case finishing
        /// All went out; what the peer still sends is thrown away until it closes, so that it gets to read the last answer.
        case lingering
        case closed
    }

    let id: ConnectionID
    let remote: SocketAddress
    let socket: Socket
    /// Nil once the connection is a WebSocket or speaks HTTP/2.
    var parser: RequestParser?
    let tls: TLSSession?
    private let ready: ReadyList
    var registration: Registration?
    var session: WebSocketSession?
    var streams: StreamTable?
    var state = State.reading

    /// Bytes read and not yet parsed, from `inputOffset` on.
    var input: [UInt8] = []
    var inputOffset = 0
    /// Plain bytes of this turn, and what of them (as ciphertext, with TLS) the socket has not taken, from `wireOffset` on.
    var output: [UInt8] = []
    var wire: [UInt8] = []
    var wireOffset = 0

    /// Edge-triggered: true until a read finds nothing.
    var isReadable = false
    /// The peer will send no more; the end of the stream is yet to be read.
    var isPeerFinished = false
    var hasEnded = false
    /// The socket takes no more bytes for now.
    var isBlocked = false
    /// Whom it is charged to, and its charge. A connection without a charge stays open only until it was told why.
    let owners: Owners
    var charge: Charge?
    var overflow: Refusal?
    /// Charges answers over HTTP/1.1 that its peer has not read.
    var blockedBytes: Charge?
    /// A request that waits for the loop's next turn.
    var waiting: HTTPRequest?
    /// This connection's turn to read the next flight of its TLS handshake.
    enum HandshakeTurn { case none, awaited, granted }
    var handshakeTurn = HandshakeTurn.none
    /// Waits for the end of the turn to be written.
    var isDirty = false
    /// There was traffic since OpenSSL's buffers were last looked at, and whether they are looked at.
    var isWarm = false
    var isCooling = false
    /// More bytes came with the request that is being answered.
    var hasFollower = false
    var saidContinue = false
    var discarded = 0

    /// Of the request that is being answered.
    var keepsAlive = true
    var isVersion11 = true
    var isHead = false

    init(
        id: ConnectionID, remote: SocketAddress, owners: Owners, socket: consuming Socket, limits: MessageLimits,
        tls: TLSSession?, ready: ReadyList
    ) {
        self.id = id
        self.owners = owners
        self.remote = remote
        self.socket = socket
        parser = RequestParser(limits: limits)
        self.tls = tls
        self.ready = ready
    }

    var slot: Int { Int(id.slot) }
    var hasInput: Bool { inputOffset < input.count }
    var isIdle: Bool { parser?.phase == .idle && !hasInput }
    var queuedBytes: Int { output.count + wire.count - wireOffset }

    // The arrays are lent as locals: the compiler then need not check, at every access to one, that nobody else holds it.

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

    /// Zeroes the plain bytes of answers and keeps their room.
    func dropOutput() {
        withOutput {
            wipe(&$0)
            $0.removeAll(keepingCapacity: true)
        }
    }

    func dropWire() {
        var bytes: [UInt8] = []
        swap(&bytes, &wire)
        wipe(&bytes)
    }

    func ready(_ events: Events) { ready.add(id, events) }
}
