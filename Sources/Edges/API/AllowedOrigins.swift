import HTTP1
import HTTPServer
import Linux

/// The origins (RFC 6454) whose web pages may call the API from a browser (CORS), as the operator configured them.
///
/// Requests carry no cookies, so a foreign page could use nothing but what it knows itself. The list decides who may read the answers.
public struct AllowedOrigins: Sendable {
    private let origins: [String]

    /// Returns nil if the list is empty. Each word must be an origin.
    public init?(_ origins: [String]) {
        if origins.isEmpty { return nil }
        self.origins = origins
    }

    /// Returns whether the text is an origin as browsers send it: `https://HOST[:PORT]`, or `http://` for loopback, in lower case, without a default
    /// port.
    public static func isOrigin(_ text: String) -> Bool {
        let isSecure = text.hasPrefix("https://")
        guard isSecure || text.hasPrefix("http://") else { return false }
        var host = text.dropFirst(isSecure ? 8 : 7)
        if let colon = host.lastIndex(of: ":"), !host[colon...].contains("]") {
            let digits = host[host.index(after: colon)...]
            guard let port = UInt16(digits), port != 0, port != (isSecure ? 443 : 80), "\(port)" == digits else { return false }
            host = host[..<colon]
        }
        let address = SocketAddress(parsing: host + ":1")
        if host.hasPrefix("[") { return address.map { "[\($0.host)]" == host && (isSecure || $0.isLoopback) } ?? false }
        let labels = host.split(separator: ".", omittingEmptySubsequences: false)
        if case .unix? = address { return false }
        guard host.utf8.count <= 253, labels.allSatisfy(isLabel) else { return false }
        return isSecure || address?.isLoopback ?? false
    }

    /// Returns whether the text is a part of a host name in lower case. Browsers send other letters as `xn--`.
    private static func isLabel(_ text: Substring) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2d }
    }

    /// Returns whether a WebSocket may be opened: by a program without an origin, an allowed page, or a page of the broker's own host. React Native
    /// sends that host. Browsers don't apply CORS to WebSockets, so the handshake of a foreign page is refused.
    func allowsSocket(_ request: HTTPRequest) -> Bool {
        guard let origin = request.header("origin") else { return true }
        if origins.contains(origin) { return true }
        guard let host = request.header("host"), !host.isEmpty else { return false }
        return origin == "https://\(host)" || origin == "http://\(host)"
    }

    /// Returns the answer to the question before a call (a preflight), or nil if the request isn't one from an allowed origin.
    func preflight(_ request: HTTPRequest, from origin: String) -> HTTPResponse? {
        guard request.method == .options, request.header("access-control-request-method") != nil, origins.contains(origin) else {
            return nil
        }
        return HTTPResponse(
            status: 204,
            headers: [
                .init("Access-Control-Allow-Origin", origin),
                .init("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE"),
                .init("Access-Control-Allow-Headers", "authorization, content-type"),
                // The longest time that all browsers accept.
                .init("Access-Control-Max-Age", "7200"), .init("Vary", "Origin"),
            ])
    }

    /// Lets pages of every origin read the server's answer to a request that it refuses unread. It is the same for everyone.
    public func unlock(_ refusal: HTTPResponse) -> HTTPResponse {
        var answer = refusal
        answer.headers.append(.init("Access-Control-Allow-Origin", "*"))
        answer.headers.append(.init("Access-Control-Expose-Headers", "Retry-After"))
        return answer
    }

    /// Lets pages of an allowed origin read an answer.
    func mark(_ response: inout HTTPResponse, for origin: String) {
        response.headers.append(.init("Vary", "Origin"))
        guard origins.contains(origin) else { return }
        response.headers.append(.init("Access-Control-Allow-Origin", origin))
        response.headers.append(.init("Access-Control-Expose-Headers", "Retry-After"))
    }
}
