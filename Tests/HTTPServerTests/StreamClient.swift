import HTTP2
import Linux
import TLS
import Testing

/// An HTTP/2 client over TLS: a regular session, or raw bytes of the test.
final class StreamClient {
    let socket: Socket
    let tls: TLSSession
    /// Nil: the test writes and reads raw frames.
    let session: HTTP2Session?
    private(set) var events: [HTTP2Event] = []
    private(set) var frames: [UInt8] = []
    private(set) var hasEnded = false
    /// The client stops reading.
    var isNotReading = false
    /// The client stops writing and still reads.
    private var hasClosed = false
    private var outgoing: [UInt8] = []

    init(_ address: SocketAddress, _ trust: TLSContext, raw: Bool = false) async throws {
        socket = try Socket.connect(to: address)
        tls = try TLSSession(connecting: trust, to: "127.0.0.1")
        session = raw ? nil : try HTTP2Session(.client, limits: HTTP2Limits(bodyBytes: 8_000_000))
        try await eventually { tls.state != .handshaking || hasEnded }
        if case .failed(let error) = tls.state { throw error }
    }

    /// Sends and receives available bytes.
    func turn() throws {
        if tls.state == .established, !hasClosed, let session {
            var bytes: [UInt8] = []
            try session.takeOutbound(into: &bytes)
            if !bytes.isEmpty { try tls.send(bytes.span) }
        }
        tls.takeCiphertext(into: &outgoing)
        do throws(Errno) {
            while !outgoing.isEmpty, let count = try socket.write(outgoing.span) { outgoing.removeFirst(count) }
        } catch {
            outgoing = []
        }
        if !isNotReading { try read() }
    }

    private func read() throws {
        var buffer = [UInt8](repeating: 0, count: 65536)
        while !hasEnded {
            var span = buffer.mutableSpan
            var plain: [UInt8] = []
            do throws(Errno) {
                guard let count = try socket.read(into: &span) else { return }
                if count == 0 { hasEnded = true }
                try? tls.receive(buffer.span.extracting(first: count), into: &plain)
            } catch {
                hasEnded = true
            }
            if tls.state == .closed { hasEnded = true }
            if let session {
                try session.receive(plain.span)
                events += session.takeEvents()
            } else {
                frames += plain
            }
            if hasEnded { socket.finishWriting() }
        }
    }

    /// Sends `close_notify`.
    func closeTLS() throws {
        try turn()
        hasClosed = true
        tls.close()
        try turn()
    }

    func write(_ bytes: [UInt8]) throws {
        try tls.send(bytes.span)
        try turn()
    }

    func request(_ method: String = "GET", _ path: String, _ more: [(String, String)] = [], body: [UInt8] = []) throws -> Int32 {
        var headers: HTTP2Headers = [":method": method, ":scheme": "https", ":authority": "a", ":path": path]
        for (name, value) in more { headers.append(name, value) }
        return try #require(session).submitRequest(headers, body: body)
    }

    /// Sends and receives until `isTrue`.
    func eventually(_ isTrue: () async throws -> Bool) async throws {
        try await HTTPServerTests.eventually {
            try turn()
            return try await isTrue()
        }
    }

    /// Waits until `look` finds something.
    func until<Found>(_ look: ([HTTP2Event]) -> Found?) async throws -> Found {
        var found: Found?
        try await eventually {
            found = look(events)
            return found != nil || hasEnded
        }
        return try #require(found)
    }

    /// Returns the response on `stream`: status and body.
    func answer(_ stream: Int32) async throws -> String {
        _ = try await until { events in events.first { $0.ends(stream) } }
        return answerSoFar(stream)
    }

    func headers(_ stream: Int32) -> HTTP2Headers? {
        events.lazy.compactMap { if case .headers(stream, let headers) = $0 { headers } else { nil } }.first
    }

    func answerSoFar(_ stream: Int32) -> String {
        var text = ""
        for event in events {
            switch event {
            case .headers(stream, let headers): text += "\(headers.status ?? 0) "
            case .data(stream, let data): text += String(decoding: data.bytes, as: UTF8.self)
            default: break
            }
        }
        return text
    }

    /// Reads until the server closes.
    func untilEnd() async throws {
        try await eventually { hasEnded }
    }
}

extension HTTP2Event {
    func ends(_ stream: Int32) -> Bool {
        if case .end(stream) = self { return true }
        if case .closed(stream, _) = self { return true }
        return false
    }

    var goAwayCode: HTTP2ErrorCode? {
        if case .goAway(_, let code, _) = self { return code }
        return nil
    }
}
