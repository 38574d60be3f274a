import Vocabulary

/// A planned misbehaviour for a valid request, or for a connection. The default does nothing.
public struct Fault: Sendable, Equatable {
    public enum Moment: String, Sendable {
        /// A connection is established.
        case connect
        /// A request's headers have arrived. Its body may be missing, and no rule was checked.
        case headers
        /// A request is complete and valid.
        case end
    }

    /// When it happens.
    public var at = Moment.end
    /// Affects only requests for this device token or Web Push subscription (lower-case hex).
    public var token: String?
    /// Affects only Web Push requests of this dialect.
    public var dialect: PushServiceDialect?
    /// The share of affected requests: 0.25 is every fourth.
    public var rate = 1.0
    /// Milliseconds before anything else happens.
    public var delayMs: UInt64 = 0

    /// The answer's reason. Determines the status if `status` is nil. May be unknown to Apple.
    public var reason: String?
    public var status: Int?
    /// The dialect's answer to this problem. Affects only Web Push requests.
    public var problem: PushProblem?
    /// Header fields of an answer with a status. Names in lower case.
    public var headers: [String: String] = [:]
    /// Unix milliseconds in the answer's body. For 410 the default is the present time.
    public var timestamp: UInt64?
    public var timestampAs: TimestampForm?
    /// Replaces the JSON body.
    public var body: String?
    /// Seconds, in a `retry-after` header.
    public var retryAfter: Int?
    public var form = AnswerForm()

    /// First sends SETTINGS with this limit of open streams.
    public var streams: Int?
    /// First sends SETTINGS with this initial window per stream. With 0, bodies can never be sent.
    public var window: Int?
    /// First sends so many SETTINGS frames.
    public var settings: Int?
    /// First sends so many PING frames.
    public var pings: Int?
    /// First sends these bytes, between two frames.
    public var raw: [UInt8]?

    /// First sends GOAWAY with this stream as the last one served. The debug data is the reason, if there is one.
    public var goaway = false
    /// With `goaway`: first sends one with 2^31-1, and after a while the real one. Requests in between are served.
    public var graceful = false
    /// Sends REFUSED_STREAM instead of an answer. With `goaway`, a GOAWAY with an earlier last stream.
    public var refuse = false
    /// Sends RST_STREAM with INTERNAL_ERROR instead of an answer.
    public var reset = false
    /// Closes the connection instead of answering.
    public var drop = false
    /// Never answers.
    public var silent = false
    /// Stops reading from the connection and writing to it.
    public var stall = false
    /// Milliseconds without reading from the connection or writing to it. Requests that were read before are served.
    public var pauseMs: UInt64 = 0
    /// With `reset`, `drop`, `silent` or `stall`: accepts the push without telling its sender.
    public var accepted = false

    public init() {}

    /// APNs's answer with this reason.
    public init(_ reason: Reason, timestamp: UInt64? = nil) {
        self.reason = reason.rawValue
        self.timestamp = timestamp
    }

    /// The status of the answer, or nil if the fault doesn't determine one.
    var answerStatus: Int? {
        status ?? reason.flatMap { Reason(rawValue: $0)?.status }
    }

    /// True if the fault affects a request.
    /// - Parameters:
    ///   - token: the device token, or the id of the Web Push subscription.
    ///   - dialect: the dialect of a Web Push request. Nil for APNs.
    func affects(_ token: String, _ dialect: PushServiceDialect?) -> Bool {
        guard self.token ?? token == token else { return false }
        // A reason is APNs's.
        guard let dialect else { return self.dialect == nil && problem == nil }
        return self.dialect ?? dialect == dialect && reason == nil
    }
}

/// Wrong forms of an answer's time stamp. The correct form is milliseconds.
public enum TimestampForm: String, Sendable, CaseIterable {
    case seconds, text, negative, huge, missing, twice
}

/// The planned faults: first a list for one request each, then permanent ones.
public struct FaultPlan: Sendable, Equatable {
    /// Each happens once, in this order. One with a token waits for its token without blocking the others.
    public var next: [Fault]
    /// Permanent faults. The first match happens.
    public var always: [Fault]
    /// Per permanent fault, the sum of its rate since it last happened. It happens when the sum reaches 1.
    private var phases: [Double]

    public init(next: [Fault] = [], always: [Fault] = []) {
        self.next = next
        self.always = always
        phases = always.map { _ in 0 }
    }

    var isEmpty: Bool { next.isEmpty && always.isEmpty }

    /// Returns whether a fault is planned for `moment`.
    func has(_ moment: Fault.Moment) -> Bool {
        next.contains { $0.at == moment } || always.contains { $0.at == moment }
    }

    /// Returns the fault for a request for `token`, or for a new connection, and removes it from `next`.
    /// - Parameter dialect: the dialect of a Web Push request. Nil for APNs.
    mutating func take(for token: String, _ dialect: PushServiceDialect? = nil, at moment: Fault.Moment = .end) -> Fault? {
        if let index = next.firstIndex(where: { $0.at == moment && $0.affects(token, dialect) }) { return next.remove(at: index) }
        for index in always.indices where always[index].at == moment && always[index].affects(token, dialect) {
            phases[index] += always[index].rate
            // The tolerance is for rounding: ten times 0.1 is less than 1.
            guard phases[index] >= 1 - 1e-9 else { continue }
            phases[index] -= 1
            return always[index]
        }
        return nil
    }
}

/// The JSON of `GET` and `PUT /faults`: `{"next": [fault...], "always": [fault...]}`, one permanent fault, or `{}`.
extension FaultPlan {
    /// The reason why a plan was refused.
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
            guard case .object(let members) = item else { throw Malformed(explanation: "\(name) must contain objects.") }
            faults.append(try Fault(members))
        }
        return faults
    }

    var json: [UInt8] {
        var out: [UInt8] = []
        for (start, faults) in [(#"{"next":["#, next), (#"],"always":["#, always)] {
            out.append(contentsOf: start.utf8)
            for (index, fault) in faults.enumerated() {
                if index > 0 { out.append(UInt8(ascii: ",")) }
                fault.append(to: &out)
            }
        }
        out.append(contentsOf: "]}".utf8)
        return out
    }
}

extension Fault {
    fileprivate init(_ members: [String: JSON]) throws(FaultPlan.Malformed) {
        for (key, value) in members {
            let number = value.wholeNumber.map { Int(clamping: $0) }
            let fits =
                switch (key, value) {
                case ("at", .string(let text)): set(\.at, Moment(rawValue: text) ?? .end, if: Moment(rawValue: text) != nil)
                case ("token", .string(let text)): set(\.token, text.lowercased(), if: text.utf8.allSatisfy(\.isHexDigit))
                case ("dialect", .string(let text)):
                    set(\.dialect, PushServiceDialect(rawValue: text), if: PushServiceDialect(rawValue: text) != nil)
                case ("problem", .string(let text)):
                    set(\.problem, PushProblem(rawValue: text), if: PushProblem(rawValue: text) != nil)
                case ("headers", .object(let members)): setHeaders(members)
                case ("rate", .number(let rate)): set(\.rate, rate, if: (0...1).contains(rate))
                case ("delayMs", _): set(\.delayMs, value.wholeNumber, atMost: 3_600_000)
                case ("reason", .string(let text)): set(\.reason, text)
                case ("status", _): set(\.status, number, in: 200...599)
                case ("timestamp", _): set(\.timestamp, value.wholeNumber, if: value.wholeNumber != nil)
                case ("timestampAs", .string(let text)):
                    set(\.timestampAs, TimestampForm(rawValue: text), if: TimestampForm(rawValue: text) != nil)
                case ("body", .string(let text)): set(\.body, text)
                case ("interim", _): set(\.form.interim, number, in: 100...199)
                case ("pieces", _): set(\.form.pieces, number, in: 1...16_384)
                case ("continuation", _): set(\.form.continuation, number, in: 1...16_384)
                case ("announced", _): set(\.form.announced, number, in: 0...1 << 20)
                case ("trailers", .bool(let flag)): set(\.form.trailers, flag)
                case ("dribbleMs", _): set(\.form.dribbleMs, value.wholeNumber, atMost: 3_600_000)
                case ("half", .bool(let flag)): set(\.form.half, flag)
                case ("endless", .bool(let flag)): set(\.form.endless, flag)
                case ("streams", _): set(\.streams, number, in: 0...Int(Int32.max))
                case ("window", _): set(\.window, number, in: 0...Int(Int32.max))
                case ("settings", _): set(\.settings, number, in: 1...100_000)
                case ("pings", _): set(\.pings, number, in: 1...100_000)
                case ("raw", .string(let text)): set(\.raw, Hex.decode(text), if: Hex.decode(text) != nil)
                case ("retryAfter", _): set(\.retryAfter, number, in: 0...86_400)
                case ("goaway", .bool(let flag)): set(\.goaway, flag)
                case ("graceful", .bool(let flag)): set(\.graceful, flag)
                case ("refuse", .bool(let flag)): set(\.refuse, flag)
                case ("reset", .bool(let flag)): set(\.reset, flag)
                case ("drop", .bool(let flag)): set(\.drop, flag)
                case ("silent", .bool(let flag)): set(\.silent, flag)
                case ("stall", .bool(let flag)): set(\.stall, flag)
                case ("pauseMs", _): set(\.pauseMs, value.wholeNumber, atMost: 3_600_000)
                case ("accepted", .bool(let flag)): set(\.accepted, flag)
                default: false
                }
            guard fits else {
                throw FaultPlan.Malformed(
                    explanation: "\(key) is not a field of a fault, or its value is invalid; see docs/simulator.md.")
            }
        }
        if let reason, Reason(rawValue: reason) == nil, status == nil, !goaway {
            throw FaultPlan.Malformed(explanation: "A reason that is not one of APNs's needs a status.")
        }
    }

    fileprivate func append(to out: inout [UInt8]) {
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
        if at != .end { putText("at", at.rawValue) }
        putText("token", token)
        putText("dialect", dialect?.rawValue)
        if rate != 1 { put("rate", "\(rate)") }
        if delayMs != 0 { put("delayMs", "\(delayMs)") }
        if pauseMs != 0 { put("pauseMs", "\(pauseMs)") }
        putText("reason", reason)
        if let status { put("status", "\(status)") }
        putText("problem", problem?.rawValue)
        if !headers.isEmpty {
            put("headers", "")
            JSON.append(headers, to: &out)
        }
        if let timestamp { put("timestamp", "\(timestamp)") }
        putText("timestampAs", timestampAs?.rawValue)
        putText("body", body)
        let numbers = [
            ("retryAfter", retryAfter), ("interim", form.interim), ("pieces", form.pieces), ("continuation", form.continuation),
            ("announced", form.announced), ("streams", streams), ("window", window), ("settings", settings), ("pings", pings),
        ]
        for case (let name, let number?) in numbers { put(name, "\(number)") }
        if form.dribbleMs != 0 { put("dribbleMs", "\(form.dribbleMs)") }
        putText("raw", raw.map { Hex.encode($0.span) })
        let flags = [
            ("trailers", form.trailers), ("half", form.half), ("endless", form.endless), ("goaway", goaway),
            ("graceful", graceful),
            ("refuse", refuse), ("reset", reset), ("drop", drop), ("silent", silent), ("stall", stall), ("accepted", accepted),
        ]
        for (name, flag) in flags where flag { put(name, "true") }
        out.append(contentsOf: (isFirst ? "{}" : "}").utf8)
    }

    private mutating func setHeaders(_ members: [String: JSON]) -> Bool {
        for (name, value) in members {
            guard let text = value.text, text.utf8.allSatisfy({ (0x20...0x7e).contains($0) }), !name.isEmpty,
                name.utf8.allSatisfy({ (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || $0 == UInt8(ascii: "-") })
            else { return false }
            headers[name] = text
        }
        return true
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
