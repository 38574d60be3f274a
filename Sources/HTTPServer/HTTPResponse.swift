import Linux

/// One answer. The engine adds `Content-Length`, `Date` and `Connection`.
public struct HTTPResponse: Sendable {
    public struct Header: Sendable, Equatable {
        public let name: String
        public let value: String

        /// A value from outside can't start a line of its own: control characters become spaces.
        public init(_ name: String, _ value: String) {
            self.name = name
            let isPlain = value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }
            self.value = isPlain ? value : String(value.map { $0.isASCII && ($0 < " " || $0 == "\u{7F}") ? " " : $0 })
        }
    }

    public enum ContentType: Sendable, Equatable {
        case none, json, problem, text, html, bytes
        case other(String)

        /// As it stands in `Content-Type`; nil for none.
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
    /// The body exists once in memory, whoever asks for it: it is no secret, is not wiped, and counts towards nobody's share.
    public var isBodyShared = false
    /// Ends the connection after this answer.
    public var closesConnection = false

    public init(status: UInt16, contentType: ContentType = .none, headers: [Header] = [], body: [UInt8] = []) {
        self.status = status
        self.contentType = contentType
        self.headers = headers
        self.body = body
    }

    /// RFC 9110 section 8.6: these have none.
    var hasBody: Bool { status >= 200 && status != 204 && status != 304 }

    /// Zeroes the body, unless its handler holds it too.
    mutating func discard() { if !isBodyShared { wipe(&body) } }
}
