import EventLoop
import HTTP2
import Linux
import TLS

/// One client: TLS and HTTP/2 over its socket, and the requests that are being received.
final class SimulatorConnection: EventSource {
    private let socket: Socket
    private unowned let service: PushService
    private let tls: TLSSession
    private let http: HTTP2Session
    private var session = Rules.Session()
    private var requests: [Int32: (head: HTTP2Headers, body: [UInt8])] = [:]

    private var registration: Registration?
    /// The last stream that a GOAWAY left standing.
    private var lastStream = Int32.max
    private var interest = Events.read
    private var handshakeTimer: TimerID?
    private var ciphertext: [UInt8] = []
    /// How much of `ciphertext` the socket has taken.
    private var written = 0
    private var isLingering = false
    private var isClosed = false

    /// Ours; Apple gives none.
    private static let handshakeMs: UInt64 = 10_000
    private static let lingerMs: UInt64 = 2000
    /// Seen; Apple says the number varies.
    private static let concurrentStreams: UInt32 = 1000

    init(_ socket: consuming Socket, service: PushService) throws {
        self.socket = socket
        self.service = service
        tls = try TLSSession(accepting: service.tls)
        // One stream until a provider token was found valid.
        var limits = HTTP2Limits(bodyBytes: PushType.voip.payloadLimit, concurrentStreams: 1)
        // Faults reset streams by the thousand; that is not the client's doing.
        limits.wastedStreams = .max
        http = try HTTP2Session(.server, limits: limits)
    }

    func start() {
        do throws(Errno) {
            registration = try service.loop.add(socket.raw, .read, self)
        } catch {
            close()
            return
        }
        handshakeTimer = service.loop.after(Self.handshakeMs) { [weak self] in self?.close() }
    }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        if let registration { service.loop.remove(registration) }
        if let handshakeTimer { service.loop.cancel(handshakeTimer) }
        service.forget(self)
    }

    // MARK: Bytes

    func ready(_ events: Events) {
        do {
            if !events.isDisjoint(with: [.read, .hangup, .failure]) { try receive() }
            try flush()
        } catch {
            // What was said before, a TLS alert or a GOAWAY, may still get through.
            try? writeOut()
            close()
        }
    }

    private func receive() throws {
        // A span must not outlive an access to a class, so the buffers are locals meanwhile.
        var input = exchange(&service.input, with: [])
        defer { service.input = input }
        var plaintext = exchange(&service.plaintext, with: [])
        defer { service.plaintext = plaintext }

        var room = input.mutableSpan
        guard let count = try socket.read(into: &room) else { return }
        guard count > 0 else { return close() }
        if isLingering { return }
        plaintext.removeAll(keepingCapacity: true)
        try tls.receive(input.span.extracting(0..<count), into: &plaintext)
        if tls.state != .handshaking, let timer = handshakeTimer {
            service.loop.cancel(timer)
            handshakeTimer = nil
        }
        if !plaintext.isEmpty {
            try http.receive(plaintext.span)
            handleEvents()
        }
        if tls.state == .closed { close() }
    }

    /// Sends what the session has to say, as far as the socket takes it; then waits for the socket, and reads on afterwards.
    private func flush() throws {
        guard !isClosed else { return }
        var outbound = exchange(&service.plaintext, with: [])
        defer { service.plaintext = outbound }
        repeat {
            outbound.removeAll(keepingCapacity: true)
            if tls.state == .established {
                try http.takeOutbound(into: &outbound, limit: 1 << 16)
                if !outbound.isEmpty { try tls.send(outbound.span) }
                if http.isFinished { tls.close() }
            }
            tls.takeCiphertext(into: &ciphertext)
            try writeOut()
        } while ciphertext.isEmpty && !outbound.isEmpty
        guard ciphertext.isEmpty else { return wait(for: .write) }
        if tls.state == .established, http.isFinished { linger() }
        wait(for: .read)
    }

    /// Closing with bytes unread would reset the connection, and what was just sent could be lost: wait for the client to close.
    private func linger() {
        guard !isLingering else { return }
        isLingering = true
        socket.finishWriting()
        service.loop.after(Self.lingerMs) { [weak self] in self?.close() }
    }

    private func writeOut() throws {
        var bytes = exchange(&ciphertext, with: [])
        defer { ciphertext = bytes }
        while written < bytes.count {
            guard let count = try socket.write(bytes.span.extracting(written..<bytes.count)) else { return }
            written += count
        }
        bytes.removeAll(keepingCapacity: true)
        written = 0
    }

    private func wait(for events: Events) {
        guard events != interest, let registration else { return }
        interest = events
        service.loop.modify(registration, events)
    }

    // MARK: Requests

    private func handleEvents() {
        for event in http.takeEvents() where !isClosed {
            switch event {
            case .headers(let stream, let head): requests[stream] = (head, [])
            case .data(let stream, let bytes): requests[stream]?.body.append(contentsOf: bytes.bytes)
            case .end(let stream):
                guard let request = requests.removeValue(forKey: stream) else { break }
                judge(PushRequest(request.head, body: request.body), stream)
            case .tooLarge(let stream, let part): refuseTooLarge(stream, part)
            case .closed(let stream, _): requests[stream] = nil
            case .settings, .goAway, .pingAcknowledged: break
            }
        }
    }

    private func refuseTooLarge(_ stream: Int32, _ part: HTTP2Event.Part) {
        let head = requests.removeValue(forKey: stream)?.head
        switch part {
        case .body:
            // Too large for every push type; whatever else is wrong comes first.
            let body = [UInt8](repeating: 0, count: PushType.voip.payloadLimit + 1)
            if let head { judge(PushRequest(head, body: body), stream) }
        case .headers:
            try? http.reset(stream: stream, .enhanceYourCalm)
        }
    }

    private func judge(_ request: PushRequest, _ stream: Int32) {
        // Sent before the client saw our GOAWAY: it was told that nothing is done with these, and sends them elsewhere.
        guard stream <= lastStream else { return }
        let now = service.wallMs()
        let wasUnknown = session.provider == nil
        let given = request.with(.id) { id in Rules.isCanonicalUUID(id) ? [UInt8](id) : nil } ?? nil
        let id = given ?? service.makeUUID()
        var rejection: Rejection?
        do throws(Rejection) {
            _ = try service.rules.check(request, on: &session, now: now / 1000)
        } catch { rejection = error }
        if wasUnknown, session.provider != nil { try? http.submitSettings(concurrentStreams: Self.concurrentStreams) }
        if let reason = rejection?.reason {
            service.counts.refused[reason.rawValue, default: 0] += 1
            return send(.refused(reason, id: id, now: now), stream)
        }
        guard !service.faults.isEmpty, let fault = service.faults.take(for: request.token) else {
            return accept(request, id, stream)
        }
        guard fault.delayMs > 0 else { return carryOut(fault, request, id, stream) }
        service.loop.after(fault.delayMs) { [weak self] in
            guard let self, !isClosed, stream <= lastStream else { return }
            carryOut(fault, request, id, stream)
            ready([])
        }
    }

    private func accept(_ request: PushRequest, _ id: [UInt8], _ stream: Int32) {
        service.record(request, id: id)
        send(Answer(status: 200, id: id, uniqueID: service.isSandbox ? service.makeUUID() : nil), stream)
    }

    private func carryOut(_ fault: Fault, _ request: PushRequest, _ id: [UInt8], _ stream: Int32) {
        if fault.goaway {
            let last = fault.refuse ? max(0, stream - 2) : stream
            let debugData = fault.reason.map { Answer.json($0, fault.timestamp) } ?? []
            lastStream = min(lastStream, last)
            try? http.submitGoAway(lastStream: lastStream, .noError, debugData: debugData)
            if fault.refuse { return }
        }
        if fault.refuse {
            try? http.reset(stream: stream, .refusedStream)
        } else if fault.reset || fault.drop || fault.silent {
            if fault.accepted { service.record(request, id: id) }
            if fault.reset { try? http.reset(stream: stream, .internalError) }
            if fault.drop { close() }
        } else if let answer = Answer(fault, id: id, now: service.wallMs()) {
            service.counts.refused[fault.reason ?? "\(answer.status)", default: 0] += 1
            send(answer, stream)
        } else {
            accept(request, id, stream)
        }
    }

    /// A stream that the client has given up meanwhile gets no answer.
    private func send(_ answer: Answer, _ stream: Int32) {
        try? http.submitResponse(stream: stream, answer.headers, body: answer.body)
    }
}
