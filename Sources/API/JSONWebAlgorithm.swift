/// How JWTs are signed (RFC 7518 section 3.1, RFC 8037 section 3.1). A broker takes one, its configuration's; never what a JWT says of itself.
public enum JSONWebAlgorithm: String, Sendable, CaseIterable {
    case hs256 = "HS256"
    case es256 = "ES256"
    /// Ed25519.
    case edDSA = "EdDSA"

    /// What its keys' JWKs say: `kty`, and `crv` where there are curves.
    var keyType: (kty: String, crv: String?) {
        switch self {
        case .hs256: ("oct", nil)
        case .es256: ("EC", "P-256")
        case .edDSA: ("OKP", "Ed25519")
        }
    }
}
