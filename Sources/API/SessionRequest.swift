import Broker
import Sealing

/// What a socket of the companion may say once it is authenticated.
struct SessionRequest: Sendable {
    enum Kind: Sendable {
        case event(CompanionEvent, session: [UInt8], eventID: [UInt8]?, dropped: [String])
        case answer(id: [UInt8]?, approved: Bool, token: Secret?)
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

    /// The `type` of a message that has an answer of its own, `claim` for another that names a client, nil for what is neither: which message an
    /// error answers, in words of ours only.
    static func name(of bytes: Span<UInt8>) -> String? {
        guard let body = try? RequestBody(bytes), let type = try? body.text("type", bytes) else { return nil }
        if EventBody.types.contains(type) || ["approval_response", "ping", "auth"].contains(type) { return type }
        let namesClient = (try? body.name("deviceId", bytes) != nil) ?? true
        return namesClient ? "claim" : nil
    }

    /// - Throws: `.malformedJSON`, `.missingField`, `.wrongType`, `.outOfRange` and `.invalidToken`, with the field.
    init(_ bytes: Span<UInt8>) throws(BrokerError) {
        let body = try RequestBody(bytes)
        guard let type = try body.text("type", bytes) else { throw .missingField("type") }
        self.type = type
        let session = try body.name("sessionId", bytes)
        user = try body.name("userId", bytes)
        if let device = try body.name("deviceId", bytes) {
            guard let session else { throw .missingField("sessionId") }
            claim = Claim(
                session: session, device: device, type: try body.clientType(bytes), token: try body.token("pushToken", bytes))
        } else {
            claim = nil
        }
        switch type {
        case "ping": kind = .ping
        case "approval_response":
            guard let id = try body.text("requestId", bytes) else { throw .missingField("requestId") }
            guard let approved = try body.choice("approved", bytes) else { throw .missingField("approved") }
            kind = .answer(id: API.id(id[...]), approved: approved, token: try body.token("pushToken", bytes))
        case _ where EventBody.types.contains(type):
            guard let session else { throw .missingField("sessionId") }
            let event = try body.event(bytes)
            kind = .event(
                event.event, session: session, eventID: try body.name("eventId", bytes),
                dropped: (body.dropped + event.dropped).sorted())
        case _ where claim != nil: kind = .claimOnly
        default: throw .outOfRange("type", allowed: "\(EventBody.types.joined(separator: ", ")), approval_response or ping")
        }
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

    /// - Parameter name: of the message that it answers.
    static func refusal(_ error: BrokerError, to name: String?) -> [UInt8] {
        message("error") { json in
            if let name { json.add("to", name) }
            json.add("code", error.code)
            json.add("error", error.detail)
            if let seconds = error.retryAfter { json.add("retryAfterSeconds", seconds) }
        }
    }
}
