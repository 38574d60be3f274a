import Courier
import Linux
import TLS
import Vocabulary

/// One of the apps that are pushed to.
struct APNsApp {
    let topic: String
    let environments: Set<PushEnvironment>
    let identity: Identity

    enum Identity {
        case key(TeamKey)
        case certificate(ClientCertificate)
    }

    /// A team's signing key, good for all its apps.
    struct TeamKey {
        let key: ES256.PrivateKey
        let keyID: String
        let teamID: String

        /// - Throws: `CourierError` for ids that are not Apple's ten letters and digits.
        init(key: ES256.PrivateKey, keyID: String, teamID: String) throws(CourierError) {
            guard Self.isIdentifier(keyID) else { throw .badKeyID }
            guard Self.isIdentifier(teamID) else { throw .badTeamID }
            (self.key, self.keyID, self.teamID) = (key, keyID, teamID)
        }

        private static func isIdentifier(_ text: String) -> Bool {
            text.utf8.count == 10
                && text.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x7a).contains($0 | 0x20) }
        }
    }

    func isSame(as other: APNsApp) throws -> Bool {
        guard topic == other.topic, environments == other.environments else { return false }
        return switch (identity, other.identity) {
        case (.key(let one), .key(let other)):
            one.keyID == other.keyID && one.teamID == other.teamID
                ? try one.key.publicKeyPEM() == other.key.publicKeyPEM() : false
        case (.certificate(let one), .certificate(let other)): one.isSame(as: other)
        default: false
        }
    }

    // MARK: Reading

    /// Goes to Apple in a header, and beside its pushes into the log. What looks like a token or a key is none.
    /// - Parameter source: what names it, for the error.
    static func bundleID(_ text: String, _ source: String) throws -> String {
        let isPlain = text.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"),
                UInt8(ascii: "-"), UInt8(ascii: "."):
                true
            default: false
            }
        }
        let parts = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        let mayBeSecret = parts.contains { $0.count > 63 } || parts.count == 1 && text.utf8.count > 31
        guard isPlain, !mayBeSecret, (1...255).contains(text.utf8.count) else {
            throw UsageError(
                "\(source): this is not a bundle id (\(text.utf8.count) bytes). Use letters, digits, hyphens and dots, at most 255, "
                    + "at most 63 between two dots")
        }
        return text
    }

    /// Apple's .p8 key.
    static func signingKey(_ file: GivenFile) throws -> ES256.PrivateKey {
        warn(file, "the key that signs pushes")
        let text = try file.read(limit: 65_536)
        do throws(TLSError) {
            return try ES256.PrivateKey(pem: text.span)
        } catch {
            throw file.failure(
                "is not an APNs key: \(KeyFault(text.span)). Use an unencrypted EC P-256 private key: Apple's .p8 as downloaded"
            )
        }
    }

    /// A `.p12` file, or PEM with certificates and key.
    static func certificate(_ file: GivenFile, passphrase: GivenFile?) throws -> ClientCertificate {
        warn(file, "the certificate and key that send pushes")
        var bytes = try file.read(limit: 1_048_576)
        defer { wipe(&bytes) }
        var secret = try passphrase?.read(limit: 1_024) ?? []
        defer { wipe(&secret) }
        keepFirstLine(&secret)
        do {
            let isPEM = bytes.starts(with: Array("-----BEGIN".utf8)) || file.path.hasSuffix(".pem")
            let certificate =
                try isPEM
                ? ClientCertificate(pem: bytes.span, key: bytes.span, passphrase: secret.span)
                : ClientCertificate(pkcs12: bytes.span, passphrase: secret.span)
            try certificate.check(nowS: Clock.wallMs / 1_000)
            return certificate
        } catch ClientCertificateError.needsPassphrase {
            throw CommandFailed(
                "\(file.source): \(file): \(ClientCertificateError.needsPassphrase). Write it to a file with mode 0600, and name that file with "
                    + "\(Key.apnsCertificatePassphrase.named) or, in a list of apps, after the certificate in its line"
            )
        } catch {
            throw CommandFailed("\(file.source): \(file): \(error)")
        }
    }

    /// The rest is wiped in its place.
    private static func keepFirstLine(_ text: inout [UInt8]) {
        guard let end = text.firstIndex(of: UInt8(ascii: "\n")) else { return }
        let count = end > 0 && text[end - 1] == UInt8(ascii: "\r") ? end - 1 : end
        for index in text.indices.dropFirst(count) { text[index] = 0 }
        text.removeLast(text.count - count)
    }

    private static func warn(_ file: GivenFile, _ what: String) {
        guard let status = try? File.status(file.path), status.kind == .file, status.mode & 0o077 != 0 else { return }
        Terminal.log("warning: other users can read \(file), \(what). Set its mode to 0600")
    }
}

extension ClientCertificate {
    /// Apple's marks of what a certificate is for, seen in its certificates.
    private static let marks: [(extension: String, environment: PushEnvironment)] = [
        ("1.2.840.113635.100.6.3.1", .sandbox), ("1.2.840.113635.100.6.3.2", .production),
    ]

    /// Where Apple takes pushes by this certificate; elsewhere it answers each with `BadCertificateEnvironment`. Without a mark it is for both.
    var environments: Set<PushEnvironment> {
        let marked = Self.marks.filter { extensions.contains($0.extension) }.map(\.environment)
        return Set(marked.isEmpty ? PushEnvironment.allCases : marked)
    }

    struct LacksEnvironment: Error, CustomStringConvertible {
        let description: String
    }

    /// - Throws: what it is for instead, if it is not for all of `wanted`.
    func check(isFor wanted: Set<PushEnvironment>) throws(LacksEnvironment) {
        guard !wanted.isSubset(of: environments) else { return }
        let only = environments == [.sandbox] ? "the sandbox" : "production"
        throw LacksEnvironment(
            description:
                "the certificate is for \(only) only, and Apple refuses other pushes with it. Use one for both environments")
    }
}
