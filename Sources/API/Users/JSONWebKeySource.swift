import Linux
public import Sealing
import Sodium

/// The file with the keys by which JWTs are verified.
public enum JSONWebKeySource: Sendable, Equatable {
    /// One key: a secret's bytes, or a public key in PEM.
    case key(path: String)
    /// A JWK set (RFC 7517).
    case keySet(path: String)

    static let largestFile = 65_536

    var path: String {
        switch self {
        case .key(let path), .keySet(let path): path
        }
    }

    /// Reads the file; what it holds passes through locked memory only.
    func load(for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) -> JSONWebKeySet {
        try Self.read(path, isSecret: algorithm == .hs256) { bytes throws(JSONWebKeyError) in
            do throws(JSONWebKeyError) {
                switch self {
                case .key: return JSONWebKeySet(try JSONWebKey(file: bytes, for: algorithm))
                case .keySet: return try JSONWebKeySet(bytes, for: algorithm)
                }
            } catch { throw .file(path: path, error) }
        }
    }

    /// - Parameter isSecret: nobody else may read the file.
    static func read<Value>(
        _ path: String, isSecret: Bool, _ use: (Span<UInt8>) throws(JSONWebKeyError) -> Value
    ) throws(JSONWebKeyError) -> Value {
        let memory: LockedMemory
        do {
            memory = try LockedMemory(count: largestFile + 1)
        } catch { throw .memory(.outOf(.cannotLock)) }
        let status: File.Status
        let count: Int
        do throws(Errno) {
            let file = try OpenFile(path, .read)
            status = try file.status()
            count = try memory.withMutableBytes(0..<memory.count) { bytes throws(Errno) in try file.read(into: &bytes, at: 0) }
        } catch { throw .unreadable(path: path, why: error.reason) }
        guard !isSecret || status.kind == .file && (status.isPrivate || status.isRootsAlone) else {
            throw .exposed(path: path, mode: status.mode)
        }
        guard count <= largestFile else { throw .tooLarge(path: path, limit: largestFile) }
        return try memory.withBytes(0..<count, use)
    }
}

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
