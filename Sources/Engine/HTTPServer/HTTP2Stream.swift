import HTTP1
import HTTP2
import Shares

/// An HTTP/2 request, its response and their charges.
///
/// A stream may outlive its connection: its charges last until the handler has answered.
final class HTTP2Stream {
    enum Phase {
        /// The request is incomplete.
        case receiving
        /// The handler is answering.
        case answering
        /// The stream is closed, but the handler still has its request.
        case abandoned
        /// The response is being sent.
        case sending
    }

    /// The memory of a stream beside its bytes, nearly all of it nghttp2's.
    static let cost = 4_096
    /// If the sizes of request and response differ by less, the charge is not adjusted. That is the usual case and saves time.
    static let slack = 1_024

    let number: Int32
    let isHead: Bool
    /// Nil once the request is complete or refused.
    var builder: MessageBuilder?
    var phase = Phase.receiving
    /// When the phase began.
    var sinceMs: UInt64
    /// Nil if the stream could not be charged and is refused.
    var place: Charge?
    /// The charge for `cost`, for the request until it is answered, and then for the response's body until it is sent.
    var bytes: Charge?
    /// The request's part of `bytes`.
    var requestBytes = 0
    /// The complete request, until a task has it.
    var request: HTTPRequest?
    /// Bytes of the response sent at the last check, and when that number last changed.
    var sent = 0
    var stalledSinceMs: UInt64 = 0

    init(_ number: Int32, isHead: Bool, sinceMs: UInt64) {
        self.number = number
        self.isHead = isHead
        self.sinceMs = sinceMs
    }

    /// Enters the phase `sending`.
    func send(nowMs: UInt64) {
        phase = .sending
        sinceMs = nowMs
        stalledSinceMs = nowMs
    }

    func refund(_ shares: Shares) {
        if let bytes = bytes.take() { shares.refund(bytes) }
        if let place = place.take() { shares.refund(place) }
    }
}

/// A request's header block, checked like the head of an HTTP/1.1 request. nghttp2 leaves these checks to its user.
enum StreamRequest {
    case taken(MessageBuilder, expectsContinue: Bool)
    case refused(Refusal)

    init(_ headers: HTTP2Headers, _ limits: MessageLimits) {
        guard
            let builder = headers.withValue(
                of: ":path",
                { path -> MessageBuilder? in
                    guard Self.isTarget(path), path.count <= limits.targetBytes else { return nil }
                    let method = headers.withValue(of: ":method") { HTTP1.Method(name: $0) }
                    return MessageBuilder(method: method ?? .other, target: path)
                }) ?? nil
        else {
            let isLong = headers.withValue(of: ":path") { $0.count > limits.targetBytes } ?? false
            self = .refused(isLong ? .targetTooLong : .malformedRequest)
            return
        }
        var check = Check()
        headers.forEachField { _, name, value in check.add(name, value, to: builder) }
        if check.headerBytes > limits.headerBytes || check.headerCount > limits.headerCount {
            self = .refused(.headersTooLarge)
        } else if check.hosts == 0 || check.isMalformed {
            self = .refused(.malformedRequest)
        } else if let unmet = check.unmet {
            self = .refused(unmet)
        } else if !builder.allowsBody(check.contentLength, limits) {
            self = .refused(.bodyTooLarge)
        } else {
            self = .taken(builder, expectsContinue: check.expectsContinue)
        }
    }

    /// The initial charge of a stream with this request.
    var byteCount: Int {
        switch self {
        case .taken(let builder, _): HTTP2Stream.cost + builder.byteCount
        case .refused: HTTP2Stream.cost
        }
    }

    /// RFC 9113 section 8.3.1: a path and query, or `*`, in visible ASCII.
    private static func isTarget(_ path: Span<UInt8>) -> Bool {
        guard path.count > 0, path[0] == UInt8(ascii: "/") || path.count == 1 && path[0] == UInt8(ascii: "*") else {
            return false
        }
        return path.indices.allSatisfy { path[$0] > 0x20 && path[$0] < 0x7F && path[$0] != UInt8(ascii: "#") }
    }

    private struct Check {
        var headerBytes = 0
        var headerCount = 0
        var hosts = 0
        var contentLength = 0
        var origins = 0
        var authorizations = 0
        var isMalformed = false
        var expectsContinue = false
        var unmet: Refusal?

        mutating func add(_ name: Span<UInt8>, _ value: Span<UInt8>, to builder: MessageBuilder) {
            if name[0] == UInt8(ascii: ":") {
                guard name.isToken(":authority") else { return }
                hosts += 1
                if !value.isAuthority { isMalformed = true }
                return builder.addHeader(Self.host.span, value)
            }
            headerCount += 1
            headerBytes += name.count + value.count + 4
            switch name.count {
            case 4 where name.isToken("host"):
                // `Host` must equal `:authority`, which comes first.
                hosts += 1
                if !value.isAuthority { isMalformed = true }
                if hosts > 1 {
                    if !builder.hasHeader("host", value) { isMalformed = true }
                    return
                }
            case 6 where name.isToken("expect"):
                expectsContinue = value.isListOf("100-continue")
                if !expectsContinue { unmet = .expectationFailed }
            case 6 where name.isToken("origin"):
                // Two parsers could each choose a different one.
                origins += 1
                if origins > 1 { isMalformed = true }
            case 13 where name.isToken("authorization"):
                // As with `origin`.
                authorizations += 1
                if authorizations > 1 { isMalformed = true }
            case 14 where name.isToken("content-length"):
                // nghttp2 has checked that the value is a number.
                contentLength = value.count > 9 ? .max : value.indices.reduce(0) { 10 * $0 + Int(value[$1] &- 0x30) }
            case 16 where name.isToken("content-encoding"):
                if !value.isListOf("identity") { unmet = unmet ?? .unsupportedEncoding }
            default: break
            }
            builder.addHeader(name, value)
        }

        private static let host = Array("host".utf8)
    }
}
