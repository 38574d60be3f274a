import EventLoop
import HTTP1
import Shares
import WebSocket

// WebSockets: upgrade, delivery in order, pings, closing.
extension HTTPServer {
    /// Messages that may wait for the handler before no more is read from their peer.
    static var waitingMessages: Int { 16 }

    func upgrade(_ connection: Connection, _ request: HTTPRequest) {
        let accept: String
        do throws(HandshakeFailure) {
            accept = try WebSocketHandshake.accept(request.message)
        } catch {
            return refuse(connection, error == .version ? .upgradeVersion : .badUpgrade)
        }
        let unjoined: Charge
        do throws(Shortage) {
            unjoined = try configuration.shares.charge(.unjoinedSockets, to: request.owners)
        } catch {
            return refuse(connection, Refusal(error))
        }
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: \(accept)\r\n\r\n"
        connection.withOutput { $0.append(contentsOf: head.utf8) }
        markDirty(connection)
        let session = WebSocketSession(
            handle: WebSocketHandle(id: connection.id, server: self), owners: request.owners,
            maximumBytes: configuration.maximumMessageBytes)
        session.unjoined = unjoined
        connection.session = session
        connection.parser = nil
        connection.state = .webSocket
        statistics.openWebSockets += 1
        setDeadline(connection, .firstMessage)
        session.isDelivering = true
        deliveries += 1
        Task {
            await withTaskExecutorPreference(loop) { await handler.opened(session.handle, request: request) }
            request.message.wipe()
            await deliver(session)
        }
        if isDraining { close(connection, .goingAway) }
    }

    func takeFrames(_ bytes: Span<UInt8>, _ connection: Connection) {
        guard let session = connection.session else { return }
        let answered = session.machine.answeredPing
        session.machine.receive(bytes, nowMs: loop.now)
        let number = session.machine.answeredPing
        if number > answered { Task { await handler.ponged(session.handle, number: number) } }
        if session.machine.messageCount > 0 {
            if deadlines.kind(connection.slot) == .firstMessage { setDeadline(connection, .ping) }
            startDelivery(session)
        }
        if session.machine.pongCount > session.pongCount, deadlines.kind(connection.slot) == .pong {
            setDeadline(connection, .ping)
        }
        takeOutput(connection, session)
    }

    func send(_ text: [UInt8], to id: ConnectionID) -> Bool {
        guard let connection = connection(id), let session = connection.session, session.machine.send(text.span) else {
            return false
        }
        takeOutput(connection, session)
        return connection.state != .closed
    }

    /// Leaves the deadline of the server's own pings as it is.
    func ping(_ id: ConnectionID, number: UInt64) {
        guard let connection = connection(id), let session = connection.session else { return }
        session.machine.sendPing(number)
        takeOutput(connection, session)
    }

    func close(_ id: ConnectionID, _ code: CloseCode) {
        if let connection = connection(id) { close(connection, code) }
    }

    func close(_ connection: Connection, _ code: CloseCode) {
        guard let session = connection.session, connection.state == .webSocket, !session.machine.isClosing else { return }
        session.machine.close(code)
        setDeadline(connection, .close)
        takeOutput(connection, session)
        // Reading may have waited for the handler.
        loop.atEndOfTurn { [id = connection.id] in self.resume(id) }
    }

    func ping(_ connection: Connection) {
        guard let session = connection.session else { return }
        session.pongCount = session.machine.pongCount
        session.machine.sendPing()
        setDeadline(connection, .pong)
        takeOutput(connection, session)
    }

    func markJoined(_ id: ConnectionID) {
        if let session = connection(id)?.session { markJoined(session) }
    }

    private func markJoined(_ session: WebSocketSession) {
        if let charge = session.unjoined.take() { configuration.shares.refund(charge) }
    }

    /// The connection is gone: the handler sees the messages that had come, then the end.
    func end(_ session: WebSocketSession) {
        session.isGone = true
        markJoined(session)
        statistics.openWebSockets -= 1
        startDelivery(session)
    }

    private func resume(_ id: ConnectionID) {
        if let connection = connection(id) { advance(connection) }
    }

    private func takeOutput(_ connection: Connection, _ session: WebSocketSession) {
        if session.machine.hasOutput {
            connection.withOutput { session.machine.takeOutput(into: &$0) }
            markDirty(connection)
            if connection.queuedBytes > configuration.maximumQueuedBytes { return drop(connection) }
        }
        if session.machine.isFinished, connection.state == .webSocket {
            connection.state = .finishing
            // The peer may take nothing: whatever deadline the WebSocket had no longer means anything.
            setDeadline(connection, .write)
            markDirty(connection)
        }
    }

    private func startDelivery(_ session: WebSocketSession) {
        guard !session.isDelivering else { return }
        session.isDelivering = true
        deliveries += 1
        Task { await deliver(session) }
    }

    private func deliver(_ session: WebSocketSession) async {
        while let message = session.machine.nextMessage() {
            await awaitTurn(session.owners)
            await withTaskExecutorPreference(loop) { await handler.received(message, on: session.handle) }
            message.wipe()
            resume(session.handle.id)
        }
        if session.isGone {
            await handler.closed(session.handle, code: session.machine.peerCloseCode)
        } else {
            session.isDelivering = false
        }
        deliveries -= 1
        checkDrained()
    }
}
