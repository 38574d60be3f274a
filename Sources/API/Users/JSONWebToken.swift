import Broker
import JSON
import Linux
import Sodium
import Vocabulary

/// A JWT (RFC 7519) as it comes: three parts of base64url in the compact form of RFC 7515 section 7.1. It is a secret until it expires; what
/// is decoded of it is wiped, and it holds ranges only.
struct JSONWebToken {
    static let largestCount = 8_192

    private let header: Range<Int>
    private let claims: Range<Int>
    private let signature: Range<Int>

    init(_ token: Span<UInt8>) throws(BrokerError) {
        guard token.count <= Self.largestCount else { throw .invalidJWT(.tooLong(limit: Self.largestCount)) }
        let dots = token.indices.filter { token[$0] == UInt8(ascii: ".") }
        guard dots.count == 2 else { throw .invalidJWT(.malformed) }
        header = 0..<dots[0]
        claims = dots[0] + 1..<dots[1]
        signature = dots[1] + 1..<token.count
    }

    /// Checks algorithm and signature. The claims are not looked at before: nobody but who holds a key can have them read.
    func verify(_ token: Span<UInt8>, algorithm: JSONWebAlgorithm, keys: JSONWebKeySet) throws(BrokerError) {
        let id = try Self.withDecoded(token.extracting(header)) { bytes throws(BrokerError) in
            try Self.keyID(bytes, algorithm: algorithm)
        }
        let key = try keys.key(id)
        let isValid = try Self.withDecoded(token.extracting(signature)) { bytes throws(BrokerError) in
            key.isValid(bytes, for: token.extracting(0..<claims.upperBound))
        }
        guard isValid else { throw .invalidJWT(.badSignature) }
    }

    func withClaims<Value>(
        _ token: Span<UInt8>, _ use: (Span<UInt8>) throws(BrokerError) -> Value
    ) throws(BrokerError) -> Value {
        try Self.withDecoded(token.extracting(claims), use)
    }

    /// The header's `kid`; all that would lead to a key or a way of verifying other than the configuration's is refused or not looked at
    /// (RFC 8725).
    private static func keyID(_ bytes: Span<UInt8>, algorithm: JSONWebAlgorithm) throws(BrokerError) -> [UInt8]? {
        guard let header = JSONObject(bytes) else { throw .invalidJWT(.malformed) }
        guard let name = try? header.bytes("alg", in: bytes), name.elementsEqual(algorithm.rawValue.utf8) else {
            throw .invalidJWT(.wrongAlgorithm(expected: algorithm.rawValue))
        }
        guard !header.has("crit", in: bytes) else { throw .invalidJWT(.hasCriticalHeader) }
        do throws(JSONObject.Failure) {
            return try header.bytes("kid", in: bytes)
        } catch { throw .invalidJWT(.malformed) }
    }

    private static func withDecoded<Value>(
        _ text: Span<UInt8>, _ use: (Span<UInt8>) throws(BrokerError) -> Value
    ) throws(BrokerError) -> Value {
        var bytes = [UInt8](repeating: 0, count: text.count / 4 * 3 + 3)
        defer { wipe(&bytes) }
        var room = bytes.mutableSpan
        guard let count = Base64.url.decode(text, into: &room) else { throw .invalidJWT(.malformed) }
        return try use(bytes.span.extracting(first: count))
    }
}
