import EventLoop
import HTTP2
import TLS

/// What comes in: each request is judged once it is whole.
extension SimulatorConnection {
    /// The handshake is over.
    func greet() {
        isGreeted = true
        if service.asksForCertificates { session.certificate = tls.peerCertificate.map { PushCertificate($0) } }
        // Seen: the one stream is for those who come with a token.
        if session.isAuthenticated { allow(service.streams) }
        guard service.faults.has(.connect), let fault = service.faults.take(for: "", at: .connect) else { return }
        after(fault.delayMs) { connection in
            connection.prepare(fault)
            if fault.goaway { connection.goAway(fault, last: 0) }
            if fault.stall { connection.stall() }
            if fault.drop { connection.close() }
        }
    }

    func handleEvents() {
        for event in http.takeEvents() where !isClosed && !isStalled {
            switch event {
            case .headers(let stream, let head):
                if service.hasEarlyFaults, answersEarly(head, stream) { break }
                requests[stream] = (head, [])
            case .data(let stream, let bytes): requests[stream]?.body.append(contentsOf: bytes.bytes)
            case .end(let stream):
                guard let request = requests.removeValue(forKey: stream) else { break }
                judge(PushRequest(request.head, body: request.body), stream)
            case .tooLarge(let stream, let part): refuseTooLarge(stream, part)
            case .closed(let stream, _):
                requests[stream] = nil
                shaped.remove(stream)
            case .settings, .goAway, .pingAcknowledged: break
            }
        }
    }

    func refuseTooLarge(_ stream: Int32, _ part: HTTP2Event.Part) {
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

    func judge(_ request: PushRequest, _ stream: Int32) {
        // Sent before the client saw our GOAWAY: it was told that nothing is done with these, and sends them elsewhere.
        guard stream <= lastStream else { return }
        let now = service.wallMs()
        let wasKnown = session.isAuthenticated
        let id = id(of: request)
        var rejection: Rejection?
        do throws(Rejection) {
            _ = try service.rules.check(request, on: &session, now: now / 1000)
        } catch { rejection = error }
        if !wasKnown, session.isAuthenticated { allow(service.streams) }
        if let reason = rejection?.reason {
            service.counts.refused[reason.rawValue, default: 0] += 1
            return send(.refused(reason, id: id, now: now), stream)
        }
        guard !service.faults.isEmpty, let fault = service.faults.take(for: request.token) else {
            return accept(request, id, stream)
        }
        after(fault.delayMs) { connection in connection.carryOut(fault, request, id, stream) }
    }

    /// Whether a fault answers a request whose body has not come.
    func answersEarly(_ head: HTTP2Headers, _ stream: Int32) -> Bool {
        let request = PushRequest(head, body: [])
        guard stream <= lastStream, let fault = service.faults.take(for: request.token, at: .headers) else { return false }
        let id = id(of: request)
        after(fault.delayMs) { connection in connection.carryOut(fault, nil, id, stream) }
        return true
    }

    func id(of request: PushRequest) -> [UInt8] {
        let given = request.with(.id) { id in Rules.isCanonicalUUID(id) ? [UInt8](id) : nil } ?? nil
        return given ?? service.makeUUID()
    }

    func after(_ ms: UInt64, _ action: @escaping (SimulatorConnection) -> Void) {
        guard ms > 0 else { return action(self) }
        service.loop.after(ms) { [weak self] in
            guard let self, !isClosed, !isStalled else { return }
            action(self)
            ready([])
        }
    }

    func accept(_ request: PushRequest, _ id: [UInt8], _ stream: Int32, _ form: AnswerForm = AnswerForm()) {
        service.keep(request, id: id)
        if service.record != nil { unanswered.append(id) }
        send(Answer(status: 200, id: id, uniqueID: service.isSandbox ? service.makeUUID() : nil), stream, form)
    }
}
