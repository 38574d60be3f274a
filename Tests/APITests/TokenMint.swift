import Broker
import Linux
import Sodium
import Synchronization
import TLS
import TestCertificates

@testable import API

/// A folder with a key of each algorithm. Signs JWTs with any header and claims.
final class TokenMint {
    static let nowS = 1_800_000_000
    static let good = #"{"sub":"ann","exp":1800000060}"#

    let folder: String
    private let secret = Sodium.randomBytes(40)
    private let p256: ES256.PrivateKey
    private let ed25519: Ed25519.PrivateKey
    private let rsa: RSAFiles

    init() throws {
        rsa = try RSAFiles.next()
        folder = try File.makeTemporaryFolder()
        p256 = try ES256.PrivateKey()
        let seed = Sodium.randomBytes(32)
        ed25519 = try Ed25519.PrivateKey(seed: seed.span)
        try write("secret", secret)
        try write("rsa.pem", rsa.publicPEM)
        try write("rsa-private.pem", rsa.privatePEM)
        try write("p256.pem", try p256.publicKeyPEM())
        try write("p256-private.pem", try p256.pem())
        try write("ed25519.pem", Self.pem("PUBLIC KEY", Self.ed25519Public + ed25519.publicKey))
        try write("ed25519-private.pem", Self.pem("PRIVATE KEY", Self.ed25519Private + seed))
    }

    deinit { try? File.removeTree(folder) }

    /// The DER of RFC 8410 before the 32 bytes of the key.
    private static let ed25519Public: [UInt8] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00]
    private static let ed25519Private: [UInt8] = [
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
    ]

    private static func pem(_ what: String, _ der: [UInt8]) -> [UInt8] {
        Array("-----BEGIN \(what)-----\n\(base64(der))\n-----END \(what)-----\n".utf8)
    }

    // MARK: Files

    @discardableResult
    func write(_ name: String, _ bytes: [UInt8], mode: UInt32 = 0o600) throws -> String {
        try File.replaceDurably(folder + "/" + name, bytes.span, mode: mode)
        return folder + "/" + name
    }

    @discardableResult
    func write(_ name: String, _ text: String, mode: UInt32 = 0o600) throws -> String {
        try write(name, Array(text.utf8), mode: mode)
    }

    func file(_ algorithm: JSONWebAlgorithm) -> String {
        switch algorithm {
        case .hs256: folder + "/secret"
        case .rs256: folder + "/rsa.pem"
        case .es256: folder + "/p256.pem"
        case .edDSA: folder + "/ed25519.pem"
        }
    }

    func contents(_ algorithm: JSONWebAlgorithm) throws -> [UInt8] { try File.read(file(algorithm), limit: 65_536) }

    func privateFile(_ algorithm: JSONWebAlgorithm) -> String {
        switch algorithm {
        case .hs256: folder + "/secret"
        case .rs256: folder + "/rsa-private.pem"
        case .es256: folder + "/p256-private.pem"
        case .edDSA: folder + "/ed25519-private.pem"
        }
    }

    /// The key's JWK, with `more` members at the end.
    func jwk(_ algorithm: JSONWebAlgorithm, _ more: String = "") throws -> String {
        switch algorithm {
        case .hs256: return #"{"kty":"oct","k":"\#(base64url(secret))"\#(more)}"#
        case .rs256: return #"{"kty":"RSA","e":"AQAB","n":"\#(base64url(rsa.modulus))"\#(more)}"#
        case .edDSA: return #"{"kty":"OKP","crv":"Ed25519","x":"\#(base64url(ed25519.publicKey))"\#(more)}"#
        case .es256:
            let pem = String(decoding: try p256.publicKeyPEM(), as: UTF8.self)
            let lines = pem.split(separator: "\n").dropFirst().dropLast().joined()
            let point = Array((Base64.standard.decode(lines) ?? []).suffix(64))
            let (x, y) = (Array(point.prefix(32)), Array(point.suffix(32)))
            return
                #"{"kty":"EC","crv":"P-256","x":"\#(base64url(x))","y":"\#(base64url(y))"\#(more)}"#
        }
    }

    func authenticator(
        _ algorithm: JSONWebAlgorithm, _ source: JSONWebKeySource? = nil, issuer: String? = nil, audience: String? = nil,
        userClaim: String = "sub"
    ) throws -> Authenticator {
        try Authenticator(
            algorithm: algorithm, source: source ?? .key(path: file(algorithm)), issuer: issuer, audience: audience,
            userClaim: userClaim)
    }

    // MARK: JWTs

    /// - Parameter header: nil for the ordinary header of the algorithm.
    func token(_ algorithm: JSONWebAlgorithm, header: String? = nil, _ claims: String = good) throws -> String {
        let input = Self.input(header ?? #"{"alg":"\#(algorithm.rawValue)","typ":"JWT"}"#, claims)
        return input + "." + base64url(try signature(algorithm, input))
    }

    static func input(_ header: String, _ claims: String) -> String {
        base64url(Array(header.utf8)) + "." + base64url(Array(claims.utf8))
    }

    func signature(_ algorithm: JSONWebAlgorithm, _ input: String) throws -> [UInt8] {
        let input = Array(input.utf8)
        switch algorithm {
        case .hs256: return authenticationCode(input, secret)
        case .rs256:
            let pem = rsa.privatePEM
            return try RS256.PrivateKey(pem: pem.span).sign(input.span)
        case .es256: return try p256.sign(input.span)
        case .edDSA: return ed25519.sign(input.span)
        }
    }
}

/// An RSA key of 2,048 bits, by Debian's openssl. Making one takes long, so tests share eight.
private struct RSAFiles {
    let privatePEM: [UInt8]
    let publicPEM: [UInt8]
    /// 256 bytes.
    let modulus: [UInt8]

    private static let made: Result<[RSAFiles], any Error> = Result { try (0..<8).map { _ in try RSAFiles() } }
    private static let taken = Atomic(0)

    /// Returns another key than the seven calls before.
    static func next() throws -> RSAFiles {
        try made.get()[taken.wrappingAdd(1, ordering: .relaxed).oldValue % 8]
    }

    private init() throws {
        let openssl = try OpenSSLProgram()
        defer { openssl.end() }
        try openssl.run("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "file:key")
        try openssl.run("pkey", "-in", "file:key", "-pubout", "-out", "file:public")
        (privatePEM, publicPEM) = (try openssl.read("key"), try openssl.read("public"))
        let lines = String(decoding: publicPEM, as: UTF8.self).split(separator: "\n").dropFirst().dropLast().joined()
        // The exponent's five bytes come last.
        modulus = Array((Base64.standard.decode(lines) ?? []).suffix(261).prefix(256))
    }
}

extension Authenticator {
    /// The principal of a JWT, or the error.
    func outcome(_ token: String, nowS: Int = TokenMint.nowS) -> Result<Principal, BrokerError> {
        outcome(Array(token.utf8), nowS: nowS)
    }

    func outcome(_ token: [UInt8], nowS: Int = TokenMint.nowS) -> Result<Principal, BrokerError> {
        Result { try principal(of: token.span, nowMs: UInt64(nowS) * 1_000) }
            .mapError { BrokerError(thrown: $0) ?? .storageUnavailable }
    }
}

extension Result where Success == Principal, Failure == BrokerError {
    /// The user as text, or nil for an error.
    var user: String? { (try? get()).map { String(decoding: $0.user, as: UTF8.self) } }
    var isBackEnd: Bool? { (try? get())?.isBackEnd }
    var error: BrokerError? {
        if case .failure(let error) = self { error } else { nil }
    }
}

// `#expect` and string interpolation can't contain spans.
func base64url(_ bytes: [UInt8]) -> String { Base64.url.encode(bytes.span) }
func base64(_ bytes: [UInt8]) -> String { Base64.standard.encode(bytes.span) }
func authenticationCode(_ message: [UInt8], _ key: [UInt8]) -> [UInt8] { HMACSHA256.code(message.span, key: key.span) }
