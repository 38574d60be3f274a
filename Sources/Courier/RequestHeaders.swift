import HTTP2
import Sealing
import Vocabulary

/// Turns a push into a request's header block; one a connection, because it knows which names HPACK has met.
struct RequestHeaders {
    /// What is the same for one push after the other, and stays in the block.
    private struct Standing: Equatable {
        let topic: String
        let type: PushType
        let priority: UInt8
        let authorization: String?
    }

    private let authority: String
    private var headers = HTTP2Headers(capacity: 1024)
    private var standing: (fields: Standing, end: HTTP2Headers.Mark)?
    /// The last push's: those of one second have the same.
    private var expiration: (seconds: UInt64, text: String) = (0, "0")
    /// Which of the names that are indexed once have been.
    private var met: (apnsID: Bool, expiration: Bool, collapseID: Bool) = (false, false, false)

    private static let pathStart = Array("/3/device/".utf8)
    /// Where `:path` stands: before all that is no pseudo-header field.
    private static let path = 3

    init(_ endpoint: Endpoint) { authority = endpoint.authority }

    /// Calls `body` with the block, and wipes all of it that is this push's own.
    /// - Parameter issued: nil where a certificate speaks for the provider.
    mutating func with<R, E>(
        _ push: Push, _ issued: ProviderToken.Issued?, _ body: (HTTP2Headers) throws(E) -> R
    ) throws(E) -> R {
        let end = stand(
            Standing(topic: push.topic, type: push.type, priority: push.priority, authorization: issued?.authorization))
        defer { headers.wipe(after: end) }
        push.token.withBytes { token in
            headers.replace(Self.path, ":path", Self.pathStart.span, count: 2 * token.count, .never) {
                Hex.encode(token, into: &$0)
            }
        }
        headers.append("apns-id", push.apnsID, Self.once(&met.apnsID))
        if let expirationS = push.expirationS {
            if expiration.seconds != expirationS { expiration = (expirationS, String(expirationS)) }
            headers.append("apns-expiration", expiration.text, Self.once(&met.expiration))
        }
        if let collapseID = push.collapseID { headers.append("apns-collapse-id", collapseID, Self.once(&met.collapseID)) }
        return try body(headers)
    }

    /// - Returns: the end of the fields that stay.
    private mutating func stand(_ fields: Standing) -> HTTP2Headers.Mark {
        if let standing, standing.fields == fields { return standing.end }
        headers.wipe()
        headers.append(":method", "POST")
        headers.append(":scheme", "https")
        headers.append(":authority", authority)
        headers.append(":path", "", .never)
        if let authorization = fields.authorization { headers.append("authorization", authorization, .never) }
        headers.append("apns-topic", fields.topic)
        headers.append("apns-push-type", fields.type.rawValue)
        headers.append("apns-priority", String(fields.priority))
        standing = (fields, headers.mark)
        return headers.mark
    }

    /// Indexed on first use, so that the name stands in the table, and a literal from then on.
    private static func once(_ wasMet: inout Bool) -> HTTP2Headers.Indexing {
        defer { wasMet = true }
        return wasMet ? .never : .incremental
    }
}
