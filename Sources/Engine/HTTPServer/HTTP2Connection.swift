import EventLoop
import HTTP1
import HTTP2
import Linux
import Shares

/// HTTP/2 on one connection (RFC 9113). Each stream's request goes to the handler like one of HTTP/1.1.
final class HTTP2Connection {
    /// Queued frames above which no more is read from the peer.
    private static let waitingFrames = 1_000
    /// The limit on uncharged responses to an owner over its share. A peer that exceeds it loses its connection.
    static let mostUncharged = 4

    private let connection: Connection
    let session: HTTP2Session
    private var streams: [Int32: HTTP2Stream] = [:]
    private var uncharged = 0
    /// Requests are no longer accepted.
    private var isEnding = false
    /// When the incomplete header block began.
    private var blockSinceMs: UInt64?
    /// Whether a request has begun since the drain's last check.
    private var hasBegun = false

    private init(_ connection: Connection, _ session: HTTP2Session) {
        self.connection = connection
        self.session = session
    }

    /// Starts HTTP/2 after ALPN selected it.
    static func begin(on connection: Connection, _ server: isolated HTTPServer) {
        guard let session = try? HTTP2Session(.server, limits: server.configuration.streamLimits) else {
            return connection.close(on: server)
        }
        // Reserve the largest batch, so that the array never grows and leaves bytes behind.
        server.outbound.reserveCapacity(Connection.outboundBytes + 16_384 + 9)
        let http2 = HTTP2Connection(connection, session)
        connection.become(.http2(http2))
        // Until the peer's settings have arrived.
        server.setDeadline(connection, .header)
        if server.isDraining { http2.leave(on: server) }
        server.flushAtEndOfTurn(connection)
    }

    var isAnswering: Bool { streams.values.contains { $0.phase == .answering || $0.phase == .sending } }
    var isTaking: Bool { !connection.isBlocked && session.outboundFrames < Self.waitingFrames }
    private var isBusy: Bool { !streams.isEmpty || blockSinceMs != nil }

    // MARK: Requests

    func take(_ bytes: Span<UInt8>, on server: isolated HTTPServer) {
        do throws(HTTP2Error) {
            try session.receive(bytes)
        } catch {
            // Send the session's GOAWAY first.
            connection.finish(on: server)
            server.statistics.refusals += 1
        }
        takeEvents(on: server)
        blockSinceMs = session.isInHeaderBlock ? blockSinceMs ?? server.loop.now : nil
        updateDeadline(on: server)
        server.flushAtEndOfTurn(connection)
    }

    /// Handles the session's events.
    private func takeEvents(on server: isolated HTTPServer) {
        for event in session.takeEvents() {
            switch event {
            case .headers(let number, let headers): if !isEnding { begin(number, headers, on: server) }
            case .data(let number, let data): if let stream = streams[number] { take(data, stream, on: server) }
            case .end(let number): if let stream = streams[number] { dispatch(stream, on: server) }
            case .tooLarge(let number, let part):
                guard let stream = streams[number] ?? open(number, isHead: false, HTTP2Stream.cost, on: server) else { break }
                refuse(stream, part == .headers ? .headersTooLarge : .bodyTooLarge, on: server)
            case .closed(let number, _):
                if let stream = streams[number] { end(stream, on: server) }
                // Only after the response: an earlier GOAWAY would hide it from some clients.
                if connection.overflow != nil { finish(on: server) }
            case .pingAcknowledged: if server.isDraining { try? session.submitGoAway(.noError) }
            case .settings, .goAway: break
            }
        }
    }

    private func begin(_ number: Int32, _ headers: HTTP2Headers, on server: isolated HTTPServer) {
        let isHead = headers.withValue(of: ":method") { HTTP1.Method(name: $0) == .head } ?? false
        let request = StreamRequest(headers, server.configuration.limits)
        hasBegun = true
        guard let stream = open(number, isHead: isHead, request.byteCount, on: server) else { return }
        switch request {
        case .refused(let refusal): refuse(stream, refusal, on: server)
        case .taken(let builder, let expectsContinue):
            stream.builder = builder
            if let overflow = connection.overflow { return refuse(stream, overflow, on: server) }
            if expectsContinue { try? session.submitInterimResponse(stream: number, status: "100") }
        }
    }

    private func take(_ data: HTTP2Data, _ stream: HTTP2Stream, on server: isolated HTTPServer) {
        guard let builder = stream.builder else { return }
        guard builder.allowsBody(builder.bodyCount + data.count, server.configuration.limits) else {
            return refuse(stream, .bodyTooLarge, on: server)
        }
        if let shortage = charge(stream, data.count, on: server) { return refuse(stream, Refusal(shortage), on: server) }
        builder.appendBody(data.bytes.span)
    }

    private func dispatch(_ stream: HTTP2Stream, on server: isolated HTTPServer) {
        guard let builder = stream.builder.take() else { return }
        let bytes = builder.byteCount
        guard var request = HTTPRequest(builder.finish(), remote: connection.remote) else {
            _ = charge(stream, -bytes, on: server)
            return refuse(stream, .malformedRequest, on: server)
        }
        server.statistics.requests += 1
        request.owners = server.owners(of: request, connection)
        stream.requestBytes = bytes
        stream.phase = .answering
        if let shortage = charge(stream, to: request.owners.payer, on: server) {
            return refuse(stream, Refusal(shortage), on: server)
        }
        stream.request = request
        guard server.takesTurn(request) else { return server.wait(.stream(stream, connection.id), request.owners) }
        start(stream, on: server)
    }

    /// Handles the stream's request.
    func start(_ stream: HTTP2Stream, on server: isolated HTTPServer) {
        // The peer has cancelled the request.
        if stream.phase == .abandoned { return release(stream, on: server) }
        server.callHandler(.respondOnStream(stream, connection.id))
    }

    // MARK: Answers

    /// Sends or zeroes a response. The session then has the only copy.
    func answer(_ response: inout HTTPResponse, _ stream: HTTP2Stream, on server: isolated HTTPServer) {
        guard stream.phase == .answering else {
            release(stream, on: server)
            return response.discard()
        }
        let isCounted = response.hasBody && !stream.isHead && !response.isBodyShared
        // A peer that requests much and reads nothing must not fill the memory.
        let more = (isCounted ? response.body.count : 0) - stream.requestBytes
        if abs(more) > HTTP2Stream.slack, let shortage = charge(stream, more, on: server) {
            response.discard()
            return refuse(stream, Refusal(shortage), on: server)
        }
        if response.closesConnection { try? session.submitGoAway(.noError) }
        send(&response, stream, on: server)
    }

    /// Answers without the handler. The rest of the request is ignored.
    private func refuse(_ stream: HTTP2Stream, _ refusal: Refusal, on server: isolated HTTPServer) {
        guard stream.phase == .receiving || stream.phase == .answering else { return }
        server.statistics.refusals += 1
        if let builder = stream.builder.take() { _ = charge(stream, -builder.byteCount, on: server) }
        if stream.place == nil {
            uncharged += 1
            if uncharged > Self.mostUncharged { return cutOff(on: server) }
        }
        var response = server.configuration.refuse(refusal)
        send(&response, stream, on: server)
    }

    /// Terminates the session of a peer that is over its share, sends more requests and reads no responses.
    private func cutOff(on server: isolated HTTPServer) {
        isEnding = true
        session.terminate(.enhanceYourCalm)
        server.flushAtEndOfTurn(connection)
    }

    private func send(_ response: inout HTTPResponse, _ stream: HTTP2Stream, on server: isolated HTTPServer) {
        server.writer.setTime(wallMs: Clock.wallMs)
        let headers = server.writer.headers(of: response)
        var body: [UInt8] = []
        if response.hasBody, !stream.isHead { swap(&body, &response.body) }
        stream.send(nowMs: server.loop.now)
        do throws(HTTP2Error) {
            try session.submitResponse(stream: stream.number, headers, body: body, isShared: response.isBodyShared)
        } catch {
            if !response.isBodyShared { wipe(&body) }
        }
        server.flushAtEndOfTurn(connection)
    }

    /// The socket has accepted all output.
    func written(_ wrote: Bool, on server: isolated HTTPServer) {
        takeEvents(on: server)
        if session.isFinished { return connection.linger(on: server) }
        if server.deadline(of: connection) == .write { server.clearDeadline(connection) }
        updateDeadline(on: server)
        // Without progress, another turn would not help.
        if wrote, session.wantsWrite { server.flushAtEndOfTurn(connection) }
        if connection.hasInput || connection.isReadable { connection.advance(on: server) }
    }

    // MARK: Charges

    /// Charges a new stream, or refuses it.
    /// - Parameter bytes: the initial charge.
    private func open(_ number: Int32, isHead: Bool, _ bytes: Int, on server: isolated HTTPServer) -> HTTP2Stream? {
        let stream = HTTP2Stream(number, isHead: isHead, sinceMs: server.loop.now)
        streams[number] = stream
        do throws(Shortage) {
            stream.place = try charge(.streams, 1, on: server)
            stream.bytes = try charge(.streamBytes, bytes, on: server)
            return stream
        } catch {
            stream.refund(server.configuration.shares)
            refuse(stream, Refusal(error), on: server)
            return nil
        }
    }

    private func charge(_ resource: Resource, _ amount: Int, on server: isolated HTTPServer) throws(Shortage) -> Charge {
        while true {
            do throws(Shortage) {
                return try server.configuration.shares.charge(resource, amount, to: connection.owners)
            } catch {
                guard server.makeRoom(error, resource, amount, for: connection) else { throw error }
            }
        }
    }

    /// Changes a stream's charge by `more` bytes.
    private func charge(_ stream: HTTP2Stream, _ more: Int, on server: isolated HTTPServer) -> Shortage? {
        guard more != 0, var charge = stream.bytes else { return nil }
        defer { stream.bytes = charge }
        let shares = server.configuration.shares
        if more < 0 {
            shares.shrink(&charge, by: -more)
            return nil
        }
        while true {
            do throws(Shortage) {
                try shares.grow(&charge, by: more)
                return nil
            } catch {
                guard server.makeRoom(error, .streamBytes, more, for: connection) else { return error }
            }
        }
    }

    /// Moves the charges of a request from a trusted proxy to the request's origin.
    private func charge(_ stream: HTTP2Stream, to payer: Owner, on server: isolated HTTPServer) -> Shortage? {
        guard connection.owners.payer.isProxy else { return nil }
        let shares = server.configuration.shares
        for charge in [stream.place, stream.bytes] {
            guard let charge else { continue }
            do throws(Shortage) {
                let moved = try shares.charge(charge.resource, charge.amount, to: Owners(payer))
                if charge.resource == .streams { stream.place = moved } else { stream.bytes = moved }
                shares.refund(charge)
            } catch { return error }
        }
        return nil
    }

    private func release(_ stream: HTTP2Stream, on server: isolated HTTPServer) {
        guard streams.removeValue(forKey: stream.number) != nil else { return }
        if stream.place == nil { uncharged -= 1 }
        stream.refund(server.configuration.shares)
    }

    // MARK: Stalled streams

    /// Ends the stream that has stalled longest, to make room for others.
    /// - Returns: false if none has stalled.
    func endLongestStalled(for other: Connection, on server: isolated HTTPServer) -> Bool {
        guard let stream = longestStalled(on: server) else { return false }
        if connection.isBlocked, connection !== other {
            connection.close(on: server)
        } else {
            try? session.reset(stream: stream.number, .cancel)
            release(stream, on: server)
            server.flushAtEndOfTurn(connection)
        }
        return true
    }

    private func longestStalled(on server: isolated HTTPServer) -> HTTP2Stream? {
        let now = server.loop.now
        var longest: HTTP2Stream?
        for stream in streams.values where stream.phase == .sending {
            let sent = session.sentBytes(stream: stream.number)
            if sent > stream.sent {
                stream.sent = sent
                stream.stalledSinceMs = now
            }
            guard now - stream.stalledSinceMs >= server.configuration.stallMs else { continue }
            if let longest, (longest.stalledSinceMs, longest.number) < (stream.stalledSinceMs, stream.number) { continue }
            longest = stream
        }
        return longest
    }

    // MARK: Deadlines

    /// Sets the deadline for the periodic check of requests, or the idle deadline if there are none.
    private func updateDeadline(on server: isolated HTTPServer) {
        guard session.hasRemoteSettings, connection.stage == .open else { return }
        let wanted: Deadlines.Kind = isBusy ? .streams : .idle
        let kind = server.deadline(of: connection)
        if kind != wanted, kind != .write { server.setDeadline(connection, wanted) }
    }

    func expire(_ kind: Deadlines.Kind, on server: isolated HTTPServer) {
        switch kind {
        case .streams: checkStreams(on: server)
        case .idle where connection.stage != .open: connection.finish(on: server)
        default: finish(on: server)
        }
    }

    private func checkStreams(on server: isolated HTTPServer) {
        let now = server.loop.now
        let configuration = server.configuration
        if let since = blockSinceMs, now - since >= configuration.headerMs {
            // Nothing else can arrive on this connection before the header block ends.
            session.terminate(.enhanceYourCalm)
        }
        for stream in streams.values {
            switch stream.phase {
            case .receiving where now - stream.sinceMs >= configuration.bodyMs: refuse(stream, .requestTimeout, on: server)
            case .sending where now - stream.sinceMs >= configuration.writeMs:
                try? session.reset(stream: stream.number, .cancel)
            default: break
            }
        }
        if longestStalled(on: server) != nil {
            server.stalled.add(connection.id.slot, connection.owners.payer, nowMs: now)
        } else {
            server.stalled.remove(connection.id.slot)
        }
        server.setDeadline(connection, isBusy ? .streams : .idle)
        server.flushAtEndOfTurn(connection)
    }

    // MARK: The end

    /// Handles a closed stream.
    private func end(_ stream: HTTP2Stream, on server: isolated HTTPServer) {
        // The handler still has the request.
        if stream.phase == .answering { stream.phase = .abandoned } else { release(stream, on: server) }
    }

    /// Handles a closed connection.
    func close(on server: isolated HTTPServer) {
        for stream in streams.values { end(stream, on: server) }
    }

    /// Handles the end of the peer's stream.
    func end(on server: isolated HTTPServer) {
        if isAnswering { finish(on: server) } else { connection.close(on: server) }
    }

    /// Announces a shutdown. Requests that the peer has already sent are answered (RFC 9113 section 6.8).
    func leave(on server: isolated HTTPServer) {
        try? session.submitShutdownNotice()
        // The ping's acknowledgement shows that the peer has read the notice.
        try? session.submitPing(0)
        server.flushAtEndOfTurn(connection)
    }

    /// Refuses new requests, and ends after the current ones are answered.
    private func finish(on server: isolated HTTPServer) {
        try? session.submitGoAway(.noError)
        server.flushAtEndOfTurn(connection)
    }

    /// Like `finish`, unless a request has begun since the last call. A peer that still sends requests has not read the notice, so accept them until
    /// it acknowledges the ping.
    func finishIfQuiet(on server: isolated HTTPServer) {
        if !hasBegun { finish(on: server) }
        hasBegun = false
    }
}
