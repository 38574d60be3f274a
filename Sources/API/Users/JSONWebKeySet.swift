import Broker
import JSON
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
            let entry = Entry(place: index + 1, object, item, in: text)
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
            throw .badKey(names[nameless], "has no kid, which is required if there are several keys")
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
    private let object: JSONObject?
    private let id: [UInt8]?

    init(place: Int, _ set: JSONObject, _ item: JSONDocument.Item, in text: Span<UInt8>) {
        object = set.opened(item, in: text)
        id = try? object?.bytes("kid", in: text)
        let isPlain = id.map { $0.count <= 64 && $0.allSatisfy { (0x21...0x7e).contains($0) && $0 != UInt8(ascii: "\"") } }
        name = isPlain == true ? "key \(place) (kid \"\(String(decoding: id ?? [], as: UTF8.self))\")" : "key \(place)"
    }

    /// What only who signs may have (RFC 7518 section 6).
    private static let privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth"]

    func read(_ text: Span<UInt8>, for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) -> Outcome {
        guard let object else { throw .badKey(name, "is not a JSON object without duplicate names") }
        if let member = Self.privateMembers.first(where: { object.has($0, in: text) }) {
            throw .badKey(name, "has the member \(member): it is a private key, which only the signer may have")
        }
        if algorithm != .hs256, object.has("k", in: text) {
            throw .badKey(name, "has the member k: it is a secret, and the set is for public keys")
        }
        if object.has("kid", in: text), id == nil { throw .badKey(name, "has a kid that is not text") }
        if let why = try otherPurpose(object, text, algorithm) { return .passedOver(why) }
        do throws(JSONWebKeyError) {
            switch algorithm {
            case .hs256: return .key(JSONWebKey(id: id, material: try secret(object, text)))
            case .es256:
                let (x, y) = (try number("x", object, text), try number("y", object, text))
                return .key(JSONWebKey(id: id, material: try JSONWebKey.p256(x: x, y: y)))
            case .edDSA: return .key(JSONWebKey(id: id, material: try JSONWebKey.ed25519(try number("x", object, text))))
            }
        } catch {
            if case .badKey = error { throw error }
            throw .badKey(name, "is invalid: \(error)")
        }
    }

    /// Why the key is not meant for this, as a set may hold others; nil if it is.
    private func otherPurpose(
        _ object: JSONObject, _ text: Span<UInt8>, _ algorithm: JSONWebAlgorithm
    ) throws(JSONWebKeyError) -> String? {
        guard let type = try string("kty", object, text) else { throw .badKey(name, "has no kty") }
        if type != algorithm.keyType.kty { return "is of another type (kty)" }
        if let curve = algorithm.keyType.crv {
            guard let own = try string("crv", object, text) else { throw .badKey(name, "has no crv") }
            if own != curve { return "is of another curve (crv)" }
        }
        if let use = try string("use", object, text), use != "sig" { return "is not for signatures (use)" }
        if let operations = try texts("key_ops", object, text), !operations.contains("verify") {
            return "is not for verifying (key_ops)"
        }
        if let name = try string("alg", object, text), name != algorithm.rawValue { return "is for another algorithm (alg)" }
        return nil
    }

    private func texts(_ name: String, _ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> [String]? {
        do throws(JSONObject.Failure) {
            return try object.texts(name, in: text)?.map { String(decoding: $0, as: UTF8.self) }
        } catch { throw .badKey(self.name, "has a member \(name) of the wrong type") }
    }

    private func string(_ name: String, _ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> String? {
        do throws(JSONObject.Failure) {
            return try object.bytes(name, in: text).map { String(decoding: $0, as: UTF8.self) }
        } catch { throw .badKey(self.name, "has a member \(name) that is not text") }
    }

    /// 32 bytes of a public key.
    private func number(_ name: String, _ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> [UInt8] {
        guard let range = try? object.plainString(name, in: text), range.count == Base64.url.encodedCount(32) else {
            throw .badKey(self.name, "has no member \(name) of 32 bytes in base64url without padding")
        }
        var bytes = [UInt8](repeating: 0, count: 36)
        var room = bytes.mutableSpan
        guard Base64.url.decode(text.extracting(range), into: &room) == 32 else {
            throw .badKey(self.name, "has a member \(name) that is not base64url without padding")
        }
        return Array(bytes.prefix(32))
    }

    private func secret(_ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> JSONWebKey.Material {
        guard let range = try? object.plainString("k", in: text) else { throw .badKey(name, "has no member k in base64url") }
        var bytes = [UInt8](repeating: 0, count: range.count / 4 * 3 + 3)
        defer { wipe(&bytes) }
        var room = bytes.mutableSpan
        guard let count = Base64.url.decode(text.extracting(range), into: &room) else {
            throw .badKey(name, "has a member k that is not base64url without padding")
        }
        return try JSONWebKey.secret(bytes.span.extracting(first: count))
    }
}
