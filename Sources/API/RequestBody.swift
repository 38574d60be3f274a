import Broker
import JSON
import Policy
import Sealing
import Vocabulary

/// The body of a call or a socket's message, read from its own bytes: each field in its range, or an error that names it.
struct RequestBody {
    private let object: JSONObject

    /// Content that apps of other servers send along. It is dropped unread, and the answer says so.
    private static let content: [[UInt8]] = [
        "body", "content", "displayName", "fileName", "filename", "haUrl", "message", "name", "printerName", "summary", "text",
        "title", "toolName", "url",
    ].map { Array($0.utf8) }

    init(_ body: Span<UInt8>) throws(BrokerError) {
        guard let object = JSONObject(body) else { throw .malformedJSON }
        self.object = object
    }

    /// Names of the content that was dropped, sorted.
    func dropped(_ body: Span<UInt8>) -> [String] {
        object.names(in: body).filter(Self.content.contains).map { String(decoding: $0, as: UTF8.self) }.sorted()
    }

    func joinid(_ body: Span<UInt8>, _ limits: Limits) throws(BrokerError) -> [UInt8] {
        let code = try required("joinid", body, "a string")
        guard (limits.shortestCode...64).contains(code.count), code.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            throw .outOfRange("joinid", allowed: "\(limits.shortestCode) to 64 visible ASCII characters")
        }
        return code
    }

    func client(_ name: String, _ body: Span<UInt8>) throws(BrokerError) -> [UInt8] {
        let client = try required(name, body, "a string")
        guard (1...128).contains(client.count) else { throw .outOfRange(name, allowed: "1 to 128 bytes") }
        return client
    }

    func seconds(_ name: String, _ body: Span<UInt8>, _ range: ClosedRange<Int>) throws(BrokerError) -> Int? {
        let seconds: Int?
        do {
            seconds = try object.integer(name, in: body)
        } catch {
            throw Self.error(error, name, expected: "a whole number", allowed: "\(range.lowerBound) to \(range.upperBound)")
        }
        guard let seconds else { return nil }
        guard range.contains(seconds) else {
            throw .outOfRange(name, allowed: "\(range.lowerBound) to \(range.upperBound)")
        }
        return seconds
    }

    func flag(_ name: String, _ body: Span<UInt8>) throws(BrokerError) -> Bool {
        do {
            return try object.bool(name, in: body) ?? false
        } catch {
            throw Self.error(error, name, expected: "true or false", allowed: "true or false")
        }
    }

    /// A token under its own name or under `token`; both must say the same.
    func token(_ name: String, _ body: Span<UInt8>) throws(BrokerError) -> Secret? {
        let own = try onlyToken(name, body)
        guard let common = try token(body) else { return own }
        guard let own else { return common }
        guard own == common else { throw .outOfRange("token", allowed: "the same as \(name), or one of the two") }
        return own
    }

    /// A token under the name `token`.
    func token(_ body: Span<UInt8>) throws(BrokerError) -> Secret? { try onlyToken("token", body) }

    /// A token under this name alone.
    func onlyToken(_ name: String, _ body: Span<UInt8>) throws(BrokerError) -> Secret? {
        do {
            guard let range = try object.plainString(name, in: body) else { return nil }
            let token = try Secret(hexToken: body.extracting(range))
            guard let token else { throw BrokerError.invalidToken(name) }
            return token
        } catch let error as JSONObject.Failure {
            if error == .wrongType { throw .wrongType(name, expected: "a string") }
            throw .invalidToken(name)
        } catch let error as BrokerError {
            throw error
        } catch let error as SealingError {
            throw BrokerError(error)
        } catch {
            throw .storageUnavailable
        }
    }

    /// A member secret. A malformed one is reported as `notAMember`.
    func member(_ body: Span<UInt8>) throws(BrokerError) -> MemberSecret? {
        do {
            guard let range = try object.plainString("member", in: body) else { return nil }
            guard let member = try MemberSecret(base64url: body.extracting(range)) else { throw BrokerError.notAMember }
            return member
        } catch let error as JSONObject.Failure {
            if error == .wrongType { throw .wrongType("member", expected: "a string") }
            throw .notAMember
        } catch let error as BrokerError {
            throw error
        } catch let error as SealingError {
            throw BrokerError(error)
        } catch {
            throw .storageUnavailable
        }
    }

    /// The room id; nil without one.
    func room(_ body: Span<UInt8>) throws(BrokerError) -> RoomID? {
        do {
            guard let range = try object.plainString("roomid", in: body) else { return nil }
            guard let room = try RoomID(base64url: body.extracting(range)) else { throw BrokerError.malformedCapability }
            return room
        } catch let error as JSONObject.Failure {
            if error == .wrongType { throw .wrongType("roomid", expected: "a string") }
            throw .malformedCapability
        } catch let error as BrokerError {
            throw error
        } catch let error as SealingError {
            throw BrokerError(error)
        } catch {
            throw .storageUnavailable
        }
    }

    /// A bundle id; whether it is one that is served is the broker's to say.
    func topic(_ body: Span<UInt8>) throws(BrokerError) -> String? {
        guard let text = try optional("bundleId", body, "a string") else { return nil }
        guard (1...255).contains(text.count), text.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            throw .outOfRange("bundleId", allowed: "a bundle id, 1 to 255 visible ASCII characters")
        }
        return String(decoding: text, as: UTF8.self)
    }

    func environment(_ body: Span<UInt8>) throws(BrokerError) -> PushEnvironment? {
        guard let text = try optional("environment", body, "a string") else { return nil }
        switch String(decoding: text, as: UTF8.self) {
        case "production": return .production
        case "sandbox", "development": return .sandbox
        default: throw .outOfRange("environment", allowed: "production, sandbox or development")
        }
    }

    /// A name that an app chose for something of its own.
    func name(_ name: String, _ body: Span<UInt8>) throws(BrokerError) -> [UInt8]? {
        guard let value = try optional(name, body, "a string") else { return nil }
        guard (1...128).contains(value.count) else { throw .outOfRange(name, allowed: "1 to 128 bytes") }
        return value
    }

    /// Yes, no, or nothing.
    func choice(_ name: String, _ body: Span<UInt8>) throws(BrokerError) -> Bool? {
        do {
            return try object.bool(name, in: body)
        } catch {
            throw Self.error(error, name, expected: "true or false", allowed: "true or false")
        }
    }

    /// The user of a JWT that a message carries.
    func principal(
        _ name: String, _ body: Span<UInt8>, _ authenticator: Authenticator, nowMs: UInt64
    ) throws(BrokerError) -> Principal {
        let range: Range<Int>?
        do {
            range = try object.plainString(name, in: body)
        } catch {
            throw Self.error(error, name, expected: "a string", allowed: "a JWT")
        }
        guard let range else { throw .noJWT }
        return try authenticator.principal(of: body.extracting(range), nowMs: nowMs)
    }

    /// An event of a session: its type, and its data.
    /// - Returns: nil only after a fault.
    func event(_ body: Span<UInt8>, _ faults: inout FieldFaults) -> EventBody? {
        let type = faults.required("type") { () throws(BrokerError) in try text("type", body) }
        let found = faults.take { () throws(BrokerError) -> EventData? in try data(body) }
        guard let type, let found else { return nil }
        return EventBody(type: type, data: found.object, body, &faults)
    }

    private struct EventData {
        /// Is nil if the body has no `data`.
        var object: JSONObject?
    }

    private func data(_ body: Span<UInt8>) throws(BrokerError) -> EventData {
        let item: JSONDocument.Item?
        do {
            item = try object.object("data", in: body)
        } catch {
            throw Self.error(error, "data", expected: "an object", allowed: "an object")
        }
        guard let item else { return EventData() }
        guard let data = object.opened(item, in: body) else { throw .malformedJSON }
        return EventData(object: data)
    }

    /// What a client of a session is; a phone unless it says otherwise.
    func clientType(_ body: Span<UInt8>) throws(BrokerError) -> ClientType {
        guard let text = try text("clientType", body) else { return .ios }
        guard let type = ClientType(rawValue: text) else {
            throw .outOfRange("clientType", allowed: "ios, desktop or web")
        }
        return type
    }

    /// Whole percent of a number with or without a fraction: what is not full does not count.
    func percentage(_ name: String, _ body: Span<UInt8>) throws(BrokerError) -> Int? {
        let number: Double?
        do {
            number = try object.number(name, in: body)
        } catch {
            throw Self.error(error, name, expected: "a number", allowed: "0 to 100")
        }
        guard let number else { return nil }
        guard (0...100).contains(number) else { throw .outOfRange(name, allowed: "0 to 100") }
        return Int(number)
    }

    func text(_ name: String, _ body: Span<UInt8>) throws(BrokerError) -> String? {
        try optional(name, body, "a string").map { String(decoding: $0, as: UTF8.self) }
    }

    private func required(_ name: String, _ body: Span<UInt8>, _ expected: String) throws(BrokerError) -> [UInt8] {
        guard let value = try optional(name, body, expected) else { throw .missingField(name) }
        return value
    }

    private func optional(_ name: String, _ body: Span<UInt8>, _ expected: String) throws(BrokerError) -> [UInt8]? {
        do {
            return try object.bytes(name, in: body)
        } catch {
            throw Self.error(error, name, expected: expected, allowed: "text without lone surrogates")
        }
    }

    private static func error(
        _ failure: JSONObject.Failure, _ name: String, expected: String, allowed: String
    ) -> BrokerError {
        switch failure {
        case .wrongType: .wrongType(name, expected: expected)
        case .outOfRange: .outOfRange(name, allowed: allowed)
        }
    }
}
