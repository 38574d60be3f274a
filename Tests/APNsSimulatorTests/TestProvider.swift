import APNsSimulator
import TLS

/// A provider of team TEAM000001 with key KEY0000001.
struct TestProvider {
    static let keyID = "KEY0000001"
    static let teamID = "TEAM000001"
    let key: ES256.PrivateKey

    init() throws { key = try ES256.PrivateKey() }

    func providerKey(
        _ keyID: String = keyID, team: String = teamID, _ bundleIDs: [String] = ["org.example.app"],
        environments: Set<APNsEnvironment> = Set(APNsEnvironment.allCases)
    ) throws -> ProviderKey {
        ProviderKey(
            keyID: keyID, teamID: team, publicKey: try publicKey(), bundleIDs: bundleIDs, environments: environments)
    }

    /// A JWT of another key or team, signed by this one.
    func token(iat: UInt64, keyID: String, team: String = teamID) throws -> String {
        try token(
            iat: iat, header: #"{"alg":"ES256","kid":"\#(keyID)"}"#, claims: #"{"iss":"\#(team)","iat":\#(iat)}"#)
    }

    func publicKey() throws -> ES256.PublicKey {
        let pem = try key.publicKeyPEM()
        return try ES256.PublicKey(pem: pem.span)
    }

    /// A JWT issued at `iat` (unix seconds).
    func token(
        iat: UInt64, header: String = #"{"alg":"ES256","kid":"KEY0000001"}"#, claims: String? = nil
    ) throws -> String {
        let claims = claims ?? #"{"iss":"TEAM000001","iat":\#(iat)}"#
        let signed = Self.base64URL(Array(header.utf8)) + "." + Self.base64URL(Array(claims.utf8))
        let message = Array(signed.utf8)
        let signature = try key.sign(message.span)
        return signed + "." + Self.base64URL(signature)
    }

    static func base64URL(_ bytes: [UInt8]) -> String {
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
        var out: [UInt8] = []
        var bits: UInt32 = 0
        var held: UInt32 = 0
        for byte in bytes {
            bits = bits << 8 | UInt32(byte)
            held += 8
            while held >= 6 {
                held -= 6
                out.append(alphabet[Int(bits >> held & 63)])
            }
        }
        if held > 0 { out.append(alphabet[Int(bits << (6 - held) & 63)]) }
        return String(decoding: out, as: UTF8.self)
    }
}
