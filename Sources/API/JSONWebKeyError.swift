import Linux
public import Sealing

/// Why keys for JWTs are not taken. It names files and keys, and holds nothing of them.
public enum JSONWebKeyError: Error, Sendable, Equatable, CustomStringConvertible {
    case unreadable(path: String, why: String)
    case tooLarge(path: String, limit: Int)
    /// Others may read or change a secret, or it is no file.
    case exposed(path: String, mode: UInt32)
    case shortSecret
    case notASecret
    case privateKey
    case noPublicKey(JSONWebAlgorithm)
    case noPrivateKey(JSONWebAlgorithm)
    case badPoint
    case noKeySet
    /// One of a set, by its place and `kid`, and what is wrong with it.
    case badKey(String, String)
    case repeatedID(String)
    case noUsableKey(JSONWebAlgorithm, passedOver: [String])
    case memory(SealingError)
    /// What is wrong with a file.
    indirect case file(path: String, JSONWebKeyError)

    public var description: String {
        switch self {
        case .unreadable(let path, let why): "\(ShownPath(path)) can't be read: \(why)"
        case .tooLarge(let path, let limit): "\(ShownPath(path)) is larger than \(limit) bytes, the limit for keys of JWTs"
        case .exposed(let path, let mode): "\(ShownPath(path)), which contains a secret, \(Self.exposure(mode))"
        case .shortSecret:
            "the secret is shorter than \(JSONWebKey.shortestSecret) bytes, so it could be guessed from one JWT. Make one with `openssl rand -base64 48`"
        case .notASecret: "this is a key in PEM, but HS256 needs a secret, and public keys are not secret"
        case .privateKey: "this is a private key, which only the signer may have. Use the public key"
        case .noPublicKey(let algorithm):
            "this is not a public key for \(algorithm.rawValue). Use one \(algorithm.curveText) as PEM (-----BEGIN PUBLIC KEY-----)"
        case .noPrivateKey(let algorithm):
            "this is not a private key for \(algorithm.rawValue). Use one \(algorithm.curveText) as unencrypted PEM (-----BEGIN PRIVATE KEY-----)"
        case .badPoint: "its coordinates are not a valid point of the curve"
        case .noKeySet: "this is not a JWK set: one JSON object without duplicate names, with an array keys (RFC 7517 section 5)"
        case .badKey(let key, let what): "\(key) \(what)"
        case .repeatedID(let key): "\(key) has the same kid as another key, so a JWT could name either"
        case .noUsableKey(let algorithm, let passedOver):
            "the set has no key for \(algorithm.rawValue)"
                + (passedOver.isEmpty ? ". The set is empty" : ": " + passedOver.joined(separator: "; "))
        case .memory(let error): error.description
        case .file(let path, let error): "\(ShownPath(path)): \(error)"
        }
    }

    /// What lets others at a file of this mode.
    static func exposure(_ mode: UInt32) -> String {
        let digits = String(mode, radix: 8)
        let cause =
            mode & 0o077 == 0
            ? "belongs to another user" : "has mode \(String(repeating: "0", count: max(0, 4 - digits.count)) + digits)"
        return cause + ", so others could read or change it. Its owner must be this user or root, and its mode 0600 or less"
    }
}

extension JSONWebAlgorithm {
    fileprivate var curveText: String { self == .es256 ? "of the curve P-256" : "of Ed25519" }
}
