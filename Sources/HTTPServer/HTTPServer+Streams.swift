import EventLoop
import HTTP1
import HTTP2
import Linux

// HTTP/2 (RFC 9113): each stream's request goes to the handler like one of HTTP/1.1.
extension HTTPServer {
    /// TLS has agreed on HTTP/2: what comes now are frames.
    func beginStreams(_ connection: Connection) {
        let limits = configuration.limits
        var streamLimits = HTTP2Limits(bodyBytes: limits.bodyBytes, concurrentStreams: UInt32(configuration.concurrentStreams))
        // Every field counts 32 bytes more than it is long (RFC 9113 section 6.5.2), and the target is one of them.
        streamLimits.headerListBytes = limits.targetBytes + limits.headerBytes + 32 * (limits.headerCount + 4)
        streamLimits.headerFields = limits.headerCount + 4
        // Capabilities must not stay behind in a table of the connection.
        streamLimits.headerTableBytes = 0
        guard let session = try? HTTP2Session(.server, limits: streamLimits) else { return drop(connection) }
        // Room for the largest turn, so that nothing is left behind where an array grew.
        outbound.reserveCapacity(Self.outboundBytes + 16_384 + 9)
        let table = StreamTable(session)
        connection.streams = table
        connection.parser = nil
        connection.state = .streams
        // Until the peer's settings have come.
        setDeadline(connection, .header)
        if isDraining { leave(connection) }
        markDirty(connection)
    }

    func takeFrames(_ bytes: Span<UInt8>, _ connection: Connection, _ table: StreamTable) {
        do throws(HTTP2Error) {
            try table.session.receive(bytes)
        } catch {
            // The session's last word, a GOAWAY, goes out first.
            connection.state = .finishing
            statistics.refusals += 1
        }
        takeEvents(connection, table)
        table.blockSinceMs = table.session.isInHeaderBlock ? table.blockSinceMs ?? loop.now : nil
        updateDeadline(connection, table)
        markDirty(connection)
    }

    /// Handles what the session noticed while it read or wrote.
    func takeEvents(_ connection: Connection, _ table: StreamTable) {
        for event in table.session.takeEvents() {
            switch event {
            case .headers(let stream, let headers): begin(stream, headers, connection, table)
            case .data(let stream, let data): take(data, stream, connection, table)
            case .end(let stream): dispatch(stream, connection, table)
            case .tooLarge(let stream, let part):
                refuse(stream, part == .headers ? .headersTooLarge : .bodyTooLarge, connection, table)
            case .closed(let stream, _):
                if let state = table.streams.removeValue(forKey: stream) { release(state) }
                // Once it has been told: a GOAWAY before the answer would hide that from some.
                if connection.isOverflow { finishStreams(connection) }
            case .pingAcknowledged: if isDraining { try? table.session.submitGoAway(.noError) }
            case .settings, .goAway: break
            }
        }
    }

    private func begin(_ stream: Int32, _ headers: HTTP2Headers, _ connection: Connection, _ table: StreamTable) {
        let isHead = headers.withValue(of: ":method") { HTTP1.Method(name: $0) == .head } ?? false
        table.hasBegun = true
        open(stream, isHead: isHead, table)
        switch StreamRequest(headers, configuration.limits) {
        case .refused(let refusal): refuse(stream, refusal, connection, table)
        case .taken where connection.isOverflow:
            refuse(stream, .tooManyConnections, connection, table)
        case .taken(let builder, let expectsContinue):
            streamBytes += builder.byteCount
            table.streams[stream]?.builder = builder
            if streamBytes > configuration.maximumStreamBytes { return refuse(stream, .overloaded, connection, table) }
            if expectsContinue { try? table.session.submitInterimResponse(stream: stream, status: "100") }
        }
    }

    private func open(_ stream: Int32, isHead: Bool, _ table: StreamTable) {
        table.streams[stream] = StreamTable.Stream(sinceMs: loop.now, isHead: isHead)
        streamBytes += StreamTable.Stream.cost
    }

    private func take(_ data: HTTP2Data, _ stream: Int32, _ connection: Connection, _ table: StreamTable) {
        guard let builder = table.streams[stream]?.builder else { return }
        builder.appendBody(data.bytes.span)
        streamBytes += data.count
        if streamBytes > configuration.maximumStreamBytes { refuse(stream, .overloaded, connection, table) }
    }

    private func dispatch(_ stream: Int32, _ connection: Connection, _ table: StreamTable) {
        guard let builder = table.streams[stream]?.builder else { return }
        table.streams[stream]?.builder = nil
        let bytes = builder.byteCount
        guard let request = HTTPRequest(builder.finish(), remote: connection.remote) else {
            streamBytes -= bytes
            return refuse(stream, .malformedRequest, connection, table)
        }
        statistics.requests += 1
        table.streams[stream]?.phase = .answering
        Task { [id = connection.id] in
            let response = await handler.respond(to: request)
            request.message.wipe()
            streamBytes -= bytes
            answer(stream, of: id, response)
        }
    }

    private func answer(_ stream: Int32, of id: ConnectionID, _ response: consuming HTTPResponse) {
        guard let connection = connection(id), let table = connection.streams, table.streams[stream] != nil else {
            return wipe(&response.body)
        }
        // Whoever asks for much and takes nothing must not fill the memory.
        if streamBytes + response.body.count > configuration.maximumStreamBytes {
            wipe(&response.body)
            return refuse(stream, .overloaded, connection, table)
        }
        if response.closesConnection { try? table.session.submitGoAway(.noError) }
        send(response, stream, connection, table)
    }

    /// Answers without the handler; the rest of the request is not waited for.
    private func refuse(_ stream: Int32, _ refusal: Refusal, _ connection: Connection, _ table: StreamTable) {
        guard table.streams[stream]?.phase != .sending else { return }
        statistics.refusals += 1
        if table.streams[stream] == nil { open(stream, isHead: false, table) }
        if let builder = table.streams[stream]?.builder { streamBytes -= builder.byteCount }
        table.streams[stream]?.builder = nil
        send(configuration.refuse(refusal), stream, connection, table)
    }

    private func send(_ response: consuming HTTPResponse, _ stream: Int32, _ connection: Connection, _ table: StreamTable) {
        guard let isHead = table.streams[stream]?.isHead else { return wipe(&response.body) }
        writer.setTime(wallMs: Clock.wallMs)
        let headers = writer.headers(of: response)
        var body: [UInt8] = []
        if response.hasBody, !isHead { swap(&body, &response.body) }
        table.streams[stream]?.answerBytes = body.count
        streamBytes += body.count
        table.streams[stream]?.phase = .sending
        table.streams[stream]?.sinceMs = loop.now
        // From here on the session has the only copy, and zeroes it.
        do throws(HTTP2Error) {
            try table.session.submitResponse(stream: stream, headers, body: body)
        } catch {
            wipe(&body)
        }
        markDirty(connection)
    }

    private func release(_ state: StreamTable.Stream) {
        streamBytes -= StreamTable.Stream.cost + (state.builder?.byteCount ?? 0) + state.answerBytes
    }

    // MARK: Deadlines

    /// While requests are on their way they are looked at once in a while; without any, the connection is idle.
    func updateDeadline(_ connection: Connection, _ table: StreamTable) {
        guard table.session.hasRemoteSettings, connection.state == .streams else { return }
        let wanted: Deadlines.Kind = table.isBusy ? .streams : .idle
        let kind = deadlines.kind(connection.slot)
        if kind != wanted, kind != .write { setDeadline(connection, wanted) }
    }

    func checkStreams(_ connection: Connection, _ table: StreamTable) {
        let now = loop.now
        if let since = table.blockSinceMs, now - since >= configuration.headerMs {
            // Nothing else can come on this connection before its block ends.
            table.session.terminate(.enhanceYourCalm)
        }
        for (stream, state) in table.streams {
            switch state.phase {
            case .receiving where now - state.sinceMs >= configuration.bodyMs: refuse(stream, .requestTimeout, connection, table)
            case .sending where now - state.sinceMs >= configuration.writeMs: try? table.session.reset(stream: stream, .cancel)
            default: break
            }
        }
        setDeadline(connection, table.isBusy ? .streams : .idle)
        markDirty(connection)
    }

    // MARK: The end

    /// The connection is gone.
    func endStreams(_ table: StreamTable) {
        for state in table.streams.values { release(state) }
        table.streams = [:]
    }

    /// Asks the peer to take its further requests elsewhere; those that it has sent are answered (RFC 9113 section 6.8).
    func leave(_ connection: Connection) {
        guard let session = connection.streams?.session else { return }
        try? session.submitShutdownNotice()
        // Its acknowledgement shows that the notice has been read.
        try? session.submitPing(0)
        markDirty(connection)
    }

    /// Takes no more requests, and ends once those at hand are answered.
    func finishStreams(_ connection: Connection) {
        try? connection.streams?.session.submitGoAway(.noError)
        markDirty(connection)
    }
}
