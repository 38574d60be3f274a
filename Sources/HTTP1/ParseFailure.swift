/// Why a message was refused. Each stands for one answer: see `status`.
public enum ParseFailure: Error, Sendable, Equatable {
    /// Not HTTP/1.x by RFC 9112, or framed in a way that two readers could read differently.
    case malformed
    case targetTooLong
    case headersTooLarge
    case bodyTooLarge
    /// `Expect` names something other than `100-continue` (RFC 9110 section 10.1.1).
    case expectationFailed
    /// The body is compressed or otherwise encoded (RFC 9110 section 8.4).
    case unsupportedEncoding

    /// The status that answers a request refused for this reason.
    public var status: UInt16 {
        switch self {
        case .malformed: 400
        case .targetTooLong: 414
        case .headersTooLarge: 431
        case .bodyTooLarge: 413
        case .unsupportedEncoding: 415
        case .expectationFailed: 417
        }
    }
}
