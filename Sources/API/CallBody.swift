import Broker

/// What a webhook says of a call, read from the body's own bytes. What people are called is dropped unread.
struct CallBody {
    /// Nil for what rings no phone: that a call has ended, say.
    var invitation: CallInvitation?
    /// Paths of what was dropped, sorted.
    var dropped: [String] = []

    /// - Throws: `.malformedJSON`, `.groupCall`, and with the field's path `.missingField`, `.wrongType`, `.outOfRange`.
    init(_ bytes: Span<UInt8>) throws(BrokerError) {
        guard let body = JSONObject(bytes) else { throw .malformedJSON }
        guard try Self.text("trigger", body, bytes, "trigger") == Array("call_initiated".utf8) else { return }
        let (call, callRange) = try Self.object("data", body, bytes, "data")
        let callBytes = bytes.extracting(callRange)
        guard try Self.text("receiverType", call, callBytes, "data.receiverType") == Array("user".utf8) else { throw .groupCall }
        let type = String(decoding: try Self.text("type", call, callBytes, "data.type"), as: UTF8.self)
        guard let media = CallInvitation.Media(rawValue: type) else {
            throw .outOfRange("data.type", allowed: CallInvitation.Media.allCases.map(\.rawValue).joined(separator: " or "))
        }
        let isNamed = try Self.optional("sessionId", call, callBytes, "data.sessionId") != nil
        let session = try Self.name(isNamed ? "sessionId" : "id", call, callBytes, isNamed ? "data.sessionId" : "data.id")
        let (initiator, initiatorRange) = try Self.object("initiator", call, callBytes, "data.initiator")
        let (receiver, receiverRange) = try Self.object("receiver", call, callBytes, "data.receiver")
        invitation = CallInvitation(
            session: session,
            caller: try Self.name("uid", initiator, callBytes.extracting(initiatorRange), "data.initiator.uid"),
            receiver: try Self.name("uid", receiver, callBytes.extracting(receiverRange), "data.receiver.uid"), media: media)
        dropped = EventBody.names(of: body, but: ["trigger", "data"], under: "")
        dropped += EventBody.names(
            of: call, but: ["id", "sessionId", "type", "initiator", "receiver", "receiverType"], under: "data.")
        dropped += EventBody.names(of: initiator, but: ["uid"], under: "data.initiator.")
        dropped += EventBody.names(of: receiver, but: ["uid"], under: "data.receiver.")
        dropped.sort()
    }

    /// A name that the app chose.
    private static func name(
        _ name: StaticString, _ object: JSONObject, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> [UInt8] {
        let value = try text(name, object, bytes, path)
        guard (1...128).contains(value.count) else { throw .outOfRange(path, allowed: "1 to 128 bytes") }
        return value
    }

    private static func text(
        _ name: StaticString, _ object: JSONObject, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> [UInt8] {
        guard let value = try optional(name, object, bytes, path) else { throw .missingField(path) }
        return value
    }

    private static func optional(
        _ name: StaticString, _ object: JSONObject, _ bytes: Span<UInt8>, _ path: String
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
        _ name: StaticString, _ object: JSONObject, _ bytes: Span<UInt8>, _ path: String
    ) throws(BrokerError) -> (JSONObject, Range<Int>) {
        let range: Range<Int>?
        do throws(JSONObject.Failure) {
            range = try object.object(name, in: bytes)
        } catch { throw .wrongType(path, expected: "an object") }
        guard let range else { throw .missingField(path) }
        // Names may stand there twice.
        guard let inner = JSONObject(bytes.extracting(range)) else { throw .malformedJSON }
        return (inner, range)
    }
}
