import Broker
import JSON
import Linux
import Sodium
import Vocabulary

/// The keys that verify JWTs: a single one, or those of a JWK set (RFC 7517) for the configured algorithm.
struct JSONWebKeySet: Sendable {
    let keys: [JSONWebKey]
    /// The set's other keys, each with the reason why it isn't used.
    let skipped: [String]

    init(_ key: JSONWebKey) {
        keys = [key]
        skipped = []
    }

    /// - Throws: if the set contains a private key, an invalid key for the algorithm, or no key for it.
    init(_ text: Span<UInt8>, for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) {
        guard let object = JSONObject(text), let items = try? object.items("keys", in: text) else { throw .noKeySet }
        var keys: [JSONWebKey] = []
        var skipped: [String] = []
        var names: [String] = []
        for (index, item) in items.enumerated() {
            let entry = Entry(number: index + 1, object, item, in: text)
            switch try entry.read(text, for: algorithm) {
            case .skipped(let reason): skipped.append("\(entry.name) \(reason)")
            case .key(let key):
                if let id = key.id, keys.contains(where: { $0.id == id }) { throw .repeatedID(entry.name) }
                keys.append(key)
                names.append(entry.name)
            }
        }
        guard !keys.isEmpty else { throw .noUsableKey(algorithm, skipped: skipped) }
        if keys.count > 1, let nameless = keys.firstIndex(where: { $0.id == nil }) {
            throw .badKey(names[nameless], "has no kid, which is required if there are several keys")
        }
        self.keys = keys
        self.skipped = skipped
    }

    /// Returns the key of a JWT.
    /// - Parameter id: the `kid` of its header.
    func key(_ id: [UInt8]?) throws(BrokerError) -> JSONWebKey {
        if keys.count == 1, id == nil || keys[0].id == nil { return keys[0] }
        guard let id else { throw .invalidJWT(.namesNoKey) }
        guard let key = keys.first(where: { $0.id == id }) else { throw .invalidJWT(.unknownKey) }
        return key
    }
}

/// One item of the array `keys`.
private struct Entry {
    enum Outcome {
        case key(JSONWebKey)
        case skipped(String)
    }

    /// Text for errors: the key's position, and its `kid` if that is printable.
    let name: String
    private let object: JSONObject?
    private let id: [UInt8]?

    init(number: Int, _ set: JSONObject, _ item: JSONDocument.Item, in text: Span<UInt8>) {
        object = set.opened(item, in: text)
        id = try? object?.bytes("kid", in: text)
        let isPlain = id.map { $0.count <= 64 && $0.allSatisfy { (0x21...0x7e).contains($0) && $0 != UInt8(ascii: "\"") } }
        name = isPlain == true ? "key \(number) (kid \"\(String(decoding: id ?? [], as: UTF8.self))\")" : "key \(number)"
    }

    /// Members of private keys (RFC 7518 section 6).
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
        if let reason = try otherPurpose(object, text, algorithm) { return .skipped(reason) }
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

    /// Returns the reason if the key isn't meant to verify signatures of the algorithm, otherwise nil. A set may contain other keys.
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

    /// Reads a coordinate, 32 bytes.
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
