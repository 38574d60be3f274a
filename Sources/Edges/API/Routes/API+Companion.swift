import Broker
import HTTPServer
import JSON
import Sealing
import Vocabulary

/// Routes of the companion: devices, Live Activities, approvals, and events of sessions.
extension API {
    // MARK: Registrations

    func registerDevice(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        let address = try call.fields { $0.address("deviceToken", .alert, of: broker.settings, required: true) }
        let registered = try await companion.registerDevice(principal, address: address, charging: call.charges)
        return Self.registered(registered, "tok_", call)
    }

    func registerActivity(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        let asked = try call.fields { body in
            let address = body.address("activityToken", .liveActivity, of: broker.settings, required: true)
            let activity = body.name("activityId", required: true)
            let session = body.name("sessionId", required: true)
            let previous = body.onlyToken("previousToken").map { DeviceName(token: $0) }
            return if let address, let activity, let session {
                (address: address, activity: activity, session: session, previous: previous)
            } else { nil }
        }
        let registered = try await companion.registerActivity(
            principal, address: asked.address, activity: asked.activity, session: asked.session, previous: asked.previous,
            charging: call.charges)
        return Self.registered(registered, "lat_", call)
    }

    static func registered(_ registered: Registered, _ prefix: String, _ call: Call) -> HTTPResponse {
        call.answer { json in
            json.add("success", true)
            json.add("tokenId", prefix + registered.id.base64url)
            write(registered, to: &json)
        }
    }

    /// Writes the fields that all answers to registrations have.
    static func write(_ registered: Registered, to json: inout JSONWriter) {
        json.add("ref", plain: registered.ref.hex.span)
        json.add("expiresAt", timeMs: registered.expires)
        json.add("handleKey", registered.handleKey)
    }

    func deleteToken(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        guard call.name.hasPrefix("tok_") || call.name.hasPrefix("lat_"),
            let id = RegistrationID(base64url: call.name.dropFirst(4)),
            try await companion.delete(principal, registration: id)
        else {
            throw BrokerError.tokenNotFound
        }
        return call.answer { $0.add("success", true) }
    }

    func pushStatus(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        let status = try await companion.status(principal)
        return call.answer { json in
            json.add("deviceTokenRegistered", status.hasDevice)
            json.add("liveActivityTokens", objects: status.activities) { json, activity in
                json.add("activityId", String(decoding: activity.activity, as: UTF8.self))
                json.add("sessionId", String(decoding: activity.session, as: UTF8.self))
                json.add("registeredAt", timeMs: activity.registered)
            }
        }
    }

    // MARK: Clearing

    func clearApproval(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        let (id, excluded) = try call.fields { body in
            let id = body.text("requestId", required: true)
            let excluded = body.device("excludeDeviceToken")
            return id.map { (RequestName($0), excluded) }
        }
        // Clients of this route clear what may be gone, so an unknown id is no error. Its answer is that of an approval that has ended.
        let notified = try await companion.clearApproval(principal, request: id, excluding: excluded, charging: call.charges) ?? 0
        return call.answer { json in
            json.add("success", true)
            json.add("devicesNotified", notified)
        }
    }

    func clearSession(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        let session = try Self.name(call.name)
        // Most clients send no body.
        let hasBody = call.request.withBody { !$0.isEmpty }
        let user = hasBody ? try call.fields { .some($0.name("userId")) } : nil
        let cleared = try await companion.clearSession(principal, of: user, session: session, charging: call.charges)
        return call.answer { json in
            json.add("success", true)
            json.add("clearedCount", cleared)
        }
    }

    // MARK: Approvals and events

    func respond(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        let (approved, excluded) = try call.fields { body in
            let approved = body.choice("approved", required: true)
            let excluded = body.device("deviceToken")
            return approved.map { ($0, excluded) }
        }
        let isTaken = try await companion.respond(
            principal, request: RequestName(segment: call.name), approved: approved, excluding: excluded, charging: call.charges)
        return call.answer { json in
            json.add("success", isTaken)
            // Clients of this route read `success`, not the status. To them a late answer is no error.
            if !isTaken {
                json.add("error", BrokerError.requestNotFound.detail)
                json.add("code", BrokerError.requestNotFound.code)
            }
        }
    }

    func approval(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        let name = RequestName(segment: call.name)
        guard let approval = try await companion.approval(principal, request: name) else {
            throw BrokerError.requestNotFound
        }
        return call.answer { json in
            json.add("requestId", name.own.map { String(decoding: $0, as: UTF8.self) } ?? String(call.name))
            json.add("sessionId", String(decoding: approval.session, as: UTF8.self))
            json.add("status", approval.state.name)
            json.add("expiresAt", timeMs: approval.expires)
        }
    }

    func takeEvent(_ call: Call) async throws -> HTTPResponse {
        let (companion, principal) = try await companion(call)
        let session = try Self.name(call.name)
        let (event, user, eventID) = try call.fields { body in
            let event = body.event()
            let user = body.name("userId")
            let eventID = body.name("eventId")
            return event.map { ($0, user, eventID) }
        }
        let receipt = try await companion.take(
            event.event, of: user, session: session, eventID: eventID, ownID: event.ownID, from: principal, charging: call.charges
        )
        return call.answer(202) { Self.write(receipt, to: &$0) }
    }

    static func write(_ receipt: EventReceipt, notification: String? = nil, to json: inout JSONWriter) {
        json.add("success", true)
        if let notification { json.add("notification", notification) }
        if let request = receipt.request { json.add("requestId", request.base64url) }
        if let expires = receipt.expires { json.add("expiresAt", timeMs: expires) }
        json.add("pushes", receipt.pushes)
        if receipt.throttled > 0 { json.add("throttled", receipt.throttled) }
        if receipt.skipped > 0 { json.add("skipped", receipt.skipped) }
        if receipt.isRepeated { json.add("repeated", true) }
    }

    private func companion(_ call: Call) async throws -> (Companion, Principal) {
        guard let companion = apps.companion else { throw BrokerError.audiencesOff }
        return (companion, try await principal(call))
    }

    /// Decodes a name that an app chose from a segment of the path (RFC 3986 section 2.1).
    /// - Parameter field: the parameter's name, for errors.
    /// - Throws: `.outOfRange` if the name isn't 1 to 128 bytes of UTF-8.
    static func name(_ segment: Substring, _ field: String = "sessionId") throws -> [UInt8] {
        var bytes: [UInt8] = []
        var rest = Array(segment.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let pair = Hex.decode(String(decoding: rest.prefix(2), as: UTF8.self).lowercased()), pair.count == 1 else {
                throw BrokerError.outOfRange(field, allowed: "whole percent-encoded bytes")
            }
            bytes += pair
            rest = rest.dropFirst(2)
        }
        guard (1...128).contains(bytes.count), String(validating: bytes, as: UTF8.self) != nil else {
            throw BrokerError.outOfRange(field, allowed: "1 to 128 bytes of UTF-8")
        }
        return bytes
    }
}

extension RequestName {
    init(_ text: String) {
        self.init(id: RequestID(base64url: text[...]), own: (1...128).contains(text.utf8.count) ? Array(text.utf8) : nil)
    }

    /// Decodes a segment of the path. A segment that can't be decoded names no request.
    init(segment: Substring) {
        self.init(id: RequestID(base64url: segment), own: try? API.name(segment))
    }
}

extension Approval.State {
    var name: String {
        switch self {
        case .pending: "pending"
        case .approved: "approved"
        case .denied: "denied"
        case .timedOut: "timed_out"
        case .withdrawn: "withdrawn"
        }
    }
}

/// An event of a companion's session. Free text is dropped unread.
struct EventBody {
    var event: CompanionEvent
    /// The back end's own id for an approval or a question.
    var ownID: [UInt8]?

    static let types = [
        "approval_request", "question_asked", "task_complete", "task_failed", "claude-complete", "progress_update",
        "state_change",
    ]

    /// Returns nil only after noting an error.
    /// - Parameter data: the object in `data`, if there is one.
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
            // Any other status is a failure, so that no failure is reported as a success.
            event = .complete(success: data.flatMap { body.textIfAny("status", in: $0) } == "success")
        case "progress_update":
            known = ["elapsedSeconds", "todoProgress"]
            var progress = SessionProgress(elapsedSeconds: data.flatMap { body.seconds("elapsedSeconds", in: $0) })
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
            // Only sockets get the previous state, and only if the policy lists it. An invalid value is no error.
            event = .state(state, before: body.textIfAny("previousState", in: data))
        default:
            body.note(.outOfRange("type", allowed: "one of \(Self.types.joined(separator: ", "))"))
            return nil
        }
        body.drop(body.dropped + (data.map { body.unread(of: $0, but: known) } ?? []) + nested)
    }

    private static func todo(of data: RequestBody.Part, _ body: RequestBody) -> RequestBody.Part? {
        body.object("todoProgress", in: data, expected: "an object, or nothing")
    }

    private static func read(_ todo: RequestBody.Part, _ body: RequestBody, into progress: inout SessionProgress) {
        let before = body.noted
        progress.completed = body.integer("completed", in: todo)
        progress.total = body.integer("total", in: todo)
        guard body.noted == before else { return }
        switch (progress.completed, progress.total) {
        case (nil, .some): body.note(.missingField("data.todoProgress.completed"))
        case (.some, nil): body.note(.missingField("data.todoProgress.total"))
        // The policy refuses a negative total, with an error about that field.
        case (let completed?, let total?) where total >= 0 && completed > total:
            body.note(.outOfRange("data.todoProgress.completed", allowed: "at most data.todoProgress.total"))
        default: break
        }
    }
}

extension RequestBody {
    /// Reads an event of a session: its type and data. Returns nil only after noting an error.
    func event() -> EventBody? {
        let type = text("type", required: true)
        let before = noted
        let data = object("data")
        guard let type, noted == before else { return nil }
        return EventBody(type: type, data: data, self)
    }
}
