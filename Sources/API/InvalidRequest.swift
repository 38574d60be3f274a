import Broker
import HTTPServer

/// A body that can't be used, with all that is wrong with its fields: clients of a monitor show each beside its field.
struct InvalidRequest: Error {
    let errors: [BrokerError]

    /// - Parameter errors: at least one.
    init(_ errors: [BrokerError]) {
        precondition(!errors.isEmpty)
        self.errors = errors
    }
}

/// What is wrong with a body's fields, gathered while they are read one by one.
struct FieldFaults {
    fileprivate(set) var errors: [BrokerError] = []

    /// - Returns: nil for what is not there, or wrong.
    mutating func take<Value>(_ read: () throws(BrokerError) -> Value?) -> Value? {
        do {
            return try read()
        } catch {
            errors.append(error)
            return nil
        }
    }

    mutating func note(_ error: BrokerError) { errors.append(error) }

    mutating func required<Value>(_ name: StaticString, _ read: () throws(BrokerError) -> Value?) -> Value? {
        take { () throws(BrokerError) in
            guard let value = try read() else { throw .missingField("\(name)") }
            return value
        }
    }
}

extension HTTPRequest {
    /// Reads the body's fields.
    /// - Parameter read: nil only after an error.
    /// - Throws: `InvalidRequest` with everything that was wrong.
    func fields<Value>(
        _ read: (RequestBody, Span<UInt8>, inout FieldFaults) -> Value?
    ) throws(InvalidRequest) -> Value {
        try withBody { bytes throws(InvalidRequest) in
            var faults = FieldFaults()
            if let body = faults.take({ () throws(BrokerError) in try RequestBody(bytes) }) {
                let value = read(body, bytes, &faults)
                if faults.errors.isEmpty, let value { return value }
            }
            throw InvalidRequest(faults.errors)
        }
    }
}
