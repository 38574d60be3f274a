import HTTP1
import HTTP2
import Linux
import Shares

/// A response. The server adds `Content-Length`, `Date` and `Connection`.
public struct HTTPResponse: Sendable {
    public struct Header: Sendable, Equatable {
        public let name: String
        public let value: String

        /// Control characters become spaces, so that a value can't start a new header line.
        public init(_ name: String, _ value: String) {
            self.name = name
            let isPlain = value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
            self.value = isPlain ? value : String(value.map { $0.isASCII && ($0 < " " || $0 == "\u{7F}") ? " " : $0 })
        }
    }

    public enum ContentType: Sendable, Equatable {
        case none, json, problem, text, html, bytes
        case other(String)

        /// The value of `Content-Type`. Nil for `none`.
        var value: String? {
            switch self {
            case .none: nil
            case .json: "application/json"
            case .problem: "application/problem+json"
            case .text: "text/plain; charset=utf-8"
            case .html: "text/html; charset=utf-8"
            case .bytes: "application/octet-stream"
            case .other(let value): value
            }
        }
    }

    public var status: UInt16
    public var contentType: ContentType
    public var headers: [Header]
    public var body: [UInt8]
    /// The body is a shared constant: it is no secret, is not wiped, and is charged to nobody.
    public var isBodyShared = false
    /// Closes the connection after this response.
    public var closesConnection = false

    public init(status: UInt16, contentType: ContentType = .none, headers: [Header] = [], body: [UInt8] = []) {
        self.status = status
        self.contentType = contentType
        self.headers = headers
        self.body = body
    }

    /// RFC 9110 section 8.6: these responses have no body.
    var hasBody: Bool { status >= 200 && status != 204 && status != 304 }

    /// Zeroes the body unless it is shared.
    mutating func discard() { if !isBodyShared { wipe(&body) } }
}

/// Responses of the server itself, without its handler.
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

    public var status: UInt16 { answer.status }

    /// A stable code for programs.
    public var code: String { answer.code }

    /// What happened and what to do.
    public var detail: String { answer.detail }

    private var answer: (status: UInt16, code: String, detail: String) {
        switch self {
        case .malformedRequest:
            (
                400, "malformed_request",
                "The request is not valid HTTP. Send one Host line, at most one of Authorization and of Origin, and one kind of body framing."
            )
        case .badUpgrade:
            (400, "bad_upgrade", "The WebSocket handshake is incomplete, or repeats a line. Use a WebSocket client (RFC 6455).")
        case .requestTimeout: (408, "request_timeout", "The request did not arrive in time. Send it again in one piece.")
        case .bodyTooLarge: (413, "body_too_large", "The request body is too large. Send a smaller one.")
        case .targetTooLong: (414, "target_too_long", "The request target is too long. Put data in the body.")
        case .unsupportedEncoding:
            (415, "unsupported_encoding", "The request body is encoded. Send it plain, without a Content-Encoding header line.")
        case .expectationFailed:
            (417, "expectation_failed", "Only the expectation 100-continue is supported. Remove the Expect header line.")
        case .upgradeVersion:
            (426, "upgrade_version", "Only version 13 of the WebSocket protocol is supported. Use that version.")
        case .overShare:
            (
                429, "too_many_requests",
                "This client or its network has used up its share of connections, sockets or requests. Close some, or try again later."
            )
        case .headersTooLarge:
            (431, "headers_too_large", "The request has too many or too long header lines. Send fewer or shorter ones.")
        case .tooManyConnections:
            (503, "too_many_connections", "Too many connections are open. Try again later, and reuse connections.")
        case .overloaded: (503, "overloaded", "The server has too many requests. Try again later.")
        }
    }

    /// The response as `application/problem+json` (RFC 9457). Its text needs no escaping.
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

/// Appends responses to a buffer in one pass.
struct ResponseWriter {
    private static let json = line(of: .json)
    private static let problem = line(of: .problem)
    private static let text = line(of: .text)
    private static let html = line(of: .html)
    private static let bytes = line(of: .bytes)
    private static let contentType = Array("Content-Type: ".utf8)
    private static func line(of type: HTTPResponse.ContentType) -> [UInt8] { Array("Content-Type: \(type.value ?? "")\r\n".utf8) }
    private static let contentLength = Array("Content-Length: ".utf8)
    private static let close = Array("Connection: close\r\n".utf8)
    private static let keepAlive = Array("Connection: keep-alive\r\n".utf8)
    private static let lineEnd: [UInt8] = [0x0D, 0x0A]
    static let continueResponse = Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)

    private var dateLine: [UInt8] = []
    private var second: UInt64 = .max

    /// Sets the wall clock. Call it before writing responses.
    mutating func setTime(wallMs: UInt64) {
        guard wallMs / 1000 != second else { return }
        second = wallMs / 1000
        dateLine = Array("Date: \(HTTPDate.text(second))\r\n".utf8)
    }

    /// - Parameters:
    ///   - isHead: the response to HEAD, whose header lines describe a body that is omitted.
    ///   - closes: the connection closes after this response.
    ///   - isVersion11: false for HTTP/1.0, where `keep-alive` must be announced.
    func write(_ response: HTTPResponse, isHead: Bool, closes: Bool, isVersion11: Bool, to output: inout [UInt8]) {
        output.reserveWiping(256 + response.body.count)
        output.append(contentsOf: StatusLine.bytes(response.status))
        output.append(contentsOf: dateLine)
        switch response.contentType {
        case .none: break
        case .json: output.append(contentsOf: Self.json)
        case .problem: output.append(contentsOf: Self.problem)
        case .text: output.append(contentsOf: Self.text)
        case .html: output.append(contentsOf: Self.html)
        case .bytes: output.append(contentsOf: Self.bytes)
        case .other(let type):
            output.append(contentsOf: Self.contentType)
            output.append(contentsOf: type.utf8)
            output.append(contentsOf: Self.lineEnd)
        }
        for header in response.headers {
            output.append(contentsOf: header.name.utf8)
            output.append(0x3A)
            output.append(0x20)
            output.append(contentsOf: header.value.utf8)
            output.append(contentsOf: Self.lineEnd)
        }
        if closes {
            output.append(contentsOf: Self.close)
        } else if !isVersion11 {
            output.append(contentsOf: Self.keepAlive)
        }
        if response.hasBody {
            output.append(contentsOf: Self.contentLength)
            Self.write(response.body.count, to: &output)
            output.append(contentsOf: Self.lineEnd)
        }
        output.append(contentsOf: Self.lineEnd)
        if response.hasBody, !isHead { output.append(contentsOf: response.body) }
    }

    /// Returns the head for HTTP/2, with names in lower case.
    func headers(of response: HTTPResponse) -> HTTP2Headers {
        var headers = HTTP2Headers(capacity: 256)
        headers.append(":status", "\(response.status)")
        // Without "Date: " and the line end.
        headers.append("date", dateLine.span.extracting(6..<dateLine.count - 2))
        if let type = response.contentType.value { headers.append("content-type", type) }
        for header in response.headers { headers.append(header.name.lowercased(), header.value) }
        if response.hasBody { headers.append("content-length", "\(response.body.count)") }
        return headers
    }

    private static func write(_ number: Int, to output: inout [UInt8]) {
        var divisor = 1
        while number / divisor >= 10 { divisor *= 10 }
        while divisor > 0 {
            output.append(0x30 + UInt8(number / divisor % 10))
            divisor /= 10
        }
    }
}

/// Cached status lines.
private enum StatusLine {
    static func reason(_ status: UInt16) -> String {
        switch status {
        case 101: "Switching Protocols"
        case 200: "OK"
        case 201: "Created"
        case 202: "Accepted"
        case 204: "No Content"
        case 304: "Not Modified"
        case 400: "Bad Request"
        case 401: "Unauthorized"
        case 403: "Forbidden"
        case 404: "Not Found"
        case 405: "Method Not Allowed"
        case 408: "Request Timeout"
        case 409: "Conflict"
        case 410: "Gone"
        case 413: "Content Too Large"
        case 414: "URI Too Long"
        case 415: "Unsupported Media Type"
        case 417: "Expectation Failed"
        case 422: "Unprocessable Content"
        case 426: "Upgrade Required"
        case 429: "Too Many Requests"
        case 431: "Request Header Fields Too Large"
        case 500: "Internal Server Error"
        case 503: "Service Unavailable"
        default: ""
        }
    }

    private static let lines: [[UInt8]] = (100..<600).map { Array("HTTP/1.1 \($0) \(reason(UInt16($0)))\r\n".utf8) }

    static func bytes(_ status: UInt16) -> [UInt8] {
        lines[status >= 100 && status < 600 ? Int(status) - 100 : 400]
    }
}
