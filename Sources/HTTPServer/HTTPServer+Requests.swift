import EventLoop
import HTTP1
import HTTP2
import Linux
import Shares
import TLS
import WebSocket

// Reading requests and answering them.
extension HTTPServer {
    /// Reads of one connection in a row before the others get their turn.
    private static var readsATurn: Int { 8 }
    /// Answers that may wait before no more requests of a connection are looked at.
    private static var outputLimit: Int { 65_536 }
    private static var discardLimit: Int { 262_144 }
    /// Frames of HTTP/2 that may wait before no more is read from their peer.
    private static var waitingFrames: Int { 1_000 }

    func takeReady() {
        ready.takeAll { id, events in ready(id, events) }
    }

    private func ready(_ id: ConnectionID, _ events: Events) {
        guard let connection = connection(id) else { return }
        if !events.isDisjoint(with: [.failure, .hangup]) { return drop(connection) }
        if events.contains(.write), connection.isBlocked {
            connection.isBlocked = false
            flush(connection)
        }
        if events.contains(.peerFinished) { connection.isPeerFinished = true }
        if !events.isDisjoint(with: [.read, .peerFinished]) {
            connection.isReadable = true
            advance(connection)
        }
    }

    /// Reads and parses as long as the connection's state allows and there is something to read.
    func advance(_ connection: Connection) {
        defer { if isIdleOver { finishIfIdle(connection) } }
        for _ in 0..<Self.readsATurn {
            while connection.hasInput, isTaking(connection) { takeInput(connection) }
            // TLS may end before the stream under it does.
            if connection.tls?.state == .closed, !connection.hasInput { return ended(connection) }
            guard connection.isReadable, isTaking(connection) else { return }
            if connection.tls?.state == .handshaking, !takesHandshakeTurn(connection) { return }
            read(connection)
        }
        loop.atEndOfTurn { [id = connection.id] in
            if let connection = self.connection(id) { self.advance(connection) }
        }
    }

    private func takeInput(_ connection: Connection) {
        var bytes: [UInt8] = []
        swap(&bytes, &connection.input)
        let taken = take(bytes.span.extracting(droppingFirst: connection.inputOffset), connection)
        connection.inputOffset += taken
        if connection.inputOffset < bytes.count, connection.state != .finishing, connection.state != .closed {
            swap(&bytes, &connection.input)
        } else {
            connection.inputOffset = 0
            recycle(&bytes)
        }
    }

    private func isTaking(_ connection: Connection) -> Bool {
        switch connection.state {
        case .reading: !connection.isBlocked && connection.output.count < Self.outputLimit
        case .webSocket: (connection.session?.machine.messageCount ?? 0) < Self.waitingMessages
        case .streams: !connection.isBlocked && (connection.streams?.session.outboundFrames ?? 0) < Self.waitingFrames
        case .lingering: true
        case .answering, .finishing, .closed: false
        }
    }

    private func read(_ connection: Connection) {
        // A local while it is used: each access to an actor's array is checked.
        var buffer: [UInt8] = []
        swap(&buffer, &readBuffer)
        defer { swap(&buffer, &readBuffer) }
        do throws(Errno) {
            var room = buffer.mutableSpan
            let count = try connection.socket.read(into: &room)
            guard let count else {
                connection.isReadable = false
                return
            }
            if count == 0 { return ended(connection) }
            // A short read emptied the socket, unless the end of the stream is what comes next.
            if count < buffer.count, !connection.isPeerFinished { connection.isReadable = false }
            defer { wipe(&buffer, first: count) }
            // Nothing of it is looked at any more.
            if connection.state == .lingering { return discard(count, connection) }
            if connection.tls != nil { return decrypt(buffer.span.extracting(first: count), connection) }
            let taken = take(buffer.span.extracting(first: count), connection)
            if taken < count, connection.state != .finishing, connection.state != .closed {
                connection.withInput { $0.append(contentsOf: buffer[taken..<count]) }
            }
        } catch {
            drop(connection)
        }
    }

    /// Hands plain bytes to what the connection is now.
    /// - Returns: how many were taken; the rest waits.
    private func take(_ bytes: Span<UInt8>, _ connection: Connection) -> Int {
        switch connection.state {
        case .reading: return takeRequest(bytes, connection)
        case .webSocket: takeFrames(bytes, connection)
        case .streams: if let table = connection.streams { takeFrames(bytes, connection, table) }
        case .lingering: discard(bytes.count, connection)
        case .answering, .finishing, .closed: break
        }
        return bytes.count
    }

    private func discard(_ count: Int, _ connection: Connection) {
        connection.discarded += count
        if connection.discarded > Self.discardLimit { drop(connection) }
    }

    private func takeRequest(_ bytes: Span<UInt8>, _ connection: Connection) -> Int {
        guard let parser = connection.parser else { return bytes.count }
        switch parser.parse(bytes) {
        case .incomplete:
            switch parser.phase {
            case .head: if deadlines.kind(connection.slot) != .header { setDeadline(connection, .header) }
            case .body:
                if deadlines.kind(connection.slot) != .body { setDeadline(connection, .body) }
                if parser.awaitsContinue, !connection.saidContinue {
                    connection.saidContinue = true
                    connection.withOutput { $0.append(contentsOf: ResponseWriter.goOn) }
                    markDirty(connection)
                }
            default: break
            }
            return bytes.count
        case .complete(let consumed):
            connection.hasFollower = consumed < bytes.count
            dispatch(parser.takeMessage(), connection)
            return consumed
        case .failed(let failure):
            refuse(connection, Refusal(failure))
            return bytes.count
        }
    }

    private func dispatch(_ message: Message, _ connection: Connection) {
        deadlines.clear(connection.slot)
        connection.saidContinue = false
        connection.keepsAlive = message.keepsAlive
        connection.isVersion11 = message.isVersion11
        connection.isHead = message.method == .head
        guard var request = HTTPRequest(message, remote: connection.remote) else { return refuse(connection, .malformedRequest) }
        request.owners = owners(of: request, connection)
        statistics.requests += 1
        connection.state = .answering
        guard takesTurn(request.owners) else {
            connection.waiting = request
            return wait(.request(connection.id), request.owners)
        }
        start(request, connection)
    }

    func start(_ request: HTTPRequest, _ connection: Connection) {
        if request.message.wantsUpgrade, handler.shouldUpgrade(request) { return upgrade(connection, request) }
        Task { [id = connection.id] in
            // What the handler waits for comes straight back here, and not by way of the global pool.
            var response = await withTaskExecutorPreference(loop) { await handler.respond(to: request) }
            request.message.wipe()
            answer(id, &response)
        }
    }

    /// Writes an answer and zeroes its body, which may hold a capability. One that the handler holds too is left to it.
    func answer(_ id: ConnectionID, _ response: inout HTTPResponse) {
        defer { if !response.isBodyShared { wipe(&response.body) } }
        guard let connection = connection(id), connection.state == .answering else { return }
        // A drain answers what was sent before its peer could know.
        let isLast = isDraining && !connection.hasFollower && !connection.hasInput && !connection.socket.hasInput
        let closes = !connection.keepsAlive || response.closesConnection || isLast
        write(response, closes: closes, connection)
        if closes {
            connection.state = .finishing
        } else {
            connection.state = .reading
            // What came before may still wait for the peer to take it, with the deadline of that.
            if !connection.isBlocked { setDeadline(connection, .idle) }
            if connection.hasInput || connection.isReadable || connection.tls?.state == .closed { advance(connection) }
        }
    }

    /// Answers without the handler, and ends the connection.
    func refuse(_ connection: Connection, _ refusal: Refusal) {
        statistics.refusals += 1
        deadlines.clear(connection.slot)
        connection.dropInput()
        connection.parser?.abandon()
        connection.isHead = false
        connection.isVersion11 = true
        write(configuration.refuse(refusal), closes: true, connection)
        connection.state = .finishing
    }

    private func write(_ response: HTTPResponse, closes: Bool, _ connection: Connection) {
        writer.setTime(wallMs: Clock.wallMs)
        connection.withOutput { output in
            if output.isEmpty, let spare = spareBuffers.popLast() { output = spare }
            writer.write(
                response, isHead: connection.isHead, closes: closes, isVersion11: connection.isVersion11, to: &output)
        }
        markDirty(connection)
    }

    /// The peer sends no more.
    func ended(_ connection: Connection) {
        connection.isReadable = false
        connection.hasEnded = true
        switch connection.state {
        case .reading where connection.queuedBytes > 0:
            connection.state = .finishing
            markDirty(connection)
        case .streams where connection.streams?.isAnswering == true: finishStreams(connection)
        case .reading, .webSocket, .streams, .lingering: drop(connection)
        case .answering, .finishing, .closed: break
        }
    }
}
