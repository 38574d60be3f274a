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

    /// - Parameter bodyBytes: a response with a longer body ends the connection. Its status counts.
    init(bodyBytes: Int) {
        parser = ResponseParser(limits: MessageLimits(bodyBytes: bodyBytes))
        events = [.settings]
    }

    var openStreams: Int { isFinished ? .max : isWaiting ? 1 : 0 }
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
        // No request is open, the request has not left yet, or the peer sends more than one response.
        guard isWaiting, outbound.isEmpty, !isFinished else { throw .badMessage }
        switch parser.parse(bytes) {
        case .incomplete: return
        case .failed:
            // The peer has answered. Without its status we would send the push again.
            guard let status = parser.statusOfFailedBody else { throw .badMessage }
            answered(status)
        case .complete(let consumed):
            answered(parser.takeMessage())
            if consumed < bytes.count { isFinished = true }
        }
    }

    /// The peer has closed its end. This completes a response without a length. A truncated response counts by its status.
    func peerClosed() {
        if isWaiting, outbound.isEmpty {
            if case .complete = parser.finish() {
                answered(parser.takeMessage())
            } else if let status = parser.statusOfFailedBody {
                answered(status)
            }
        }
        isFinished = true
    }

    /// HTTP/1.1 can't cancel a request: the connection must be closed.
    func abandon() { (isWaiting, isFinished) = (false, true) }

    private func answered(_ message: Message) {
        if !message.keepsAlive { isFinished = true }
        var fields: [(StaticString, String)] = []
        for name in ["retry-after", "x-wns-status"] as [StaticString] {
            if let value = message.header(name) { fields.append((name, value)) }
        }
        answered(Int(message.status), fields)
    }

    /// An answer without a valid body.
    private func answered(_ status: Int) {
        isFinished = true
        answered(status, [])
    }

    private func answered(_ status: Int, _ fields: [(StaticString, String)]) {
        isWaiting = false
        var headers = HTTP2Headers(capacity: 128)
        headers.append(":status", String(status))
        for (name, value) in fields { headers.append("\(name)", value) }
        events += [.headers(stream: stream, headers), .end(stream: stream)]
    }
}
