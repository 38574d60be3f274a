import Broker
import JSON
import Linux
import Sodium
import Vocabulary

/// The keys that verify JWTs: a single one, or those of a JWK set (RFC 7517) for the configured algorithm.
struct JSONWebKeySet: Sendable, Equatable {
    let keys: [JSONWebKey]
    /// The set's keys for other purposes, each with its position and the reason.
    let skipped: [String]
    /// The set's keys that can't be used, likewise. They don't keep a login from using the others (RFC 7517 section 5).
    let malformed: [String]

    /// Each unknown `kid` is compared with every key.
    static let mostKeys = 100

    init(_ key: JSONWebKey) {
        keys = [key]
        (skipped, malformed) = ([], [])
    }

    /// - Throws: `.noKeySet`, `.tooManyKeys`, `.noUsableKey` if no key is for the algorithm, or `.memory` if the arena is full.
    init(_ text: Span<UInt8>, for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) {
        guard let object = JSONObject(text), let items = try? object.items("keys", in: text) else { throw .noKeySet }
        guard items.count <= Self.mostKeys else { throw .tooManyKeys(limit: Self.mostKeys) }
        var found: [(name: String, key: JSONWebKey)] = []
        var (skipped, malformed): ([String], [String]) = ([], [])
        for (index, item) in items.enumerated() {
            let entry = Entry(number: index + 1, object, item, in: text)
            do throws(JSONWebKeyError) {
                switch try entry.read(text, for: algorithm) {
                case .skipped(let reason): skipped.append("\(entry.name) \(reason)")
                case .key(let key) where key.id != nil && found.contains(where: { $0.key.id == key.id }):
                    malformed.append("\(entry.name) has the same kid as another key")
                case .key(let key): found.append((entry.name, key))
                }
            } catch {
                // The broker is short of memory: that says nothing about the key.
                if case .memory = error { throw error }
                malformed.append("\(entry.name) \(error)")
            }
        }
        // A JWT can't name these. If no key has a kid, the first one is for all JWTs.
        let hasNames = found.contains { $0.key.id != nil }
        let nameless = found.indices.filter { found.count > 1 && found[$0].key.id == nil && (hasNames || $0 > 0) }
        malformed += nameless.map { "\(found[$0].name) has no kid, which is required if there are several keys" }
        keys = found.indices.filter { !nameless.contains($0) }.map { found[$0].key }
        guard !keys.isEmpty else { throw .noUsableKey(algorithm, skipped: Self.list(malformed + skipped)) }
        (self.skipped, self.malformed) = (skipped, malformed)
    }

    /// The reasons in one line, which a set from elsewhere can't make longer than a log should have.
    static func list(_ reasons: [String]) -> String {
        let shown = reasons.prefix(8).joined(separator: ", ")
        return reasons.count > 8 ? "\(shown), and \(reasons.count - 8) more" : shown
    }

    /// Returns the key of a JWT.
    /// - Parameter id: the `kid` of its header.
    func key(_ id: [UInt8]?) throws -> JSONWebKey {
        if keys.count == 1, id == nil || keys[0].id == nil { return keys[0] }
        guard let id else { throw BrokerError.invalidJWT(.namesNoKey) }
        guard let key = keys.first(where: { $0.id == id }) else { throw BrokerError.invalidJWT(.unknownKey) }
        return key
    }
}

/// One item of the array `keys`.
private struct Entry {
    enum Outcome {
        case key(JSONWebKey)
        case skipped(String)
    }

    /// Text for errors. Contains nothing of the key, not even its `kid`.
    let name: String
    private let object: JSONObject?

    init(number: Int, _ set: JSONObject, _ item: JSONDocument.Item, in text: Span<UInt8>) {
        object = set.opened(item, in: text)
        name = "key \(number)"
    }

    /// Members of private keys (RFC 7518 section 6).
    private static let privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth"]

    func read(_ text: Span<UInt8>, for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) -> Outcome {
        guard let object else { throw .badKey("is not a JSON object") }
        if let member = Self.privateMembers.first(where: { object.has($0, in: text) }) {
            throw .badKey("has the member \(member): it is a private key, which only the signer may have")
        }
        if algorithm != .hs256, object.has("k", in: text) {
            throw .badKey("has the member k: it is a secret, and the set is for public keys")
        }
        let id = try self.id(object, text)
        if let reason = try otherPurpose(object, text, algorithm) { return .skipped(reason) }
        do throws(JSONWebKeyError) {
            switch algorithm {
            case .hs256: return .key(JSONWebKey(id: id, material: try secret(object, text)))
            case .es256:
                let (x, y) = (try number("x", object, text), try number("y", object, text))
                return .key(JSONWebKey(id: id, material: try JSONWebKey.p256(x: x, y: y)))
            case .edDSA: return .key(JSONWebKey(id: id, material: try JSONWebKey.ed25519(try number("x", object, text))))
            case .rs256:
                let (modulus, exponent) = (try bytes("n", object, text), try bytes("e", object, text))
                return .key(JSONWebKey(id: id, material: try JSONWebKey.rsa(modulus: modulus, exponent: exponent)))
            }
        } catch {
            switch error {
            case .badKey, .memory: throw error
            default: throw .badKey("is invalid: \(error)")
            }
        }
    }

    /// Returns the reason if the key isn't meant to verify signatures of the algorithm, otherwise nil. A set may contain other keys.
    private func otherPurpose(
        _ object: JSONObject, _ text: Span<UInt8>, _ algorithm: JSONWebAlgorithm
    ) throws(JSONWebKeyError) -> String? {
        guard let type = try string("kty", object, text) else { throw .badKey("has no kty") }
        if type != algorithm.keyType.kty { return "is of another type (kty)" }
        if let curve = algorithm.keyType.crv {
            guard let own = try string("crv", object, text) else { throw .badKey("has no crv") }
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
        } catch { throw fault(error, name, "has a member \(name) of the wrong type") }
    }

    private func string(_ name: String, _ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> String? {
        do throws(JSONObject.Failure) {
            return try object.bytes(name, in: text).map { String(decoding: $0, as: UTF8.self) }
        } catch { throw fault(error, name, "has a member \(name) that is not text") }
    }

    /// Reads the `kid`. A null is an error too: a JWT couldn't name this key.
    private func id(_ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> [UInt8]? {
        let reason = "has a kid that is not text"
        do throws(JSONObject.Failure) {
            if let id = try object.bytes("kid", in: text) { return id }
        } catch { throw fault(error, "kid", reason) }
        if object.has("kid", in: text) { throw .badKey(reason) }
        return nil
    }

    /// Reads a string without escapes that must be there.
    private func plain(_ name: String, _ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> Range<Int> {
        let reason = "has no member \(name) in base64url"
        do throws(JSONObject.Failure) {
            if let range = try object.plainString(name, in: text) { return range }
        } catch { throw fault(error, name, reason) }
        throw .badKey(reason)
    }

    /// - Parameter otherwise: the reason unless the member is repeated.
    private func fault(_ error: JSONObject.Failure, _ name: String, _ otherwise: String) -> JSONWebKeyError {
        if case .repeated = error { return .badKey("has the member \(name) twice") }
        return .badKey(otherwise)
    }

    /// Reads a coordinate, 32 bytes.
    private func number(_ name: String, _ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> [UInt8] {
        let bytes = try bytes(name, object, text)
        guard bytes.count == 32 else { throw .badKey("has a member \(name) of \(bytes.count) bytes, not 32") }
        return bytes
    }

    /// Reads a number of a public key.
    private func bytes(_ name: String, _ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> [UInt8] {
        let range = try plain(name, object, text)
        var bytes = [UInt8](repeating: 0, count: range.count / 4 * 3 + 3)
        var room = bytes.mutableSpan
        guard let count = Base64.url.decode(text.extracting(range), into: &room) else {
            throw .badKey("has a member \(name) that is not base64url without padding")
        }
        return Array(bytes.prefix(count))
    }

    private func secret(_ object: JSONObject, _ text: Span<UInt8>) throws(JSONWebKeyError) -> JSONWebKey.Material {
        let range = try plain("k", object, text)
        var bytes = [UInt8](repeating: 0, count: range.count / 4 * 3 + 3)
        defer { wipe(&bytes) }
        var room = bytes.mutableSpan
        guard let count = Base64.url.decode(text.extracting(range), into: &room) else {
            throw .badKey("has a member k that is not base64url without padding")
        }
        return try JSONWebKey.secret(bytes.span.extracting(first: count))
    }
}
