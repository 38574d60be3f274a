import HTTP1
import HTTP2
import Sodium

/// HTTP/1.1 of a client, without I/O: one request at a time (RFC 9112). Its events are those of an HTTP/2 session.
final class HTTP1ClientSession {
    private let parser: ResponseParser
    private var outbound: [UInt8] = []
    private var events: [HTTP2Event]
    /// Numbers requests like HTTP/2's streams.
    private var stream: Int32 = -1
    private var isWaiting = false
    /// True if nothing more can be sent or received.
    private(set) var isFinished = false

    /// - Parameter bodyBytes: a longer body of a response is an error.
    init(bodyBytes: Int) {
        parser = ResponseParser(limits: MessageLimits(bodyBytes: bodyBytes))
        events = [.settings]
    }

    var openStreams: Int { isWaiting ? 1 : 0 }
    var wantsWrite: Bool { !outbound.isEmpty }

    /// Sends a request, which may contain secrets.
    func submit(_ request: [UInt8]) throws(HTTP2Error) -> Int32 {
        guard !isWaiting, !isFinished else { throw .noMoreStreams }
        outbound += request
        isWaiting = true
        stream += 2
        return stream
    }

    func takeEvents() -> [HTTP2Event] {
        defer { events = [] }
        return events
    }

    func takeOutbound(into buffer: inout [UInt8]) {
        buffer += outbound
        Sodium.wipe(&outbound)
        outbound = []
    }

    func receive(_ bytes: Span<UInt8>) throws(HTTP2Error) {
        // Nothing was asked, or the peer sends more than an answer.
        guard isWaiting, !isFinished else { throw .badMessage }
        switch parser.parse(bytes) {
        case .incomplete: return
        case .failed: throw .badMessage
        case .complete(let consumed):
            answered()
            if consumed < bytes.count { isFinished = true }
        }
    }

    /// The peer has closed its end. That completes a response without a length.
    func peerClosed() {
        if isWaiting, case .complete = parser.finish() { answered() }
        isFinished = true
    }

    /// HTTP/1.1 can't cancel a request: the connection must be closed.
    func abandon() { (isWaiting, isFinished) = (false, true) }

    private func answered() {
        let message = parser.takeMessage()
        isWaiting = false
        if !message.keepsAlive { isFinished = true }
        var headers = HTTP2Headers(capacity: 128)
        headers.append(":status", String(message.status))
        for name in ["retry-after", "x-wns-status"] as [StaticString] {
            if let value = message.header(name) { headers.append("\(name)", value) }
        }
        events.append(.headers(stream: stream, headers))
        let body = message.withBody { body in body.indices.map { body[$0] } }
        if !body.isEmpty { events.append(.data(stream: stream, HTTP2Data(body))) }
        events.append(.end(stream: stream))
    }
}
