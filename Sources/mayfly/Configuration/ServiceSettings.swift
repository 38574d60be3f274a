import API
import Broker
import Courier
import Linux
import Policy
import Sealing
import Shares
import Sodium
import TLS
import Vocabulary

/// The configuration of `serve`, checked before anything is opened.
struct ServiceSettings {
    let state: StateFolder
    let wrapping: WrappingKeySource?
    let listen: SocketAddress
    let certificate: CertificateFiles?
    let operatorListen: SocketAddress
    let activated: ActivatedListeners
    let proxies: TrustedProxies
    let backEnds: BackEnds
    let backEndCreations: Int
    /// Nil if no web page may call the API.
    let corsOrigins: AllowedOrigins?
    let origin: String?
    let node: String
    let resolution: UInt64
    let policies: Policies
    let witnesses: WitnessSettings?
    let kept: KeptCheckpointSettings
    /// Verifies the JWTs of users. A broker that serves only rooms has none.
    let authenticator: Authenticator?
    /// The secrets of call webhooks. Nil if none are configured.
    let webhooks: WebhookSettings?
    let apns: APNsSettings

    init(_ configuration: Configuration, _ activated: ActivatedListeners = .none) throws {
        state = configuration.state
        self.activated = activated
        wrapping = try WrappingKeySource(configuration)
        try Self.checkKeys(state)

        listen = try activated.apps.address(.listen, default: "127.0.0.1:8787", configuration)
        operatorListen = try activated.operator.address(.operatorListen, default: "127.0.0.1:8788", configuration)
        certificate = try CertificateFiles(configuration)
        if certificate == nil { try Self.checkCleartext(listen, configuration) }
        guard operatorListen.isLoopback else {
            throw configuration.invalid(.operatorListen, "must be on loopback, because it has no authentication")
        }
        proxies = try Self.proxies(configuration, listen)
        backEnds = try Self.backEnds(configuration)
        backEndCreations = try configuration.number(
            .backEndCreations, in: 1...1_000_000, default: ShareTable.defaultBackEndCreations)
        corsOrigins = try Self.corsOrigins(configuration)

        origin = configuration[.origin]
        node = configuration[.node] ?? "node-1"
        resolution = UInt64(try configuration.number(.resolution, in: 1...60, default: 60))
        let users = try JWTSettings(configuration)
        policies = try PolicyCommand.inForce(configuration)
        webhooks = try WebhookSettings(configuration)
        try Self.check(policies, hasUsers: users != nil, hasWebhooks: webhooks != nil, resolution, configuration)
        if let warning = webhooks?.warning { Terminal.log(warning) }
        witnesses = try WitnessSettings(configuration)
        kept = try KeptCheckpointSettings(configuration)
        authenticator = try users?.authenticator()

        apns = try APNsSettings(configuration, mayLackCredentials: true)
        if apns.apps.isEmpty {
            Terminal.log(
                "warning: no APNs credentials: registrations are accepted, but every push fails until mayfly is started with \(APNsSettings.whatToSet)"
            )
        }
    }

    private static func checkKeys(_ state: StateFolder) throws {
        try RotationMark.refuse(state)
        guard File.exists(state.ledgerKey) else {
            throw CommandFailed(
                "\(state.shown(state.ledgerKey)) is missing: make a state folder's keys with `mayfly keys init --state \(state.shown) --origin NAME`"
            )
        }
        guard File.exists(state.ratchetKey) else {
            let source = state.hasRatchetKeyElsewhere ? "\(Key.ratchetKey.named): " : ""
            throw CommandFailed(
                "\(source)\(state.shown(state.ratchetKey)) is missing, but the log's key exists. Check the path. If the file is lost, "
                    + "`mayfly keys renew` makes another and forgets all tokens. For an empty state folder use `mayfly keys init`"
            )
        }
    }

    private static func checkCleartext(_ address: SocketAddress, _ configuration: Configuration) throws {
        guard !address.isLoopback, address.host != configuration[.allowCleartext] else { return }
        throw configuration.invalid(
            .listen,
            "\(address.host) is beyond loopback, and tokens must not travel in cleartext. Give --tls-certificate and --tls-key, "
                + "or terminate TLS in a proxy on this machine, or name the address in --allow-cleartext.")
    }

    private static func proxies(_ configuration: Configuration, _ listen: SocketAddress) throws -> TrustedProxies {
        let hosts = (configuration[.trustedProxies] ?? "").split(separator: ",").map { String($0.filter { $0 != " " }) }
        for (number, host) in hosts.enumerated() where host != "unix" && SocketAddress(numeric: host, port: 0) == nil {
            throw configuration.invalid(
                .trustedProxies, "must be numeric addresses: number \(number + 1) of \(hosts.count) is not one")
        }
        if case .unix = listen {
            if !hosts.contains("unix") {
                Terminal.log(
                    "warning: all callers behind the Unix-domain socket count as one and share its budgets. Set --trusted-proxies unix"
                )
            }
        } else if hosts.contains("unix") {
            Terminal.log("warning: --trusted-proxies unix has no effect: --listen is not a Unix-domain socket")
        }
        return TrustedProxies(hosts: Set(hosts))
    }

    private static func backEnds(_ configuration: Configuration) throws -> BackEnds {
        guard let backEnds = BackEnds(configuration[.backEnds] ?? "") else {
            throw configuration.invalid(.backEnds, "must be addresses, networks such as 10.0.0.0/8, or certificates")
        }
        guard !backEnds.haveCertificates || configuration[.tlsClientCA] != nil else {
            throw configuration.invalid(
                .backEnds, "names certificates: set \(Key.tlsClientCA.named) to the authorities that sign them")
        }
        return backEnds
    }

    private static func corsOrigins(_ configuration: Configuration) throws -> AllowedOrigins? {
        let origins = (configuration[.corsOrigins] ?? "").split(separator: ",").map { String($0.filter { $0 != " " }) }
        for (number, origin) in origins.enumerated() where !AllowedOrigins.isOrigin(origin) {
            throw configuration.invalid(
                .corsOrigins,
                "must be origins as browsers send them: https://HOST or https://HOST:PORT (http:// only for loopback), in lower case, without a path, "
                    + "a final slash or a default port. There is no wildcard. Number \(number + 1) of \(origins.count) is not one"
            )
        }
        return AllowedOrigins(origins)
    }

    /// Refuses policies that contradict the other settings.
    private static func check(
        _ policies: Policies, hasUsers: Bool, hasWebhooks: Bool, _ resolution: UInt64, _ configuration: Configuration
    ) throws {
        guard policies.ledger.hourSeconds.isMultiple(of: resolution) else {
            throw configuration.invalid(
                .resolution,
                "\(resolution) doesn't divide ledger.hourSeconds of the rooms policy, \(policies.ledger.hourSeconds). Batches must begin with a window"
            )
        }
        if !hasUsers, let policy = policies.all.first(where: { $0.kind != .rooms }) {
            throw configuration.invalid(
                .policy,
                "\(policy.name) is for apps with accounts, whose users have JWTs: set --jwt-algorithm and a key")
        }
        let calls = policies.audience(.calls)?.policy
        if !hasWebhooks, let calls {
            throw configuration.invalid(
                .policy,
                "\(calls.name) is for calls, which signed webhooks report: set \(Key.webhookSecrets.named) or \(WebhookSettings.variable)"
            )
        }
        if hasWebhooks, calls == nil {
            Terminal.log(
                "warning: webhook secrets are set, but no policy for calls is in force, so webhooks are refused. Set --jwt-algorithm and a key, and remove --policy or add calls to it"
            )
        }
        let slots = Set(policies.templates.values.map(\.timing.slotMs)).filter { $0 > 0 && resolution * 1_000 % $0 != 0 }
        for slot in slots.sorted() {
            Terminal.log(
                "warning: the log's windows of \(resolution) s cut the send slots of \(slot / 1_000) s. With Apple's records, the log then reveals more about when people knocked. Make --resolution a whole multiple"
            )
        }
    }

    /// Refuses policies with a push type that Apple accepts from none of the accounts. Without accounts all pushes fail anyway.
    static func checkTemplates(_ policies: Policies, _ accounts: Accounts) throws {
        if accounts.all.isEmpty { return }
        for policy in policies.all { try check(policy, accounts) }
    }

    private static func check(_ policy: Policy, _ accounts: Accounts) throws {
        for template in policy.templates.values.sorted(by: { $0.name < $1.name }) {
            guard !accounts.all.contains(where: { $0.takes(template.pushType) }) else { continue }
            throw CommandFailed(
                "the policy \(policy.name) has the push \(template.name) of type \(template.pushType.rawValue), which Apple accepts only with a token signing key, "
                    + "and there are only certificates. Configure a key, or use another policy")
        }
    }
}

/// The TLS files of the public listener. They are read at the start and at each SIGHUP.
struct CertificateFiles: Sendable {
    let certificate: GivenFile
    let key: GivenFile
    let clientCA: GivenFile?

    /// Returns nil if TLS isn't configured.
    init?(_ configuration: Configuration) throws {
        switch (configuration.file(.tlsCertificate), configuration.file(.tlsKey)) {
        case (nil, nil):
            guard configuration[.tlsClientCA] == nil else {
                throw configuration.invalid(
                    .tlsClientCA, "needs --tls-certificate and --tls-key, because only TLS has client certificates")
            }
            return nil
        case (let certificate?, let key?):
            self.certificate = certificate
            self.key = key
            clientCA = configuration.file(.tlsClientCA)
        default: throw UsageError("--tls-certificate and --tls-key need each other: set both or neither")
        }
    }

    /// - Parameter isRenewal: a certificate is in use already, so an expired one is refused.
    /// - Throws: `CommandFailed` with the file's name and the error.
    func load(isRenewal: Bool = false) throws -> TLSContext {
        let chain = try certificate.read(limit: Self.limit)
        let authorities = try clientCA?.read(limit: Self.limit)
        var secret = try key.read(limit: Self.limit)
        defer { wipe(&secret) }
        key.warnIfExposed("the key of the TLS certificate")
        let context = try make(chain, secret)
        if context.hasExpired {
            if isRenewal { throw certificate.failure("has expired") }
            Terminal.log(
                "warning: the certificate in \(certificate) has expired, so apps will refuse it. Renew it and send SIGHUP")
        }
        if let clientCA {
            // The certificate is valid, so any error now is about the authorities.
            return try CommandFailed.naming("\(clientCA.source): \(clientCA)") {
                try TLSContext.server(
                    certificateChain: chain, privateKey: secret.span, alpn: Self.protocols, clientAuthorities: authorities)
            }
        }
        return context
    }

    private static let protocols = ["h2", "http/1.1"]
    private static let limit = 1_048_576

    private func make(_ chain: [UInt8], _ secret: [UInt8]) throws -> TLSContext {
        do throws(TLSError) {
            return try TLSContext.server(certificateChain: chain, privateKey: secret.span, alpn: Self.protocols)
        } catch {
            let file =
                switch error {
                case .badKey: "\(key.source): \(key)"
                case .keyMismatch: "\(key.source): \(key) and \(certificate)"
                default: "\(certificate.source): \(certificate)"
                }
            throw CommandFailed("\(file): \(error)")
        }
    }
}

/// The secrets that sign call webhooks: from a file, the environment, or both.
struct WebhookSettings {
    /// A variable with the secret itself, named as in other servers. There is no flag, because all users can read command lines.
    static let variable = "COMETCHAT_WEBHOOK_SECRET"

    let secrets: WebhookSecrets
    private let file: GivenFile?

    /// Returns whether any are configured. Reads no file.
    static func areGiven(_ configuration: Configuration) -> Bool {
        configuration[.webhookSecrets] != nil || Environment.has(variable)
    }

    /// Reads the secrets and removes the variable from the environment. Returns nil if none are configured.
    init?(_ configuration: Configuration) throws {
        let own = try CommandFailed.naming(Self.variable) {
            try Environment.take(Self.variable) { bytes throws(WebhookSecretsError) in try WebhookSecrets.secret(bytes) }
        }
        file = configuration.file(.webhookSecrets)
        guard own != nil || file != nil else { return nil }
        do throws(WebhookSecretsError) {
            secrets = try WebhookSecrets(own: own, path: file?.path)
        } catch { throw Self.failure(file, error) }
    }

    func reload() throws {
        do throws(WebhookSecretsError) {
            try secrets.reload()
        } catch { throw Self.failure(file, error) }
    }

    /// A warning for the log about accepted secrets that are too short to be safe. Nil if there are none.
    var warning: String? {
        guard secrets.guessable > 0 else { return nil }
        return "warning: \(secrets.guessable) of \(secrets.count) webhook secrets "
            + "\(secrets.guessable == 1 ? "has" : "have") fewer than \(WebhookSecrets.safe) bytes. Whoever sees one webhook can guess the secret and ring phones. Make one with `openssl rand -hex 32`"
    }

    private static func failure(_ file: GivenFile?, _ error: WebhookSecretsError) -> CommandFailed {
        file?.failure("\(error)") ?? CommandFailed("\(variable): \(error)")
    }
}
