import Broker

/// An event of a companion's session, parsed from the body's bytes. Free text is dropped.
struct EventBody {
    var event: CompanionEvent
    /// The back end's own id of an approval or a question.
    var ownID: [UInt8]?
    /// Paths of what was dropped, sorted.
    var dropped: [String]

    static let types = [
        "approval_request", "question_asked", "task_complete", "task_failed", "claude-complete", "progress_update",
        "state_change",
    ]

    /// - Parameter data: the object under `data`; nil without one.
    /// - Returns: nil only after a fault.
    init?(type: String, data: RequestBody.Part?, _ body: RequestBody) {
        var known: Set<String> = []
        var nested: [String] = []
        switch type {
        case "approval_request":
            known = ["requestId", "id"]
            ownID = data.flatMap { body.name("requestId", or: "id", in: $0) }
            event = .approvalRequest
        case "question_asked":
            known = ["questionId", "id"]
            ownID = data.flatMap { body.name("questionId", or: "id", in: $0) }
            event = .question
        case "task_failed": event = .complete(success: false)
        case "task_complete", "claude-complete":
            known = ["status"]
            // Anything but this word is a failure, so that no failure is reported as a success.
            event = .complete(success: data.flatMap { body.textIfAny("status", in: $0) } == "success")
        case "progress_update":
            known = ["elapsedSeconds", "todoProgress"]
            var progress = SessionProgress(elapsedSeconds: data.flatMap { body.integer("elapsedSeconds", in: $0) })
            if let todo = data.flatMap({ Self.todo(of: $0, body) }) {
                Self.read(todo, body, into: &progress)
                nested = body.unread(of: todo, but: ["completed", "total"])
            }
            event = .progress(progress)
        case "state_change":
            known = ["previousState", "newState"]
            guard let data else {
                body.note(.missingField("data.newState"))
                return nil
            }
            guard let state = body.text("newState", required: true, in: data, expected: "a word") else { return nil }
            // Only sockets get the previous state, and only a listed word. An invalid one is no error.
            event = .state(state, before: body.textIfAny("previousState", in: data))
        default:
            body.note(.outOfRange("type", allowed: "one of \(Self.types.joined(separator: ", "))"))
            return nil
        }
        dropped = ((data.map { body.unread(of: $0, but: known) } ?? []) + nested).sorted()
    }

    private static func todo(of data: RequestBody.Part, _ body: RequestBody) -> RequestBody.Part? {
        let expected = "an object, or nothing"
        return body.object(
            "todoProgress", in: data, expected: expected, repeated: .wrongType("data.todoProgress", expected: expected))
    }

    private static func read(_ todo: RequestBody.Part, _ body: RequestBody, into progress: inout SessionProgress) {
        let before = body.noted
        progress.completed = body.integer("completed", in: todo)
        progress.total = body.integer("total", in: todo)
        guard body.noted == before else { return }
        switch (progress.completed, progress.total) {
        case (nil, .some): body.note(.missingField("data.todoProgress.completed"))
        case (.some, nil): body.note(.missingField("data.todoProgress.total"))
        // A negative total is left to the policy, whose error names that field.
        case (let completed?, let total?) where total >= 0 && completed > total:
            body.note(.outOfRange("data.todoProgress.completed", allowed: "at most data.todoProgress.total"))
        default: break
        }
    }
}

extension RequestBody {
    /// An event of a session: its type, and its data.
    /// - Returns: nil only after a fault.
    func event() -> EventBody? {
        let type = text("type", required: true)
        let before = noted
        let data = object("data")
        guard let type, noted == before else { return nil }
        return EventBody(type: type, data: data, self)
    }
}
