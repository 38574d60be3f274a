import EventLoop
import HTTP1
import HTTP2
import Linux
import Shares

// HTTP/2 (RFC 9113): each stream's request goes to the handler like one of HTTP/1.1.
extension HTTPServer {
    private var concurrentStreams: Int { configuration.shares.table[.streams].connection?.cap ?? 128 }

    /// TLS has agreed on HTTP/2: what comes now are frames.
    func beginStreams(_ connection: Connection) {
        let limits = configuration.limits
        var streamLimits = HTTP2Limits(bodyBytes: limits.bodyBytes, concurrentStreams: UInt32(concurrentStreams))
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
            case .headers(let stream, let headers): if !table.isEnding { begin(stream, headers, connection, table) }
            case .data(let stream, let data): take(data, stream, connection, table)
            case .end(let stream): dispatch(stream, connection, table)
            case .tooLarge(let stream, let part):
                refuse(stream, part == .headers ? .headersTooLarge : .bodyTooLarge, connection, table)
            case .closed(let stream, _):
                close(stream, table)
                // Once it has been told: a GOAWAY before the answer would hide that from some.
                if connection.overflow != nil { finishStreams(connection) }
            case .pingAcknowledged: if isDraining { try? table.session.submitGoAway(.noError) }
            case .settings, .goAway: break
            }
        }
    }

    private func begin(_ stream: Int32, _ headers: HTTP2Headers, _ connection: Connection, _ table: StreamTable) {
        let isHead = headers.withValue(of: ":method") { HTTP1.Method(name: $0) == .head } ?? false
        let request = StreamRequest(headers, configuration.limits)
        table.hasBegun = true
        guard open(stream, isHead: isHead, request.byteCount, connection, table) else { return }
        switch request {
        case .refused(let refusal): refuse(stream, refusal, connection, table)
        case .taken(let builder, let expectsContinue):
            table.streams[stream]?.builder = builder
            if let overflow = connection.overflow { return refuse(stream, overflow, connection, table) }
            if expectsContinue { try? table.session.submitInterimResponse(stream: stream, status: "100") }
        }
    }

    private func take(_ data: HTTP2Data, _ stream: Int32, _ connection: Connection, _ table: StreamTable) {
        guard let builder = table.streams[stream]?.builder else { return }
        if let shortage = charge(data.count, stream, connection, table) {
            return refuse(stream, Refusal(shortage), connection, table)
        }
        builder.appendBody(data.bytes.span)
    }

    private func dispatch(_ stream: Int32, _ connection: Connection, _ table: StreamTable) {
        guard let builder = table.streams[stream]?.builder else { return }
        let bytes = builder.byteCount
        guard var request = HTTPRequest(builder.finish(), remote: connection.remote) else {
            table.streams[stream]?.builder = nil
            _ = charge(-bytes, stream, connection, table)
            return refuse(stream, .malformedRequest, connection, table)
        }
        statistics.requests += 1
        request.owners = owners(of: request, connection)
        table.streams[stream]?.builder = nil
        table.streams[stream]?.requestBytes = bytes
        table.streams[stream]?.phase = .answering
        if let shortage = charge(stream, to: request.owners.payer, connection, table) {
            return refuse(stream, Refusal(shortage), connection, table)
        }
        guard takesTurn(request.owners) else {
            table.streams[stream]?.waiting = request
            return wait(.stream(stream, table, connection.id), request.owners)
        }
        start(request, stream, table, connection.id)
    }

    func start(_ request: HTTPRequest, _ stream: Int32, _ table: StreamTable, _ id: ConnectionID) {
        // A peer that has gone back on its request is not answered.
        if table.streams[stream]?.phase == .abandoned { return release(stream, table) }
        Task {
            let response = await withTaskExecutorPreference(loop) { await handler.respond(to: request) }
            request.message.wipe()
            answer(stream, table, id, response)
        }
    }

    private func answer(_ stream: Int32, _ table: StreamTable, _ id: ConnectionID, _ response: consuming HTTPResponse) {
        guard let connection = connection(id), let state = table.streams[stream], state.phase == .answering else {
            release(stream, table)
            return discard(&response)
        }
        let isCounted = response.hasBody && !state.isHead && !response.isBodyShared
        // Whoever asks for much and takes nothing must not fill the memory.
        let more = (isCounted ? response.body.count : 0) - state.requestBytes
        if abs(more) > StreamTable.Stream.slack, let shortage = charge(more, stream, connection, table) {
            discard(&response)
            return refuse(stream, Refusal(shortage), connection, table)
        }
        if response.closesConnection { try? table.session.submitGoAway(.noError) }
        send(response, stream, connection, table)
    }

    private func discard(_ response: inout HTTPResponse) {
        if !response.isBodyShared { wipe(&response.body) }
    }

    /// Answers without the handler; the rest of the request is not waited for.
    func refuse(_ stream: Int32, _ refusal: Refusal, _ connection: Connection, _ table: StreamTable) {
        if table.streams[stream] == nil, !open(stream, isHead: false, StreamTable.Stream.cost, connection, table) { return }
        guard let state = table.streams[stream], state.phase == .receiving || state.phase == .answering else { return }
        statistics.refusals += 1
        if let builder = state.builder { _ = charge(-builder.byteCount, stream, connection, table) }
        table.streams[stream]?.builder = nil
        if state.place == nil {
            table.uncharged += 1
            if table.uncharged > StreamTable.mostUncharged { return cutOff(connection, table) }
        }
        send(configuration.refuse(refusal), stream, connection, table)
    }

    /// The peer is over its share, asks for more and reads no answers.
    private func cutOff(_ connection: Connection, _ table: StreamTable) {
        table.isEnding = true
        table.session.terminate(.enhanceYourCalm)
        markDirty(connection)
    }

    private func send(_ response: consuming HTTPResponse, _ stream: Int32, _ connection: Connection, _ table: StreamTable) {
        guard let isHead = table.streams[stream]?.isHead else { return discard(&response) }
        writer.setTime(wallMs: Clock.wallMs)
        let headers = writer.headers(of: response)
        var body: [UInt8] = []
        if response.hasBody, !isHead { swap(&body, &response.body) }
        table.streams[stream]?.phase = .sending
        table.streams[stream]?.sinceMs = loop.now
        table.streams[stream]?.stalledSinceMs = loop.now
        // From here on the session has the only copy, and zeroes it.
        do throws(HTTP2Error) {
            try table.session.submitResponse(stream: stream, headers, body: body, isShared: response.isBodyShared)
        } catch {
            if !response.isBodyShared { wipe(&body) }
        }
        markDirty(connection)
    }

    /// The stream is over.
    private func close(_ stream: Int32, _ table: StreamTable) {
        // The handler has its request still.
        if table.streams[stream]?.phase == .answering {
            table.streams[stream]?.phase = .abandoned
        } else {
            release(stream, table)
        }
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
        noteStalls(connection, table)
        setDeadline(connection, table.isBusy ? .streams : .idle)
        markDirty(connection)
    }

    // MARK: The end

    /// The connection is gone.
    func endStreams(_ table: StreamTable) {
        for stream in Array(table.streams.keys) { close(stream, table) }
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
