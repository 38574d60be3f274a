import Broker
import HTTPServer
import JSON

/// A request to a route, and the answer to it.
///
/// An answer lists fields that were not read. The call keeps their names.
final class Call {
    let request: HTTPRequest
    /// The parameter in the path as the client sent it, still percent-encoded. Empty for a route without one.
    let name: Substring
    /// The request's charges. Nil if the route charges nobody.
    let charges: RequestCharges?
    private var dropped: [String] = []

    init(_ request: HTTPRequest, name: Substring, _ charges: RequestCharges?) {
        self.request = request
        self.name = name
        self.charges = charges
    }

    /// Reads the body's fields.
    /// - Parameter read: returns nil only after noting an error.
    /// - Throws: `InvalidRequest` with all errors of the body; `.appNotServed` and `.webPushOff`, which aren't about its form.
    func fields<Value>(_ read: (RequestBody) -> Value?) throws -> Value {
        do throws(InvalidRequest) {
            let body = try RequestBody(of: request)
            let value = try body.fields(read)
            dropped = body.dropped
            return value
        } catch {
            if let only = error.errors.first, only == .appNotServed || only == .webPushOff { throw only }
            throw error
        }
    }

    /// Returns an answer with a JSON object.
    func answer(_ status: UInt16 = 200, _ write: (inout JSONWriter) -> Void) -> HTTPResponse {
        .json(status) { json in
            write(&json)
            json.add(dropped: dropped)
        }
    }
}
