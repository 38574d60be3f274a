import HTTP2
import Linux
import TLS
import Vocabulary

/// Why a connection ended, or takes no more requests.
enum ConnectionEnd: Error, Sendable, Equatable {
    case finished
    case closedByPeer
    case unresolved
    case unreachable(Errno)
    case untrusted(TLSError)
    case protocolFailure
    case timedOut
    /// A PING went unanswered.
    case silent
    /// Request after request went unanswered, though PINGs are.
    case unanswering
    /// Stream after stream was refused.
    case refusing
    /// Bytes and bytes that answer nothing.
    case flooding
    case dismissed(Dismissal)
}

extension ConnectionEnd {
    /// The peer ended the handshake because of this end's certificate (RFC 8446, 6.2).
    var isAboutCertificate: Bool {
        if case .untrusted(.alert(let number)) = self {
            (42...46).contains(number) || [48, 49, 116].contains(number)
        } else {
            false
        }
    }
}

/// A GOAWAY.
struct Dismissal: Sendable, Equatable {
    let code: HTTP2ErrorCode
    /// What the peer gave as a reason: JSON as in an answer's body; nil where it gave none that is known.
    let reason: APNsReason?

    init(_ code: HTTP2ErrorCode, debugData: [UInt8]) {
        self.code = code
        reason = debugData.count <= 4096 ? AnswerBody(debugData).reason.flatMap { APNsReason(rawValue: $0) } : nil
    }

    /// Whether it was this end's doing, so that another connection would fare no better.
    var isRebuke: Bool {
        switch reason?.reaction {
        case .configuration, .reconnectOnce, .holdToken: true
        case .reconnect: reason == .tooManyProviderTokenUpdates
        case .renewProviderToken: false
        default: code != .noError
        }
    }
}

extension ConnectionEnd: CustomStringConvertible {
    var description: String {
        switch self {
        case .finished: "the connection was closed"
        case .closedByPeer: "the peer closed the connection"
        case .unresolved: "the host name can't be resolved"
        case .unreachable(let error): error.description
        case .untrusted(let error): error.description
        case .protocolFailure: "the peer does not speak HTTP/2 correctly"
        case .timedOut: "the connection was not ready in time"
        case .silent, .unanswering: "the peer does not answer"
        case .refusing: "the peer refuses every request without processing it"
        case .flooding: "the peer sends unrequested data"
        case .dismissed(let dismissal):
            dismissal.reason.map { "the peer ended the connection (\($0.rawValue))" }
                ?? "the peer ended the connection (error \(dismissal.code.rawValue))"
        }
    }
}
