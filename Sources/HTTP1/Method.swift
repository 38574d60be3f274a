/// The request methods the product knows; every other one is `other`, which a handler answers with 405.
public enum Method: UInt8, Sendable, Hashable {
    case get, head, post, put, delete, options, patch, other

    /// The name in a request line. `other` has none.
    public var name: StaticString {
        switch self {
        case .get: "GET"
        case .head: "HEAD"
        case .post: "POST"
        case .put: "PUT"
        case .delete: "DELETE"
        case .options: "OPTIONS"
        case .patch: "PATCH"
        case .other: ""
        }
    }
}
