import Linux
public import Sealing
import Sodium
public import TLS

/// A key that verifies JWTs.
struct JSONWebKey: Sendable, Equatable {
    enum Material: Sendable, Equatable {
        case secret(Secret)
        case p256(ES256.PublicKey)
        case ed25519([UInt8])
        case rsa(RS256.PublicKey)
    }

    /// The `kid`, if the key has one.
    let id: [UInt8]?
    let material: Material

    /// At least the length of the hash (RFC 7518 section 3.2).
    static let shortestSecret = 32
    /// The block size of SHA-256. HMAC first hashes longer keys (RFC 2104).
    private static let hashBlock = 64

    /// - Throws: `.shortSecret`, or `.memory` if the arena is full.
    static func secret(_ bytes: Span<UInt8>) throws(JSONWebKeyError) -> Material {
        guard bytes.count >= shortestSecret else { throw .shortSecret }
        do throws(SealingError) {
            guard bytes.count > hashBlock else { return .secret(try Secret(copying: bytes)) }
            return .secret(
                try Secret(count: SHA256.digestCount) { digest in
                    var hash = SHA256()
                    hash.update(bytes)
                    hash.finish(into: &digest)
                })
        } catch { throw .memory(error) }
    }

    static func p256(x: [UInt8], y: [UInt8]) throws(JSONWebKeyError) -> Material {
        do throws(TLSError) {
            return .p256(try ES256.PublicKey(x: x, y: y))
        } catch { throw .badPoint }
    }

    static func ed25519(_ point: [UInt8]) throws(JSONWebKeyError) -> Material {
        guard Ed25519.isPublicKey(point.span) else { throw .badPoint }
        return .ed25519(point)
    }

    static func rsa(modulus: [UInt8], exponent: [UInt8]) throws(JSONWebKeyError) -> Material {
        do throws(RS256.KeyFault) {
            return .rsa(try RS256.PublicKey(modulus: modulus, exponent: exponent))
        } catch { throw .badRSA(error) }
    }
}

extension JSONWebKey {
    /// Parses the contents of `--jwt-key`: a secret's bytes, or a public key in PEM.
    init(file bytes: Span<UInt8>, for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) {
        id = nil
        let isPEM = bytes.starts(with: "-----BEGIN")
        switch algorithm {
        case .hs256:
            // Public keys are known: anybody could sign with the text as the secret.
            guard !isPEM else { throw .notASecret }
            material = try Self.secret(bytes.extracting(first: Self.textCount(bytes)))
        case .es256, .edDSA, .rs256:
            guard isPEM, !bytes.contains("PRIVATE KEY-----") else { throw isPEM ? .privateKey : .noPublicKey(algorithm) }
            material = try Self.publicKey(pem: bytes, for: algorithm)
        }
    }

    private static func publicKey(
        pem: Span<UInt8>, for algorithm: JSONWebAlgorithm
    ) throws(JSONWebKeyError) -> Material {
        if algorithm == .rs256 {
            do throws(RS256.KeyFault) {
                return .rsa(try RS256.PublicKey(pem: pem))
            } catch { throw error == .noKey ? .noPublicKey(algorithm) : .badRSA(error) }
        }
        do throws(TLSError) {
            return algorithm == .es256 ? .p256(try ES256.PublicKey(pem: pem)) : try ed25519Key(pem: pem)
        } catch { throw .noPublicKey(algorithm) }
    }

    private static func ed25519Key(pem: Span<UInt8>) throws(TLSError) -> Material {
        let point = try Ed25519PEM.publicKey(pem)
        guard Ed25519.isPublicKey(point.span) else { throw .badKey }
        return .ed25519(point)
    }

    /// Returns the length of the secret in a file. In a text, the line break at the end doesn't count, because editors add it.
    static func textCount(_ bytes: Span<UInt8>) -> Int {
        guard bytes.count > 1, bytes[bytes.count - 1] == 0x0a else { return bytes.count }
        let count = bytes[bytes.count - 2] == 0x0d ? bytes.count - 2 : bytes.count - 1
        for index in 0..<count where !(0x20...0x7e).contains(bytes[index]) { return bytes.count }
        return count
    }

    /// Returns whether `signature` is this key's signature of `message`.
    func isValid(_ signature: Span<UInt8>, for message: Span<UInt8>) -> Bool {
        switch material {
        case .secret(let secret): secret.withBytes { HMACSHA256.isValid(signature, for: message, key: $0) }
        case .p256(let key): key.isValid(signature, for: message)
        case .rsa(let key): key.isValid(signature, for: message)
        case .ed25519(let key): Ed25519.verify(signature, message: message, publicKey: key.span)
        }
    }
}

extension Span where Element == UInt8 {
    func starts(with text: StaticString) -> Bool {
        let text = text.description.utf8
        return count >= text.count && zip(indices, text).allSatisfy { self[$0] == $1 }
    }

    fileprivate func contains(_ text: StaticString) -> Bool {
        let length = text.utf8CodeUnitCount
        return count >= length && (0...count - length).contains { extracting($0..<$0 + length).starts(with: text) }
    }
}

/// The signature algorithms of JWTs (RFC 7518 section 3.1, RFC 8037 section 3.1). The configuration fixes one; a JWT's `alg` never chooses.
public enum JSONWebAlgorithm: String, Sendable, CaseIterable {
    case hs256 = "HS256"
    case rs256 = "RS256"
    case es256 = "ES256"
    /// Ed25519.
    case edDSA = "EdDSA"

    /// The `kty` of the algorithm's keys in a JWK, and their `crv` if they have a curve (RFC 7518, RFC 8037).
    var keyType: (kty: String, crv: String?) {
        switch self {
        case .hs256: ("oct", nil)
        case .rs256: ("RSA", nil)
        case .es256: ("EC", "P-256")
        case .edDSA: ("OKP", "Ed25519")
        }
    }
}

/// Where the keys that verify JWTs are.
public enum JSONWebKeySource: Sendable, Equatable {
    /// A file with one key: a secret's bytes, or a public key in PEM.
    case key(path: String)
    /// A file with a JWK set (RFC 7517).
    case keySet(path: String)
    /// A JWK set at an https URL. `JSONWebKeyRefresh` gets it.
    case remote

    static let largestFile = 65_536

    /// Text for the log. Nil for a URL, which may contain a secret.
    var path: String? {
        switch self {
        case .key(let path), .keySet(let path): path
        case .remote: nil
        }
    }

    /// Reads the file through locked memory. Returns nil without a file.
    func load(for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) -> JSONWebKeySet? {
        guard let path else { return nil }
        return try Self.read(path, isSecret: algorithm == .hs256) { bytes throws(JSONWebKeyError) in
            do throws(JSONWebKeyError) {
                if case .key = self { return JSONWebKeySet(try JSONWebKey(file: bytes, for: algorithm)) }
                return try JSONWebKeySet(bytes, for: algorithm)
            } catch { throw .file(path: path, error) }
        }
    }

    /// - Parameter isSecret: refuses a file that other users can read.
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

/// The reason why keys are refused. Contains names of files and positions of keys, but nothing of their contents.
public enum JSONWebKeyError: Error, Sendable, Equatable, CustomStringConvertible {
    case unreadable(path: String, why: String)
    case tooLarge(path: String, limit: Int)
    /// Other users could read or change the secret, or the path isn't a file.
    case exposed(path: String, mode: UInt32)
    case shortSecret
    case notASecret
    case privateKey
    case noPublicKey(JSONWebAlgorithm)
    case noPrivateKey(JSONWebAlgorithm)
    case badPoint
    case badRSA(RS256.KeyFault)
    case noKeySet
    case tooManyKeys(limit: Int)
    /// The fault of one key of a set. The text follows the key's position.
    case badKey(String)
    case noUsableKey(JSONWebAlgorithm, skipped: String)
    case memory(SealingError)
    /// The error of a file.
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
            "this is not a public key for \(algorithm.rawValue). Use one \(algorithm.keyText) as PEM (-----BEGIN PUBLIC KEY-----)"
        case .noPrivateKey(let algorithm):
            "this is not a private key for \(algorithm.rawValue). Use one \(algorithm.keyText) as unencrypted PEM (-----BEGIN PRIVATE KEY-----)"
        case .badPoint: "its coordinates are not a valid point of the curve"
        case .noKeySet: "this is not a JWK set: a JSON object with one member keys, an array (RFC 7517 section 5)"
        case .badRSA(let fault): "\(fault)"
        case .tooManyKeys(let limit): "the JWK set has more than \(limit) keys"
        case .badKey(let what): what
        case .noUsableKey(let algorithm, let skipped):
            "the set has no key for \(algorithm.rawValue)" + (skipped.isEmpty ? ". The set is empty" : ": " + skipped)
        case .memory(let error): error.description
        case .file(let path, let error): "\(ShownPath(path)): \(error)"
        }
    }

    /// Explains how other users can access a file with this mode.
    static func exposure(_ mode: UInt32) -> String {
        let digits = String(mode, radix: 8)
        let cause =
            mode & 0o077 == 0
            ? "belongs to another user" : "has mode \(String(repeating: "0", count: max(0, 4 - digits.count)) + digits)"
        return cause + ", so others could read or change it. Its owner must be this user or root, and its mode 0600 or less"
    }
}

extension JSONWebAlgorithm {
    fileprivate var keyText: String {
        switch self {
        case .es256: "of the curve P-256"
        case .rs256: "of RSA with \(RS256.bits.lowerBound) to \(RS256.bits.upperBound) bits"
        case .edDSA, .hs256: "of Ed25519"
        }
    }
}
