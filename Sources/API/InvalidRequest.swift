import Broker
import HTTPServer
import JSON

/// A body that can't be used, with everything that is wrong with it.
struct InvalidRequest: Error {
    /// At least one. The first decides status and code.
    let errors: [BrokerError]
    /// Replaces the first error's `detail` in `error`. The monitor's clients expect the same words each time.
    var summary: String?

    init(_ errors: [BrokerError], summary: String? = nil) {
        precondition(!errors.isEmpty)
        self.errors = errors
        self.summary = summary
    }

    /// For each field at fault what is wrong with it, each field once.
    var details: [(name: String, values: [String])] {
        var details: [(name: String, values: [String])] = []
        for error in errors {
            guard let field = error.field, !details.contains(where: { $0.name == field }) else { continue }
            details.append((field, [error.detail]))
        }
        return details
    }
}

extension JSONWriter {
    /// An object of lists, each name once.
    mutating func add(_ name: String, _ lists: [(name: String, values: [String])]) {
        add(name) { json in
            for list in lists { json.add(list.name, list.values) }
        }
    }
}

/// Collects the faults of a body while its fields are read.
struct FieldFaults {
    private var faults: [BrokerError] = []
    /// An error that outranks faulty fields: the caller is not allowed, or the broker is unavailable.
    private var refusal: BrokerError?

    /// All faults of the fields; or the refusal alone, where there is one.
    var errors: [BrokerError] { refusal.map { [$0] } ?? faults }

    /// - Returns: nil if the field is absent or at fault.
    mutating func take<Value>(_ read: () throws(BrokerError) -> Value?) -> Value? {
        do {
            return try read()
        } catch {
            note(error)
            return nil
        }
    }

    mutating func required<Value>(_ name: String, _ read: () throws(BrokerError) -> Value?) -> Value? {
        take { () throws(BrokerError) in
            guard let value = try read() else { throw .missingField(name) }
            return value
        }
    }

    mutating func note(_ error: BrokerError) {
        if error.status == 400 { faults.append(error) } else { refusal = refusal ?? error }
    }
}

extension RequestBody {
    /// Reads a body's fields.
    /// - Parameter read: returns nil only after a fault.
    /// - Throws: everything that is wrong with the body.
    static func fields<Value>(
        of bytes: Span<UInt8>, _ read: (RequestBody, inout FieldFaults) -> Value?
    ) throws(InvalidRequest) -> Value {
        var faults = FieldFaults()
        if let body = faults.take({ () throws(BrokerError) in try RequestBody(bytes) }) {
            let value = read(body, &faults)
            if faults.errors.isEmpty, let value { return value }
        }
        throw InvalidRequest(faults.errors)
    }
}

extension HTTPRequest {
    /// Reads the fields of the request's body, as `RequestBody.fields` does.
    func fields<Value>(
        _ read: (RequestBody, Span<UInt8>, inout FieldFaults) -> Value?
    ) throws(InvalidRequest) -> Value {
        try withBody { bytes throws(InvalidRequest) in
            try RequestBody.fields(of: bytes) { body, faults in read(body, bytes, &faults) }
        }
    }
}
