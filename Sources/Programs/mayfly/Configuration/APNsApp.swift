import Courier
import Linux
import TLS
import Vocabulary

/// An app that receives pushes, and its credential at Apple.
struct APNsApp {
    let topic: String
    let environments: Set<PushEnvironment>
    let identity: Identity

    enum Identity {
        case key(TeamKey)
        case certificate(ClientCertificate)
    }

    /// A team's signing key, which works for all its apps.
    struct TeamKey {
        let key: ES256.PrivateKey
        let keyID: String
        let teamID: String

        /// - Throws: `CourierError` if an id isn't ten letters and digits.
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

    /// Checks a bundle id. It appears in headers and in the log, so text that looks like a token or a key is refused.
    /// - Parameter source: the name of the setting or line, for the error.
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

    /// Reads Apple's .p8 key.
    static func signingKey(_ file: GivenFile) throws -> ES256.PrivateKey {
        file.warnIfExposed("the key that signs pushes")
        let text = try file.read(limit: 65_536)
        do throws(TLSError) {
            return try ES256.PrivateKey(pem: text.span)
        } catch {
            throw file.failure(
                "is not an APNs key: \(KeyFault(text.span)). Use an unencrypted EC P-256 private key: Apple's .p8 as downloaded"
            )
        }
    }

    /// Reads a `.p12` file, or PEM with certificates and key.
    static func certificate(_ file: GivenFile, passphrase: GivenFile?) throws -> ClientCertificate {
        file.warnIfExposed("the certificate and key that send pushes")
        var bytes = try file.read(limit: 1_048_576)
        defer { wipe(&bytes) }
        var secret = try passphrase?.firstLine(limit: 1_024) ?? []
        defer { wipe(&secret) }
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
                    + "\(Setting.apnsCertificatePassphrase.named) or, in a list of apps, after the certificate in its line"
            )
        } catch {
            throw CommandFailed("\(file.source): \(file): \(error)")
        }
    }
}

extension ClientCertificate {
    /// Extensions that mark a certificate's environment, as seen in Apple's certificates.
    private static let marks: [(extension: String, environment: PushEnvironment)] = [
        ("1.2.840.113635.100.6.3.1", .sandbox), ("1.2.840.113635.100.6.3.2", .production),
    ]

    /// The environments in which Apple accepts this certificate; elsewhere it answers `BadCertificateEnvironment`. Both if there is no mark.
    var environments: Set<PushEnvironment> {
        let marked = Self.marks.filter { extensions.contains($0.extension) }.map(\.environment)
        return Set(marked.isEmpty ? PushEnvironment.allCases : marked)
    }

    struct LacksEnvironment: Error, CustomStringConvertible {
        let description: String
    }

    /// - Throws: `LacksEnvironment` if the certificate isn't for all of `wanted`.
    func check(isFor wanted: Set<PushEnvironment>) throws(LacksEnvironment) {
        guard !wanted.isSubset(of: environments) else { return }
        let only = environments == [.sandbox] ? "the sandbox" : "production"
        throw LacksEnvironment(
            description:
                "the certificate is for \(only) only, and Apple refuses other pushes with it. Use one for both environments")
    }
}

/// Reads the file of `--apns-apps`: one app per line. The first one is the default.
///
/// ```
/// # bundle id           environments         by
/// org.example.app       production,sandbox   key AuthKey_ABC123DEFG.p8 ABC123DEFG DEF123GHIJ
/// org.example.other     production           certificate other.p12 passphrase.txt
/// ```
/// File names are relative to the list's folder. A certificate's passphrase file is optional.
enum AppList {
    static func read(_ list: GivenFile) throws -> [APNsApp] {
        let text = try list.read(limit: 1_048_576)
        guard let text = String(validating: text, as: UTF8.self) else { throw list.failure("is not UTF-8 text") }
        var apps: [APNsApp] = []
        var keys: [String: (path: String, key: APNsApp.TeamKey)] = [:]
        var listed: [String: Set<PushEnvironment>] = [:]
        for (number, line) in text.split(omittingEmptySubsequences: false, whereSeparator: { $0 == "\n" || $0 == "\r\n" })
            .enumerated()
        {
            let words = line.split(whereSeparator: { $0 == " " || $0 == "\t" || $0 == "\r" }).map(String.init)
            guard let first = words.first, !first.hasPrefix("#") else { continue }
            do {
                let app = try app(words, "\(list), line \(number + 1)", folder: File.folder(of: list.path), &keys)
                guard app.environments.isDisjoint(with: listed[app.topic, default: []]) else {
                    throw UsageError("this app and environment already have a line")
                }
                listed[app.topic, default: []].formUnion(app.environments)
                apps.append(app)
            } catch let error as UsageError {
                throw CommandFailed("\(list), line \(number + 1): \(error)")
            }
        }
        guard !apps.isEmpty else {
            throw list.failure("names no app. A line is BUNDLE-ID ENVIRONMENTS key|certificate FILE …")
        }
        return apps
    }

    private static func app(
        _ words: [String], _ place: String, folder: String, _ keys: inout [String: (path: String, key: APNsApp.TeamKey)]
    ) throws -> APNsApp {
        guard words.count >= 4 else {
            throw UsageError("a line is BUNDLE-ID ENVIRONMENTS key FILE KEY-ID TEAM-ID, or … certificate FILE [PASSPHRASE-FILE]")
        }
        let file = GivenFile(words[3], place, in: folder)
        try file.refuseRootsCopy()
        let environments = try environments(words[1])
        let identity: APNsApp.Identity
        switch (words[2], words.count) {
        case ("key", 6):
            // Apps that share a key also share its provider token, since Apple limits how often a token may change.
            let name = words[5] + "." + words[4]
            if let known = keys[name], known.path == file.path {
                identity = .key(known.key)
                break
            }
            let key: APNsApp.TeamKey
            let signing = try APNsApp.signingKey(file)
            do throws(CourierError) {
                key = try APNsApp.TeamKey(key: signing, keyID: words[4], teamID: words[5])
            } catch { throw UsageError("\(error)") }
            if let known = keys[name], try known.key.key.publicKeyPEM() != key.key.publicKeyPEM() {
                throw UsageError("this key id and team have a different key in a line above")
            }
            keys[name] = (file.path, key)
            identity = .key(key)
        case ("certificate", 4), ("certificate", 5):
            let passphrase = words.dropFirst(4).first.map {
                GivenFile($0, "\(place), the passphrase's file", in: folder, isSecret: true)
            }
            let certificate = try APNsApp.certificate(file, passphrase: passphrase)
            do throws(ClientCertificate.LacksEnvironment) {
                try certificate.check(isFor: environments)
            } catch { throw UsageError("\(file): \(error)") }
            identity = .certificate(certificate)
        default:
            throw UsageError(
                "the environments must be followed by key FILE KEY-ID TEAM-ID, or by certificate FILE [PASSPHRASE-FILE]")
        }
        return APNsApp(
            topic: try APNsApp.bundleID(words[0], "the first word"), environments: environments, identity: identity)
    }

    private static func environments(_ text: String) throws -> Set<PushEnvironment> {
        let names = text.split(separator: ",", omittingEmptySubsequences: false)
        return try Set(
            names.map { name in
                switch name {
                case "production": .production
                case "sandbox", "development": .sandbox
                default: throw UsageError("environments must be production, sandbox, or both separated by a comma")
                }
            })
    }
}
