public import Vocabulary

/// What a companion's back end reports of a session. It has no text: names, summaries and questions are dropped before.
public enum CompanionEvent: Sendable, Equatable {
    case approvalRequest
    case question
    /// A task is done, or has failed.
    case complete(success: Bool)
    case progress(SessionProgress)
    /// The new state, a word that the policy lists, and the previous one as the caller sent it.
    case state(String, before: String? = nil)
}

/// Numbers of a running session. Nil for those that were not sent.
public struct SessionProgress: Sendable, Equatable {
    public var elapsedSeconds: Int?
    public var completed: Int?
    public var total: Int?

    public init(elapsedSeconds: Int? = nil, completed: Int? = nil, total: Int? = nil) {
        self.elapsedSeconds = elapsedSeconds
        self.completed = completed
        self.total = total
    }
}

/// The result of an event. All of it is durable.
public struct EventReceipt: Sendable, Equatable {
    /// The broker's id of an approval or a question.
    public var request: RequestID?
    /// When an approval times out, unix ms.
    public var expires: UInt64?
    /// Pushes that leave now, and updates of Live Activities that wait for their window.
    public var pushes = 0
    /// Pushes beyond a token's budget.
    public var throttled = 0
    /// True if the same event was taken before. Then nothing was done.
    public var isRepeated = false
}

/// How a caller names a request: by the broker's id, or by the id of the back end that asked. One text may be both.
public struct RequestName: Sendable, Equatable {
    public var id: RequestID?
    /// 1 to 128 bytes.
    public var own: [UInt8]?

    public init(id: RequestID? = nil, own: [UInt8]? = nil) {
        self.id = id
        self.own = own
    }
}

/// The state of an approval.
public struct Approval: Sendable, Equatable {
    public enum State: UInt8, Sendable {
        case pending = 0
        case approved, denied, timedOut
    }

    public var state: State
    /// When it times out or timed out, unix ms.
    public var expires: UInt64
    /// The back end's own name for the session.
    public var session: [UInt8]
}

/// The kind of a session's client.
public enum ClientType: String, Sendable, CaseIterable {
    case ios, desktop, web
}

/// `GET /api/push/status`.
public struct CompanionStatus: Sendable, Equatable {
    public struct Activity: Sendable, Equatable {
        public var activity: [UInt8]
        public var session: [UInt8]
        /// Unix ms.
        public var registered: UInt64
    }

    public var hasDevice: Bool
    public var activities: [Activity]
}

/// What a companion's socket hears.
public enum CompanionMessage: Sendable, Equatable {
    case approvalResponse(request: RequestID, session: [UInt8], approved: Bool)
    case approvalTimeout(request: RequestID, session: [UInt8])
    /// An approval waits for its answer until `expires`, unix ms.
    case approvalRequest(request: RequestID, session: [UInt8], expires: UInt64)
    case progress(SessionProgress, session: [UInt8])
    case state(String, before: String?, session: [UInt8])
}

/// Reaches sockets, which belong to the edge.
public protocol CompanionSockets: Sendable {
    func tell(user: [UInt8], _ message: CompanionMessage) async
    func tell(backEnd: [UInt8], _ message: CompanionMessage) async
}
