/// Every setting of Mayfly, as a flag (`--listen`) or in the environment (`MAYFLY_LISTEN`). A flag wins.
///
/// A setting is a case and its row here. `ServiceSettings` reads it, and `StartChecks` has its line in `mayfly check`.
/// `mayfly COMMAND --help` prints the rows. `packaging/generate` makes man pages, completions, `mayfly.env` and the settings of `docs/reference.md`
/// from this help.
enum Setting: String, CaseIterable {
    case listen
    case tlsCertificate = "tls-certificate"
    case tlsKey = "tls-key"
    case tlsClientCA = "tls-client-ca"
    case operatorListen = "operator-listen"
    case allowCleartext = "allow-cleartext"
    case trustedProxies = "trusted-proxies"
    case backEnds = "backends"
    case backEndCreations = "backend-creations"
    case corsOrigins = "cors-origins"
    case state
    case database
    case ratchetKey = "ratchet-key"
    case wrappingKey = "wrapping-key"
    case origin
    case resolution
    case policy
    case witnessPolicy = "witness-policy"
    case witnessFailure = "witness-failure"
    case ledgerMirror = "ledger-mirror"
    case notBefore = "not-before"
    case node
    case nodeListen = "node-listen"
    case nodeCertificate = "node-certificate"
    case nodeCA = "node-ca"
    case jwtAlgorithm = "jwt-algorithm"
    case jwtKey = "jwt-key"
    case jwtJWKS = "jwt-jwks"
    case jwtIssuer = "jwt-issuer"
    case jwtAudience = "jwt-audience"
    case jwtUserClaim = "jwt-user-claim"
    case webhookSecrets = "webhook-secrets"
    case apnsBundleID = "apns-bundle-id"
    case apnsKeyPath = "apns-key-path"
    case apnsKeyID = "apns-key-id"
    case apnsTeamID = "apns-team-id"
    case apnsCertificate = "apns-certificate"
    case apnsCertificatePassphrase = "apns-certificate-passphrase"
    case apnsApps = "apns-apps"
    case apnsEnvironment = "apns-environment"
    case apnsProduction = "apns-production"
    case apnsEndpoint = "apns-endpoint"
    case apnsPort = "apns-port"
    case apnsCA = "apns-ca"
    case apnsProxy = "apns-proxy"
    case apnsProxyPassword = "apns-proxy-password"
    case vapidKey = "vapid-key"
    case vapidPreviousKey = "vapid-previous-key"
    case vapidContact = "vapid-contact"
    case webOrigin = "web-origin"
    case webPushHosts = "web-push-hosts"
    case logFormat = "log-format"
    case logLevel = "log-level"
    case apnsSimulatorListen = "apns-simulator-listen"
    case apnsSimulatorControl = "apns-simulator-control"
    case apnsSimulatorCertificate = "apns-simulator-certificate"

    /// A heading of `--help` and of the reference.
    enum Group: String, CaseIterable {
        case listeners = "Listeners"
        case state = "State"
        case log = "Public log and policies"
        case nodes = "Several nodes"
        case users = "Users and webhooks"
        case apns = "Apple"
        case webPush = "Web Push"
        case lines = "Lines on standard error"
        case simulator = "Simulator"
    }

    private struct Row: ExpressibleByStringLiteral {
        let text: String
        /// The value that a missing setting has. Nil if the text explains what happens then.
        var standard: String? = nil
        /// Bounds of a whole number.
        var range: ClosedRange<Int>? = nil
        var environment: String? = nil
        var shortFlag: String? = nil
        var isSecret = false

        init(stringLiteral text: String) { self.text = text }

        init(
            _ text: String, standard: String? = nil, range: ClosedRange<Int>? = nil, environment: String? = nil,
            shortFlag: String? = nil, isSecret: Bool = false
        ) {
            (self.text, self.standard, self.range) = (text, standard, range)
            (self.environment, self.shortFlag, self.isSecret) = (environment, shortFlag, isSecret)
        }
    }

    private var row: Row {
        switch self {
        case .listen: Row("Where apps connect, ADDRESS:PORT or unix:PATH (107 bytes at most).", standard: "127.0.0.1:8787")
        case .tlsCertificate:
            "PEM file with the server certificate and its intermediates. The public listener then speaks TLS and HTTP/2. SIGHUP reads it and the key again."
        case .tlsKey: "Private key of --tls-certificate: PEM, unencrypted, mode 0600."
        case .tlsClientCA:
            "PEM file with authorities. Only clients with a certificate from one of them are served, e.g. an app's own back end."
        case .operatorListen:
            Row(
                "The operator's listener, ADDRESS:PORT on loopback: /healthz, /readyz, /metrics and two calls for APNs.",
                standard: "127.0.0.1:8788")
        case .allowCleartext:
            "An address (without port) beyond loopback on which cleartext is allowed, e.g. 10.0.0.5 behind a proxy that terminates TLS."
        case .trustedProxies:
            "Addresses and networks of proxies whose X-Forwarded-For or Forwarded is trusted, separated by commas. The word unix means a proxy on a Unix socket. Default: none."
        case .backEnds:
            "Addresses and networks of the operator's own back ends, separated by commas, e.g. 10.0.0.7,2001:db8::/48; the word certificates means every client with a certificate from --tls-client-ca. Each gets larger shares. Default: none."
        case .backEndCreations:
            Row(
                "Quota of one back end in ten minutes: rooms, registrations and token replacements, 1 to 1000000.",
                standard: "200000", range: 1...1_000_000)
        case .corsOrigins:
            "Origins of web pages that may call the API from a browser, separated by commas, e.g. https://app.example. Default: none."
        case .state: Row("Folder with keys/, mayfly.sqlite, ledger/ and ledger.vkey. Never back up keys/.", standard: "var")
        case .database:
            Row(
                "The database: a path that ends with .sqlite, or postgresql://USER@HOST/NAME (docs/postgresql.md). Default: mayfly.sqlite in the state folder.",
                isSecret: true)
        case .ratchetKey:
            "Another path of the key file, e.g. on a tmpfs: a restart of the machine then forgets all tokens. Default: keys/ratchet.key in the state folder."
        case .wrappingKey:
            Row(
                "The key that wraps the key file: a file of 32 bytes or their base64, e.g. a systemd credential; or command:PROGRAM WORDS, which prints them. Default: not wrapped.",
                isSecret: true)
        case .origin:
            "The log's name: its URL without the scheme, e.g. push.example.org/audit. Required by `keys init`; a broker reads it from the key."
        case .resolution:
            Row(
                "Length of a ledger window in seconds, 1 to 60. The policy's ledger.hourSeconds must be a multiple of it.",
                standard: "60", range: 1...60)
        case .policy:
            "Policy files and names of built-in policies (rooms, companion, monitor, calls, trial), separated by commas, at most one of a kind. Default: rooms, which is always in force unless another one is for rooms. With --jwt-algorithm also companion and monitor. With a webhook secret also calls."
        case .witnessPolicy:
            "A C2SP tlog-policy file: the witnesses that cosign each checkpoint, 60 at most, with their URLs, and the quorum. Default: no witnesses."
        case .witnessFailure:
            Row(
                "What to do without the quorum: closed (entries wait until it is reached) or open (publish the checkpoint without it).",
                standard: "closed")
        case .ledgerMirror:
            "A copy of the published log on another machine: a URL with https (http on loopback), or a folder. The broker doesn't start if the log doesn't continue it, e.g. after a snapshot was restored. Default: none."
        case .notBefore:
            "A checkpoint file kept elsewhere. The broker doesn't start if the log doesn't continue it. Default: none."
        case .node: Row("This broker's name in the log, different for each node.", standard: "node-1")
        case .nodeListen:
            "Where other nodes of a PostgreSQL deployment fetch keys and log from this one, ADDRESS:PORT, as they reach it. Default: none, and no other node can join."
        case .nodeCertificate:
            "PEM file with this node's certificate and its private key, unencrypted. Mode 0600. It names the address of --node-listen."
        case .nodeCA:
            "PEM file with the authorities that sign nodes' certificates. Whoever has a certificate of theirs gets all keys."
        case .jwtAlgorithm:
            Row(
                "The algorithm of users' JWTs: RS256, ES256, EdDSA (Ed25519) or HS256. Others are refused. Default: none, and only rooms are served.",
                shortFlag: "algorithm")
        case .jwtKey:
            Row(
                "The key of JWTs. HS256: a file with the secret, 32 bytes or more, mode 0600. Otherwise the public key that verifies them, in PEM. Only `mayfly jwt --sub` needs a private key. SIGHUP reads it again.",
                shortFlag: "key")
        case .jwtJWKS:
            Row(
                "A JWK set (RFC 7517) instead of one key: a file, or the login's https URL, which is read every ten minutes. A JWT names its key by kid. SIGHUP reads it again.",
                shortFlag: "jwks")
        case .jwtIssuer:
            Row(
                "The required iss; `mayfly jwt --sub` writes it. Default: any iss is accepted, and none is written.",
                shortFlag: "issuer")
        case .jwtAudience:
            Row(
                "The required aud; `mayfly jwt --sub` writes it. Default: a JWT with an aud is refused, and none is written.",
                shortFlag: "audience")
        case .jwtUserClaim:
            Row("The claim that names the user; `mayfly jwt --sub` writes it.", standard: "sub", shortFlag: "user-claim")
        case .webhookSecrets:
            Row(
                "File with the secrets that sign webhooks of calls, one per line, 1 to 128 bytes, better 32, mode 0600. SIGHUP reads it again. \(WebhookSettings.variable) may contain one such secret itself. Default: none, and calls are not served.",
                isSecret: true)
        case .apnsBundleID:
            Row(
                "The app's bundle id, the topic of its pushes. Required without --apns-apps. With it, the default app; if unset, the list's first.",
                environment: "APNS_BUNDLE_ID")
        case .apnsKeyPath: Row("Apple's token signing key, a .p8 file.", environment: "APNS_KEY_PATH")
        case .apnsKeyID: Row("The key's id: 10 characters.", environment: "APNS_KEY_ID")
        case .apnsTeamID: Row("The team's id: 10 characters.", environment: "APNS_TEAM_ID")
        case .apnsCertificate:
            "A client certificate instead of a key: a .p12 file, or PEM with its private key. Apple refuses VoIP, Live Activity and location pushes with one."
        case .apnsCertificatePassphrase: Row("File whose first line is the passphrase of --apns-certificate.", isSecret: true)
        case .apnsApps:
            "For several apps: a file with one per line, BUNDLE-ID ENVIRONMENTS key FILE KEY-ID TEAM-ID, or … certificate FILE [PASSPHRASE-FILE]. The first is the default for requests without a bundleId."
        case .apnsEnvironment:
            Row(
                "The environment of tokens without one: production, or sandbox (also called development).",
                standard: "production", environment: "APNS_ENVIRONMENT")
        case .apnsProduction:
            Row("true means production, false sandbox. --apns-environment wins.", environment: "APNS_PRODUCTION")
        case .apnsEndpoint: "HOST:PORT to send pushes to instead of Apple, e.g. the simulator."
        case .apnsPort: Row("Apple's port in both environments: 443, or 2197 for firewalls that block 443.", standard: "443")
        case .apnsCA: "PEM file with the authorities to trust for APNs, instead of the system's."
        case .apnsProxy:
            "HTTP proxy (CONNECT) for APNs and Web Push: HOST:PORT or USER@HOST:PORT. For Web Push it must allow any public address. HTTPS_PROXY is not used. Default: none."
        case .apnsProxyPassword:
            Row(
                "File whose first line is the password of the user in --apns-proxy. Mode 0600. SIGHUP reads it again for Apple; Web Push reads it at the start.",
                isSecret: true)
        case .vapidKey:
            "The VAPID key, by which Web Push services know this deployment: PEM from `mayfly push keys`, mode 0600, outside of the state folder, the same at all nodes, backed up. Default: none, and no Web Push is sent."
        case .vapidPreviousKey:
            "The VAPID key before, while it is rotated: until the addresses that were made for it have expired."
        case .vapidContact:
            "How the operators of Web Push services reach you: mailto:ADDRESS or an https URL. Required with --vapid-key."
        case .webOrigin:
            "The web app that a tap on a notification opens, e.g. https://app.example. Required with --vapid-key."
        case .webPushHosts:
            Row(
                "The hosts that Web Push may go to: public (any host on the Internet), or a file with a pattern a line, `host[:port] [private] [ca FILE]`, that may be private ones, too. The first line `only` forbids all others.",
                standard: "public")
        case .logFormat:
            Row(
                "Lines on standard error as text, or as json: one object a line with time, level and message.", standard: "text")
        case .logLevel: Row("The least level that is written: error, warning or info.", standard: "info")
        case .apnsSimulatorListen:
            Row("The simulator's listener for pushes, ADDRESS:PORT.", standard: "127.0.0.1:8789", shortFlag: "listen")
        case .apnsSimulatorControl:
            Row(
                "The simulator's control listener, ADDRESS:PORT on loopback. It shows tokens.", standard: "127.0.0.1:8790",
                shortFlag: "control")
        case .apnsSimulatorCertificate:
            Row("PEM file with the simulator's certificate and private key. Required.", shortFlag: "certificate")
        }
    }

    /// The first setting of each group. The others of a group follow it.
    private static let firsts: [(setting: Setting, group: Group)] = [
        (.listen, .listeners),
        (.state, .state),
        (.origin, .log),
        (.node, .nodes),
        (.jwtAlgorithm, .users),
        (.apnsBundleID, .apns),
        (.vapidKey, .webPush),
        (.logFormat, .lines),
        (.apnsSimulatorListen, .simulator),
    ]

    private var position: Int { Self.allCases.firstIndex(of: self)! }

    var group: Group { Self.firsts.last { $0.setting.position <= position }!.group }

    /// The name in the environment. Settings for APNs keep the names that other servers use.
    var environment: String {
        row.environment ?? "MAYFLY_" + String(rawValue.map { $0 == "-" ? "_" : Character($0.uppercased()) })
    }

    /// A shorter flag for commands in which it is unambiguous.
    var shortFlag: String? { row.shortFlag }

    /// True for values that are a secret, or files in whose place users often write the secret itself.
    var isSecret: Bool { row.isSecret }

    /// The value that a missing setting has. Nil if it has none.
    var standard: String? { row.standard }

    var range: ClosedRange<Int>? { row.range }

    /// The text in `--help`.
    var manual: String { row.text + (row.standard.map { " Default: \($0)." } ?? "") }

    /// The setting as errors show it, e.g. `--apns-key-path (APNS_KEY_PATH)`.
    var named: String { "--\(rawValue) (\(environment))" }
}
