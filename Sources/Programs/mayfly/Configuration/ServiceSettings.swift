import API
import Broker
import Courier
import Ledger
import Linux
import Policy
import Sealing
import Shares
import Storage
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
    /// The web pages that may call the API from a browser. Without it none may.
    let corsOrigins: AllowedOrigins?
    let origin: String?
    let node: EntryText
    /// How other nodes get the keys. Nil if this node is alone.
    let nodes: NodeSettings?
    let resolution: UInt64
    let policies: Policies
    let witnesses: WitnessSettings?
    let kept: KeptCheckpointSettings
    let users: JWTSettings?
    /// Verifies the JWTs of users. A broker that serves only rooms has none.
    let authenticator: Authenticator?
    /// The secrets of call webhooks. Nil if none are configured.
    let webhooks: WebhookSettings?
    let apns: APNsSettings
    /// Nil if no Web Push is sent.
    let webPush: WebPushSettings?

    init(_ configuration: Configuration, _ activated: ActivatedListeners = .none) throws {
        state = try configuration.state
        self.activated = activated
        wrapping = try WrappingKeySource(configuration)
        try Self.checkKeys(state)

        let listeners = try ListenerSettings(configuration, activated)
        (listen, certificate, operatorListen) = (listeners.listen, listeners.certificate, listeners.operatorListen)
        proxies = try Self.proxies(configuration, listen)
        backEnds = try Self.backEnds(configuration)
        backEndCreations = try configuration.number(.backEndCreations)
        corsOrigins = try Self.corsOrigins(configuration)

        origin = configuration[.origin]
        node = try Self.node(configuration)
        nodes = try NodeSettings(configuration)
        if nodes != nil, !state.database.isServer {
            throw configuration.invalid(
                .nodeListen, "needs a PostgreSQL database, which the nodes share: set \(Setting.database.named)")
        }
        let rules = try PolicySettings(configuration)
        (resolution, policies) = (rules.resolution, rules.policies)
        users = try JWTSettings(configuration)
        webhooks = try WebhookSettings(configuration)
        witnesses = try WitnessSettings(configuration)
        kept = try KeptCheckpointSettings(configuration)
        authenticator = try users?.authenticator()

        apns = try APNsSettings(configuration, mayLackCredentials: true)
        webPush = try WebPushSettings(configuration)
        ProxySettings.warnOfVariables(configuration)
    }

    static func node(_ configuration: Configuration) throws -> EntryText {
        guard let node = EntryText(configuration.value(.node)) else {
            throw configuration.invalid(.node, "must be 1 to 128 visible ASCII characters")
        }
        return node
    }

    static func checkKeys(_ state: StateFolder) throws {
        try state.checkKind()
        try RotationMark.refuse(state)
        guard try File.status(state.ledgerKey) != nil else {
            throw CommandFailed(
                "\(state.shown(state.ledgerKey)) is missing: correct \(Setting.state.named), or make a state folder's keys with `mayfly keys init`"
            )
        }
        // With a server, keys may be in memory only.
        guard try state.database.isServer || File.status(state.ratchetKey) != nil else {
            let source = state.hasRatchetKeyElsewhere ? "\(Setting.ratchetKey.named): " : ""
            throw CommandFailed(
                "\(source)\(state.shown(state.ratchetKey)) is missing, but the log's key exists. Check the path. If the file is lost, "
                    + "`mayfly keys renew` makes another and forgets all tokens. For an empty state folder use `mayfly keys init`"
            )
        }
    }

    /// - Parameter listen: nil if systemd may open any address.
    static func proxies(_ configuration: Configuration, _ listen: SocketAddress?) throws -> TrustedProxies {
        let words = (configuration[.trustedProxies] ?? "").split(separator: ",").map { String($0.filter { $0 != " " }) }
        guard let proxies = TrustedProxies(words) else {
            let fault = TrustedProxies.fault(in: words) ?? "they are not"
            throw configuration.invalid(.trustedProxies, "must be numeric addresses or networks: \(fault)")
        }
        if case .unix? = listen {
            if !words.contains("unix") {
                Terminal.log(
                    .warning,
                    "all callers behind the Unix-domain socket count as one and share its budgets. Set --trusted-proxies unix"
                )
            }
        } else if words.contains("unix"), listen != nil {
            Terminal.log(.warning, "--trusted-proxies unix has no effect: --listen is not a Unix-domain socket")
        }
        return proxies
    }

    static func backEnds(_ configuration: Configuration) throws -> BackEnds {
        let text = configuration[.backEnds] ?? ""
        guard let backEnds = BackEnds(text) else {
            let fault = BackEnds.fault(in: text) ?? "they are not"
            throw configuration.invalid(
                .backEnds, "must be addresses, networks such as 10.0.0.0/8, or certificates: \(fault)")
        }
        guard !backEnds.haveCertificates || configuration[.tlsClientCA] != nil else {
            throw configuration.invalid(
                .backEnds, "names certificates: set \(Setting.tlsClientCA.named) to the authorities that sign them")
        }
        return backEnds
    }

    static func corsOrigins(_ configuration: Configuration) throws -> AllowedOrigins? {
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
