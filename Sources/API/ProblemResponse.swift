import Broker
import HTTPServer
import JSON

extension HTTPResponse {
    /// An error as `application/problem+json` (RFC 9457), with `success` and `error` for clients that know only those.
    init(_ error: BrokerError) { self.init(error, message: error.detail, details: nil) }

    /// The problem document of the first error. For faults of the body it has `details`: for each field what is wrong with it.
    init(_ invalid: InvalidRequest) {
        let first = invalid.errors[0]
        self.init(
            first, message: invalid.summary ?? first.detail, details: first.status == 400 ? invalid.details : nil)
    }

    private init(_ error: BrokerError, message: String, details: [(name: String, values: [String])]?) {
        var json = JSONWriter()
        json.add("type", "about:blank")
        json.add("title", error.title)
        json.add("status", error.status)
        json.add("detail", error.detail)
        json.add("code", error.code)
        if let field = error.field { json.add("field", field) }
        json.add("success", false)
        json.add("error", message)
        if let details { json.add("details", details) }
        var headers: [Header] = []
        if let seconds = error.retryAfter { headers.append(Header("Retry-After", String(seconds))) }
        switch error {
        case .noCapability, .malformedCapability, .noJWT: headers.append(Header("WWW-Authenticate", "Bearer"))
        case .invalidJWT, .jwtExpired:
            // RFC 6750 section 3.
            headers.append(Header("WWW-Authenticate", #"Bearer error="invalid_token", error_description="\#(error.detail)""#))
        case .upgradeRequired: headers.append(Header("Upgrade", "websocket"))
        case .methodNotAllowed(let allowed): headers.append(Header("Allow", allowed))
        default: break
        }
        self.init(status: UInt16(error.status), contentType: .problem, headers: headers, body: Self.line(json))
    }

    static func json(_ status: UInt16, _ write: (inout JSONWriter) -> Void) -> HTTPResponse {
        var json = JSONWriter()
        write(&json)
        return HTTPResponse(
            status: status, contentType: .json, headers: [Header("Cache-Control", "no-store")],
            body: line(json))
    }

    /// A writer's object as a line. Grown in place: a second copy of an answer would not be wiped.
    private static func line(_ json: consuming JSONWriter) -> [UInt8] {
        var body = json.finish()
        body.append(0x0a)
        return body
    }
}
