/// The form of `GET` and `PUT /faults`: `{"next": [fault...], "always": [fault...]}`, or one fault that stands, or `{}`.
extension FaultPlan {
    /// Why a plan was refused.
    struct Malformed: Error, Equatable {
        let explanation: String
    }

    init(json bytes: [UInt8]) throws(Malformed) {
        guard let value = JSON(parsing: bytes), case .object(var members) = value else {
            throw Malformed(explanation: "The body must be one JSON object.")
        }
        let next = try Self.faults(members.removeValue(forKey: "next"), "next")
        var always = try Self.faults(members.removeValue(forKey: "always"), "always")
        if !members.isEmpty { always.append(try Fault(members)) }
        self.init(next: next, always: always)
    }

    private static func faults(_ value: JSON?, _ name: String) throws(Malformed) -> [Fault] {
        guard let value else { return [] }
        guard case .array(let items) = value else { throw Malformed(explanation: "\(name) must be a list of faults.") }
        var faults: [Fault] = []
        for item in items {
            guard case .object(let members) = item else { throw Malformed(explanation: "\(name) must hold objects.") }
            faults.append(try Fault(members))
        }
        return faults
    }

    var json: [UInt8] {
        var out = Array(#"{"next":["#.utf8)
        for (index, fault) in next.enumerated() {
            if index > 0 { out.append(UInt8(ascii: ",")) }
            fault.append(to: &out)
        }
        out.append(contentsOf: #"],"always":["#.utf8)
        for (index, fault) in always.enumerated() {
            if index > 0 { out.append(UInt8(ascii: ",")) }
            fault.append(to: &out)
        }
        out.append(contentsOf: "]}".utf8)
        return out
    }
}

extension Fault {
    init(_ members: [String: JSON]) throws(FaultPlan.Malformed) {
        for (key, value) in members {
            let fits =
                switch (key, value) {
                case ("token", .string(let text)): set(\.token, text.lowercased(), if: text.utf8.allSatisfy(\.isHexDigit))
                case ("rate", .number(let rate)): set(\.rate, rate, if: (0...1).contains(rate))
                case ("delayMs", _): set(\.delayMs, value.wholeNumber, atMost: 3_600_000)
                case ("reason", .string(let text)): set(\.reason, text)
                case ("status", _): set(\.status, value.wholeNumber.map { Int(clamping: $0) }, in: 200...599)
                case ("timestamp", _): set(\.timestamp, value.wholeNumber, if: value.wholeNumber != nil)
                case ("body", .string(let text)): set(\.body, text)
                case ("retryAfter", _): set(\.retryAfter, value.wholeNumber.map { Int(clamping: $0) }, in: 0...86_400)
                case ("goaway", .bool(let flag)): set(\.goaway, flag)
                case ("refuse", .bool(let flag)): set(\.refuse, flag)
                case ("reset", .bool(let flag)): set(\.reset, flag)
                case ("drop", .bool(let flag)): set(\.drop, flag)
                case ("silent", .bool(let flag)): set(\.silent, flag)
                case ("accepted", .bool(let flag)): set(\.accepted, flag)
                default: false
                }
            guard fits else {
                throw FaultPlan.Malformed(
                    explanation: "\(key) is not a part of a fault, or its value does not fit; see docs/simulator.md.")
            }
        }
        if let reason, Reason(rawValue: reason) == nil, status == nil, !goaway {
            throw FaultPlan.Malformed(explanation: "A reason that APNs does not have needs a status.")
        }
    }

    func append(to out: inout [UInt8]) {
        var isFirst = true
        func put(_ key: String, _ value: String) {
            out.append(contentsOf: "\(isFirst ? "{" : ",")\"\(key)\":\(value)".utf8)
            isFirst = false
        }
        func putText(_ key: String, _ value: String?) {
            guard let value else { return }
            put(key, "")
            JSON.append(value, to: &out)
        }
        putText("token", token)
        if rate != 1 { put("rate", "\(rate)") }
        if delayMs != 0 { put("delayMs", "\(delayMs)") }
        putText("reason", reason)
        if let status { put("status", "\(status)") }
        if let timestamp { put("timestamp", "\(timestamp)") }
        putText("body", body)
        if let retryAfter { put("retryAfter", "\(retryAfter)") }
        let flags = [
            ("goaway", goaway), ("refuse", refuse), ("reset", reset), ("drop", drop), ("silent", silent), ("accepted", accepted),
        ]
        for (name, flag) in flags where flag { put(name, "true") }
        out.append(contentsOf: (isFirst ? "{}" : "}").utf8)
    }

    private mutating func set<V>(_ part: WritableKeyPath<Fault, V>, _ value: V, if fits: Bool = true) -> Bool {
        if fits { self[keyPath: part] = value }
        return fits
    }

    private mutating func set(_ part: WritableKeyPath<Fault, UInt64>, _ value: UInt64?, atMost limit: UInt64) -> Bool {
        guard let value, value <= limit else { return false }
        self[keyPath: part] = value
        return true
    }

    private mutating func set(_ part: WritableKeyPath<Fault, Int?>, _ value: Int?, in range: ClosedRange<Int>) -> Bool {
        guard let value, range.contains(value) else { return false }
        self[keyPath: part] = value
        return true
    }
}
