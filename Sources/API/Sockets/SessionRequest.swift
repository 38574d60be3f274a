import Broker
import JSON
import Sealing
import WebSocket

/// What a socket of the companion may say once it is authenticated.
struct SessionRequest: Sendable {
    enum Kind: Sendable {
        case event(EventBody, session: [UInt8], eventID: [UInt8]?, dropped: [String])
        case answer(request: String, approved: Bool, token: Secret?)
        case ping
        /// It says no more than that its client is at work.
        case claimOnly
    }

    /// The client that a message names as being at work in a session.
    struct Claim: Sendable {
        let session: [UInt8]
        let device: [UInt8]
        let type: ClientType
        let token: Secret?
    }

    /// As it was sent: to be said back of a `kind` that has words of ours only.
    let type: String
    let kind: Kind
    let claim: Claim?
    /// Whom a back end speaks for.
    let user: [UInt8]?

    /// Names the message that an error answers: its `type` if that is a known one, `claim` if it names a client. Returns nil for any other
    /// message, so that no text of the client is echoed.
    static func name(of message: TextMessage) -> String? {
        guard let body = try? RequestBody(of: message), let type = body.text("type") else { return nil }
        if EventBody.types.contains(type) || ["approval_response", "ping", "auth"].contains(type) { return type }
        let namesClient = body.name("deviceId") != nil || !body.errors.isEmpty
        return namesClient ? "claim" : nil
    }

    /// - Returns: nil only after a fault.
    init?(_ body: RequestBody) {
        let type = body.text("type", required: true)
        let session = body.name("sessionId")
        user = body.name("userId")
        let device = body.name("deviceId")
        claim = device.flatMap { Self.claim(of: $0, session, body) }
        guard let type else { return nil }
        self.type = type
        switch type {
        case "ping": kind = .ping
        case "approval_response":
            let id = body.text("requestId", required: true)
            let approved = body.choice("approved", required: true)
            let token = body.token("pushToken")
            guard let id, let approved else { return nil }
            kind = .answer(request: id, approved: approved, token: token)
        case _ where EventBody.types.contains(type):
            if session == nil { body.note(.missingField("sessionId")) }
            let event = body.event()
            let eventID = body.name("eventId")
            guard let session, let event else { return nil }
            kind = .event(event, session: session, eventID: eventID, dropped: (body.dropped + event.dropped).sorted())
        case _ where device != nil: kind = .claimOnly
        default:
            // With a valid `deviceId` it might have been a claim.
            if body.errors.isEmpty {
                body.note(
                    .outOfRange("type", allowed: "\(EventBody.types.joined(separator: ", ")), approval_response or ping"))
            }
            return nil
        }
    }

    private static func claim(of device: [UInt8], _ session: [UInt8]?, _ body: RequestBody) -> Claim? {
        if session == nil { body.note(.missingField("sessionId")) }
        let type = body.clientType()
        let token = body.token("pushToken")
        return if let session, let type { Claim(session: session, device: device, type: type, token: token) } else { nil }
    }
}

/// What goes to a socket.
enum SocketMessage {
    static func message(_ type: String, _ more: (inout JSONWriter) -> Void = { _ in }) -> [UInt8] {
        var json = JSONWriter()
        json.add("type", type)
        more(&json)
        return json.finish()
    }

    /// Writes the error, and `details` for each faulty field.
    static func write(_ invalid: InvalidRequest, to json: inout JSONWriter) {
        let error = invalid.errors[0]
        json.add("code", error.code)
        json.add("error", error.detail)
        if !invalid.details.isEmpty { json.add("details", invalid.details) }
        if let seconds = error.retryAfter { json.add("retryAfterSeconds", seconds) }
    }

    /// - Parameter name: of the message that it answers.
    static func refusal(_ invalid: InvalidRequest, to name: String?) -> [UInt8] {
        message("error") { json in
            if let name { json.add("to", name) }
            write(invalid, to: &json)
        }
    }
}
