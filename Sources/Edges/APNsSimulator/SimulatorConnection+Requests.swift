import EventLoop
import HTTP2
import TLS

/// Receives requests and checks them when they are complete.
extension SimulatorConnection {
    /// Called when the handshake is complete.
    func greet() {
        isGreeted = true
        if service.isHTTP1Only || tls.negotiatedProtocol == "http/1.1" { http1 = HTTP1State() }
        if service.asksForCertificates { session.certificate = tls.peerCertificate.map { PushCertificate($0) } }
        // Seen: the limit of one stream applies only to clients with tokens.
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
                // Web Push services have no limit of one stream.
                if request.isWebPush { allow(service.streams) }
                if service.hasEarlyFaults, answersEarly(request, stream) { break }
                requests.add(request, stream)
            case .data(let stream, let bytes): requests.append(bytes.bytes, stream)
            case .end(let stream):
                if let request = requests.take(stream) { judgeEither(request, stream) }
            case .tooLarge(let stream, let part): refuseTooLarge(requests.take(stream), stream, part)
            case .closed(let stream, let code):
                // Answered requests are already removed.
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
            // A body too large for every push type and for Web Push. Other errors come first.
            request.body = [UInt8](repeating: 0, count: PushType.voip.payloadLimit + 1)
            judgeEither(request, stream)
        case .headers:
            try? http.reset(stream: stream, .enhanceYourCalm)
        }
    }

    private func judgeEither(_ request: PushRequest, _ stream: Int32) {
        if request.isWebPush { judge(WebPushRequest(request), stream) } else { judge(request, stream) }
    }

    func judge(_ request: PushRequest, _ stream: Int32) {
        // The client sent this before it saw our GOAWAY. It will repeat the request on another connection.
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
        after(fault.delayMs) { connection in
            connection.carryOut(fault, .apns(request, id: connection.id(of: request)), stream)
        }
    }

    /// Returns whether a fault answers the request before its body has arrived.
    func answersEarly(_ request: PushRequest, _ stream: Int32) -> Bool {
        if request.isWebPush { return answersEarly(WebPushRequest(request), stream) }
        guard stream <= lastStream, let fault = service.faults.take(for: request.token, at: .headers) else { return false }
        let id = id(of: request)
        after(fault.delayMs) { connection in connection.carryOut(fault, .apns(nil, id: id), stream) }
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

    private func accept(
        _ request: PushRequest, _ id: [UInt8], _ stream: Int32, _ now: UInt64, _ form: AnswerForm = AnswerForm()
    ) {
        service.keep(request, id: id, at: now)
        if service.record != nil { unanswered.append(id) }
        send(Answer(status: 200, id: id, uniqueID: service.isSandbox ? service.makeUUID() : nil), stream, form)
    }

    /// The fast path of nearly all requests: the simulator must be faster than its clients.
    private func accept(_ request: PushRequest, _ stream: Int32, _ now: UInt64) {
        let madeID = request.has(.id) ? nil : service.makeUUID()
        let uniqueID = service.isSandbox ? service.makeUUID() : nil
        Self.fill(&service.answer, request, madeID, uniqueID)
        service.keep(request, madeID: madeID, at: now)
        allow(service.streams)
        try? http.submitResponse(stream: stream, service.answer, body: [])
    }

    // One `inout` access is cheaper than many accesses to a class's property, each with an exclusivity check.
    private static func fill(_ headers: inout HTTP2Headers, _ request: PushRequest, _ madeID: [UInt8]?, _ uniqueID: [UInt8]?) {
        headers.wipe()
        headers.append(":status", "200")
        if let madeID { headers.append("apns-id", madeID.span, .never) }
        _ = request.with(.id) { headers.append("apns-id", $0, .never) }
        if let uniqueID { headers.append("apns-unique-id", uniqueID.span, .never) }
    }
}

/// Sends answers, and carries out faults.
extension SimulatorConnection {
    func carryOut(_ fault: Fault, _ delivery: Delivery, _ stream: Int32) {
        guard stream <= lastStream else { return }
        prepare(fault)
        if fault.goaway {
            goAway(fault, last: fault.refuse ? max(0, stream - 2) : stream)
            if fault.refuse { return http1 == nil ? () : close() }
        }
        if fault.refuse {
            reset(stream, .refusedStream)
        } else if fault.reset || fault.drop || fault.silent || fault.stall {
            if fault.accepted { service.keep(delivery) }
            if fault.reset { reset(stream, .internalError) }
            if fault.stall { stall() }
            if fault.stall || fault.drop { try? service.record?.write() }
            if fault.drop { close() }
        } else if let answer = service.answer(of: fault, to: delivery) {
            service.counts.refused[fault.reason ?? fault.problem?.rawValue ?? "\(answer.status)", default: 0] += 1
            send(answer, stream, fault.form)
        } else {
            accept(delivery, stream, fault.form)
        }
    }

    private func accept(_ delivery: Delivery, _ stream: Int32, _ form: AnswerForm) {
        switch delivery {
        case .apns(let request?, let id): accept(request, id, stream, service.wallMs(), form)
        case .apns(nil, let id): send(Answer(status: 200, id: id), stream, form)
        case .webPush(_, let message?): send(service.accept(message), stream, form)
        case .webPush(_, nil): send(Answer(status: 201), stream, form)
        }
    }

    private func reset(_ stream: Int32, _ code: HTTP2ErrorCode) {
        // HTTP/1.1 has no other way to end a request without an answer.
        if http1 == nil { try? http.reset(stream: stream, code) } else { close() }
    }

    /// Carries out the parts of a fault that come before the answer.
    func prepare(_ fault: Fault) {
        if fault.pauseMs > 0 { pause(fault.pauseMs) }
        if let streams = fault.streams {
            allow(UInt32(streams), pins: true)
        }
        if let window = fault.window { try? http.submitSettings(streamWindow: UInt32(window)) }
        for _ in 0..<(fault.settings ?? 0) { try? http.submitSettings() }
        if let count = fault.pings, http1 == nil { stage(AnswerFrames.pings(count)) }
        if let raw = fault.raw { stage(raw) }
    }

    func goAway(_ fault: Fault, last: Int32) {
        if http1 != nil {
            http1?.endsAfterAnswer = true
            return
        }
        let debugData = fault.reason.map { Answer.json($0, fault.timestamp) } ?? []
        guard fault.graceful else {
            lastStream = min(lastStream, last)
            try? http.submitGoAway(lastStream: lastStream, .noError, debugData: debugData)
            return
        }
        try? http.submitShutdownNotice()
        after(service.graceMs) { connection in try? connection.http.submitGoAway(.noError, debugData: debugData) }
    }

    /// Sends a new limit of open streams, unless a fault has set one.
    /// - Parameter pins: true for the limit of a fault.
    func allow(_ count: UInt32, pins: Bool = false) {
        guard pins || !isPinned, count != streams else { return }
        isPinned = isPinned || pins
        streams = count
        try? http.submitSettings(concurrentStreams: count)
    }

    /// Sends an answer, unless the client has reset the stream meanwhile.
    func send(_ answer: Answer, _ stream: Int32, _ form: AnswerForm = AnswerForm()) {
        if form.endless { return flood(answer, stream) }
        if let http1 {
            return send(HTTP1Answer(answer, form, keepsAlive: !http1.endsAfterAnswer).pieces, form, stream)
        }
        // Seen: after a 403, Apple allows one stream until a request succeeds.
        if answer.id != nil { if answer.status == 403 { allow(1) } else if answer.status == 200 { allow(service.streams) } }
        guard form.isPlain else { return send(AnswerFrames(answer, form, stream: stream).frames, form, stream) }
        try? http.submitResponse(stream: stream, answer.headers, body: answer.body)
    }

    /// - Parameter frames: frames of HTTP/2, or pieces of an answer of HTTP/1.1.
    func send(_ frames: [[UInt8]], _ form: AnswerForm, _ stream: Int32) {
        if form.half {
            let bytes = frames.flatMap { $0 }
            stage(Array(bytes.prefix(bytes.count / 2)))
            ends = true
        } else if form.dribbleMs > 0 {
            shaped.insert(stream)
            dribble(frames, 0, form.dribbleMs, stream)
        } else {
            for frame in frames { stage(frame) }
            finish(stream)
        }
    }

    /// Sends header fields until the client closes.
    private func flood(_ answer: Answer, _ stream: Int32) {
        let (start, more) =
            http1 == nil ? AnswerFrames.endless(answer, stream: stream) : HTTP1Answer.endless(answer)
        stage(start)
        isFlooding = true
        pour(more)
    }

    private func pour(_ bytes: [UInt8]) {
        if isDrained { staged = bytes }
        after(1) { connection in connection.pour(bytes) }
    }

    /// Sends frame `index`, and the following ones later.
    func dribble(_ frames: [[UInt8]], _ index: Int, _ totalMs: UInt64, _ stream: Int32) {
        stage(frames[index])
        let (next, last) = (index + 1, frames.count - 1)
        guard next <= last else {
            shaped.remove(stream)
            return finish(stream)
        }
        // This rounding makes the delays add up to `totalMs`.
        let delay = totalMs * UInt64(next) / UInt64(last) - totalMs * UInt64(index) / UInt64(last)
        after(delay) { connection in
            if connection.shaped.contains(stream) { connection.dribble(frames, next, totalMs, stream) }
        }
    }

    /// Ends a stream whose answer bypassed nghttp2.
    func finish(_ stream: Int32) {
        if http1 != nil { return finishHTTP1() }
        // If the client still sends, this NO_ERROR reset asks it to stop (RFC 9113, 8.1). Otherwise it must not see the reset.
        if http.hasEnded(stream: stream) { quietResets.insert(stream) }
        try? http.reset(stream: stream, .noError)
    }

    /// Queues frames behind the session's output so far.
    func stage(_ frames: [UInt8]) {
        try? takeOutbound(into: &staged)
        staged += frames
    }
}
