import Broker

/// A webhook about a call, parsed from the body's bytes. Names of people are skipped, never read.
enum CallBody {
    /// A call that rings phones, and the paths of what was dropped, sorted.
    case call(CallInvitation, dropped: [String])
    case ignored(Reason)

    /// Why a webhook rings no phone.
    enum Reason: String {
        /// It isn't about the beginning of a call.
        case otherTrigger = "other_trigger"
        case groupCall = "group_call"
        /// Neither audio nor video.
        case unknownType = "unknown_type"
    }

    /// - Returns: nil only after a fault.
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
        let dropped =
            body.unread(but: ["trigger", "data"]) + body.unread(of: call, but: known) + caller.dropped + receiver.dropped
        self = .call(
            CallInvitation(session: session, caller: caller.uid, receiver: receiver.uid, media: media), dropped: dropped.sorted())
    }

    private static func person(
        _ who: String, _ call: RequestBody.Part, _ body: RequestBody
    ) -> (uid: [UInt8], dropped: [String])? {
        guard let person = body.object(who, required: true, in: call), let uid = body.name("uid", required: true, in: person)
        else { return nil }
        return (uid, body.unread(of: person, but: ["uid"]))
    }
}
