import EventLoop
import HTTP1
import Shares
import TLS
import WebSocket

/// A WebSocket on one connection: ordered delivery, pings, closing.
///
/// It outlives its connection until the handler has seen all messages.
final class WebSocketConnection {
    /// Waiting messages above which no more is read from the peer.
    private static let waitingMessages = 16
    private static let waitingBytes = 262_144

    /// Nil once the connection has closed.
    private var connection: Connection?
    private let handle: WebSocketHandle
    private let machine: WebSocketMachine
    /// The owners of the upgrade request.
    private let owners: Owners
    /// A task is calling the handler.
    private var isDelivering = false
    /// The charge until the handler calls `markJoined`.
    private var unjoined: Charge?
    /// The charge for the messages in memory, if long ones are allowed.
    private var bytes: Charge?
    /// The length of the message that the handler has.
    private var handledBytes = 0
    /// `machine.pongCount` when the last ping was sent.
    private var pongCount = 0

    private init(_ connection: Connection, _ owners: Owners, _ unjoined: Charge, _ server: HTTPServer, maximumBytes: Int) {
        self.connection = connection
        self.owners = owners
        self.unjoined = unjoined
        handle = WebSocketHandle(id: connection.id, server: server)
        machine = WebSocketMachine(role: .server, maximumBytes: maximumBytes)
    }

    /// Starts the WebSocket after an accepted upgrade.
    static func begin(
        on connection: Connection, _ request: HTTPRequest, _ exchange: HTTP1Exchange, _ unjoined: Charge,
        _ server: isolated HTTPServer
    ) {
        let webSocket = WebSocketConnection(
            connection, request.owners, unjoined, server, maximumBytes: server.configuration.maximumMessageBytes)
        connection.become(.webSocket(webSocket))
        server.statistics.openWebSockets += 1
        server.setDeadline(connection, .firstMessage)
        webSocket.isDelivering = true
        server.deliveries += 1
        exchange.request = request
        server.callHandler(.open(webSocket, exchange))
        if server.isDraining { webSocket.close(.goingAway, on: server) }
    }

    var isTaking: Bool { machine.messageCount < Self.waitingMessages && machine.messageBytes < Self.waitingBytes }

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
        if !chargeMessages(on: server) { return close(.policyViolation, on: server) }
        takeOutput(connection, on: server)
    }

    /// - Returns: false if the socket is closing or its peer reads too slowly.
    func send(_ text: [UInt8], on server: isolated HTTPServer) -> Bool {
        guard let connection, machine.send(text.span) else { return false }
        takeOutput(connection, on: server)
        return connection.stage != .closed
    }

    /// Sends a numbered ping. The deadline of the server's own pings does not change.
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
            // Don't wait for the end of the TCP connection: the peer may be suspended before it.
            startDelivery(on: server)
            // The peer may read nothing, so the write deadline replaces the WebSocket's.
            server.setDeadline(connection, .write)
        }
    }

    // MARK: Delivery

    private func startDelivery(on server: isolated HTTPServer) {
        guard !isDelivering else { return }
        isDelivering = true
        server.deliveries += 1
        server.callHandler(.deliver(self))
    }

    func open(_ exchange: HTTP1Exchange, on server: isolated HTTPServer) async {
        if let request = exchange.request.take() {
            await server.handler.opened(handle, request: request)
            request.message.wipe()
        }
        await deliver(on: server)
    }

    /// Passes the messages that have arrived to the handler.
    func deliver(on server: isolated HTTPServer) async {
        while let message = machine.nextMessage() {
            handledBytes = message.count
            await server.awaitTurn(owners, bytes: message.count)
            await server.handler.received(message, on: handle)
            message.wipe()
            handledBytes = 0
            // Fails only after `markJoined`, when the messages that wait are charged for the first time.
            if !chargeMessages(on: server) { close(.policyViolation, on: server) }
            connection?.advance(on: server)
        }
        if connection == nil || machine.isFinished {
            // No delivery follows.
            if let charge = bytes.take() { server.configuration.shares.refund(charge) }
            await server.handler.closed(handle, code: machine.peerCloseCode)
        } else {
            isDelivering = false
        }
        server.deliveries -= 1
        server.checkDrained()
    }

    /// - Parameter maximumBytes: a higher limit for messages.
    func markJoined(_ maximumBytes: Int? = nil, on server: isolated HTTPServer) {
        if let charge = unjoined.take() { server.configuration.shares.refund(charge) }
        if let maximumBytes { machine.raise(maximumBytes: maximumBytes) }
    }

    /// Charges the messages in memory of a socket that may send long ones.
    /// - Returns: false if the socket's owners are over their share.
    private func chargeMessages(on server: isolated HTTPServer) -> Bool {
        guard machine.maximumBytes > server.configuration.maximumMessageBytes else { return true }
        let shares = server.configuration.shares
        let held = handledBytes + machine.messageBytes + machine.partialBytes
        do throws(Shortage) {
            guard var charge = bytes else {
                if held > 0 { bytes = try shares.charge(.streamBytes, held, to: owners) }
                return true
            }
            if held > charge.amount {
                try shares.grow(&charge, by: held - charge.amount)
            } else {
                shares.shrink(&charge, by: charge.amount - held)
            }
            bytes = charge
            return true
        } catch { return false }
    }

    // MARK: The end

    func close(_ code: CloseCode, on server: isolated HTTPServer) {
        guard let connection, connection.stage == .open, !machine.isClosing else { return }
        machine.close(code)
        server.setDeadline(connection, .close)
        takeOutput(connection, on: server)
        // Reading may have been paused for the handler.
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

    /// Handles the closed connection: the handler gets the messages that have arrived, then the end.
    func close(on server: isolated HTTPServer) {
        connection = nil
        markJoined(on: server)
        server.statistics.openWebSockets -= 1
        startDelivery(on: server)
    }
}

/// The opening handshake (RFC 6455, section 4).
enum WebSocketHandshake {
    /// Returns `Sec-WebSocket-Accept` for the request.
    static func accept(_ message: Message) throws(HandshakeFailure) -> String {
        guard message.method == .get, message.isVersion11, message.bodyCount == 0,
            message.listContains("upgrade", "websocket"), message.listContains("connection", "upgrade"),
            let key = message.header("sec-websocket-key"), isKey(key),
            isSingle("sec-websocket-key", message), isSingle("sec-websocket-version", message)
        else { throw .incomplete }
        guard message.header("sec-websocket-version") == "13" else { throw .version }
        return answer(to: key)
    }

    /// Returns true if the message has at most one header line called `name` (RFC 6455 section 11.3).
    private static func isSingle(_ name: StaticString, _ message: Message) -> Bool {
        var count = 0
        message.forEachHeader(name) { _ in count += 1 }
        return count <= 1
    }

    /// Returns a server's answer to `key`.
    static func answer(to key: String) -> String {
        let text = Array((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").utf8)
        return base64(SHA1.digest(text.span))
    }

    static func makeKey() -> String { base64((0..<16).map { _ in UInt8.random(in: .min ... .max) }) }

    /// Whether `key` has the form of 16 bytes in base64.
    private static func isKey(_ key: String) -> Bool {
        key.utf8.count == 24 && key.hasSuffix("==") && key.utf8.dropLast(2).allSatisfy { alphabet.contains($0) }
    }

    private static let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    private static func base64(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let group = bytes[start..<min(start + 3, bytes.count)]
            let bits = group.enumerated().reduce(0) { $0 | Int($1.element) << (16 - 8 * $1.offset) }
            for index in 0..<4 { text.append(index <= group.count ? alphabet[bits >> (18 - 6 * index) & 63] : UInt8(ascii: "=")) }
        }
        return String(decoding: text, as: UTF8.self)
    }
}

enum HandshakeFailure: Error { case incomplete, version }
