import HTTP2
import Sealing

/// Turns a push into a request's header block; one a connection, because it knows which names HPACK has met.
struct RequestHeaders {
    private let authority: String
    private var headers = HTTP2Headers(capacity: 1024)
    /// Which of the names that are indexed once have been.
    private var met: (apnsID: Bool, expiration: Bool, collapseID: Bool) = (false, false, false)

    private static let pathStart = Array("/3/device/".utf8)

    init(host: String) { authority = host }

    /// Calls `body` with the block, and wipes it.
    /// - Parameter issued: nil where a certificate speaks for the provider.
    mutating func with<R, E>(
        _ push: Push, _ issued: ProviderToken.Issued?, _ body: (HTTP2Headers) throws(E) -> R
    ) throws(E) -> R {
        defer { headers.wipe() }
        headers.append(":method", "POST")
        headers.append(":scheme", "https")
        headers.append(":authority", authority)
        push.token.withBytes { headers.append(":path", Self.pathStart.span, hex: $0, .never) }
        if let issued { headers.append("authorization", issued.authorization, .never) }
        headers.append("apns-topic", push.topic)
        headers.append("apns-push-type", push.kind.rawValue)
        headers.append("apns-priority", String(push.priority))
        headers.append("apns-id", push.apnsID, Self.once(&met.apnsID))
        if let expirationS = push.expirationS {
            headers.append("apns-expiration", String(expirationS), Self.once(&met.expiration))
        }
        if let collapseID = push.collapseID { headers.append("apns-collapse-id", collapseID, Self.once(&met.collapseID)) }
        return try body(headers)
    }

    /// Indexed on first use, so that the name stands in the table, and a literal from then on.
    private static func once(_ wasMet: inout Bool) -> HTTP2Headers.Indexing {
        defer { wasMet = true }
        return wasMet ? .never : .incremental
    }
}
