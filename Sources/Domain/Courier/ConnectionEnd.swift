import HTTP2
import Linux
import TLS
import Vocabulary

/// Why a connection ended, or accepts no more requests.
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
    /// Several requests in a row timed out, though PINGs were acknowledged.
    case unanswering
    /// Many streams in a row were refused.
    case refusing
    /// Too many bytes arrived without a response.
    case flooding
    case goAway(GoAway)
    case proxy(ProxyFault)
}

extension ConnectionEnd {
    /// The same error if it happened before the proxy had opened the tunnel.
    var ofProxy: ConnectionEnd {
        switch self {
        case .unreachable(let error): .proxy(.unreachable(error))
        case .closedByPeer: .proxy(.closed)
        case .timedOut: .proxy(.silent)
        default: self
        }
    }

    /// True if the peer rejected our certificate in the handshake (RFC 8446, 6.2).
    var isAboutCertificate: Bool {
        if case .untrusted(.alert(let number)) = self {
            (42...46).contains(number) || [48, 49, 116].contains(number)
        } else {
            false
        }
    }
}

/// A GOAWAY.
struct GoAway: Sendable, Equatable {
    let code: HTTP2ErrorCode
    /// The reason in the debug data, which is JSON like a response's body. Nil if absent or unknown.
    let reason: PushReason?

    init(_ code: HTTP2ErrorCode, debugData: [UInt8]) {
        self.code = code
        reason = debugData.count <= 4096 ? AnswerBody(debugData).reason.flatMap { PushReason(rawValue: $0) } : nil
    }

    /// True if this side caused the GOAWAY, so that another connection wouldn't help.
    var isOurFault: Bool {
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
        case .goAway(let goAway):
            goAway.reason.map { "the peer ended the connection (\($0.rawValue))" }
                ?? "the peer ended the connection (error \(goAway.code.rawValue))"
        case .proxy(let fault): fault.description
        }
    }
}
