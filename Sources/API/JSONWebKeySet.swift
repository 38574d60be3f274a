import Broker
import Linux
import Sodium
import Vocabulary

/// The keys by which a broker verifies JWTs: a single one, or those of a JWK set (RFC 7517) that are for its algorithm.
struct JSONWebKeySet: Sendable {
    let keys: [JSONWebKey]
    /// The set's other keys, and why each is none of these.
    let passedOver: [String]

    init(_ key: JSONWebKey) {
        keys = [key]
        passedOver = []
    }

    /// - Throws: for a set with anything private that does not belong into it, a key for the algorithm that is no good, and where none is for it.
    init(_ text: Span<UInt8>, for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) {
        guard let object = JSONObject(text), let items = try? object.items("keys", in: text) else { throw .noKeySet }
        var keys: [JSONWebKey] = []
        var passedOver: [String] = []
        var names: [String] = []
        for (index, item) in items.enumerated() {
            let entry = Entry(place: index + 1, item, of: text)
            switch try entry.read(text, for: algorithm) {
            case .passedOver(let why): passedOver.append("\(entry.name) \(why)")
            case .key(let key):
                if let id = key.id, keys.contains(where: { $0.id == id }) { throw .repeatedID(entry.name) }
                keys.append(key)
                names.append(entry.name)
            }
        }
        guard !keys.isEmpty else { throw .noUsableKey(algorithm, passedOver: passedOver) }
        if keys.count > 1, let nameless = keys.firstIndex(where: { $0.id == nil }) {
            throw .badKey(names[nameless], "has no kid, which it needs beside others")
        }
        self.keys = keys
        self.passedOver = passedOver
    }

    /// The key that a JWT means.
    /// - Parameter id: its header's `kid`.
    func key(_ id: [UInt8]?) throws(BrokerError) -> JSONWebKey {
        if keys.count == 1, id == nil || keys[0].id == nil { return keys[0] }
        guard let id else { throw .invalidJWT(.namesNoKey) }
        guard let key = keys.first(where: { $0.id == id }) else { throw .invalidJWT(.unknownKey) }
        return key
    }
}

/// One item of a set's array.
private struct Entry {
    enum Outcome {
        case key(JSONWebKey)
        case passedOver(String)
    }

    /// For people: where it stands, and its `kid` where that can be shown.
    let name: String
    private let item: JSONObject.Item
    private let object: JSONObject?
    private let id: [UInt8]?

    init(place: Int, _ item: JSONObject.Item, of text: Span<UInt8>) {
        self.item = item
        let own = text.extracting(item.range)
        object = item.kind == .object ? JSONObject(own) : nil
        id = try? object?.bytes("kid", in: own)
        let isPlain = id.map { $0.count <= 64 && $0.allSatisfy { (0x21...0x7e).contains($0) && $0 != UInt8(ascii: "\"") } }
        name = isPlain == true ? "key \(place) (kid \"\(String(decoding: id ?? [], as: UTF8.self))\")" : "key \(place)"
    }

    /// What only who signs may have (RFC 7518 section 6).
    private static let privateMembers: [StaticString] = ["d", "p", "q", "dp", "dq", "qi", "oth"]

    func read(_ text: Span<UInt8>, for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) -> Outcome {
        let own = text.extracting(item.range)
        guard let object else { throw .badKey(name, "is no JSON object with each name once") }
        if let member = Self.privateMembers.first(where: object.has) {
            throw .badKey(name, "has the member \(member): a private key, which whoever signs keeps to themselves")
        }
        if algorithm != .hs256, object.has("k") {
            throw .badKey(name, "has the member k: a secret, which does not belong among public keys")
        }
        if object.has("kid"), id == nil { throw .badKey(name, "has a kid that is no text") }
        if let why = try otherPurpose(object, own, algorithm) { return .passedOver(why) }
        do throws(JSONWebKeyError) {
            switch algorithm {
            case .hs256: return .key(JSONWebKey(id: id, material: try secret(object, own)))
            case .es256:
                let (x, y) = (try number("x", object, own), try number("y", object, own))
                return .key(JSONWebKey(id: id, material: try JSONWebKey.p256(x: x, y: y)))
            case .edDSA: return .key(JSONWebKey(id: id, material: try JSONWebKey.ed25519(try number("x", object, own))))
            }
        } catch {
            if case .badKey = error { throw error }
            throw .badKey(name, "is no good: \(error)")
        }
    }

    /// Why the key is not meant for this, as a set may hold others; nil if it is.
    private func otherPurpose(
        _ object: JSONObject, _ own: Span<UInt8>, _ algorithm: JSONWebAlgorithm
    ) throws(JSONWebKeyError) -> String? {
        guard let type = try text("kty", object, own) else { throw .badKey(name, "has no kty") }
        if type != algorithm.keyType.kty { return "is of another type (kty)" }
        if let curve = algorithm.keyType.crv {
            guard let own = try text("crv", object, own) else { throw .badKey(name, "has no crv") }
            if own != curve { return "is of another curve (crv)" }
        }
        if let use = try text("use", object, own), use != "sig" { return "is not for signatures (use)" }
        if let operations = try texts("key_ops", object, own), !operations.contains("verify") {
            return "is not for verifying (key_ops)"
        }
        if let name = try text("alg", object, own), name != algorithm.rawValue { return "is for another algorithm (alg)" }
        return nil
    }

    private func texts(_ name: StaticString, _ object: JSONObject, _ own: Span<UInt8>) throws(JSONWebKeyError) -> [String]? {
        do throws(JSONObject.Failure) {
            return try object.texts(name, in: own)?.map { String(decoding: $0, as: UTF8.self) }
        } catch { throw .badKey(self.name, "has a member \(name) of the wrong type") }
    }

    private func text(_ name: StaticString, _ object: JSONObject, _ own: Span<UInt8>) throws(JSONWebKeyError) -> String? {
        do throws(JSONObject.Failure) {
            return try object.bytes(name, in: own).map { String(decoding: $0, as: UTF8.self) }
        } catch { throw .badKey(self.name, "has a member \(name) that is no text") }
    }

    /// 32 bytes of a public key.
    private func number(_ name: StaticString, _ object: JSONObject, _ own: Span<UInt8>) throws(JSONWebKeyError) -> [UInt8] {
        guard let range = try? object.plainString(name, in: own), range.count == Base64.url.encodedCount(32) else {
            throw .badKey(self.name, "has no member \(name) of 32 bytes in base64url without padding")
        }
        var bytes = [UInt8](repeating: 0, count: 36)
        var room = bytes.mutableSpan
        guard Base64.url.decode(own.extracting(range), into: &room) == 32 else {
            throw .badKey(self.name, "has a member \(name) that is no base64url without padding")
        }
        return Array(bytes.prefix(32))
    }

    private func secret(_ object: JSONObject, _ own: Span<UInt8>) throws(JSONWebKeyError) -> JSONWebKey.Material {
        guard let range = try? object.plainString("k", in: own) else { throw .badKey(name, "has no member k in base64url") }
        var bytes = [UInt8](repeating: 0, count: range.count / 4 * 3 + 3)
        defer { wipe(&bytes) }
        var room = bytes.mutableSpan
        guard let count = Base64.url.decode(own.extracting(range), into: &room) else {
            throw .badKey(name, "has a member k that is no base64url without padding")
        }
        return try JSONWebKey.secret(bytes.span.extracting(first: count))
    }
}
