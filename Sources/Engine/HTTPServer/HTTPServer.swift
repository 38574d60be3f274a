public import EventLoop
import HTTP1
public import Linux
import Shares
import TLS
import WebSocket

/// An HTTP server on one event loop. It accepts, limits and drains connections.
///
/// Each connection reads, answers and closes by itself, as HTTP/1.1, HTTP/2 or a WebSocket. The handler gets complete requests within limits. Output
/// is written at the end of the loop's turn. A request's bytes are zeroed after its response.
public actor HTTPServer: LoopActor {
    /// Counts since the start.
    public struct Statistics: Sendable, Equatable {
        public var accepted = 0
        public var requests = 0
        /// Responses without the handler, and connections closed for errors in TLS or HTTP/2.
        public var refusals = 0
        public var openConnections = 0
        public var openWebSockets = 0
    }

    public nonisolated let loop: EventLoop
    private(set) var configuration: ServerConfiguration
    let handler: any HTTPHandler
    public internal(set) var statistics = Statistics()

    private var listener: Listener?
    private lazy var ready = ReadyList(server: self)
    private(set) var slots: [Connection?] = []
    private var freeSlots: [Int32] = []
    private var generation: UInt32 = 0
    /// The number of connections so far.
    private var connectionNumber: UInt64 = 0
    private(set) var overflows = 0

    private var deadlines: Deadlines
    /// Calls of the handler that no task has begun, from `firstCall` on.
    var calls: [HandlerCall] = []
    var firstCall = 0
    /// A task was created and has not run yet.
    var isCallerCreated = false
    var turn = Turn()
    /// The limits of one network and of one connection in a turn.
    let mostInTurn, mostOfConnectionInTurn: Int
    var dominance = Dominance()
    /// HTTP/2 connections with a stream that the peer doesn't read.
    var stalled = StalledConnections()

    var readBuffer = [UInt8](repeating: 0, count: 32_768)
    var buffers = BufferPool()
    /// HTTP/2 frames before encryption.
    var outbound: [UInt8] = []
    var writer = ResponseWriter()
    /// Connections with output to write at the end of the turn.
    private var dirty = Batch<ConnectionID>()
    /// Connections that may hold OpenSSL's buffers.
    private var cooling: [ConnectionID] = []

    private(set) var isDraining = false
    /// The drain now closes idle connections.
    private(set) var isIdleOver = false
    /// WebSockets whose handler is running.
    var deliveries = 0
    private var drainers: [CheckedContinuation<Void, Never>] = []

    public init(loop: EventLoop, configuration: ServerConfiguration, handler: any HTTPHandler) {
        self.loop = loop
        self.configuration = configuration
        self.handler = handler
        deadlines = Deadlines(lengthMs: configuration.lengthMs)
        let quota = configuration.shares.table[.requestsInTurn]
        mostInTurn = max(1, quota.network?.cap ?? .max)
        mostOfConnectionInTurn = min(mostInTurn, max(1, quota.connection?.cap ?? .max))
    }

    /// Starts to listen. With port 0 the kernel chooses a port.
    /// - Returns: the bound address.
    public func start() throws(Errno) -> SocketAddress {
        let listener = Listener(socket: try listeningSocket(), server: self)
        listener.registration = try loop.add(listener.socket.raw, .read, listener)
        self.listener = listener
        return try listener.socket.localAddress()
    }

    private func listeningSocket() throws(Errno) -> Socket {
        if let activated = configuration.activated { return Socket(activated) }
        return try Socket.listen(on: configuration.address, mode: configuration.unixMode)
    }

    /// Uses another certificate for new connections. Open connections keep theirs.
    public func use(_ tls: TLSContext) {
        guard configuration.tls != nil else { return }
        configuration.tls = tls
    }

    /// Whether one network that is no trusted proxy sent most requests since the last call. The first call has no result yet.
    public func endRequestWindow() -> Bool { dominance.endWindow() }

    /// Shuts down gracefully: accepts no new connections, answers pending requests, sends GOAWAY to HTTP/2 peers and closes WebSockets with 1001.
    ///
    /// Idle connections stay open for a moment, because a request may be on its way. Connections that are left after `deadlineMs` are closed.
    public func drain(deadlineMs: UInt64) async {
        isDraining = true
        stopListening()
        for case let connection? in slots where connection.stage == .open {
            switch connection.role {
            case .webSocket(let webSocket): webSocket.close(.goingAway, on: self)
            case .http2(let http2): http2.leave(on: self)
            case .http1, .none: break
            }
        }
        guard statistics.openConnections > 0 || deliveries > 0 else { return }
        loop.after(min(deadlineMs, configuration.drainIdleMs)) { self.finishIdle() }
        let timer = loop.after(deadlineMs) { self.finishDrain() }
        await withCheckedContinuation { drainers.append($0) }
        loop.cancel(timer)
        for case let connection? in slots { connection.close(on: self) }
    }

    private func finishIdle() {
        for case let connection? in slots where connection.stage == .open {
            switch connection.role {
            case .http1(let http1): http1.finishIfIdle(on: self)
            case .http2(let http2): http2.finishIfQuiet(on: self)
            // Its close frame was sent two rounds ago. A phone without network never answers.
            case .webSocket: if isIdleOver { connection.close(on: self) }
            case .none: break
            }
        }
        isIdleOver = true
        if statistics.openConnections > 0 { loop.after(configuration.drainIdleMs) { self.finishIdle() } }
    }

    private func finishDrain() {
        for drainer in drainers { drainer.resume() }
        drainers = []
    }

    func checkDrained() {
        if isDraining, statistics.openConnections == 0, deliveries == 0 { finishDrain() }
    }

    // MARK: Accepting

    /// Connections beyond a limit that are open only to be refused.
    public static let overflow = 64
    private static let acceptsATurn = 64

    fileprivate func accept() {
        do throws(Errno) {
            for _ in 0..<Self.acceptsATurn {
                guard let accepted = try listener?.socket.accept() else { return }
                let peer = accepted.peer
                admit(accepted.take(), from: peer)
            }
        } catch {
            // Out of descriptors or memory: pause until some connections have closed.
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
        var handshake: Charge?
        if configuration.tls != nil {
            handshake = chargeHandshake(to: payer)
            guard handshake != nil else {
                statistics.refusals += 1
                if let charge { shares.refund(charge) }
                return
            }
        }
        generation &+= 1
        let slot = freeSlots.popLast() ?? Int32(slots.count)
        if slot == slots.count { slots.append(nil) }
        let tls = configuration.tls.flatMap { try? TLSSession(accepting: $0) }
        let connection = Connection(
            id: ConnectionID(slot: slot, generation: generation), remote: remote, owners: owners, socket: socket,
            limits: configuration.limits, tls: tls, overflow: overflow, ready: ready)
        connection.charge = charge
        connection.handshake = handshake
        if overflow != nil { overflows += 1 }
        slots[Int(slot)] = connection
        statistics.openConnections += 1
        guard (tls == nil) == (configuration.tls == nil),
            let registration = try? loop.add(connection.socket.raw, [.read, .write, .peerFinished, .onChange], connection)
        else { return connection.close(on: self) }
        connection.registration = registration
        setDeadline(connection, tls == nil ? .idle : .handshake)
        if let overflow, tls == nil { connection.http1?.refuse(overflow, on: self) }
    }

    /// Charges a TLS handshake. If all handshakes are in use, closes the oldest handshake of a payer that has the most. An honest peer has one at a time.
    /// - Returns: nil if the payer has its share under way.
    private func chargeHandshake(to payer: Owner) -> Charge? {
        let shares = configuration.shares
        do throws(Shortage) { return try shares.charge(.handshakes, to: Owners(payer)) } catch {
            guard case .exhausted = error else { return nil }
        }
        let pending = slots.compactMap { $0?.handshake == nil ? nil : $0 }
        let held = Dictionary(grouping: pending, by: \.owners.payer).values
        let most = held.lazy.map(\.count).max()
        let oldest = held.lazy.filter { $0.count == most }.joined().min { $0.id.generation < $1.id.generation }
        oldest?.close(on: self)
        // Nil only if nobody had one under way.
        return try? shares.charge(.handshakes, to: Owners(payer))
    }

    func endHandshake(_ connection: Connection) {
        if let charge = connection.handshake.take() { configuration.shares.refund(charge) }
    }

    private func stopListening() {
        guard let listener else { return }
        if configuration.activated == nil { empty(listener) }
        if let registration = listener.registration { loop.remove(registration) }
        self.listener = nil
    }

    /// Accepts what the kernel has accepted already, since its requests may have arrived, and removes the path of a Unix-domain socket.
    private func empty(_ listener: Listener) {
        listener.socket.rejectNewConnections()
        while let accepted = try? listener.socket.accept() {
            let peer = accepted.peer
            admit(accepted.take(), from: peer)
        }
        if case .unix(let path) = configuration.address { try? File.remove(path) }
    }

    // MARK: Connections

    func connection(_ id: ConnectionID) -> Connection? {
        guard let connection = connection(inSlot: id.slot), connection.id == id else { return nil }
        return connection
    }

    func connection(inSlot slot: Int32) -> Connection? { slot < slots.count ? slots[Int(slot)] : nil }

    /// Handles the events of the turn.
    func takeReady() {
        ready.takeAll { id, events in connection(id)?.handle(events, on: self) }
    }

    func advanceInNextTurn(_ id: ConnectionID) {
        loop.atEndOfTurn { self.connection(id)?.advance(on: self) }
    }

    /// Schedules a flush of the connection at the end of the turn.
    func flushAtEndOfTurn(_ connection: Connection) {
        guard !connection.isDirty else { return }
        connection.isDirty = true
        if dirty.add(connection.id) { loop.atEndOfTurn { self.flushAll() } }
    }

    private func flushAll() {
        var batch = dirty.take()
        for id in batch {
            guard let connection = connection(id) else { continue }
            connection.isDirty = false
            if !connection.isBlocked { connection.flush(on: self) }
        }
        dirty.reuse(&batch)
    }

    /// Sends a response over HTTP/1.1 and zeroes it unless its body is shared.
    func answer(_ id: ConnectionID, _ response: inout HTTPResponse) {
        connection(id)?.http1?.answer(response, on: self)
        response.discard()
    }

    /// Sends a response over HTTP/2. If the connection has closed, refunds the stream's charges.
    func answer(_ id: ConnectionID, _ stream: HTTP2Stream, _ response: inout HTTPResponse) {
        if let http2 = connection(id)?.http2 { return http2.answer(&response, stream, on: self) }
        stream.refund(configuration.shares)
        response.discard()
    }

    /// Removes a closed connection.
    func forget(_ connection: Connection) {
        if let registration = connection.registration { loop.remove(registration) }
        deadlines.clear(connection.slot)
        slots[connection.slot] = nil
        freeSlots.append(connection.id.slot)
        if let charge = connection.charge.take() { configuration.shares.refund(charge) }
        endHandshake(connection)
        if connection.overflow != nil { overflows -= 1 }
        connection.releaseBlocked(on: self)
        stalled.remove(connection.id.slot)
        statistics.openConnections -= 1
    }

    // MARK: Deadlines

    func deadline(of connection: Connection) -> Deadlines.Kind? { deadlines.kind(connection.slot) }

    func clearDeadline(_ connection: Connection) { deadlines.clear(connection.slot) }

    func setDeadline(_ connection: Connection, _ kind: Deadlines.Kind) {
        if deadlines.set(connection.slot, kind, nowMs: loop.now) { schedule(kind) }
    }

    /// Each kind has one timer, set for the first deadline of its list.
    private func schedule(_ kind: Deadlines.Kind) {
        guard let due = deadlines.startTimer(kind) else { return }
        loop.after(due > loop.now ? due - loop.now : 0) {
            self.deadlines.endTimer(kind)
            while let slot = self.deadlines.takeExpired(kind, nowMs: self.loop.now) {
                self.slots[slot]?.expire(kind, on: self)
            }
            self.schedule(kind)
        }
    }

    // MARK: OpenSSL's buffers

    /// How long an idle connection keeps OpenSSL's buffers of 34 KB. Allocating them for each record would cost a fifth of a request.
    private static let coolingMs: UInt64 = 1_000

    /// Records traffic on a connection.
    func warm(_ connection: Connection) {
        connection.isWarm = true
        guard !connection.isCooling else { return }
        connection.isCooling = true
        if cooling.isEmpty { loop.after(Self.coolingMs) { self.cool() } }
        cooling.append(connection.id)
    }

    /// Releases the buffers of connections without traffic since the last check.
    private func cool() {
        var kept: [ConnectionID] = []
        for id in cooling {
            guard let connection = connection(id) else { continue }
            if connection.isWarm {
                connection.isWarm = false
                kept.append(id)
            } else {
                connection.isCooling = false
                connection.tls?.releaseBuffers()
            }
        }
        cooling = kept
        if !kept.isEmpty { loop.after(Self.coolingMs) { self.cool() } }
    }

    // MARK: WebSocket handles

    func send(_ text: [UInt8], to id: ConnectionID) -> Bool { connection(id)?.webSocket?.send(text, on: self) ?? false }
    func ping(_ id: ConnectionID, number: UInt64) { connection(id)?.webSocket?.ping(number: number, on: self) }
    func close(_ id: ConnectionID, _ code: CloseCode) { connection(id)?.webSocket?.close(code, on: self) }
    func markJoined(_ id: ConnectionID, _ maximumBytes: Int?) {
        connection(id)?.webSocket?.markJoined(maximumBytes, on: self)
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
