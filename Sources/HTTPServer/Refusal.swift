import HTTP1
import Shares

/// Answers the engine gives by itself, without its handler.
public enum Refusal: Sendable, CaseIterable {
    case malformedRequest, requestTimeout, bodyTooLarge, targetTooLong, headersTooLarge, tooManyConnections, badUpgrade,
        upgradeVersion, expectationFailed, unsupportedEncoding, overloaded, overShare

    init(_ shortage: Shortage) {
        self =
            switch shortage {
            case .overShare: .overShare
            case .exhausted(.connections, _): .tooManyConnections
            case .exhausted: .overloaded
            }
    }

    init(_ failure: ParseFailure) {
        self =
            switch failure {
            case .malformed: .malformedRequest
            case .targetTooLong: .targetTooLong
            case .headersTooLarge: .headersTooLarge
            case .bodyTooLarge: .bodyTooLarge
            case .expectationFailed: .expectationFailed
            case .unsupportedEncoding: .unsupportedEncoding
            }
    }

    public var status: UInt16 {
        switch self {
        case .malformedRequest, .badUpgrade: 400
        case .requestTimeout: 408
        case .bodyTooLarge: 413
        case .targetTooLong: 414
        case .unsupportedEncoding: 415
        case .expectationFailed: 417
        case .upgradeVersion: 426
        case .overShare: 429
        case .headersTooLarge: 431
        case .tooManyConnections, .overloaded: 503
        }
    }

    /// A stable name for programs.
    public var code: String {
        switch self {
        case .malformedRequest: "malformed_request"
        case .requestTimeout: "request_timeout"
        case .bodyTooLarge: "body_too_large"
        case .targetTooLong: "target_too_long"
        case .headersTooLarge: "headers_too_large"
        case .tooManyConnections: "too_many_connections"
        case .badUpgrade: "bad_upgrade"
        case .upgradeVersion: "upgrade_version"
        case .expectationFailed: "expectation_failed"
        case .unsupportedEncoding: "unsupported_encoding"
        case .overloaded: "overloaded"
        case .overShare: "too_many_requests"
        }
    }

    /// What happened and what to do, for people.
    public var detail: String {
        switch self {
        case .malformedRequest:
            "The request is not valid HTTP. Send one Host and at most one Authorization line, and one kind of body framing."
        case .requestTimeout: "The request did not arrive in time. Send it again in one piece."
        case .bodyTooLarge: "The request body is too large. Send a smaller one."
        case .targetTooLong: "The request target is too long. Put data in the body."
        case .headersTooLarge: "The request has too many or too long header lines. Send fewer or shorter ones."
        case .tooManyConnections: "Too many connections are open. Try again later, and reuse connections."
        case .overloaded: "The server has too many requests. Try again later."
        case .overShare:
            "This client or its network has used up its share of connections, sockets or requests. Close some, or try again later."
        case .badUpgrade: "The WebSocket handshake is incomplete. Use a WebSocket client (RFC 6455)."
        case .upgradeVersion: "Only version 13 of the WebSocket protocol is supported. Use that version."
        case .expectationFailed:
            "Only the expectation 100-continue is supported. Remove the Expect header line."
        case .unsupportedEncoding: "The request body is encoded. Send it plain, without a Content-Encoding header line."
        }
    }

    /// The answer as `application/problem+json` (RFC 9457). No text in it needs escaping.
    public var problem: HTTPResponse {
        let text = """
            {"type":"about:blank","title":"\(StatusLine.reason(status))","status":\(status),"detail":"\(detail)",\
            "code":"\(code)","success":false,"error":"\(detail)"}

            """
        var response = HTTPResponse(status: status, contentType: .problem, body: Array(text.utf8))
        switch self {
        case .tooManyConnections, .overloaded, .overShare: response.headers = [.init("Retry-After", "5")]
        case .upgradeVersion: response.headers = [.init("Sec-WebSocket-Version", "13")]
        case .unsupportedEncoding: response.headers = [.init("Accept-Encoding", "identity")]
        default: break
        }
        response.closesConnection = true
        return response
    }
}
