import Broker
import HTTPServer
import JSON
import Sealing
import Sodium

/// All errors of an invalid body.
struct InvalidRequest: Error {
    /// At least one. The first decides status and code.
    let errors: [BrokerError]
    /// Replaces the first error's `detail` in `error`. The monitor's clients expect a constant text.
    var summary: String?

    init(_ errors: [BrokerError], summary: String? = nil) {
        precondition(!errors.isEmpty)
        self.errors = errors
        self.summary = summary
    }

    /// Returns nil if callers must not see the error.
    init?(_ error: any Error) {
        if let invalid = error as? InvalidRequest {
            self = invalid
        } else if let error = BrokerError(thrown: error) {
            self.init([error])
        } else {
            return nil
        }
    }

    /// The first error of each faulty field.
    var details: [(name: String, values: [String])] {
        var details: [(name: String, values: [String])] = []
        for error in errors {
            guard let field = error.field, !details.contains(where: { $0.name == field }) else { continue }
            details.append((field, [error.detail]))
        }
        return details
    }
}

extension HTTPResponse {
    /// The error as `application/problem+json` (RFC 9457), with `success` and `error` for older clients.
    init(_ error: BrokerError) { self.init(error, message: error.detail, details: nil) }

    /// The problem document of the first error. For an invalid body it has `details`, with the error of each field.
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

    /// The writer's object and a newline. Appends in place, because a copy of an answer would not be wiped.
    private static func line(_ json: consuming JSONWriter) -> [UInt8] {
        var body = json.finish()
        body.append(0x0a)
        return body
    }
}

extension JSONWriter {
    /// Writes a secret as base64url, in place: an answer must not need a free slot of the arena.
    mutating func add(_ name: String, _ capability: some Capability) {
        add(name, count: Base64.url.encodedCount(capability.secret.count)) { text in
            capability.secret.withBytes { Base64.url.encode($0, into: &text) }
        }
    }

    /// Writes the first of the sorted names of dropped fields, if there are any.
    mutating func add(dropped names: [String]) {
        if !names.isEmpty { add("dropped", Array(names.prefix(RequestBody.mostListed))) }
    }

    /// Writes an object of lists. Names must be unique.
    mutating func add(_ name: String, _ lists: [(name: String, values: [String])]) {
        add(name) { json in
            for list in lists { json.add(list.name, list.values) }
        }
    }
}
