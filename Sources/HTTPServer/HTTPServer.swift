public import EventLoop
import HTTP1
public import Linux
import Shares
import TLS
import WebSocket

/// An HTTP/1.1 server on one event loop: connections, limits, deadlines, WebSockets, drain.
///
/// A request is read whole, within limits, before the handler sees it. While it is answered nothing more is read, so answers keep the
/// order of requests. Writes wait for the end of the loop's turn. The bytes of requests are zeroed after their answer.
public actor HTTPServer: LoopActor {
    /// Counts since the start.
    public struct Statistics: Sendable, Equatable {
        public var accepted = 0
        public var requests = 0
        /// Answers the engine gave by itself, and connections it ended for what was said in TLS or HTTP/2.
        public var refusals = 0
        public var openConnections = 0
        public var openWebSockets = 0
    }

    public nonisolated let loop: EventLoop
    var configuration: ServerConfiguration
    let handler: any HTTPHandler
    public internal(set) var statistics = Statistics()

    var listener: Listener?
    private(set) lazy var ready = ReadyList(server: self)
    var slots: [Connection?] = []
    var freeSlots: [Int32] = []
    var generation: UInt32 = 0
    /// How many connections there have been.
    var connectionNumber: UInt64 = 0
    var deadlines: Deadlines
    var overflows = 0
    var timers: Set<Deadlines.Kind> = []
    var readBuffer = [UInt8](repeating: 0, count: 32_768)
    var writer = ResponseWriter()
    /// Connections that may hold buffers of OpenSSL's.
    var cooling: [ConnectionID] = []
    /// Frames of HTTP/2 on their way into TLS.
    var outbound: [UInt8] = []
    /// HTTP/2 connections with a stream that its peer doesn't read.
    var stalled = StalledConnections()
    var turn = Turn()
    /// What one network, and one connection, may have of a turn.
    let mostInTurn, mostOfConnectionInTurn: Int
    var dominance = Dominance()
    var dirty: [ConnectionID] = []
    var spareBuffers: [[UInt8]] = []
    var isDraining = false
    /// The drain no longer waits for requests on idle connections.
    var isIdleOver = false
    var deliveries = 0
    var drainers: [CheckedContinuation<Void, Never>] = []

    public init(loop: EventLoop, configuration: ServerConfiguration, handler: any HTTPHandler) {
        self.loop = loop
        self.configuration = configuration
        self.handler = handler
        deadlines = Deadlines(lengthMs: configuration.lengthMs)
        let quota = configuration.shares.table[.requestsInTurn]
        mostInTurn = max(1, quota.network?.cap ?? .max)
        mostOfConnectionInTurn = min(mostInTurn, max(1, quota.connection?.cap ?? .max))
    }

    /// Listens. With port 0 the kernel chooses one.
    /// - Returns: where it listens.
    public func start() throws(Errno) -> SocketAddress {
        let listener = Listener(socket: try Socket.listen(on: configuration.address, mode: configuration.unixMode), server: self)
        listener.registration = try loop.add(listener.socket.raw, .read, listener)
        self.listener = listener
        return try listener.socket.localAddress()
    }

    /// Serves new connections with another certificate; those that are open keep theirs.
    public func use(_ tls: TLSContext) {
        guard configuration.tls != nil else { return }
        configuration.tls = tls
    }

    /// Whether most requests since the last call came from one network that is no trusted proxy. Needs two calls to know.
    public func endRequestWindow() -> Bool { dominance.endWindow() }

    /// Ends in an orderly way: takes no new connections, answers what has come and what is on its way, tells HTTP/2 peers (GOAWAY) and closes
    /// WebSockets with 1001. Idle connections are left open for a moment, since a request may be under way; whatever is left after
    /// `deadlineMs` is cut off.
    public func drain(deadlineMs: UInt64) async {
        isDraining = true
        stopListening()
        for case let connection? in slots {
            switch connection.state {
            case .webSocket: close(connection, .goingAway)
            case .streams: leave(connection)
            default: break
            }
        }
        guard statistics.openConnections > 0 || deliveries > 0 else { return }
        loop.after(min(deadlineMs, configuration.drainIdleMs)) { self.finishIdle() }
        let timer = loop.after(deadlineMs) { self.finishDrain() }
        await withCheckedContinuation { drainers.append($0) }
        loop.cancel(timer)
        for case let connection? in slots { drop(connection) }
    }

    private func finishIdle() {
        defer { isIdleOver = true }
        for case let connection? in slots {
            finishIfIdle(connection)
            // Told two rounds ago; a phone without network never answers.
            if isIdleOver, connection.state == .webSocket { drop(connection) }
            // A peer that goes on has not read the notice yet: its requests are taken until its answer to the ping has come.
            guard connection.state == .streams, let table = connection.streams else { continue }
            if !table.hasBegun { finishStreams(connection) }
            table.hasBegun = false
        }
        if statistics.openConnections > 0 { loop.after(configuration.drainIdleMs) { self.finishIdle() } }
    }

    func finishIfIdle(_ connection: Connection) {
        guard connection.state == .reading, connection.isIdle else { return }
        connection.state = .finishing
        markDirty(connection)
    }

    func finishDrain() {
        for drainer in drainers { drainer.resume() }
        drainers = []
    }

    func checkDrained() {
        if isDraining, statistics.openConnections == 0, deliveries == 0 { finishDrain() }
    }

    // MARK: Accepting

    /// Connections beyond a limit that are held only to tell their peers so.
    public static let overflow = 64
    static let acceptsATurn = 64

    func accept() {
        do throws(Errno) {
            for _ in 0..<Self.acceptsATurn {
                guard let accepted = try listener?.socket.accept() else { return }
                let peer = accepted.peer
                admit(accepted.take(), from: peer)
            }
        } catch {
            // Out of descriptors or memory: let some connections end first.
            guard let registration = listener?.registration else { return }
            loop.modify(registration, [])
            loop.after(100) {
                if let registration = self.listener?.registration { self.loop.modify(registration, .read) }
            }
        }
    }

    func admit(_ socket: consuming Socket, from remote: SocketAddress) {
        statistics.accepted += 1
        let shares = configuration.shares
        connectionNumber += 1
        let payer = configuration.payer(remote) ?? shares.network(remote)
        let owners = Owners(payer, connection: shares.connection(connectionNumber))
        var charge: Charge?
        var overflow: Refusal?
        do throws(Shortage) { charge = try shares.charge(.connections, to: owners) } catch { overflow = Refusal(error) }
        guard overflow == nil || overflows < Self.overflow else { return }
        generation &+= 1
        let slot = freeSlots.popLast() ?? Int32(slots.count)
        if slot == slots.count { slots.append(nil) }
        let tls = configuration.tls.flatMap { try? TLSSession(accepting: $0) }
        let connection = Connection(
            id: ConnectionID(slot: slot, generation: generation), remote: remote, owners: owners, socket: socket,
            limits: configuration.limits, tls: tls, ready: ready)
        connection.charge = charge
        connection.overflow = overflow
        if overflow != nil { overflows += 1 }
        slots[Int(slot)] = connection
        statistics.openConnections += 1
        guard (tls == nil) == (configuration.tls == nil),
            let registration = try? loop.add(connection.socket.raw, [.read, .write, .peerFinished, .onChange], connection)
        else { return drop(connection) }
        connection.registration = registration
        setDeadline(connection, tls == nil ? .idle : .handshake)
        if let overflow, tls == nil { refuse(connection, overflow) }
    }

    private func stopListening() {
        guard let listener else { return }
        listener.socket.takeNoNewConnections()
        // Whoever waits to be accepted was promised a connection by the kernel, and may have sent a request.
        while let accepted = try? listener.socket.accept() {
            let peer = accepted.peer
            admit(accepted.take(), from: peer)
        }
        if case .unix(let path) = configuration.address { try? File.remove(path) }
        if let registration = listener.registration { loop.remove(registration) }
        self.listener = nil
    }

    func connection(_ id: ConnectionID) -> Connection? {
        guard id.slot < slots.count, let connection = slots[Int(id.slot)], connection.id == id else { return nil }
        return connection
    }

    /// Ends a connection at once.
    func drop(_ connection: Connection) {
        guard connection.state != .closed else { return }
        connection.state = .closed
        if let registration = connection.registration { loop.remove(registration) }
        deadlines.clear(connection.slot)
        connection.dropInput()
        connection.dropOutput()
        connection.dropWire()
        slots[connection.slot] = nil
        freeSlots.append(connection.id.slot)
        if let charge = connection.charge.take() { configuration.shares.refund(charge) }
        if connection.overflow != nil { overflows -= 1 }
        releaseBlocked(connection)
        connection.waiting = nil
        stalled.remove(connection.id.slot)
        statistics.openConnections -= 1
        if let session = connection.session { end(session) }
        if let table = connection.streams { endStreams(table) }
        checkDrained()
    }
}

/// The listening socket.
final class Listener: EventSource {
    let socket: Socket
    private let server: HTTPServer
    var registration: Registration?

    init(socket: consuming Socket, server: HTTPServer) {
        self.socket = socket
        self.server = server
    }

    func ready(_ events: Events) { server.assumeIsolated { $0.accept() } }
}
