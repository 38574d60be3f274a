/// What happens in a companion's session, as its back end or the user's own assistant reports it. It has no text.
public enum SessionEvent: Hashable, Sendable {
    /// `id` is the caller's own id, 1 to 128 bytes. Calls about the approval accept it like the broker's.
    case approvalRequest(id: String? = nil)
    /// `id` is the caller's own id, 1 to 128 bytes. ``Accounts/clearApproval(_:except:)`` accepts it like the broker's.
    case question(id: String? = nil)
    case taskComplete
    case taskFailed
    /// `elapsed` is up to a day in whole seconds. Without it the broker counts on from the last report.
    case progress(elapsed: Duration? = nil, todo: TodoProgress? = nil)
    case state(SessionState, from: SessionState? = nil)

    var fields: [String: Client.Field] {
        var data: [String: Client.Field] = [:]
        let type: String
        switch self {
        case .approvalRequest(let id):
            type = "approval_request"
            data["requestId"] = id.map { .text($0) }
        case .question(let id):
            type = "question_asked"
            data["questionId"] = id.map { .text($0) }
        case .taskComplete:
            type = "task_complete"
            data["status"] = .text("success")
        case .taskFailed: type = "task_failed"
        case .progress(let elapsed, let todo):
            type = "progress_update"
            data["elapsedSeconds"] = elapsed.map { .number($0.components.seconds) }
            data["todoProgress"] = todo.map {
                .object(["completed": .number(Int64($0.completed)), "total": .number(Int64($0.total))])
            }
        case .state(let state, let before):
            type = "state_change"
            data["newState"] = .text(state.rawValue)
            data["previousState"] = before.map { .text($0.rawValue) }
        }
        return ["type": .text(type), "data": .object(data)]
    }
}

/// What a session does.
public enum SessionState: BrokerWord {
    case idle, processing, awaitingApproval, awaitingAnswer, completed, error
    /// A word of a later broker.
    case unknown(String)

    private static let words = Words<Self>([.idle, .processing, .awaitingApproval, .awaitingAnswer, .completed, .error])

    public init(rawValue: String) { self = Self.words[rawValue] ?? .unknown(rawValue) }

    public var rawValue: String {
        switch self {
        case .idle: "idle"
        case .processing: "processing"
        case .awaitingApproval: "awaitingApproval"
        case .awaitingAnswer: "awaitingAnswer"
        case .completed: "completed"
        case .error: "error"
        case .unknown(let word): word
        }
    }
}

/// How many of a session's tasks are done: 0 to 999, no more completed than there are.
public struct TodoProgress: Hashable, Sendable, Codable {
    public var completed: Int
    public var total: Int

    public init(completed: Int, total: Int) { (self.completed, self.total) = (completed, total) }
}

/// The kind of a session's client.
public enum ClientType: BrokerWord {
    case ios, desktop, web
    /// A word of a later broker.
    case unknown(String)

    private static let words = Words<Self>([.ios, .desktop, .web])

    public init(rawValue: String) { self = Self.words[rawValue] ?? .unknown(rawValue) }

    public var rawValue: String {
        switch self {
        case .ios: "ios"
        case .desktop: "desktop"
        case .web: "web"
        case .unknown(let word): word
        }
    }
}
