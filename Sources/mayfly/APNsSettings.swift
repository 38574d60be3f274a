import Courier
import Linux
import Sealing
import TLS

/// Who pushes to which apps, and where: what `serve` and the `apns` commands have in common.
struct APNsSettings {
    static let keys: [Key] = [
        .apnsKeyPath, .apnsKeyID, .apnsTeamID, .apnsBundleID, .apnsCertificate, .apnsCertificatePassphrase, .apnsApps,
        .apnsEnvironment,
        .apnsProduction, .apnsEndpoint, .apnsPort, .apnsCA,
    ]

    static let whatToSet = "APNS_TEAM_ID, APNS_KEY_ID and APNS_KEY_PATH, or a certificate or list of apps"

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

    enum Identity {
        case key(TeamKey)
        case certificate(ClientCertificate)
    }

    /// One of the apps that are pushed to.
    struct App {
        let topic: String
        let environments: Set<Push.Environment>
        let identity: Identity
    }

    /// None where there are no credentials.
    let apps: [App]
    /// The bundle id of the app that is meant where nobody names another: of a list the first, unless the settings name one of it.
    let topic: String
    /// Each of them says in which environments it is to be pushed to.
    let isList: Bool
    let environment: PushEnvironment
    let endpoint: Endpoint?
    /// Of Apple's own hosts.
    let port: UInt16
    let trust: TLSContext.Trust
    /// Reads the same files as they are then. The app that is meant stays that of the start. Holds no key.
    let readAgain: @Sendable () throws -> APNsSettings

    /// - Parameter mayLackCredentials: none at all are taken, too; half of them never.
    init(_ configuration: Configuration, mayLackCredentials: Bool = false) throws {
        environment = try Self.environment(configuration)
        if mayLackCredentials, Self.credentials.allSatisfy({ configuration[$0] == nil }) {
            apps = []
            topic = try Self.topicAlone(configuration)
        } else {
            let apps = try Self.apps(configuration)
            let topic = configuration[.apnsBundleID] ?? apps[0].topic
            guard apps.contains(where: { $0.topic == topic }) else {
                throw CheckFailed(
                    "mayfly: the list of apps has no line for the default app: \(Key.apnsBundleID.named), or the first line at the start"
                )
            }
            (self.apps, self.topic) = (apps, topic)
        }
        isList = configuration[.apnsApps] != nil
        endpoint = try configuration[.apnsEndpoint].map { try Self.endpoint($0) }
        port = try Self.port(configuration)
        trust = try configuration.file(.apnsCA).map { .authorities(try $0.read(limit: 1_048_576)) } ?? .system
        var same = configuration
        same.setDefault(.apnsBundleID, topic)
        readAgain = { [same] in try APNsSettings(same) }
    }

    private static let credentials: [Key] = [
        .apnsKeyPath, .apnsKeyID, .apnsTeamID, .apnsCertificate, .apnsCertificatePassphrase, .apnsApps,
    ]

    private static func topicAlone(_ configuration: Configuration) throws -> String {
        guard let topic = configuration[.apnsBundleID] else {
            throw UsageError(
                "\(Key.apnsBundleID.named) is missing: the app's bundle id. Registrations need it even if there is no key for APNs"
            )
        }
        return try bundleID(topic, Key.apnsBundleID.named)
    }

    private static func apps(_ configuration: Configuration) throws -> [App] {
        let alone: [Key] = [.apnsKeyPath, .apnsKeyID, .apnsTeamID, .apnsBundleID, .apnsCertificate, .apnsCertificatePassphrase]
        if let list = configuration.file(.apnsApps) {
            if let other = alone.first(where: { $0 != .apnsBundleID && configuration[$0] != nil }) {
                throw UsageError("--apns-apps already names keys and apps: remove --\(other.rawValue) (\(other.environment))")
            }
            return try AppList.read(list)
        }
        let topic = try bundleID(try configuration.required(.apnsBundleID), Key.apnsBundleID.named)
        let environments = Set(Push.Environment.allCases)
        guard let file = configuration.file(.apnsCertificate) else {
            return [App(topic: topic, environments: environments, identity: .key(try teamKey(configuration)))]
        }
        if let other = alone.prefix(3).first(where: { configuration[$0] != nil }) {
            throw UsageError("--apns-certificate replaces a key: remove --\(other.rawValue) (\(other.environment))")
        }
        let certificate = try certificate(file, passphrase: configuration.file(.apnsCertificatePassphrase))
        // A registration that names the other environment is refused; what it is when none is named must be one of the certificate's.
        let meant: Push.Environment = try environment(configuration) == .sandbox ? .sandbox : .production
        do throws(CertificateEnvironments.Lacking) {
            try CertificateEnvironments.check(certificate, [meant])
        } catch { throw CheckFailed("mayfly: \(file.source): \(file): \(error), or set \(Key.apnsEnvironment.named)") }
        return [App(topic: topic, environments: CertificateEnvironments.of(certificate), identity: .certificate(certificate))]
    }

    /// The key of the flags for one.
    static func teamKey(_ configuration: Configuration) throws -> TeamKey {
        let key = try signingKey(try configuration.requiredFile(.apnsKeyPath))
        let (keyID, teamID) = (try configuration.required(.apnsKeyID), try configuration.required(.apnsTeamID))
        do throws(CourierError) {
            return try TeamKey(key: key, keyID: keyID, teamID: teamID)
        } catch { throw CheckFailed("mayfly: \(named(error))") }
    }

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
            throw CheckFailed(
                "mayfly: \(file.source): \(file): \(ClientCertificateError.needsPassphrase). Write it to a file with mode 0600, and name that file with "
                    + "\(Key.apnsCertificatePassphrase.named) or, in a list of apps, after the certificate in its line"
            )
        } catch {
            throw CheckFailed("mayfly: \(file.source): \(file): \(error)")
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

    // MARK: The courier's

    /// Whether pushes by `other` would go to the same places in the same way.
    func isSame(as other: APNsSettings) throws -> Bool {
        guard topic == other.topic, apps.count == other.apps.count, try apps.elementsEqual(other.apps, by: Self.isSame) else {
            return false
        }
        return switch (trust, other.trust) {
        case (.system, .system): true
        case (.authorities(let one), .authorities(let other)): one == other
        default: false
        }
    }

    private static func isSame(_ one: App, _ other: App) throws -> Bool {
        guard one.topic == other.topic, one.environments == other.environments else { return false }
        return switch (one.identity, other.identity) {
        case (.key(let one), .key(let other)):
            one.keyID == other.keyID && one.teamID == other.teamID
                ? try one.key.publicKeyPEM() == other.key.publicKeyPEM() : false
        case (.certificate(let one), .certificate(let other)): one.isSame(as: other)
        default: false
        }
    }

    /// Where a request that names no environment goes.
    var configured: Push.Environment { environment == .sandbox ? .sandbox : .production }

    /// What Apple is asked about these settings: each app in each of its environments.
    var probes: [Probe] {
        apps.flatMap { app in
            Push.Environment.allCases.compactMap { environment -> Probe? in
                guard app.environments.contains(environment) else { return nil }
                // Somewhere else than Apple there is one environment only.
                if endpoint != nil, environment != configured, app.environments.contains(configured) { return nil }
                return Probe(topic: app.topic, environment: environment, isRequired: isList || environment == configured)
            }
        }
    }

    private struct Group: Hashable {
        let name: String
        let environments: Set<Push.Environment>
    }

    /// The courier's accounts. Apps that one key is for, in the same environments, share one, and so its connections.
    func accounts(_ marks: ProviderTokenMark) throws -> [Account] {
        var groups: [(identity: Identity, environments: Set<Push.Environment>, topics: Set<String>)] = []
        var known: [Group: Int] = [:]
        for app in apps {
            let name =
                if case .key(let key) = app.identity { key.teamID + "." + key.keyID } else { "certificate of " + app.topic }
            let group = Group(name: name, environments: app.environments)
            if let index = known[group] {
                groups[index].topics.insert(app.topic)
            } else {
                known[group] = groups.count
                groups.append((app.identity, app.environments, [app.topic]))
            }
        }
        var accounts: [Account] = []
        for group in groups {
            do throws(CourierError) {
                let credential: Credential =
                    switch group.identity {
                    case .key(let key): .token(try marks.token(key))
                    case .certificate(let certificate): .certificate(certificate)
                    }
                accounts.append(try Account(credential, topics: group.topics, environments: group.environments))
            } catch { throw CheckFailed("mayfly: \(Self.named(error))") }
        }
        return accounts
    }

    /// The error with the setting that it is about, and without what stands there: of one word it could be a secret.
    private static func named(_ error: CourierError) -> String {
        switch error {
        case .badKeyID: "\(Key.apnsKeyID.named): \(error)"
        case .badTeamID: "\(Key.apnsTeamID.named): \(error)"
        case .notInCertificate(let topic, let listed) where !topic.contains("."):
            "\(Key.apnsBundleID.named): the certificate is not for the topic given, but for \(listed.joined(separator: ", "))"
        case .notInCertificate, .noTopics: "\(error)"
        }
    }

    func courier(_ accounts: [Account], onAlarm: @escaping @Sendable (Alarm) -> Void) -> Courier.Configuration {
        var configuration = Courier.Configuration(accounts: accounts, onAlarm: onAlarm)
        configuration.trust = trust
        configuration.production.port = port
        configuration.sandbox.port = port
        if let endpoint {
            configuration.production = endpoint
            configuration.sandbox = endpoint
        }
        return configuration
    }

    private static func environment(_ configuration: Configuration) throws -> PushEnvironment {
        switch (configuration[.apnsEnvironment], configuration[.apnsProduction]) {
        case ("production", _), (nil, nil), (nil, "true"), (nil, "1"): return .production
        case ("sandbox", _), ("development", _), (nil, "false"), (nil, "0"): return .sandbox
        case (nil, _): throw UsageError("--apns-production must be true or false")
        default: throw UsageError("--apns-environment must be production, sandbox or development")
        }
    }

    private static func port(_ configuration: Configuration) throws -> UInt16 {
        guard let text = configuration[.apnsPort] else { return Endpoint.production.port }
        if configuration[.apnsEndpoint] != nil {
            throw UsageError("--apns-endpoint contains a port: remove --apns-port (\(Key.apnsPort.environment))")
        }
        guard let port = Endpoint.ports.first(where: { String($0) == text }) else {
            throw UsageError("--apns-port must be 443 or 2197, Apple's ports")
        }
        return port
    }

    private static func endpoint(_ text: String) throws -> Endpoint {
        if let address = SocketAddress(parsing: text), let port = address.port { return Endpoint(host: address.host, port: port) }
        let parts = text.split(separator: ":")
        // A name goes to the system's resolver, and into the log where it has none.
        let isName = text.utf8.allSatisfy {
            (0x30...0x3a).contains($0) || (0x61...0x7a).contains($0 | 0x20) || $0 == 0x2d || $0 == 0x2e
        }
        guard parts.count == 2, isName, parts[0].split(separator: ".").allSatisfy({ $0.utf8.count <= 63 }),
            let port = UInt16(parts[1]), port > 0
        else { throw UsageError("\(Key.apnsEndpoint.named) must be HOST:PORT") }
        return Endpoint(host: String(parts[0]), port: port)
    }
}
