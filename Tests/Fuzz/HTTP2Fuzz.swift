import HTTP2

/// One HTTP/2 session and a peer that sends what the input says.
enum HTTP2Fuzz {
    /// Small, so that short inputs reach them.
    static func limits(headerTableBytes: UInt32) -> HTTP2Limits {
        var limits = HTTP2Limits(bodyBytes: 300, concurrentStreams: 4)
        limits.headerListBytes = 600
        limits.headerFields = 10
        limits.headerTableBytes = headerTableBytes
        limits.wastedStreams = 6
        limits.controlFrames = 40
        return limits
    }

    static func run(_ input: [UInt8], as role: HTTP2Session.Role) {
        var input = FuzzInput(input)
        // The rest of most inputs means something only behind a preface.
        let form = input.byte()
        let limits = limits(headerTableBytes: form & 1 == 0 ? 4096 : 0)
        let steps = HTTP2Script.steps(input, withPreface: form != 0xFF, for: role)
        let whole = play(steps, .whole, role, limits)
        let bytes = play(steps, .bytes, role, limits)
        // nghttp2 counts the calls that bring a CONTINUATION frame's head, not the frames: its limit of 8 comes sooner byte by byte.
        if bytes.error == .badMessage && whole.error != .badMessage { return }
        require(whole == bytes, "the same happens however the bytes come: \(whole) \(bytes)")
    }

    struct Reading: Equatable {
        /// Without the data of messages that never end or grow too large: how much of it comes before the fault depends on the pieces.
        var events: [HTTP2Event] = []
        var output: [UInt8] = []
        var error: HTTP2Error?
        var isFinished = false
    }

    private static func play(
        _ steps: [HTTP2Step], _ splitting: Splitting, _ role: HTTP2Session.Role, _ limits: HTTP2Limits
    ) -> Reading {
        guard var play = try? HTTP2Play(role, limits) else { fatalError("a session begins") }
        do throws(HTTP2Error) {
            for step in steps { try play.take(step, splitting) }
            try play.settle()
        } catch {
            play.reading.error = error
            try? play.session.takeOutbound(into: &play.reading.output)
        }
        return play.end()
    }
}

/// A session under way.
struct HTTP2Play {
    let session: HTTP2Session
    var reading = HTTP2Fuzz.Reading()
    private var watch: HTTP2Watch
    /// Requests that have come and are not answered yet.
    private var unanswered: [Int32] = []
    private var answered: Set<Int32> = []
    private var open: Set<Int32> = []
    /// The most that may have been written by now.
    private var outputBound = 200

    init(_ role: HTTP2Session.Role, _ limits: HTTP2Limits) throws(HTTP2Error) {
        session = try HTTP2Session(role, limits: limits)
        watch = HTTP2Watch(role: role, limits: limits)
    }

    mutating func take(_ step: HTTP2Step, _ splitting: Splitting) throws(HTTP2Error) {
        outputBound += 40
        switch step {
        case .receive(let bytes):
            outputBound += bytes.count * 3
            for piece in splitting.split(bytes) { try session.receive(piece.span) }
        case .send(let limit): try session.takeOutbound(into: &reading.output, limit: reading.output.count + min(limit, 1 << 20))
        case .message(let oldest, let count): try message(oldest, [UInt8](repeating: 0x78, count: count))
        case .interim:
            if session.role == .server, let id = unanswered.last { try session.submitInterimResponse(stream: id, status: "100") }
        case .reset:
            guard let id = open.max() else { break }
            unanswered.removeAll { $0 == id }
            answered.insert(id)
            try session.reset(stream: id, .cancel)
        case .settings(let count): try session.submitSettings(concurrentStreams: count)
        case .ping: try session.submitPing(7)
        case .shutdownNotice: if session.role == .server { try session.submitShutdownNotice() }
        case .goAway: try session.submitGoAway(.noError)
        case .terminate: session.terminate(.noError)
        }
        seeEvents()
    }

    private mutating func message(_ oldest: Bool, _ body: [UInt8]) throws(HTTP2Error) {
        outputBound += body.count + body.count / 16 + 100
        if session.role == .client {
            guard session.takesRequests, open.count < 20 else { return }
            let head: HTTP2Headers = [":method": "POST", ":scheme": "https", ":authority": "x", ":path": "/"]
            open.insert(try session.submitRequest(head, body: body))
        } else if let id = oldest ? unanswered.first : unanswered.last {
            unanswered.removeAll { $0 == id }
            answered.insert(id)
            try session.submitResponse(stream: id, [":status": "200", "x": "y"], body: body)
        }
    }

    private mutating func seeEvents() {
        for event in session.takeEvents() {
            watch.see(event)
            switch event {
            case .headers(let id, _), .tooLarge(let id, _):
                open.insert(id)
                if session.role == .server, !answered.contains(id), !unanswered.contains(id) { unanswered.append(id) }
            case .closed(let id, _):
                open.remove(id)
                unanswered.removeAll { $0 == id }
            default: break
            }
        }
        if session.role == .server {
            require(session.openStreams <= Int(watch.limits.concurrentStreams), "\(session.openStreams) open streams")
        } else {
            require(Set(open).count == session.openStreams, "as many streams as were opened and not closed")
        }
    }

    /// Answers what is open, without a body, so that no window can be in the way: then it must be over.
    mutating func settle() throws(HTTP2Error) {
        guard session.role == .server else { return }
        let last = unanswered
        for id in last { try session.submitResponse(stream: id, [":status": "200"], body: []) }
        outputBound += 100 * last.count
        try session.takeOutbound(into: &reading.output)
        seeEvents()
        require(session.isFinished || !last.contains(where: open.contains), "an answered stream closes")
    }

    func end() -> HTTP2Fuzz.Reading {
        var reading = reading
        reading.events = watch.events.filter { event in
            guard case .data(let id, _) = event else { return true }
            return watch.events.contains(.end(stream: id)) && !watch.events.contains(.tooLarge(stream: id, .body))
        }
        reading.isFinished = session.isFinished
        require(reading.output.count <= outputBound, "\(reading.output.count) bytes written, \(outputBound) at most")
        let preface = session.role == .client ? HTTP2Frame.preface.count : 0
        require(reading.output.isEmpty || HTTP2Frame.frames(reading.output.dropFirst(preface)) != nil, "whole frames are written")
        return reading
    }
}
