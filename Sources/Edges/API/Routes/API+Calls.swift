import Broker
import HTTPServer
import JSON
import Vocabulary

/// Routes for calls: registrations of phones, and the webhook that reports a call.
extension API {
    func registerPhone(_ call: Call) async throws -> HTTPResponse {
        guard let calls = apps.calls else { throw BrokerError.audiencesOff }
        let principal = try await principal(call)
        let asked = try call.fields { body in
            let user = body.name("uid", required: true)
            let address = body.address("token", .voip, of: broker.settings, required: true)
            let previous = body.device("previousToken", orToken: false)
            return if let user, let address { (user: user, address: address, previous: previous) } else { nil }
        }
        let registered = try await calls.register(
            principal, user: asked.user, address: asked.address, previous: asked.previous, charging: call.charges)
        return Self.registered(registered, "voip_", call)
    }

    func deletePhone(_ call: Call) async throws -> HTTPResponse {
        guard let calls = apps.calls else { throw BrokerError.audiencesOff }
        let principal = try await principal(call)
        let (user, token) = try call.fields { body in
            let user = body.name("uid", required: true)
            let token = body.deviceUnlessAll()
            return user.map { ($0, token) }
        }
        let purged = try await calls.delete(principal, user: user, token: token)
        return call.answer { json in
            json.add("success", true)
            json.add("purged", purged)
        }
    }

    func ring(_ call: Call) async throws -> HTTPResponse {
        guard let calls = apps.calls, let webhookSecrets else { throw BrokerError.audiencesOff }
        // The signature comes first: an unsigned body is not parsed.
        let isSigned = call.request.withBody { body in
            call.request.withHeader("x-cometchat-signature") { webhookSecrets.haveSigned(body, $0) } ?? false
        }
        guard isSigned else { throw BrokerError.invalidSignature }
        try call.charges?.chargeBackEnd(named: "webhooks")
        switch try call.fields({ CallBody($0) }) {
        case .call(let invitation):
            let receipt = try await calls.ring(invitation, charging: call.charges)
            return call.answer { json in
                json.add("success", true)
                json.add("rang", receipt.rang)
                if receipt.throttled > 0 { json.add("throttled", receipt.throttled) }
                if receipt.skipped > 0 { json.add("skipped", receipt.skipped) }
                if receipt.isRepeated { json.add("repeated", true) }
            }
        case .ignored(let reason):
            // An error would make the sender repeat the webhook.
            return .json(200) { json in
                json.add("success", true)
                json.add("rang", 0)
                json.add("ignored", reason.rawValue)
            }
        }
    }
}

/// A webhook about a call. Names of people are dropped unread.
enum CallBody {
    /// A call that rings phones.
    case call(CallInvitation)
    case ignored(Reason)

    /// Why a webhook rings no phone.
    enum Reason: String {
        /// The webhook isn't about the start of a call.
        case otherTrigger = "other_trigger"
        case groupCall = "group_call"
        /// The call is neither audio nor video.
        case unknownType = "unknown_type"
    }

    /// Returns nil only after noting an error.
    init?(_ body: RequestBody) {
        let trigger = body.text("trigger", required: true)
        if let trigger, trigger != "call_initiated" {
            self = .ignored(.otherTrigger)
            return
        }
        guard let call = body.object("data", required: true) else { return nil }
        let receiverType = body.text("receiverType", required: true, in: call)
        if let receiverType, receiverType != "user" {
            self = .ignored(.groupCall)
            return
        }
        let type = body.text("type", required: true, in: call)
        let media = type.flatMap(CallInvitation.Media.init(rawValue:))
        if type != nil, media == nil {
            self = .ignored(.unknownType)
            return
        }
        let session = body.name("sessionId", or: "id", required: true, in: call)
        let caller = Self.person("initiator", call, body)
        let receiver = Self.person("receiver", call, body)
        guard let media, let session, let caller, let receiver else { return nil }
        let known: Set = ["id", "sessionId", "type", "initiator", "receiver", "receiverType"]
        body.drop(
            body.unread(but: ["trigger", "data"]) + body.unread(of: call, but: known) + caller.dropped + receiver.dropped)
        self = .call(CallInvitation(session: session, caller: caller.uid, receiver: receiver.uid, media: media))
    }

    private static func person(
        _ who: String, _ call: RequestBody.Part, _ body: RequestBody
    ) -> (uid: [UInt8], dropped: [String])? {
        guard let person = body.object(who, required: true, in: call), let uid = body.name("uid", required: true, in: person)
        else { return nil }
        return (uid, body.unread(of: person, but: ["uid"]))
    }
}
