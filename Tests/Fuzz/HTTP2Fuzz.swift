import HTTP1
import HTTP2

@testable import HTTPServer

/// One HTTP/2 session and a peer controlled by the input.
enum HTTP2Fuzz {
    /// Small limits, so that short inputs reach them.
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
        // Most inputs need a preface to be meaningful.
        let form = input.byte()
        let limits = limits(headerTableBytes: form & 1 == 0 ? 4096 : 0)
        let steps = HTTP2Script.steps(input, withPreface: form != 0xFF, for: role)
        let whole = play(steps, .whole, role, limits)
        let bytes = play(steps, .bytes, role, limits)
        // nghttp2 counts calls with a CONTINUATION frame's head instead of frames, so byte by byte its limit of 8 is reached sooner.
        if bytes.error == .badMessage && whole.error != .badMessage { return }
        require(whole == bytes, "the same happens however the bytes come: \(whole) \(bytes)")
    }

    struct Reading: Equatable {
        /// Excludes the data of messages that never end or are too large: its amount depends on the pieces.
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

/// A running session.
struct HTTP2Play {
    let session: HTTP2Session
    var reading = HTTP2Fuzz.Reading()
    private var watch: HTTP2Watch
    /// Unanswered requests.
    private var unanswered: [Int32] = []
    private var answered: Set<Int32> = []
    private var open: Set<Int32> = []
    /// The upper bound of the output so far.
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

    /// Answers open requests without a body, so that no window can block. Then every stream must close.
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

/// Checks a session's events against its contract.
struct HTTP2Watch {
    private struct Stream {
        var headers: HTTP2Headers?
        var received = 0
        var isTooLarge = false
        var hasEnded = false
    }

    let role: HTTP2Session.Role
    let limits: HTTP2Limits
    private var streams: [Int32: Stream] = [:]
    private var closed: Set<Int32> = []
    /// The events with adjacent data joined, for comparison.
    private(set) var events: [HTTP2Event] = []

    init(role: HTTP2Session.Role, limits: HTTP2Limits) { (self.role, self.limits) = (role, limits) }

    func hasHead(_ id: Int32) -> Bool { streams[id]?.headers != nil }

    mutating func see(_ event: HTTP2Event) {
        check(event)
        if case .data(let stream, let bytes) = event, case .data(stream, let before)? = events.last {
            events[events.count - 1] = .data(stream: stream, HTTP2Data(before.bytes + bytes.bytes))
        } else {
            events.append(event)
        }
    }

    private mutating func check(_ event: HTTP2Event) {
        switch event {
        case .headers(let id, let headers):
            require(streams[id]?.headers == nil, "one head a stream")
            require(streams[id]?.isTooLarge != true, "no head after it was too large")
            check(headers)
            change(id) { $0.headers = headers }
        case .data(let id, let bytes):
            require(streams[id]?.headers != nil, "data after a head")
            require(streams[id]?.isTooLarge == false && streams[id]?.hasEnded == false, "data before the end")
            change(id) { $0.received += bytes.count }
            require(streams[id]!.received <= limits.bodyBytes, "a body within its limit")
        case .tooLarge(let id, _):
            require(streams[id]?.isTooLarge != true, "too large once")
            change(id) { $0.isTooLarge = true }
        case .end(let id):
            require(streams[id] != nil, "an end after a head")
            require(streams[id]!.hasEnded == false, "one end a stream")
            change(id) { $0.hasEnded = true }
            checkLength(streams[id]!)
        case .closed(let id, _):
            require(!closed.contains(id), "closed once")
            closed.insert(id)
            streams[id] = nil
        case .settings, .goAway, .pingAcknowledged: break
        }
    }

    private mutating func change(_ id: Int32, _ change: (inout Stream) -> Void) {
        require(!closed.contains(id), "nothing is heard of a closed stream")
        change(&streams[id, default: Stream()])
    }

    private func checkLength(_ stream: Stream) {
        guard !stream.isTooLarge, let headers = stream.headers, let length = headers["content-length"],
            headers[":method"] != "CONNECT", ![204, 304].contains(headers.status)
        else { return }
        require(Int(length) == stream.received, "a body of the length it says: \(length), \(stream.received)")
    }

    /// RFC 9113 section 8.2 and 8.3.
    private func check(_ headers: HTTP2Headers) {
        require(headers.count <= limits.headerFields, "header fields within their limit")
        var size = 0
        var once: Set<String> = []
        var isBehindPseudo = false
        for index in 0..<headers.count {
            let (name, value) = headers[index]
            size += name.utf8.count + headers.withValue(at: index) { $0.count } + 32
            let isPseudo = name.hasPrefix(":")
            require(!isPseudo || !isBehindPseudo, "pseudo-header fields first")
            isBehindPseudo = isBehindPseudo || !isPseudo
            if isPseudo || name == "content-length" || (name == "host" && role == .server) {
                require(once.insert(name).inserted, "\(name) once")
            }
            require(!name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && !(0x41...0x5A).contains($0) }, "a name")
            require(value.utf8.allSatisfy { $0 != 0 && $0 != 0x0A && $0 != 0x0D }, "a value of one line")
            require(!["connection", "transfer-encoding", "upgrade", "keep-alive", "proxy-connection"].contains(name), name)
            require(name != "te" || value == "trailers", "te: \(value)")
            if name == "content-length" { require(value.utf8.allSatisfy { (0x30...0x39).contains($0) } && value != "", value) }
        }
        require(size <= limits.headerListBytes, "header bytes within their limit")
        switch role {
        case .client: require((200...999).contains(headers.status ?? 0) && once.contains(":status"), "a final status")
        case .server:
            require(headers[":method"]?.isEmpty == false && !once.contains(":status"), "a method")
            guard headers[":method"] != "CONNECT" else { return }
            require(headers[":scheme"]?.isEmpty == false && headers[":path"]?.isEmpty == false, "scheme and path")
            require(once.contains(":authority") || once.contains("host"), "an authority")
            StreamRequestFuzz.check(headers)
        }
    }
}

/// A header block that the server accepts over HTTP/2 must be valid as HTTP/1.1 too, because a proxy may translate it.
enum StreamRequestFuzz {
    static func check(_ headers: HTTP2Headers) {
        guard case .taken(let builder, _) = StreamRequest(headers, MessageLimits()) else { return }
        let message = builder.finish()
        var text = Array((headers[":method"] ?? "").utf8) + [0x20]
        text += message.withTarget(copy) + Array(" HTTP/1.1\r\n".utf8)
        if let authority = headers.withValue(of: ":authority", copy) { text += Array("host: ".utf8) + authority + [0x0D, 0x0A] }
        var hasHost = headers[":authority"] != nil
        headers.forEachField { _, name, value in
            if name[0] == UInt8(ascii: ":") || name.isToken("content-length") || (hasHost && name.isToken("host")) { return }
            if name.isToken("host") { hasHost = true }
            text += copy(name) + [0x3A, 0x20] + copy(value) + [0x0D, 0x0A]
        }
        text += [0x0D, 0x0A]
        guard let plain = PlainRequest(text) else {
            fatalError("a request that HTTP/1.1 does not allow: \(String(decoding: text, as: UTF8.self).debugDescription)")
        }
        require(plain.values("host") == [message.withHeader("host", copy)], "one host")
        require(plain.target == message.withTarget(copy), "the same target")
        require(
            RequestParser().parse(text.span) == .complete(consumed: text.count) || message.method == .other,
            "taken as HTTP/1.1 too")
    }
}
