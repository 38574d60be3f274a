import HTTP1
import Linux
import Shares

/// HTTP/1.1 on one connection, one request at a time. Nothing is parsed while a request is being answered, so responses keep their order.
final class HTTP1Connection {
    /// Bytes of unsent responses above which no more requests are parsed.
    private static let outputLimit = 65_536

    private let connection: Connection
    let parser: RequestParser
    /// The handler is answering a request.
    private var isAnswering = false
    let exchange: HTTP1Exchange
    private var sentContinue = false

    // Properties of the request being answered.
    private var keepsAlive = true
    private var isVersion11 = true
    private var isHead = false
    /// Bytes of another request arrived with it.
    private var hasFollower = false

    init(_ connection: Connection, _ limits: MessageLimits) {
        self.connection = connection
        parser = RequestParser(limits: limits)
        exchange = HTTP1Exchange(connection.id)
    }

    private var longBody: Charge? {
        get { exchange.longBody }
        set { exchange.longBody = newValue }
    }

    var isTaking: Bool { !isAnswering && !connection.isBlocked && connection.output.count < Self.outputLimit }
    private var isIdle: Bool { parser.phase == .idle && !connection.hasInput }

    // MARK: Requests

    func take(_ bytes: Span<UInt8>, on server: isolated HTTPServer) -> Int {
        if isAnswering { return bytes.count }
        switch parser.parse(bytes) {
        case .incomplete:
            switch parser.phase {
            case .head: if server.deadline(of: connection) != .header { server.setDeadline(connection, .header) }
            case .body:
                if server.deadline(of: connection) != .body { server.setDeadline(connection, .body) }
                if parser.awaitsContinue, !sentContinue {
                    sentContinue = true
                    connection.withOutput { $0.append(contentsOf: ResponseWriter.continueResponse) }
                    server.flushAtEndOfTurn(connection)
                }
                if let shortage = chargeBody(on: server) { refuse(Refusal(shortage), on: server) }
            default: break
            }
            return bytes.count
        case .complete(let consumed):
            if let shortage = chargeBody(on: server) {
                refuse(Refusal(shortage), on: server)
                return bytes.count
            }
            hasFollower = consumed < bytes.count
            dispatch(parser.takeMessage(), on: server)
            return consumed
        case .failed(let failure):
            refuse(Refusal(failure), on: server)
            return bytes.count
        }
    }

    private func dispatch(_ message: Message, on server: isolated HTTPServer) {
        server.clearDeadline(connection)
        sentContinue = false
        keepsAlive = message.keepsAlive
        isVersion11 = message.isVersion11
        isHead = message.method == .head
        guard var request = HTTPRequest(message, remote: connection.remote) else { return refuse(.malformedRequest, on: server) }
        request.owners = server.owners(of: request, connection)
        if let shortage = chargeBody(to: request.owners.payer, on: server) { return refuse(Refusal(shortage), on: server) }
        server.statistics.requests += 1
        isAnswering = true
        exchange.request = request
        guard server.takesTurn(request) else { return server.wait(.request(connection.id), request.owners) }
        start(request, on: server)
    }

    /// Handles the request in `exchange`.
    func start(_ request: HTTPRequest, on server: isolated HTTPServer) {
        if request.message.wantsUpgrade, server.handler.shouldUpgrade(request) {
            exchange.request = nil
            return upgrade(request, on: server)
        }
        server.callHandler(.respond(exchange))
    }

    private func upgrade(_ request: HTTPRequest, on server: isolated HTTPServer) {
        let accept: String
        do throws(HandshakeFailure) {
            accept = try WebSocketHandshake.accept(request.message)
        } catch {
            return refuse(error == .version ? .upgradeVersion : .badUpgrade, on: server)
        }
        let unjoined: Charge
        do throws(Shortage) {
            unjoined = try server.configuration.shares.charge(.unjoinedSockets, to: request.owners)
        } catch {
            return refuse(Refusal(error), on: server)
        }
        let head =
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: \(accept)\r\n\r\n"
        connection.withOutput { $0.append(contentsOf: head.utf8) }
        server.flushAtEndOfTurn(connection)
        WebSocketConnection.begin(on: connection, request, exchange, unjoined, server)
    }

    // MARK: Long bodies

    /// Charges a body over the usual limit, as far as it has arrived.
    private func chargeBody(on server: isolated HTTPServer) -> Shortage? {
        let count = parser.bodyCount
        guard count > server.configuration.limits.bodyBytes else { return nil }
        let shares = server.configuration.shares
        while true {
            let more = count - (longBody?.amount ?? 0)
            do throws(Shortage) {
                if var charge = longBody {
                    try shares.grow(&charge, by: more)
                    longBody = charge
                } else {
                    longBody = try shares.charge(.streamBytes, more, to: connection.owners)
                }
                return nil
            } catch {
                guard server.makeRoom(error, .streamBytes, more, for: connection) else { return error }
            }
        }
    }

    /// Moves the charge of a request from a trusted proxy to the request's origin.
    private func chargeBody(to payer: Owner, on server: isolated HTTPServer) -> Shortage? {
        guard let charge = longBody, connection.owners.payer.isProxy else { return nil }
        let shares = server.configuration.shares
        do throws(Shortage) {
            longBody = try shares.charge(charge.resource, charge.amount, to: Owners(payer))
            shares.refund(charge)
            return nil
        } catch { return error }
    }

    /// Refunds the charge for a body that no task has.
    func releaseBody(on server: isolated HTTPServer) {
        if let charge = longBody.take() { server.configuration.shares.refund(charge) }
    }

    // MARK: Answers

    func answer(_ response: HTTPResponse, on server: isolated HTTPServer) {
        guard isAnswering, connection.stage == .open else { return }
        // A drain answers requests that were sent before the peer could know.
        let isLast = server.isDraining && !hasFollower && !connection.hasInput && !connection.socket.hasInput
        let closes = !keepsAlive || response.closesConnection || isLast
        write(response, closes: closes, on: server)
        if closes { return connection.finish(on: server) }
        isAnswering = false
        // Earlier output may still wait for the peer, with the write deadline.
        if !connection.isBlocked { server.setDeadline(connection, .idle) }
        if connection.hasInput || connection.isReadable || connection.isTLSClosed { connection.advance(on: server) }
    }

    /// Answers without the handler and closes the connection.
    func refuse(_ refusal: Refusal, on server: isolated HTTPServer) {
        server.statistics.refusals += 1
        server.clearDeadline(connection)
        connection.dropInput()
        parser.abandon()
        releaseBody(on: server)
        isHead = false
        isVersion11 = true
        write(server.configuration.refuse(refusal), closes: true, on: server)
        connection.finish(on: server)
    }

    private func write(_ response: HTTPResponse, closes: Bool, on server: isolated HTTPServer) {
        server.writer.setTime(wallMs: Clock.wallMs)
        connection.withOutput { output in
            server.buffers.lend(to: &output)
            server.writer.write(response, isHead: isHead, closes: closes, isVersion11: isVersion11, to: &output)
        }
        server.flushAtEndOfTurn(connection)
    }

    /// The socket has accepted all output.
    /// - Parameter wasBlocked: it had accepted only a part before, and the deadline is that of the write.
    func written(_ wasBlocked: Bool, on server: isolated HTTPServer) {
        if isAnswering {
            if wasBlocked { server.clearDeadline(connection) }
        } else if wasBlocked {
            server.setDeadline(connection, isIdle ? .idle : parser.phase == .body ? .body : .header)
            connection.advance(on: server)
        } else if connection.hasInput || connection.isReadable {
            connection.advance(on: server)
        }
    }

    // MARK: The end

    func expire(_ kind: Deadlines.Kind, on server: isolated HTTPServer) {
        switch kind {
        case .header, .body: refuse(.requestTimeout, on: server)
        default: connection.finish(on: server)
        }
    }

    func finishIfIdle(on server: isolated HTTPServer) {
        if connection.stage == .open, !isAnswering, isIdle { connection.finish(on: server) }
    }

    /// Handles the end of the peer's stream.
    func end(on server: isolated HTTPServer) {
        if isAnswering { return }
        if connection.queuedBytes > 0 { connection.finish(on: server) } else { connection.close(on: server) }
    }
}

/// The request of a connection that the handler gets next. Its task must not hold the connection, because the socket closes on deinit.
final class HTTP1Exchange {
    let id: ConnectionID
    /// A task that takes it leaves nil.
    var request: HTTPRequest?
    /// The charge for a body over the usual limit, until a task has the request.
    var longBody: Charge?

    init(_ id: ConnectionID) { self.id = id }
}
