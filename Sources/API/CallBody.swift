import Broker
import JSON

/// What a webhook says of a call, read from the body's own bytes. What people are called is dropped unread.
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

    /// - Throws: everything that is wrong with the body, each with the field's path.
    init(_ bytes: Span<UInt8>) throws(InvalidRequest) {
        var faults = FieldFaults()
        let read = faults.take { () throws(BrokerError) in
            guard let body = JSONObject(bytes) else { throw .malformedJSON }
            return body
        }.flatMap { Self.read($0, bytes, &faults) }
        guard faults.errors.isEmpty, let read else { throw InvalidRequest(faults.errors) }
        self = read
    }

    /// - Returns: nil only after a fault.
    private static func read(_ body: JSONObject, _ bytes: Span<UInt8>, _ faults: inout FieldFaults) -> CallBody? {
        let trigger = faults.take { () throws(BrokerError) in try text("trigger", body, bytes, "trigger") }
        if let trigger, trigger != Array("call_initiated".utf8) { return .ignored(.otherTrigger) }
        let data = faults.take { () throws(BrokerError) in try object("data", body, bytes, "data") }
        guard let call = data else { return nil }
        let receiverType = faults.take { () throws(BrokerError) in try text("receiverType", call, bytes, "data.receiverType") }
        if let receiverType, receiverType != Array("user".utf8) { return .ignored(.groupCall) }
        let type = faults.take { () throws(BrokerError) in try text("type", call, bytes, "data.type") }
        let media = type.flatMap { CallInvitation.Media(rawValue: String(decoding: $0, as: UTF8.self)) }
        if type != nil, media == nil { return .ignored(.unknownType) }
        let session = faults.take { () throws(BrokerError) in
            let isNamed = try optional("sessionId", call, bytes, "data.sessionId") != nil
            return try name(isNamed ? "sessionId" : "id", call, bytes, isNamed ? "data.sessionId" : "data.id")
        }
        let caller = person("initiator", call, bytes, &faults)
        let receiver = person("receiver", call, bytes, &faults)
        guard let media, let session, let caller, let receiver else { return nil }
        let known = ["id", "sessionId", "type", "initiator", "receiver", "receiverType"]
        let dropped =
            EventBody.names(of: body, bytes, but: ["trigger", "data"], under: "")
            + EventBody.names(of: call, bytes, but: Set(known), under: "data.") + caller.dropped + receiver.dropped
        return .call(
            CallInvitation(session: session, caller: caller.uid, receiver: receiver.uid, media: media), dropped: dropped.sorted())
    }

    private static func person(
        _ who: String, _ call: JSONObject, _ bytes: Span<UInt8>, _ faults: inout FieldFaults
    ) -> (uid: [UInt8], dropped: [String])? {
        faults.take { () throws(BrokerError) in
            let person = try object(who, call, bytes, "data.\(who)")
            return (
                uid: try name("uid", person, bytes, "data.\(who).uid"),
                dropped: EventBody.names(of: person, bytes, but: ["uid"], under: "data.\(who).")
            )
        }
    }

    /// A name that the app chose.
    private static func name(
        _ name: String, _ object: JSONObject, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> [UInt8] {
        let value = try text(name, object, bytes, path)
        guard (1...128).contains(value.count) else { throw .outOfRange(path, allowed: "1 to 128 bytes") }
        return value
    }

    private static func text(
        _ name: String, _ object: JSONObject, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> [UInt8] {
        guard let value = try optional(name, object, bytes, path) else { throw .missingField(path) }
        return value
    }

    private static func optional(
        _ name: String, _ object: JSONObject, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> [UInt8]? {
        do throws(JSONObject.Failure) {
            return try object.bytes(name, in: bytes)
        } catch {
            switch error {
            case .wrongType: throw .wrongType(path, expected: "a string")
            case .outOfRange: throw .outOfRange(path, allowed: "text without lone surrogates")
            }
        }
    }

    private static func object(
        _ name: String, _ object: JSONObject, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> JSONObject {
        let item: JSONDocument.Item?
        do throws(JSONObject.Failure) {
            item = try object.object(name, in: bytes)
        } catch { throw .wrongType(path, expected: "an object") }
        guard let item else { throw .missingField(path) }
        // It may repeat a name.
        guard let inner = object.opened(item, in: bytes) else { throw .malformedJSON }
        return inner
    }
}
