public import HTTP1
public import Linux
public import TLS

/// Why a client got no answer.
public enum ClientError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Not an absolute http, https, ws or wss URL.
    case badURL(String)
    case unresolved(ResolutionError)
    case unreachable(Errno)
    case tls(TLSError)
    /// An https or wss URL for a client that was made without trust.
    case noTrust
    case timedOut
    /// The peer closed before its answer was complete.
    case closedEarly
    case badAnswer(ParseFailure)
    /// The peer did not accept the WebSocket but answered with this status.
    case notUpgraded(UInt16)

    public var description: String {
        switch self {
        case .badURL: "not an absolute http(s) or ws(s) URL without user name and password"
        case .unresolved(let error): "\(error)"
        case .unreachable(let error): "\(error)"
        case .tls(let error): "\(error)"
        case .noTrust: "the URL asks for TLS, but no trusted certificates were given"
        case .timedOut: "no answer in time"
        case .closedEarly: "the peer closed the connection before its answer was complete"
        case .badAnswer(.bodyTooLarge): "the answer is larger than expected"
        case .badAnswer: "the answer is not HTTP/1.1"
        case .notUpgraded(let status): "the peer answered \(status) instead of opening a WebSocket"
        }
    }

    var isConnectionLost: Bool {
        switch self {
        case .closedEarly: true
        case .unreachable(let error): error.isConnectionLost
        default: false
        }
    }
}
