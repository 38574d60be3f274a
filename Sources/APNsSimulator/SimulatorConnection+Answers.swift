import HTTP2

/// What goes out: answers, as they are or as a fault wants them, and what a fault does instead.
extension SimulatorConnection {
    /// - Parameter request: nil for one that is not whole, and is not kept.
    func carryOut(_ fault: Fault, _ request: PushRequest?, _ id: [UInt8], _ stream: Int32) {
        guard stream <= lastStream else { return }
        prepare(fault)
        if fault.goaway {
            goAway(fault, last: fault.refuse ? max(0, stream - 2) : stream)
            if fault.refuse { return }
        }
        if fault.refuse {
            try? http.reset(stream: stream, .refusedStream)
        } else if fault.reset || fault.drop || fault.silent || fault.stall {
            if fault.accepted, let request { service.keep(request, id: id, at: service.wallMs()) }
            if fault.reset { try? http.reset(stream: stream, .internalError) }
            if fault.stall { stall() }
            if fault.stall || fault.drop { try? service.record?.write() }
            if fault.drop { close() }
        } else if let answer = Answer(fault, id: id, now: service.wallMs()) {
            service.counts.refused[fault.reason ?? "\(answer.status)", default: 0] += 1
            send(answer, stream, fault.form)
        } else if let request {
            accept(request, id, stream, service.wallMs(), fault.form)
        } else {
            send(Answer(status: 200, id: id), stream, fault.form)
        }
    }

    /// What comes before the answer.
    func prepare(_ fault: Fault) {
        if fault.pauseMs > 0 { pause(fault.pauseMs) }
        if let streams = fault.streams {
            allow(UInt32(streams), pins: true)
        }
        if let window = fault.window { try? http.submitSettings(streamWindow: UInt32(window)) }
        for _ in 0..<(fault.settings ?? 0) { try? http.submitSettings() }
        if let count = fault.pings { stage(AnswerFrames.pings(count)) }
        if let raw = fault.raw { stage(raw) }
    }

    func goAway(_ fault: Fault, last: Int32) {
        let debugData = fault.reason.map { Answer.json($0, fault.timestamp) } ?? []
        guard fault.graceful else {
            lastStream = min(lastStream, last)
            try? http.submitGoAway(lastStream: lastStream, .noError, debugData: debugData)
            return
        }
        try? http.submitShutdownNotice()
        after(service.graceMs) { connection in try? connection.http.submitGoAway(.noError, debugData: debugData) }
    }

    // MARK: Sending

    /// Tells the client how many streams it may have open, unless a fault has said another number.
    func allow(_ count: UInt32, pins: Bool = false) {
        guard pins || !isPinned, count != streams else { return }
        isPinned = isPinned || pins
        streams = count
        try? http.submitSettings(concurrentStreams: count)
    }

    /// A stream that the client has given up meanwhile gets no answer.
    func send(_ answer: Answer, _ stream: Int32, _ form: AnswerForm = AnswerForm()) {
        // Seen: a provider that was refused is back at one stream until it is believed again.
        if answer.status == 403 { allow(1) } else if answer.status == 200 { allow(service.streams) }
        guard form.isPlain else { return send(AnswerFrames(answer, form, stream: stream), form, stream) }
        try? http.submitResponse(stream: stream, answer.headers, body: answer.body)
    }

    func send(_ answer: AnswerFrames, _ form: AnswerForm, _ stream: Int32) {
        if form.half {
            let bytes = answer.frames.flatMap { $0 }
            stage(Array(bytes.prefix(bytes.count / 2)))
            ends = true
        } else if form.dribbleMs > 0 {
            shaped.insert(stream)
            dribble(answer.frames, 0, form.dribbleMs, stream)
        } else {
            for frame in answer.frames { stage(frame) }
            finish(stream)
        }
    }

    /// Sends frame `index`, and later those after it.
    func dribble(_ frames: [[UInt8]], _ index: Int, _ totalMs: UInt64, _ stream: Int32) {
        stage(frames[index])
        let (next, last) = (index + 1, frames.count - 1)
        guard next <= last else {
            shaped.remove(stream)
            return finish(stream)
        }
        // The last one after `totalMs`, however that divides.
        let delay = totalMs * UInt64(next) / UInt64(last) - totalMs * UInt64(index) / UInt64(last)
        after(delay) { connection in
            if connection.shaped.contains(stream) { connection.dribble(frames, next, totalMs, stream) }
        }
    }

    /// Ends a stream whose answer nghttp2 knows nothing of.
    func finish(_ stream: Int32) {
        // One that the client still sends on is told to stop, without an error (RFC 9113, 8.1).
        if http.hasEnded(stream: stream) { quietResets.insert(stream) }
        try? http.reset(stream: stream, .noError)
    }

    /// Sends `frames` after what the session has said so far, and before what it says next.
    func stage(_ frames: [UInt8]) {
        try? takeOutbound(into: &staged)
        staged += frames
    }
}
