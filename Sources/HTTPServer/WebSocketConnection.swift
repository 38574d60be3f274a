import EventLoop
import HTTP1
import Shares
import WebSocket

/// A WebSocket on one connection: delivery in order, pings, closing.
///
/// It outlives its connection while the handler has yet to see messages.
final class WebSocketConnection {
    /// Messages that may wait for the handler before no more is read from their peer.
    private static let waitingMessages = 16

    /// Nil once it has closed.
    private var connection: Connection?
    private let handle: WebSocketHandle
    private let machine: WebSocketMachine
    /// Of the upgrade.
    private let owners: Owners
    /// A task is calling the handler.
    private var isDelivering = false
    /// Until the handler says that the peer has joined.
    private var unjoined: Charge?
    /// `machine.pongCount` when the last ping was sent.
    private var pongCount = 0

    private init(_ connection: Connection, _ owners: Owners, _ unjoined: Charge, _ server: HTTPServer, maximumBytes: Int) {
        self.connection = connection
        self.owners = owners
        self.unjoined = unjoined
        handle = WebSocketHandle(id: connection.id, server: server)
        machine = WebSocketMachine(role: .server, maximumBytes: maximumBytes)
    }

    /// The upgrade was accepted: what comes now are frames.
    static func begin(
        on connection: Connection, _ request: HTTPRequest, _ unjoined: Charge, _ server: isolated HTTPServer
    ) {
        let webSocket = WebSocketConnection(
            connection, request.owners, unjoined, server, maximumBytes: server.configuration.maximumMessageBytes)
        connection.become(.webSocket(webSocket))
        server.statistics.openWebSockets += 1
        server.setDeadline(connection, .firstMessage)
        webSocket.isDelivering = true
        server.deliveries += 1
        Task {
            await withTaskExecutorPreference(server.loop) {
                await server.handler.opened(webSocket.handle, request: request)
            }
            request.message.wipe()
            await webSocket.deliver(on: server)
        }
        if server.isDraining { webSocket.close(.goingAway, on: server) }
    }

    var isTaking: Bool { machine.messageCount < Self.waitingMessages }

    // MARK: Frames

    func take(_ bytes: Span<UInt8>, on server: isolated HTTPServer) {
        guard let connection else { return }
        let answered = machine.answeredPing
        machine.receive(bytes, nowMs: server.loop.now)
        let number = machine.answeredPing
        if number > answered { Task { await server.handler.ponged(handle, number: number) } }
        if machine.messageCount > 0 {
            if server.deadline(of: connection) == .firstMessage { server.setDeadline(connection, .ping) }
            startDelivery(on: server)
        }
        if machine.pongCount > pongCount, server.deadline(of: connection) == .pong { server.setDeadline(connection, .ping) }
        takeOutput(connection, on: server)
    }

    /// - Returns: false if the socket is closing, or its peer reads too slowly.
    func send(_ text: [UInt8], on server: isolated HTTPServer) -> Bool {
        guard let connection, machine.send(text.span) else { return false }
        takeOutput(connection, on: server)
        return connection.stage != .closed
    }

    /// Leaves the deadline of the server's own pings as it is.
    func ping(number: UInt64, on server: isolated HTTPServer) {
        guard let connection else { return }
        machine.sendPing(number)
        takeOutput(connection, on: server)
    }

    private func ping(_ connection: Connection, on server: isolated HTTPServer) {
        pongCount = machine.pongCount
        machine.sendPing()
        server.setDeadline(connection, .pong)
        takeOutput(connection, on: server)
    }

    private func takeOutput(_ connection: Connection, on server: isolated HTTPServer) {
        if machine.hasOutput {
            connection.withOutput { machine.takeOutput(into: &$0) }
            server.flushAtEndOfTurn(connection)
            if connection.queuedBytes > server.configuration.maximumQueuedBytes { return connection.close(on: server) }
        }
        if machine.isFinished, connection.stage == .open {
            connection.finish(on: server)
            // The peer may take nothing: whatever deadline the WebSocket had no longer means anything.
            server.setDeadline(connection, .write)
        }
    }

    // MARK: Delivery

    private func startDelivery(on server: isolated HTTPServer) {
        guard !isDelivering else { return }
        isDelivering = true
        server.deliveries += 1
        Task { await deliver(on: server) }
    }

    private func deliver(on server: isolated HTTPServer) async {
        while let message = machine.nextMessage() {
            await server.awaitTurn(owners)
            await withTaskExecutorPreference(server.loop) { await server.handler.received(message, on: handle) }
            message.wipe()
            connection?.advance(on: server)
        }
        if connection == nil {
            await server.handler.closed(handle, code: machine.peerCloseCode)
        } else {
            isDelivering = false
        }
        server.deliveries -= 1
        server.checkDrained()
    }

    func markJoined(on server: isolated HTTPServer) {
        if let charge = unjoined.take() { server.configuration.shares.refund(charge) }
    }

    // MARK: The end

    func close(_ code: CloseCode, on server: isolated HTTPServer) {
        guard let connection, connection.stage == .open, !machine.isClosing else { return }
        machine.close(code)
        server.setDeadline(connection, .close)
        takeOutput(connection, on: server)
        // Reading may have waited for the handler.
        server.advanceInNextTurn(connection.id)
    }

    func expire(_ kind: Deadlines.Kind, on server: isolated HTTPServer) {
        guard let connection else { return }
        switch kind {
        case .firstMessage where connection.stage == .open: close(.policyViolation, on: server)
        case .ping where connection.stage == .open: ping(connection, on: server)
        default: connection.close(on: server)
        }
    }

    /// The connection is gone: the handler sees the messages that had come, then the end.
    func close(on server: isolated HTTPServer) {
        connection = nil
        markJoined(on: server)
        server.statistics.openWebSockets -= 1
        startDelivery(on: server)
    }
}
