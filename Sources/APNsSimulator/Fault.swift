/// What the simulator does to a request that APNs would have accepted, or to a connection. Without any of its parts set it does nothing.
public struct Fault: Sendable, Equatable {
    public enum Moment: String, Sendable {
        /// A connection is established.
        case connect
        /// A request's headers are in, its body may not be. No rule was looked at.
        case headers
        /// A request is whole, and in order.
        case end
    }

    /// What it happens to.
    public var at = Moment.end
    /// Only requests for this device token (lower-case hex).
    public var token: String?
    /// The share of those requests it happens to: 0.25 is every fourth.
    public var rate = 1.0
    /// Milliseconds before anything else happens.
    public var delayMs: UInt64 = 0

    /// The answer's reason; gives the status where `status` is nil. May be one Apple has not thought of yet.
    public var reason: String?
    public var status: Int?
    /// Unix milliseconds in the answer's body; for 410 the present time where it is nil.
    public var timestamp: UInt64?
    public var timestampAs: TimestampForm?
    /// In place of the JSON body.
    public var body: String?
    /// Seconds, in a `retry-after` header.
    public var retryAfter: Int?
    public var form = AnswerForm()

    /// SETTINGS first: how many streams the client may have open from now on.
    public var streams: Int?
    /// SETTINGS first: how many bytes of a body the client may send unasked; with 0, none ever.
    public var window: Int?
    /// So many SETTINGS frames first.
    public var settings: Int?
    /// So many PING frames first.
    public var pings: Int?
    /// These bytes first, between two frames.
    public var raw: [UInt8]?

    /// GOAWAY first, naming this stream as the last one that is served; with a reason, that as its debug data.
    public var goaway = false
    /// With `goaway`: first one that names 2^31-1, and after a moment, in which all is served, the real one.
    public var graceful = false
    /// REFUSED_STREAM in place of an answer; with `goaway`, a GOAWAY whose last stream lies before this one.
    public var refuse = false
    /// RST_STREAM with INTERNAL_ERROR in place of an answer.
    public var reset = false
    /// The connection is closed in place of an answer.
    public var drop = false
    /// No answer, ever.
    public var silent = false
    /// Nothing is read from the connection or written to it any more.
    public var stall = false
    /// How long nothing is read from the connection or written to it. Requests that were read before are served.
    public var pauseMs: UInt64 = 0
    /// With `reset`, `drop`, `silent` or `stall`: the push was accepted, and only its sender does not learn of it.
    public var accepted = false

    public init() {}

    /// The answer APNs gives with `reason`.
    public init(_ reason: Reason, timestamp: UInt64? = nil) {
        self.reason = reason.rawValue
        self.timestamp = timestamp
    }

    /// The status of the answer, or nil if the request is accepted after all.
    var answerStatus: Int? {
        status ?? reason.flatMap { Reason(rawValue: $0)?.status }
    }
}

/// How the time stamp of an answer is written, other than in milliseconds.
public enum TimestampForm: String, Sendable, CaseIterable {
    case seconds, text, negative, huge, missing, twice
}

/// The faults to come: a list for one request each, then those that stand until they are replaced.
public struct FaultPlan: Sendable, Equatable {
    /// Each happens once, in this order; one with a token waits for its token without holding up the others.
    public var next: [Fault]
    /// The first that fits happens.
    public var always: [Fault]
    /// How far each standing fault is from its next turn.
    private var phases: [Double]

    public init(next: [Fault] = [], always: [Fault] = []) {
        self.next = next
        self.always = always
        phases = always.map { _ in 0 }
    }

    var isEmpty: Bool { next.isEmpty && always.isEmpty }

    /// Whether something could happen at `moment`.
    func has(_ moment: Fault.Moment) -> Bool {
        next.contains { $0.at == moment } || always.contains { $0.at == moment }
    }

    /// Takes the fault for the next request that is for `token`, or for the next connection.
    mutating func take(for token: String, at moment: Fault.Moment = .end) -> Fault? {
        if let index = next.firstIndex(where: { $0.at == moment && $0.token ?? token == token }) { return next.remove(at: index) }
        for index in always.indices where always[index].at == moment && always[index].token ?? token == token {
            phases[index] += always[index].rate
            // The tolerance makes ten times 0.1 one.
            guard phases[index] >= 1 - 1e-9 else { continue }
            phases[index] -= 1
            return always[index]
        }
        return nil
    }
}
