/// What the simulator does to a request that APNs would have accepted. Without any of its parts set it does nothing.
public struct Fault: Sendable, Equatable {
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
    /// In place of the JSON body.
    public var body: String?
    /// Seconds, in a `retry-after` header.
    public var retryAfter: Int?

    /// GOAWAY first, naming this stream as the last one that is served; with a reason, that as its debug data.
    public var goaway = false
    /// REFUSED_STREAM in place of an answer; with `goaway`, a GOAWAY whose last stream lies before this one.
    public var refuse = false
    /// RST_STREAM with INTERNAL_ERROR in place of an answer.
    public var reset = false
    /// The connection is closed in place of an answer.
    public var drop = false
    /// No answer, ever.
    public var silent = false
    /// With `reset`, `drop` or `silent`: the push was accepted, and only its sender does not learn of it.
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

    /// Takes the fault for the next request that is for `token`.
    mutating func take(for token: String) -> Fault? {
        if let index = next.firstIndex(where: { $0.token ?? token == token }) { return next.remove(at: index) }
        for index in always.indices where always[index].token ?? token == token {
            phases[index] += always[index].rate
            // The tolerance makes ten times 0.1 one.
            guard phases[index] >= 1 - 1e-9 else { continue }
            phases[index] -= 1
            return always[index]
        }
        return nil
    }
}
