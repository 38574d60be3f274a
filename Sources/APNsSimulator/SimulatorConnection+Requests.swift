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
                let request = PushRequest(head)
                if service.hasEarlyFaults, answersEarly(request, stream) { break }
                requests.add(request, stream)
            case .data(let stream, let bytes): requests.append(bytes.bytes, stream)
            case .end(let stream):
                if let request = requests.take(stream) { judge(request, stream) }
            case .tooLarge(let stream, let part): refuseTooLarge(requests.take(stream), stream, part)
            case .closed(let stream, let code):
                // One that was answered has been taken.
                if code != .noError { _ = requests.take(stream) }
                if !shaped.isEmpty { shaped.remove(stream) }
            case .settings, .goAway, .pingAcknowledged: break
            }
        }
    }

    func refuseTooLarge(_ request: PushRequest?, _ stream: Int32, _ part: HTTP2Event.Part) {
        switch part {
        case .body:
            guard var request else { return }
            // Too large for every push type; whatever else is wrong comes first.
            request.body = [UInt8](repeating: 0, count: PushType.voip.payloadLimit + 1)
            judge(request, stream)
        case .headers:
            try? http.reset(stream: stream, .enhanceYourCalm)
        }
    }

    func judge(_ request: PushRequest, _ stream: Int32) {
        // Sent before the client saw our GOAWAY: it was told that nothing is done with these, and sends them elsewhere.
        guard stream <= lastStream else { return }
        let now = service.wallMs()
        let wasKnown = session.isAuthenticated
        var rejection: Rejection?
        do throws(Rejection) {
            _ = try service.rules.check(request, on: &session, now: now / 1000)
        } catch { rejection = error }
        if !wasKnown, session.isAuthenticated { allow(service.streams) }
        if let reason = rejection?.reason {
            service.counts.refused[reason.rawValue, default: 0] += 1
            return send(.refused(reason, id: id(of: request), now: now), stream)
        }
        if service.faults.isEmpty, service.record == nil { return accept(request, stream, now) }
        guard let fault = service.faults.take(for: request.token) else {
            return accept(request, id(of: request), stream, now)
        }
        after(fault.delayMs) { connection in connection.carryOut(fault, request, connection.id(of: request), stream) }
    }

    /// Whether a fault answers a request whose body has not come.
    func answersEarly(_ request: PushRequest, _ stream: Int32) -> Bool {
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

    func accept(
        _ request: PushRequest, _ id: [UInt8], _ stream: Int32, _ now: UInt64, _ form: AnswerForm = AnswerForm()
    ) {
        service.keep(request, id: id, at: now)
        if service.record != nil { unanswered.append(id) }
        send(Answer(status: 200, id: id, uniqueID: service.isSandbox ? service.makeUUID() : nil), stream, form)
    }

    /// What becomes of nearly every request, with as few detours as can be: the simulator must be faster than its clients.
    private func accept(_ request: PushRequest, _ stream: Int32, _ now: UInt64) {
        let madeID = request.has(.id) ? nil : service.makeUUID()
        let uniqueID = service.isSandbox ? service.makeUUID() : nil
        Self.fill(&service.answer, request, madeID, uniqueID)
        service.keep(request, madeID: madeID, at: now)
        allow(service.streams)
        try? http.submitResponse(stream: stream, service.answer, body: [])
    }

    // One access for all: a class's properties are guarded against overlapping ones at run time, at a price.
    private static func fill(_ headers: inout HTTP2Headers, _ request: PushRequest, _ madeID: [UInt8]?, _ uniqueID: [UInt8]?) {
        headers.wipe()
        headers.append(":status", "200")
        if let madeID { headers.append("apns-id", madeID.span, .never) }
        _ = request.with(.id) { headers.append("apns-id", $0, .never) }
        if let uniqueID { headers.append("apns-unique-id", uniqueID.span, .never) }
    }
}
