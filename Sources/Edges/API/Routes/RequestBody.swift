import Broker
import HTTPServer
import JSON
import Policy
import Sealing
import Vocabulary
import WebPush
import WebSocket

/// The JSON object of a request or a socket's message. Reads its fields one by one and collects their errors.
///
/// The bytes stay in the HTTP engine's buffer, which is zeroed after the answer. Secrets are copied only to the arena.
final class RequestBody {
    fileprivate enum Bytes {
        case request(HTTPRequest)
        case message(TextMessage)

        func read<Value, Failure: Error>(_ use: (Span<UInt8>) throws(Failure) -> Value) throws(Failure) -> Value {
            switch self {
            case .request(let request): try request.withBody(use)
            case .message(let message): try message.withText(use)
            }
        }
    }

    /// An object in the body, and the prefix of its fields' names in errors.
    struct Part {
        let object: JSONObject
        let path: String

        fileprivate func has(_ name: String, _ bytes: Bytes) -> Bool { bytes.read { object.has(name, in: $0) } }
    }

    private let bytes: Bytes
    private let root: Part
    private var faults: [BrokerError] = []
    /// An error that outranks faulty fields: the caller isn't allowed, or the broker is unavailable.
    private var refusal: BrokerError?
    private var unreadPaths: [String]?
    /// Paths of fields that a reader of an address has ignored.
    private var ignored: [String] = []
    /// The number of calls of `note`. Readers compare it to find out whether they noted an error.
    private(set) var noted = 0

    private init(_ bytes: Bytes) throws(InvalidRequest) {
        self.bytes = bytes
        root = try bytes.read { text throws(InvalidRequest) in
            do throws(JSONError) {
                return Part(object: try JSONObject(parsing: text), path: "")
            } catch { throw InvalidRequest([.malformedJSON(error.words(in: text))]) }
        }
    }

    convenience init(of request: HTTPRequest) throws(InvalidRequest) { try self.init(.request(request)) }
    convenience init(of message: TextMessage) throws(InvalidRequest) { try self.init(.message(message)) }

    /// Reads the fields.
    /// - Parameter read: returns nil only after noting an error.
    /// - Throws: all noted errors.
    func fields<Value>(_ read: (RequestBody) -> Value?) throws(InvalidRequest) -> Value {
        let value = read(self)
        guard errors.isEmpty, let value else { throw InvalidRequest(errors) }
        return value
    }

    /// The refusal alone if there is one, otherwise all errors of fields. That an app or a service isn't served is told once nothing else is wrong.
    var errors: [BrokerError] {
        if let refusal { return [refusal] }
        let ofFields = faults.filter { $0 != .appNotServed && $0 != .webPushOff }
        return ofFields.isEmpty ? faults : ofFields
    }

    func note(_ error: BrokerError) {
        noted += 1
        if error.status == 400 { faults.append(error) } else { refusal = refusal ?? error }
    }

    /// Notes an error and returns nil, so that callers can return it as the field's value.
    private func refuse<Value>(_ error: BrokerError) -> Value? {
        note(error)
        return nil
    }

    /// Returns what `read` returns. If it throws, notes the error and returns nil.
    private func notingErrors<Value>(_ read: () throws -> Value?) -> Value? {
        do {
            return try read()
        } catch { return refuse(BrokerError(thrown: error) ?? .storageUnavailable) }
    }

    // MARK: Fields of any kind

    /// Reads a field. Returns nil if it is absent or invalid. Errors are noted.
    /// - Parameters:
    ///   - part: the object that contains the field. Nil for the whole body.
    ///   - expected: the type, for errors.
    ///   - allowed: the possible values, for errors. Nil if the type is enough.
    private func field<Value>(
        _ name: String, _ required: Bool, _ part: Part?, expected: String, allowed: String? = nil,
        _ read: (JSONObject, Span<UInt8>) throws(JSONObject.Failure) -> Value?
    ) -> Value? {
        let part = part ?? root
        do throws(JSONObject.Failure) {
            let value = try bytes.read { bytes throws(JSONObject.Failure) in try read(part.object, bytes) }
            return value == nil && required ? refuse(.missingField(part.path + name)) : value
        } catch {
            switch error {
            case .wrongType: return refuse(.wrongType(part.path + name, expected: expected))
            case .outOfRange: return refuse(.outOfRange(part.path + name, allowed: allowed ?? expected))
            case .repeated(let position): return refuse(repeated(part.path + name, at: position))
            }
        }
    }

    /// Returns the error for a name that an object has twice.
    private func repeated(_ name: String, at position: Int) -> BrokerError {
        let (line, column) = bytes.read { JSONError.place(of: position, in: $0) }
        return .malformedJSON("line \(line), column \(column): the name \(name) is repeated")
    }

    private func string(
        _ name: String, _ required: Bool = false, _ part: Part? = nil, expected: String = "a string"
    ) -> [UInt8]? {
        field(name, required, part, expected: expected, allowed: "text without lone surrogates") {
            object, bytes throws(JSONObject.Failure) in try object.bytes(name, in: bytes)
        }
    }

    func text(_ name: String, required: Bool = false, in part: Part? = nil, expected: String = "a string") -> String? {
        string(name, required, part, expected: expected).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Reads optional text. Returns nil if it is missing or not text. Neither is an error, but a repeated name is.
    func textIfAny(_ name: String, in part: Part) -> String? {
        do throws(JSONObject.Failure) {
            let text = try bytes.read { bytes throws(JSONObject.Failure) in try part.object.bytes(name, in: bytes) }
            return text.map { String(decoding: $0, as: UTF8.self) }
        } catch {
            if case .repeated(let position) = error { note(repeated(part.path + name, at: position)) }
            return nil
        }
    }

    /// Reads a name that an app chose, 1 to 128 bytes.
    func name(_ name: String, required: Bool = false, in part: Part? = nil) -> [UInt8]? {
        guard let value = string(name, required, part) else { return nil }
        guard (1...128).contains(value.count) else {
            return refuse(.outOfRange((part ?? root).path + name, allowed: "1 to 128 bytes"))
        }
        return value
    }

    /// Reads a name from the first field, or from the second one if the first is absent.
    func name(_ first: String, or second: String, required: Bool = false, in part: Part) -> [UInt8]? {
        let before = noted
        if let value = name(first, in: part) { return value }
        return noted == before ? name(second, required: required, in: part) : nil
    }

    /// Reads a Boolean.
    func choice(_ name: String, required: Bool = false) -> Bool? {
        field(name, required, nil, expected: "true or false") { object, bytes throws(JSONObject.Failure) in
            try object.bool(name, in: bytes)
        }
    }

    /// Reads a whole number.
    /// - Parameter allowed: the range, for the error about a number too large to represent.
    func integer(_ name: String, in part: Part? = nil, allowed: String = "a number within the policy's range") -> Int? {
        field(name, false, part, expected: "a whole number", allowed: allowed) { object, bytes throws(JSONObject.Failure) in
            try object.integer(name, in: bytes)
        }
    }

    /// Reads a number of seconds and rounds it down to whole ones.
    func seconds(_ name: String, in part: Part? = nil, allowed: String = "a number within the policy's range") -> Int? {
        field(name, false, part, expected: "a number of seconds", allowed: allowed) {
            object, bytes throws(JSONObject.Failure) in try object.seconds(name, in: bytes)
        }
    }

    func seconds(_ name: String, _ range: ClosedRange<Int>) -> Int? {
        let allowed = "\(range.lowerBound) to \(range.upperBound)"
        guard let seconds = seconds(name, allowed: allowed) else { return nil }
        return range.contains(seconds) ? seconds : refuse(.outOfRange(name, allowed: allowed))
    }

    /// Reads a number from 0 to 100 and rounds it down to whole percent.
    func percentage(_ name: String, required: Bool = false) -> Int? {
        let allowed = "0 to 100"
        let number = field(name, required, nil, expected: "a number", allowed: allowed) {
            object, bytes throws(JSONObject.Failure) in try object.number(name, in: bytes)
        }
        guard let number else { return nil }
        return (0...100).contains(number) ? Int(number) : refuse(.outOfRange(name, allowed: allowed))
    }

    /// Reads an object in the body, or in a part of it.
    func object(_ name: String, required: Bool = false, in part: Part? = nil, expected: String = "an object") -> Part? {
        let item = field(name, required, part, expected: expected) { object, bytes throws(JSONObject.Failure) in
            try object.object(name, in: bytes)
        }
        guard let item else { return nil }
        let part = part ?? root
        return bytes.read { part.object.opened(item, in: $0) }.map { Part(object: $0, path: part.path + name + ".") }
    }

    // MARK: Secrets

    /// Reads a push address: a browser's subscription in this field or in `token`, or a token there with the app and environment that it belongs to.
    func address(_ name: String, _ kind: TokenKind, of settings: Broker.Settings, required: Bool = false) -> PushAddress? {
        if let field = subscriptionField([name, "token"]) { return subscription(field, kind, settings) }
        let before = noted
        let token = self.token(name, required: required)
        let (environment, topic) = (self.environment(), self.topic())
        guard noted == before, let token else { return nil }
        return notingErrors { try settings.address(of: token, kind, topic: topic, environment: environment) }
    }

    /// Reads what `PushSubscription.toJSON()` returns. Live Activities exist at Apple only.
    private func subscription(_ name: String, _ kind: TokenKind, _ settings: Broker.Settings) -> PushAddress? {
        guard kind != .liveActivity else { return refuse(.wrongType(name, expected: "a string")) }
        let before = noted
        guard let part = object(name) else { return nil }
        if part.has("fcm", bytes) {
            note(.outOfRange(part.path + "fcm", allowed: "absent: this broker sends nothing to FCM by itself"))
        }
        let endpoint = string("endpoint", true, part)
        let keys = object("keys", required: true, in: part)
        let p256dh = keys.flatMap { string("p256dh", true, $0) }
        let auth = keys.flatMap { string("auth", true, $0) }
        ignored += unread(of: part, but: ["endpoint", "expirationTime", "keys"])
        ignored += ["environment", "bundleId"].filter { root.has($0, bytes) }
        guard noted == before, let endpoint, let p256dh, let auth else { return nil }
        return notingErrors {
            do {
                return try settings.address(endpoint: endpoint.span, p256dh: p256dh.span, auth: auth.span)
            } catch Subscription.Fault.endpoint(let fault) {
                return refuse(.outOfRange(part.path + "endpoint", allowed: "\(fault)"))
            } catch Subscription.Fault.p256dh {
                return refuse(
                    .outOfRange(part.path + "keys.p256dh", allowed: "the base64url of an uncompressed point of P-256, 65 bytes"))
            } catch Subscription.Fault.auth {
                return refuse(.outOfRange(part.path + "keys.auth", allowed: "the base64url of 16 bytes"))
            }
        }
    }

    /// Reads a token, or a subscription of which only the endpoint counts, that names a device.
    func device(_ name: String, orToken takesToken: Bool = true) -> DeviceName? {
        let fields = takesToken ? [name, "token"] : [name]
        guard let field = subscriptionField(fields) else {
            return (takesToken ? token(name) : onlyToken(name)).map { DeviceName(token: $0) }
        }
        guard let part = object(field), let endpoint = string("endpoint", true, part) else { return nil }
        return notingErrors {
            do {
                return try Subscription.device(endpoint: endpoint.span)
            } catch let fault as PushEndpoint.Fault {
                return refuse(.outOfRange(part.path + "endpoint", allowed: "\(fault)"))
            }
        }
    }

    /// The field that has a subscription, of several that have the same meaning. Beside it no other one may be set.
    private func subscriptionField(_ names: [String]) -> String? {
        guard let field = names.first(where: isObject) else { return nil }
        for other in names where other != field && root.has(other, bytes) {
            note(.outOfRange(other, allowed: "only one of \(names.joined(separator: " and "))"))
        }
        return field
    }

    /// True if a field is there and an object.
    private func isObject(_ name: String) -> Bool {
        let item = bytes.read { bytes in try? root.object.object(name, in: bytes) }
        return item != nil
    }

    /// Reads a token from its own field or from `token`. If both are set, they must be equal.
    func token(_ name: String, required: Bool = false) -> Secret? {
        let before = noted
        let own = onlyToken(name)
        guard noted == before else { return nil }
        let common = name == "token" ? nil : onlyToken("token")
        guard noted == before else { return nil }
        if let own, let common, own != common {
            return refuse(.outOfRange("token", allowed: "the same as \(name), or one of the two"))
        }
        let token = own ?? common
        return token == nil && required ? refuse(.missingField(name)) : token
    }

    /// Reads a token from this field only.
    func onlyToken(_ name: String, required: Bool = false) -> Secret? {
        secret(name, required, invalid: .invalidToken(name)) { text in try Secret(hexToken: text) }
    }

    /// Reads `token`, or returns nil if `all` is true. An empty variable or a misspelt field must not mean all tokens.
    func deviceUnlessAll() -> DeviceName? {
        let before = noted
        let isAll = choice("all") ?? false
        let token = noted == before ? device("token", orToken: false) : nil
        guard noted == before else { return nil }
        if token == nil, !isAll { return refuse(.missingField("token", alternative: "all: true for all tokens of the uid")) }
        if token != nil, isAll { return refuse(.outOfRange("all", allowed: "either all or token")) }
        return token
    }

    /// A member secret. A malformed one is reported as `notAMember`.
    func member() -> MemberSecret? {
        secret("member", invalid: .notAMember) { text in try MemberSecret(base64url: text) }
    }

    /// Reads the room id.
    func room(required: Bool = false) -> RoomID? {
        secret("roomid", required, invalid: .malformedCapability) { text in try RoomID(base64url: text) }
    }

    /// Returns the bearer, or the body's room id if there is no bearer.
    func room(orBearer bearer: RoomID?) -> RoomID? {
        let before = noted
        let inBody = room()
        guard noted == before else { return nil }
        return bearer ?? inBody ?? refuse(.noCapability)
    }

    /// Authenticates the user of a JWT in a field.
    func principal(_ name: String, _ authenticator: Authenticator, nowMs: UInt64) -> Principal? {
        let before = noted
        guard let range = place(of: name, required: false, invalid: .outOfRange(name, allowed: "a JWT")) else {
            return noted == before ? refuse(.noJWT) : nil
        }
        return notingErrors {
            try bytes.read { bytes in try authenticator.principal(of: bytes.extracting(range), nowMs: nowMs) }
        }
    }

    /// - Parameter invalid: the error if the string isn't such a secret.
    private func secret<Value>(
        _ name: String, _ required: Bool = false, invalid: BrokerError,
        _ make: (Span<UInt8>) throws -> Value?
    ) -> Value? {
        guard let range = place(of: name, required: required, invalid: invalid) else { return nil }
        return notingErrors {
            let value = try bytes.read { bytes in try make(bytes.extracting(range)) }
            return value ?? refuse(invalid)
        }
    }

    /// Returns the range of a string without escapes.
    private func place(of name: String, required: Bool, invalid: BrokerError) -> Range<Int>? {
        do throws(JSONObject.Failure) {
            let range = try bytes.read { bytes throws(JSONObject.Failure) in try root.object.plainString(name, in: bytes) }
            return range == nil && required ? refuse(.missingField(name)) : range
        } catch {
            switch error {
            case .wrongType: return refuse(.wrongType(name, expected: "a string"))
            case .outOfRange: return refuse(invalid)
            case .repeated(let position): return refuse(repeated(name, at: position))
            }
        }
    }

    func joinid(_ limits: Limits) -> [UInt8]? {
        guard let code = string("joinid", true) else { return nil }
        guard (limits.shortestCode...64).contains(code.count), code.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            return refuse(.outOfRange("joinid", allowed: "\(limits.shortestCode) to 64 visible ASCII characters"))
        }
        return code
    }

    func topic() -> String? {
        guard let text = string("bundleId") else { return nil }
        guard (1...255).contains(text.count), text.allSatisfy({ (0x21...0x7e).contains($0) }) else {
            return refuse(.outOfRange("bundleId", allowed: "a bundle id, 1 to 255 visible ASCII characters"))
        }
        return String(decoding: text, as: UTF8.self)
    }

    func environment() -> PushEnvironment? {
        switch text("environment") {
        case nil: nil
        case "production": .production
        case "sandbox", "development": .sandbox
        default: refuse(.outOfRange("environment", allowed: "production, sandbox or development"))
        }
    }

    /// Reads the type of a session's client. Defaults to a phone. Returns nil only if the value is invalid.
    func clientType() -> ClientType? {
        let before = noted
        guard let text = text("clientType") else { return noted == before ? .ios : nil }
        return ClientType(rawValue: text) ?? refuse(.outOfRange("clientType", allowed: "ios, desktop or web"))
    }

    // MARK: Unread fields

    /// Content that apps of other servers send. It is dropped unread, and the answer lists its names.
    private static let content: Set<String> = [
        "body", "content", "displayName", "fileName", "filename", "haUrl", "message", "name", "printerName", "summary", "text",
        "title", "toolName", "url",
    ]

    /// The most names in an answer. A body may have thousands.
    static let mostListed = 16

    /// Sorted names of content fields, or the paths that a reader passed to `drop`.
    var dropped: [String] {
        let paths = unreadPaths ?? list(root) { name in Self.plain(name).flatMap { Self.content.contains($0) ? $0 : nil } }
        return ignored.isEmpty ? paths : Array((paths + ignored).sorted().prefix(Self.mostListed))
    }

    /// Sets the paths of all fields that a reader leaves unread.
    func drop(_ paths: [String]) { unreadPaths = paths.sorted() }

    /// Returns the sorted paths of a part's other fields, at most `mostListed` of them.
    /// - Parameters:
    ///   - part: nil for the whole body.
    ///   - known: the names of the fields that were read.
    func unread(of part: Part? = nil, but known: Set<String>) -> [String] {
        let part = part ?? root
        return list(part) { name in
            let name = Self.plain(name) ?? "*"
            return known.contains(name) ? nil : name
        }.map { part.path + $0 }
    }

    /// Returns the first `mostListed` different words for the names of a part's fields, sorted.
    /// - Parameter word: returns nil for a name that isn't listed.
    private func list(_ part: Part, _ word: (Span<UInt8>) -> String?) -> [String] {
        var words: Set<String> = []
        bytes.read { text in
            part.object.readNames(in: text) { name in
                if let word = word(name) { words.insert(word) }
                return words.count < Self.mostListed
            }
        }
        return words.sorted()
    }

    /// Returns a name of 1 to 32 letters, digits and `_`. Nil for others, which could contain content.
    private static func plain(_ name: Span<UInt8>) -> String? {
        guard (1...32).contains(name.count) else { return nil }
        for index in name.indices {
            guard 0x61...0x7a ~= name[index] | 0x20 || 0x30...0x39 ~= name[index] || name[index] == 0x5f else { return nil }
        }
        return String(decoding: name.indices.map { name[$0] }, as: UTF8.self)
    }
}

extension TextMessage {
    /// Reads the fields of the message.
    /// - Throws: all errors of the message.
    func fields<Value>(_ read: (RequestBody) -> Value?) throws(InvalidRequest) -> Value {
        try RequestBody(of: self).fields(read)
    }
}
