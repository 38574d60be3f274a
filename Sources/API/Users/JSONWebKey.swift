import Sealing
import Sodium
import TLS

/// One key by which JWTs are verified.
struct JSONWebKey: Sendable, Equatable {
    enum Material: Sendable, Equatable {
        case secret(Secret)
        case p256(ES256.PublicKey)
        case ed25519([UInt8])
    }

    /// `kid`, where the key has one.
    let id: [UInt8]?
    let material: Material

    /// A secret as long as its hash's output at least (RFC 7518 section 3.2).
    static let shortestSecret = 32
    /// SHA-256's block: HMAC hashes a longer key before all else (RFC 2104).
    private static let hashBlock = 64

    /// - Throws: `shortSecret`.
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

    /// The contents of `--jwt-key`: a secret's bytes, or a public key in PEM.
    init(file bytes: Span<UInt8>, for algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) {
        id = nil
        let isPEM = bytes.starts(with: "-----BEGIN")
        switch algorithm {
        case .hs256:
            // Whoever signs with a public key's text as the secret would be let in.
            guard !isPEM else { throw .notASecret }
            material = try Self.secret(bytes.extracting(first: Self.textCount(bytes)))
        case .es256, .edDSA:
            guard isPEM, !bytes.contains("PRIVATE KEY-----") else { throw isPEM ? .privateKey : .noPublicKey(algorithm) }
            do throws(TLSError) {
                switch algorithm {
                case .es256: material = .p256(try ES256.PublicKey(pem: bytes))
                default: material = try Self.ed25519Key(pem: bytes)
                }
            } catch { throw .noPublicKey(algorithm) }
        }
    }

    init(id: [UInt8]?, material: Material) {
        self.id = id
        self.material = material
    }

    private static func ed25519Key(pem: Span<UInt8>) throws(TLSError) -> Material {
        let point = try Ed25519PEM.publicKey(pem)
        guard Ed25519.isPublicKey(point.span) else { throw .badKey }
        return .ed25519(point)
    }

    /// How much of a secret's file is the secret: of one that is text, all but the end of its last line, which editors and shells add.
    static func textCount(_ bytes: Span<UInt8>) -> Int {
        guard bytes.count > 1, bytes[bytes.count - 1] == 0x0a else { return bytes.count }
        let count = bytes[bytes.count - 2] == 0x0d ? bytes.count - 2 : bytes.count - 1
        for index in 0..<count where !(0x20...0x7e).contains(bytes[index]) { return bytes.count }
        return count
    }

    /// Whether `signature` is this key's over `message`.
    func isValid(_ signature: Span<UInt8>, for message: Span<UInt8>) -> Bool {
        switch material {
        case .secret(let secret): secret.withBytes { HMACSHA256.isValid(signature, for: message, key: $0) }
        case .p256(let key): key.isValid(signature, for: message)
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

/// How JWTs are signed (RFC 7518 section 3.1, RFC 8037 section 3.1). A broker takes one, its configuration's; never what a JWT says of itself.
public enum JSONWebAlgorithm: String, Sendable, CaseIterable {
    case hs256 = "HS256"
    case es256 = "ES256"
    /// Ed25519.
    case edDSA = "EdDSA"

    /// The `kty` of the algorithm's keys in a JWK, and their `crv` if they have a curve (RFC 7518, RFC 8037).
    var keyType: (kty: String, crv: String?) {
        switch self {
        case .hs256: ("oct", nil)
        case .es256: ("EC", "P-256")
        case .edDSA: ("OKP", "Ed25519")
        }
    }
}
