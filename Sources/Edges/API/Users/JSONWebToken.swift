import Broker
import JSON
import Linux
import Sealing
import Sodium
import TLS
import Vocabulary

/// The parts of a JWT (RFC 7519) in the compact form of RFC 7515 section 7.1.
///
/// A JWT is a secret until it expires. So this type only contains ranges, and decoded parts are wiped.
struct JSONWebToken {
    static let largestCount = 8_192

    private let header: Range<Int>
    private let claims: Range<Int>
    private let signature: Range<Int>

    init(_ token: Span<UInt8>) throws {
        guard token.count <= Self.largestCount else { throw BrokerError.invalidJWT(.tooLong(limit: Self.largestCount)) }
        let dots = token.indices.filter { token[$0] == UInt8(ascii: ".") }
        guard dots.count == 2 else { throw BrokerError.invalidJWT(.malformed) }
        header = 0..<dots[0]
        claims = dots[0] + 1..<dots[1]
        signature = dots[1] + 1..<token.count
    }

    /// Checks algorithm and signature. Must be called before the claims are read.
    func verify(_ token: Span<UInt8>, algorithm: JSONWebAlgorithm, keys: JSONWebKeySet) throws {
        let id = try Self.withDecoded(token.extracting(header)) { bytes in
            try Self.keyID(bytes, algorithm: algorithm)
        }
        let key = try keys.key(id)
        let isValid = try Self.withDecoded(token.extracting(signature)) { bytes in
            key.isValid(bytes, for: token.extracting(0..<claims.upperBound))
        }
        guard isValid else { throw BrokerError.invalidJWT(.badSignature) }
    }

    func withClaims<Value>(
        _ token: Span<UInt8>, _ use: (Span<UInt8>) throws -> Value
    ) throws -> Value {
        try Self.withDecoded(token.extracting(claims), use)
    }

    /// Returns the header's `kid`. Members that could lead to another key or algorithm are refused or ignored (RFC 8725).
    private static func keyID(_ bytes: Span<UInt8>, algorithm: JSONWebAlgorithm) throws -> [UInt8]? {
        guard let header = JSONObject(bytes) else { throw BrokerError.invalidJWT(.malformed) }
        let wrong = InvalidJWT.wrongAlgorithm(expected: algorithm.rawValue)
        let name = try read("alg", or: wrong) { name throws(JSONObject.Failure) in try header.bytes(name, in: bytes) }
        guard let name, name.elementsEqual(algorithm.rawValue.utf8) else { throw BrokerError.invalidJWT(wrong) }
        guard !header.has("crit", in: bytes) else { throw BrokerError.invalidJWT(.hasCriticalHeader) }
        // Claims that are signed without base64url are no JWT's (RFC 7797 section 7).
        if header.has("b64", in: bytes) {
            guard (try? header.bool("b64", in: bytes)) == true else { throw BrokerError.invalidJWT(.malformed) }
        }
        return try read("kid", or: .malformed) { name throws(JSONObject.Failure) in try header.bytes(name, in: bytes) }
    }

    /// Reads a member of the header, or a claim.
    /// - Parameter fault: the error if it has the wrong type or is out of range.
    static func read<Value>(
        _ name: String, or fault: InvalidJWT, _ read: (String) throws(JSONObject.Failure) -> Value
    ) throws -> Value {
        do throws(JSONObject.Failure) {
            return try read(name)
        } catch {
            if case .repeated = error { throw BrokerError.invalidJWT(.repeated(name)) }
            throw BrokerError.invalidJWT(fault)
        }
    }

    private static func withDecoded<Value>(
        _ text: Span<UInt8>, _ use: (Span<UInt8>) throws -> Value
    ) throws -> Value {
        var bytes = [UInt8](repeating: 0, count: text.count / 4 * 3 + 3)
        defer { wipe(&bytes) }
        var room = bytes.mutableSpan
        guard let count = Base64.url.decode(text, into: &room) else { throw BrokerError.invalidJWT(.malformed) }
        return try use(bytes.span.extracting(first: count))
    }
}

/// The requirements for the claims of a JWT (RFC 7519 section 4.1).
struct JSONWebClaims: Sendable {
    /// The required `iss`. Nil accepts any.
    let issuer: [UInt8]?
    /// The audience that `aud` must contain. Nil refuses a JWT with `aud` (RFC 7519 section 4.1.3).
    let audience: [UInt8]?
    /// The claim that names the user.
    let userClaim: String

    /// Tolerated clock skew between the signer and this machine, for calls and sockets (RFC 7519 section 4.1.4).
    static let leewaySeconds = 30
    static let leewayMs = UInt64(leewaySeconds) * 1_000
    static let backEndScope = Array("broker.notify".utf8)
    /// The end of the year 9999, the last one in RFC 3339.
    private static let latest = 253_402_300_799

    func principal(_ bytes: Span<UInt8>, nowMs: UInt64) throws -> Principal {
        let claims = try Self.object(bytes)
        let end = try checkTimes(claims, bytes, nowMs: nowMs)
        if let issuer {
            let own = try JSONWebToken.read("iss", or: .wrongIssuer) { name throws(JSONObject.Failure) in
                try claims.bytes(name, in: bytes)
            }
            guard own == issuer else { throw BrokerError.invalidJWT(.wrongIssuer) }
        }
        try checkAudience(claims, bytes)
        let user = try user(claims, bytes)
        let isBackEnd = try Self.words(claims, bytes).contains(Self.backEndScope)
        return Principal(user: user, isBackEnd: isBackEnd, expiresMs: UInt64(end) * 1_000)
    }

    private static func object(_ bytes: Span<UInt8>) throws -> JSONObject {
        do throws(JSONError) {
            return try JSONObject(parsing: bytes)
        } catch { throw BrokerError.invalidJWT(.malformedClaims(error.words(in: bytes))) }
    }

    private func user(_ claims: JSONObject, _ bytes: Span<UInt8>) throws -> [UInt8] {
        let user = try JSONWebToken.read(userClaim, or: .badUser(claim: userClaim)) {
            name throws(JSONObject.Failure) -> [UInt8]? in
            // `sub` is always text (RFC 7519 section 4.1.2). An app's own claim is often a row number.
            if name != "sub", let number = try? claims.integer(name, in: bytes) { return Array(String(number).utf8) }
            return try claims.bytes(name, in: bytes)
        }
        guard let user, Principal.userRange.contains(user.count) else { throw BrokerError.invalidJWT(.badUser(claim: userClaim)) }
        return user
    }

    /// Returns the expiry in unix seconds.
    private func checkTimes(_ claims: JSONObject, _ bytes: Span<UInt8>, nowMs: UInt64) throws -> Int {
        let now = Int(clamping: nowMs / 1_000)
        guard let end = try Self.time("exp", claims, bytes) else { throw BrokerError.invalidJWT(.noExpiry) }
        guard now < end + Self.leewaySeconds else { throw BrokerError.jwtExpired }
        for name in ["nbf", "iat"] {
            if let start = try Self.time(name, claims, bytes), start > now + Self.leewaySeconds {
                throw BrokerError.invalidJWT(.notYet(name))
            }
        }
        return end
    }

    /// Reads a NumericDate (RFC 7519 section 2), which may have a fraction or an exponent. Rounds it down.
    private static func time(_ name: String, _ claims: JSONObject, _ bytes: Span<UInt8>) throws -> Int? {
        try JSONWebToken.read(name, or: .badTime(name)) { name throws(JSONObject.Failure) in
            guard let time = try claims.seconds(name, in: bytes) else { return nil }
            guard (0...latest).contains(time) else { throw .outOfRange }
            return time
        }
    }

    private func checkAudience(_ claims: JSONObject, _ bytes: Span<UInt8>) throws {
        guard let audience else {
            guard !claims.has("aud", in: bytes) else { throw BrokerError.invalidJWT(.unexpectedAudience) }
            return
        }
        let named = try JSONWebToken.read("aud", or: .wrongAudience) { name throws(JSONObject.Failure) in
            try claims.texts(name, in: bytes)
        }
        guard let named, named.contains(audience) else { throw BrokerError.invalidJWT(.wrongAudience) }
    }

    /// Returns the words of `scope` (RFC 8693 section 4.2) and `scp`. Both may be a text with spaces or a list.
    private static func words(_ claims: JSONObject, _ bytes: Span<UInt8>) throws -> [[UInt8]] {
        var words: [[UInt8]] = []
        for name in ["scope", "scp"] {
            let texts = try JSONWebToken.read(name, or: .badScope) { name throws(JSONObject.Failure) in
                try claims.texts(name, in: bytes)
            }
            for text in texts ?? [] { words += text.split(separator: 0x20).map { Array($0) } }
        }
        return words
    }
}

/// Makes JWTs for development and tests, as an app's login would. Signs with a secret, or a private key in PEM.
public struct JSONWebSigner: Sendable {
    /// The claims of a JWT. Times in unix seconds.
    public struct Claims: Sendable {
        public var user: String
        /// The claim that names the user.
        public var userClaim: String
        public var scope: String?
        public var issuer: String?
        public var audience: String?
        public var issuedAtS: UInt64
        public var expiresAtS: UInt64

        public init(
            user: String, userClaim: String = "sub", scope: String? = nil, issuer: String? = nil, audience: String? = nil,
            issuedAtS: UInt64, expiresAtS: UInt64
        ) {
            (self.user, self.userClaim) = (user, userClaim)
            (self.scope, self.issuer, self.audience) = (scope, issuer, audience)
            (self.issuedAtS, self.expiresAtS) = (issuedAtS, expiresAtS)
        }
    }

    private enum Key {
        case secret(Secret)
        case p256(ES256.PrivateKey)
        case rsa(RS256.PrivateKey)
        case ed25519(Ed25519.PrivateKey)
    }

    private let algorithm: JSONWebAlgorithm
    private let key: Key

    /// - Parameter path: a file that other users can't read.
    public init(algorithm: JSONWebAlgorithm, path: String) throws(JSONWebKeyError) {
        self.algorithm = algorithm
        key = try JSONWebKeySource.read(path, isSecret: true) { bytes throws(JSONWebKeyError) in
            do throws(JSONWebKeyError) {
                return try Self.key(bytes, algorithm)
            } catch { throw .file(path: path, error) }
        }
    }

    private static func key(_ bytes: Span<UInt8>, _ algorithm: JSONWebAlgorithm) throws(JSONWebKeyError) -> Key {
        switch algorithm {
        case .hs256:
            guard case .secret(let secret) = try JSONWebKey(file: bytes, for: .hs256).material else { throw .notASecret }
            return .secret(secret)
        case .es256:
            do throws(TLSError) {
                return .p256(try ES256.PrivateKey(pem: bytes))
            } catch { throw .noPrivateKey(algorithm) }
        case .rs256:
            do throws(RS256.KeyFault) {
                return .rsa(try RS256.PrivateKey(pem: bytes))
            } catch { throw error == .noKey ? .noPrivateKey(algorithm) : .badRSA(error) }
        case .edDSA:
            var seed = [UInt8](repeating: 0, count: Ed25519.seedCount)
            defer { wipe(&seed) }
            do throws(TLSError) {
                var room = seed.mutableSpan
                try Ed25519PEM.privateKey(bytes, into: &room)
            } catch { throw .noPrivateKey(algorithm) }
            do throws(LockedMemory.Unavailable) {
                return .ed25519(try Ed25519.PrivateKey(seed: seed.span))
            } catch { throw .memory(.outOf(.cannotLock)) }
        }
    }

    /// Returns a JWT in the compact form of RFC 7515 section 7.1. It is a secret until it expires.
    /// - Parameter keyID: the `kid`, for a broker with several keys.
    public func token(_ claims: Claims, keyID: String? = nil) throws(JSONWebKeyError) -> String {
        var head = JSONWriter()
        head.add("alg", algorithm.rawValue)
        head.add("typ", "JWT")
        if let keyID { head.add("kid", keyID) }
        var body = JSONWriter()
        body.add(claims.userClaim, claims.user)
        if let scope = claims.scope { body.add("scope", scope) }
        if let issuer = claims.issuer { body.add("iss", issuer) }
        if let audience = claims.audience { body.add("aud", audience) }
        body.add("iat", Int(clamping: claims.issuedAtS))
        body.add("exp", Int(clamping: claims.expiresAtS))
        let (headBytes, bodyBytes) = (head.finish(), body.finish())
        let input = Base64.url.encode(headBytes.span) + "." + Base64.url.encode(bodyBytes.span)
        let signature = try sign(Array(input.utf8))
        return input + "." + Base64.url.encode(signature.span)
    }

    private func sign(_ message: [UInt8]) throws(JSONWebKeyError) -> [UInt8] {
        switch key {
        case .secret(let secret): return secret.withBytes { HMACSHA256.code(message.span, key: $0) }
        case .ed25519(let key): return key.sign(message.span)
        case .p256(let key):
            do throws(TLSError) {
                return try key.sign(message.span)
            } catch { throw .noPrivateKey(algorithm) }
        case .rsa(let key):
            do throws(TLSError) {
                return try key.sign(message.span)
            } catch { throw .noPrivateKey(algorithm) }
        }
    }
}
