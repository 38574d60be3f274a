import HTTP1
import HTTP2

/// A request's header block, checked like the head of an HTTP/1.1 request: what nghttp2 leaves to its user.
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
        } else if check.contentLength > limits.bodyBytes {
            self = .refused(.bodyTooLarge)
        } else {
            self = .taken(builder, expectsContinue: check.expectsContinue)
        }
    }

    /// What a stream with this request holds.
    var byteCount: Int {
        switch self {
        case .taken(let builder, _): HTTP2Stream.cost + builder.byteCount
        case .refused: HTTP2Stream.cost
        }
    }

    /// RFC 9113 section 8.3.1: a path and query, or `*`; in visible ASCII.
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
                // Beside :authority, which comes first, it must say the same.
                hosts += 1
                if !value.isAuthority { isMalformed = true }
                if hosts > 1 {
                    if !builder.hasHeader("host", value) { isMalformed = true }
                    return
                }
            case 6 where name.isToken("expect"):
                expectsContinue = value.isToken("100-continue")
                if !expectsContinue { unmet = .expectationFailed }
            case 13 where name.isToken("authorization"):
                // Two readers might each believe another one.
                authorizations += 1
                if authorizations > 1 { isMalformed = true }
            case 14 where name.isToken("content-length"):
                // A number, as nghttp2 has seen to.
                contentLength = value.count > 9 ? .max : value.indices.reduce(0) { 10 * $0 + Int(value[$1] &- 0x30) }
            case 16 where name.isToken("content-encoding"):
                if !value.isToken("identity") { unmet = unmet ?? .unsupportedEncoding }
            default: break
            }
            builder.addHeader(name, value)
        }

        private static let host = Array("host".utf8)
    }
}
