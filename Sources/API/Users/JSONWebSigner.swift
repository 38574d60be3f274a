import JSON
import Linux
import Sealing
import Sodium
import TLS

/// Makes JWTs as an app's own login would, for development and tests: from the secret's file, or from a private key in PEM.
public struct JSONWebSigner: Sendable {
    /// What a JWT is to say. Times in unix seconds.
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
        case ed25519(Ed25519.PrivateKey)
    }

    private let algorithm: JSONWebAlgorithm
    private let key: Key

    /// - Parameter path: a file that nobody else may read.
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

    /// A JWT in the compact form of RFC 7515 section 7.1: a secret until it expires.
    /// - Parameter keyID: its `kid`, for a broker with several keys.
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
        }
    }
}
