import HTTP2
import Sealing
import Sodium

/// Turns a push into a request's header block; one a connection, because it knows which names HPACK has met.
struct RequestHeaders {
    private let authority: String
    private var headers = HTTP2Headers(capacity: 1024)
    private var met: Set<String> = []

    private static let pathStart = Array("/3/device/".utf8)

    init(host: String) { authority = host }

    /// Calls `body` with the block, and wipes it.
    /// - Parameter issued: nil where a certificate speaks for the provider.
    mutating func with<R, E>(
        _ push: Push, _ issued: ProviderToken.Issued?, _ body: (HTTP2Headers) throws(E) -> R
    ) throws(E) -> R {
        var path = Self.path(push)
        defer {
            Sodium.wipe(&path)
            headers.wipe()
        }
        headers.append(":method", "POST")
        headers.append(":scheme", "https")
        headers.append(":authority", authority)
        headers.append(":path", path.span, .never)
        if let issued { headers.append("authorization", issued.authorization, .never) }
        headers.append("apns-topic", push.topic)
        headers.append("apns-push-type", push.kind.rawValue)
        headers.append("apns-priority", String(push.priority))
        append("apns-id", push.apnsID)
        if let expirationS = push.expirationS { append("apns-expiration", String(expirationS)) }
        if let collapseID = push.collapseID { append("apns-collapse-id", collapseID) }
        return try body(headers)
    }

    /// Indexed on first use, so that the name stands in the table, and a literal from then on.
    private mutating func append(_ name: String, _ value: String) {
        headers.append(name, value, met.insert(name).inserted ? .incremental : .never)
    }

    /// In bytes that are wiped: no `String` of the token is left behind.
    private static func path(_ push: Push) -> [UInt8] {
        var path: [UInt8] = []
        path.reserveCapacity(pathStart.count + push.token.count * 2)
        path.append(contentsOf: pathStart)
        push.token.withBytes { token in
            for index in token.indices {
                path.append(digits[Int(token[index] >> 4)])
                path.append(digits[Int(token[index] & 15)])
            }
        }
        return path
    }

    private static let digits = Array("0123456789abcdef".utf8)
}
