import Broker
import Courier
import Linux
import Sealing
import Storage
import Synchronization
import TLS
import Vocabulary

/// The APNs configuration of `serve` and the `apns` commands: credentials, apps and endpoints.
struct APNsSettings {
    static let keys: [Setting] = [
        .apnsKeyPath, .apnsKeyID, .apnsTeamID, .apnsBundleID, .apnsCertificate, .apnsCertificatePassphrase, .apnsApps,
        .apnsEnvironment,
        .apnsProduction, .apnsEndpoint, .apnsPort, .apnsCA, .apnsProxy, .apnsProxyPassword,
    ]

    static let whatToSet = "APNS_TEAM_ID, APNS_KEY_ID and APNS_KEY_PATH, or a certificate or list of apps"

    /// Empty if no credentials are configured.
    let apps: [APNsApp]
    /// The bundle id of the default app. For a list this is the first app, unless the settings name another one.
    let topic: String
    /// True if the apps come from a list, which names the environments of each app.
    let isList: Bool
    /// The default environment.
    let environment: PushEnvironment
    let endpoint: Endpoint?
    /// The port of Apple's hosts.
    let port: UInt16
    let trust: TLSContext.Trust
    /// The proxy on the way to both environments.
    let proxy: Proxy?
    /// Reads the same files again. The default app stays that of the start. Captures no key.
    let readAgain: @Sendable () throws -> APNsSettings

    /// - Parameter mayLackCredentials: accepts missing credentials. A partial configuration is always an error.
    init(_ configuration: Configuration, mayLackCredentials: Bool = false) throws {
        environment = try Self.environment(configuration)
        if mayLackCredentials, Self.credentials.allSatisfy({ configuration[$0] == nil }) {
            apps = []
            topic = try Self.topicAlone(configuration)
            Terminal.log(
                .warning,
                "no APNs credentials: registrations are accepted, but every push to Apple fails until mayfly is started with \(Self.whatToSet)"
            )
        } else {
            let apps = try Self.apps(configuration)
            let topic = configuration[.apnsBundleID] ?? apps[0].topic
            guard apps.contains(where: { $0.topic == topic }) else {
                let hint = Spelling.hint(topic, apps.map(\.topic))
                throw UsageError(
                    "the list of apps has no line for the default app: \(Setting.apnsBundleID.named), or the first line at the start\(hint)"
                )
            }
            (self.apps, self.topic) = (apps, topic)
        }
        isList = configuration[.apnsApps] != nil
        endpoint = try configuration[.apnsEndpoint].map { text in
            guard let endpoint = Self.endpoint(text) else { throw configuration.invalid(.apnsEndpoint, "must be HOST:PORT") }
            return endpoint
        }
        proxy = try ProxySettings.read(configuration)
        port = try Self.port(configuration)
        trust = try configuration.file(.apnsCA).map(Self.authorities) ?? .system
        var same = configuration
        same.setDefault(.apnsBundleID, topic)
        readAgain = { [same] in try APNsSettings(same) }
    }

    private static func authorities(_ file: GivenFile) throws -> TLSContext.Trust {
        let trust = TLSContext.Trust.authorities(try file.read(limit: 1_048_576))
        _ = try CommandFailed.naming("\(file.source): \(file)") { try TLSContext.client(trust: trust, alpn: []) }
        return trust
    }

    private static let credentials: [Setting] = [
        .apnsKeyPath, .apnsKeyID, .apnsTeamID, .apnsCertificate, .apnsCertificatePassphrase, .apnsApps,
    ]

    private static func topicAlone(_ configuration: Configuration) throws -> String {
        guard let topic = configuration[.apnsBundleID] else {
            throw UsageError(
                "\(Setting.apnsBundleID.named) is missing: the app's bundle id. Registrations need it even if there is no key for APNs"
            )
        }
        return try APNsApp.bundleID(topic, Setting.apnsBundleID.named)
    }

    private static func apps(_ configuration: Configuration) throws -> [APNsApp] {
        let alone: [Setting] = [
            .apnsKeyPath, .apnsKeyID, .apnsTeamID, .apnsBundleID, .apnsCertificate, .apnsCertificatePassphrase,
        ]
        if let list = try configuration.file(.apnsApps) {
            if let other = alone.first(where: { $0 != .apnsBundleID && configuration[$0] != nil }) {
                throw configuration.invalid(.apnsApps, "already names keys and apps: remove \(other.named)")
            }
            return try AppList.read(list)
        }
        let topic = try APNsApp.bundleID(try configuration.required(.apnsBundleID), Setting.apnsBundleID.named)
        let environments = Set(PushEnvironment.allCases)
        guard let file = try configuration.file(.apnsCertificate) else {
            return [APNsApp(topic: topic, environments: environments, identity: .key(try teamKey(configuration)))]
        }
        if let other = alone.prefix(3).first(where: { configuration[$0] != nil }) {
            throw configuration.invalid(.apnsCertificate, "replaces a key: remove \(other.named)")
        }
        let certificate = try APNsApp.certificate(file, passphrase: try configuration.file(.apnsCertificatePassphrase))
        // A registration for the other environment is refused later, but the default must work with the certificate.
        let standard = try environment(configuration)
        do throws(ClientCertificate.LacksEnvironment) {
            try certificate.check(isFor: [standard])
        } catch { throw CommandFailed("\(file.source): \(file): \(error), or set \(Setting.apnsEnvironment.named)") }
        return [APNsApp(topic: topic, environments: certificate.environments, identity: .certificate(certificate))]
    }

    /// Reads the key that the flags for a single key name.
    static func teamKey(_ configuration: Configuration) throws -> APNsApp.TeamKey {
        let key = try APNsApp.signingKey(try configuration.requiredFile(.apnsKeyPath))
        let (keyID, teamID) = (try configuration.required(.apnsKeyID), try configuration.required(.apnsTeamID))
        do throws(CourierError) {
            return try APNsApp.TeamKey(key: key, keyID: keyID, teamID: teamID)
        } catch { throw UsageError(named(error)) }
    }

    /// Returns whether `other` has the same apps, credentials, trusted authorities and proxy.
    func isSame(as other: APNsSettings) throws -> Bool {
        guard topic == other.topic, proxy == other.proxy, try apps.elementsEqual(other.apps, by: { try $0.isSame(as: $1) }) else {
            return false
        }
        return switch (trust, other.trust) {
        case (.system, .system): true
        case (.authorities(let one), .authorities(let other)): one == other
        default: false
        }
    }

    /// The requests that check these settings with Apple: one per app and environment.
    var probes: [Probe] {
        apps.flatMap { app in
            PushEnvironment.allCases.compactMap { environment -> Probe? in
                guard app.environments.contains(environment) else { return nil }
                // A configured endpoint serves only one environment.
                if endpoint != nil, environment != self.environment, app.environments.contains(self.environment) { return nil }
                return Probe(topic: app.topic, environment: environment, isRequired: isList || environment == self.environment)
            }
        }
    }

    private struct Group: Hashable {
        let name: String
        let environments: Set<PushEnvironment>
    }

    /// The courier's accounts. Apps with the same key and environments share an account and its connections.
    func accounts(_ marks: ProviderTokenMark) throws -> [Account] {
        var groups: [(identity: APNsApp.Identity, environments: Set<PushEnvironment>, topics: Set<String>)] = []
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
            } catch { throw CommandFailed("\(Self.named(error))") }
        }
        return accounts
    }

    /// Returns the error with the name of its setting, without the value: a single word could be a secret.
    private static func named(_ error: CourierError) -> String {
        switch error {
        case .badKeyID: "\(Setting.apnsKeyID.named): \(error)"
        case .badTeamID: "\(Setting.apnsTeamID.named): \(error)"
        case .notInCertificate(let topic, let listed) where !topic.contains("."):
            "\(Setting.apnsBundleID.named): the certificate is not for the topic given, but for \(listed.joined(separator: ", "))"
        case .notInCertificate, .noTopics: "\(error)"
        }
    }

    func courier(_ accounts: [Account], onAlarm: @escaping @Sendable (Alarm) -> Void) -> Courier.Configuration {
        var configuration = Courier.Configuration(accounts: accounts, onAlarm: onAlarm)
        configuration.apps = [topic]
        configuration.trust = trust
        configuration.proxy = proxy
        configuration.production.port = port
        configuration.sandbox.port = port
        if let endpoint {
            configuration.production = endpoint
            configuration.sandbox = endpoint
        }
        return configuration
    }

    private static func environment(_ configuration: Configuration) throws -> PushEnvironment {
        let production = configuration[.apnsProduction]
        switch (production == nil ? configuration.value(.apnsEnvironment) : configuration[.apnsEnvironment], production) {
        case ("production", _), (nil, "true"), (nil, "1"): return .production
        case ("sandbox", _), ("development", _), (nil, "false"), (nil, "0"): return .sandbox
        case (nil, _): throw configuration.invalid(.apnsProduction, "must be true or false")
        default: throw configuration.invalid(.apnsEnvironment, "must be production, sandbox or development")
        }
    }

    private static func port(_ configuration: Configuration) throws -> UInt16 {
        let text = configuration.value(.apnsPort)
        if configuration[.apnsPort] != nil, configuration[.apnsEndpoint] != nil {
            throw configuration.invalid(.apnsEndpoint, "contains a port: remove \(Setting.apnsPort.named)")
        }
        guard let port = Endpoint.ports.first(where: { String($0) == text }) else {
            throw configuration.invalid(.apnsPort, "must be 443 or 2197, Apple's ports")
        }
        return port
    }

    /// Reads HOST:PORT. Returns nil for other text.
    static func endpoint(_ text: String) -> Endpoint? {
        if let address = SocketAddress(parsing: text), let port = address.port { return Endpoint(host: address.host, port: port) }
        let parts = text.split(separator: ":")
        // The host goes to the system's resolver, and into the log if that finds no address.
        let isName = text.utf8.allSatisfy {
            (0x30...0x3a).contains($0) || (0x61...0x7a).contains($0 | 0x20) || $0 == 0x2d || $0 == 0x2e
        }
        guard parts.count == 2, isName, parts[0].split(separator: ".").allSatisfy({ $0.utf8.count <= 63 }),
            let port = UInt16(parts[1]), port > 0
        else { return nil }
        return Endpoint(host: String(parts[0]), port: port)
    }
}

/// The issue times of each key's last provider token, kept across restarts: Apple allows a new token only every twenty minutes.
///
/// Only times are stored. With a token itself, a thief of the database could push.
actor ProviderTokenMark {
    private static let name = "apns.issued"

    /// Nil if issue times are not stored.
    private let store: (any Store)?
    /// Unix seconds, by key.
    private nonisolated let issueTimes: Mutex<[String: UInt64]>

    init(_ store: any Store) async throws {
        self.store = store
        issueTimes = Mutex(try await store.mark(Self.name).map { Self.decode($0) } ?? [:])
    }

    /// Reads what a broker on this state folder stored. With the same issue times, a command makes the same tokens.
    init(reading state: StateFolder) {
        store = nil
        guard (try? state.database.exists()) == true, let snapshot = try? StoreSnapshot(state.database) else {
            issueTimes = Mutex([:])
            return
        }
        issueTimes = Mutex(((try? snapshot.mark(Self.name)) ?? nil).map { Self.decode($0) } ?? [:])
    }

    /// Returns the key's provider token with its last issue time. Later issue times are stored.
    nonisolated func token(_ key: APNsApp.TeamKey) throws(CourierError) -> ProviderToken {
        let name = Self.name(key)
        let issued = issueTimes.withLock { $0[name] }
        return try ProviderToken(keyID: key.keyID, teamID: key.teamID, key: key.key, issuedAtS: issued) { [self] issuedAt in
            await note(name, issuedAt)
        }
    }

    /// In clear, the team's id would name the developer to a thief of the database.
    private static func name(_ key: APNsApp.TeamKey) -> String {
        String(Digest.sha256(Array((key.teamID + "." + key.keyID).utf8).span).hex.prefix(32))
    }

    /// All issue times are in one row, which is replaced as a whole. Writes reach the store in the order of the calls.
    private func note(_ name: String, _ issuedAt: UInt64) async {
        let all = issueTimes.withLock { times in
            times[name] = issuedAt
            return times
        }
        try? await store?.setMark(Self.name, Self.encode(all))
    }

    /// One line per key: `NAME SECONDS`.
    private static func encode(_ times: [String: UInt64]) -> [UInt8] {
        Array(times.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)\n" }.joined().utf8)
    }

    /// Ignores malformed lines. Then a new token is made.
    private static func decode(_ bytes: [UInt8]) -> [String: UInt64] {
        var times: [String: UInt64] = [:]
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
            let words = line.split(separator: " ")
            if words.count == 2, let seconds = UInt64(words[1]) { times[String(words[0])] = seconds }
        }
        return times
    }
}
