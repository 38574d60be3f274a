import HTTP2

/// Holds a session's events against what it promises.
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
    /// What happened, pieces of data joined, for comparing.
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
