import HTTP2
import Sealing
import Vocabulary

/// Builds the header block of a push. Each connection has its own, because it tracks which names HPACK has indexed.
struct RequestHeaders {
    /// The fields that most pushes have in common. They stay in the block.
    private struct CommonFields: Equatable {
        let topic: String
        let type: PushType
        let priority: UInt8
        let authorization: String?
    }

    private let authority: String
    private var headers = HTTP2Headers(capacity: 1024)
    private var common: (fields: CommonFields, end: HTTP2Headers.Mark)?
    /// The last push's expiry. Pushes of one second have the same.
    private var expiration: (seconds: UInt64, text: String) = (0, "0")
    /// Which names have been indexed.
    private var indexed: (apnsID: Bool, expiration: Bool, collapseID: Bool) = (false, false, false)

    private static let pathStart = Array("/3/device/".utf8)
    /// The position of `:path` among the pseudo-header fields, which come first.
    private static let path = 3

    init(_ endpoint: Endpoint) { authority = endpoint.authority }

    /// Calls `body` with the block, then wipes the fields of this push.
    /// - Parameters:
    ///   - topic: the bundle id of the push's app, with the suffix of its type.
    ///   - authorization: nil if the account uses a certificate.
    mutating func with<R, E>(
        _ push: Push, topic: String, _ authorization: Authorization?, _ body: (HTTP2Headers) throws(E) -> R
    ) throws(E) -> R {
        let end = setCommonFields(
            CommonFields(topic: topic, type: push.type, priority: push.priority, authorization: authorization?.value))
        defer { headers.wipe(after: end) }
        push.address.token.withBytes { token in
            headers.replace(Self.path, ":path", Self.pathStart.span, count: 2 * token.count, .never) {
                Hex.encode(token, into: &$0)
            }
        }
        headers.append("apns-id", push.apnsID, Self.once(&indexed.apnsID))
        if let expirationS = push.expirationS {
            if expiration.seconds != expirationS { expiration = (expirationS, String(expirationS)) }
            headers.append("apns-expiration", expiration.text, Self.once(&indexed.expiration))
        }
        if let collapseID = push.collapseID { headers.append("apns-collapse-id", collapseID, Self.once(&indexed.collapseID)) }
        return try body(headers)
    }

    /// - Returns: the end of the common fields.
    private mutating func setCommonFields(_ fields: CommonFields) -> HTTP2Headers.Mark {
        if let common, common.fields == fields { return common.end }
        headers.wipe()
        headers.append(":method", "POST")
        headers.append(":scheme", "https")
        headers.append(":authority", authority)
        headers.append(":path", "", .never)
        if let authorization = fields.authorization { headers.append("authorization", authorization, .never) }
        headers.append("apns-topic", fields.topic)
        headers.append("apns-push-type", fields.type.rawValue)
        headers.append("apns-priority", String(fields.priority))
        common = (fields, headers.mark)
        return headers.mark
    }

    /// Indexed on first use, so that the name is in the table. Afterwards a literal, as Apple advises.
    private static func once(_ wasIndexed: inout Bool) -> HTTP2Headers.Indexing {
        defer { wasIndexed = true }
        return wasIndexed ? .never : .incremental
    }
}
