/// Every setting of Mayfly, as a flag (`--listen`) or in the environment (`MAYFLY_LISTEN`). A flag wins.
///
/// The manual texts appear in `mayfly COMMAND --help`. `docs/reference.md` lists every key.
enum Key: String, CaseIterable {
    case state
    case database
    case ratchetKey = "ratchet-key"
    case wrappingKey = "wrapping-key"
    case listen
    case operatorListen = "operator-listen"
    case allowCleartext = "allow-cleartext"
    case tlsCertificate = "tls-certificate"
    case tlsKey = "tls-key"
    case tlsClientCA = "tls-client-ca"
    case trustedProxies = "trusted-proxies"
    case backEnds = "backends"
    case backEndCreations = "backend-creations"
    case corsOrigins = "cors-origins"
    case origin
    case node
    case nodeListen = "node-listen"
    case nodeCertificate = "node-certificate"
    case nodeCA = "node-ca"
    case resolution
    case policy
    case jwtAlgorithm = "jwt-algorithm"
    case jwtKey = "jwt-key"
    case jwtJWKS = "jwt-jwks"
    case jwtIssuer = "jwt-issuer"
    case jwtAudience = "jwt-audience"
    case jwtUserClaim = "jwt-user-claim"
    case webhookSecrets = "webhook-secrets"
    case witnessPolicy = "witness-policy"
    case witnessFailure = "witness-failure"
    case ledgerMirror = "ledger-mirror"
    case notBefore = "not-before"
    case logFormat = "log-format"
    case logLevel = "log-level"
    case apnsKeyPath = "apns-key-path"
    case apnsKeyID = "apns-key-id"
    case apnsTeamID = "apns-team-id"
    case apnsBundleID = "apns-bundle-id"
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
    case apnsSimulatorListen = "apns-simulator-listen"
    case apnsSimulatorControl = "apns-simulator-control"
    case apnsSimulatorCertificate = "apns-simulator-certificate"

    /// The name in the environment. Settings for APNs keep the names that other servers use.
    var environment: String {
        switch self {
        case .apnsKeyPath: "APNS_KEY_PATH"
        case .apnsKeyID: "APNS_KEY_ID"
        case .apnsTeamID: "APNS_TEAM_ID"
        case .apnsBundleID: "APNS_BUNDLE_ID"
        case .apnsEnvironment: "APNS_ENVIRONMENT"
        case .apnsProduction: "APNS_PRODUCTION"
        default: "MAYFLY_" + String(rawValue.map { $0 == "-" ? "_" : Character($0.uppercased()) })
        }
    }

    /// A shorter flag for commands in which it is unambiguous.
    var shortFlag: String? {
        switch self {
        case .apnsSimulatorListen: "listen"
        case .apnsSimulatorControl: "control"
        case .apnsSimulatorCertificate: "certificate"
        case .jwtAlgorithm: "algorithm"
        case .jwtKey: "key"
        case .jwtJWKS: "jwks"
        case .jwtIssuer: "issuer"
        case .jwtAudience: "audience"
        case .jwtUserClaim: "user-claim"
        default: nil
        }
    }

    /// True for values that are a secret, or files in whose place users often write the secret itself.
    var isSecret: Bool {
        switch self {
        case .apnsCertificatePassphrase, .apnsProxyPassword, .database, .wrappingKey, .webhookSecrets: true
        default: false
        }
    }

    var manual: String {
        switch self {
        case .state:
            "Folder with keys/, mayfly.sqlite, ledger/ and ledger.vkey. Default: var. Never back up keys/."
        case .database:
            "The database: a path that ends with .sqlite, or postgresql://USER@HOST/NAME (docs/postgresql.md). Default: mayfly.sqlite in the state folder."
        case .ratchetKey:
            "Another path of the key file, e.g. on a tmpfs: a restart of the machine then forgets all tokens. Default: keys/ratchet.key in the state folder."
        case .wrappingKey:
            "The key that wraps the key file: a file of 32 bytes or their base64, e.g. a systemd credential; or command:PROGRAM WORDS, which prints them. Default: not wrapped."
        case .listen: "Where apps connect, ADDRESS:PORT or unix:PATH (107 bytes at most). Default: 127.0.0.1:8787."
        case .tlsCertificate:
            "PEM file with the server certificate and its intermediates. The public listener then speaks TLS and HTTP/2. SIGHUP reads it and the key again."
        case .tlsKey: "PEM file with that certificate's private key, unencrypted. Mode 0600."
        case .tlsClientCA:
            "PEM file with authorities. Only clients with a certificate from one of them are served, e.g. an app's own back end."
        case .operatorListen:
            "The operator's listener, ADDRESS:PORT on loopback: /healthz, /readyz, /metrics and two calls for APNs. Default: 127.0.0.1:8788."
        case .allowCleartext:
            "An address (without port) beyond loopback on which cleartext is allowed, e.g. 10.0.0.5 behind a proxy that terminates TLS."
        case .trustedProxies:
            "Addresses and networks of proxies whose X-Forwarded-For or Forwarded is trusted, separated by commas; unix for a proxy on a Unix socket. Default: none."
        case .backEnds:
            "Addresses and networks of the operator's own back ends, separated by commas, e.g. 10.0.0.7,2001:db8::/48; certificates for clients with one of --tls-client-ca. Each gets larger shares. Default: none."
        case .backEndCreations:
            "Quota of one back end in ten minutes: rooms, registrations and token replacements, 1 to 1000000. Default: 200000."
        case .corsOrigins:
            "Origins of web pages that may call the API from a browser, separated by commas, e.g. https://app.example. Default: none."
        case .origin:
            "The log's name: its URL without the scheme, e.g. push.example.org/audit. Required by `keys init`; a broker reads it from the key."
        case .node: "This broker's name in the log. Default: node-1."
        case .nodeListen:
            "Where other nodes of a PostgreSQL deployment fetch keys and log from this one, ADDRESS:PORT, as they reach it. Default: none, and no other node can join."
        case .nodeCertificate:
            "PEM file with this node's certificate and its private key, unencrypted. Mode 0600. It names the address of --node-listen."
        case .nodeCA:
            "PEM file with the authorities that sign nodes' certificates. Whoever has a certificate of theirs gets all keys."
        case .resolution:
            "Length of a ledger window in seconds, 1 to 60. It divides the policy's ledger.hourSeconds. Default: 60."
        case .policy:
            "Policy files and names of built-in policies (rooms, companion, monitor, calls, trial), separated by commas, at most one of a kind. Default: rooms, which is always in force unless another one is for rooms; with --jwt-algorithm also companion and monitor, and with a webhook secret calls."
        case .jwtAlgorithm:
            "The algorithm of users' JWTs: RS256, ES256, EdDSA (Ed25519) or HS256. Others are refused. Default: none, and only rooms are served."
        case .jwtKey:
            "The key of JWTs. HS256: a file with the secret, 32 bytes or more, mode 0600. Otherwise the public key that verifies them, in PEM; only `mayfly jwt --sub` uses the private key. SIGHUP reads it again."
        case .jwtJWKS:
            "A JWK set (RFC 7517) instead of one key: a file, or the login's https URL, which is read every ten minutes. A JWT names its key by kid. SIGHUP reads it again."
        case .jwtIssuer: "The required iss; `mayfly jwt --sub` writes it. Default: any iss is accepted, and none is written."
        case .jwtAudience:
            "The required aud; `mayfly jwt --sub` writes it. Default: a JWT with an aud is refused, and none is written."
        case .jwtUserClaim: "The claim that names the user; `mayfly jwt --sub` writes it. Default: sub."
        case .webhookSecrets:
            "File with the secrets that sign webhooks of calls, one per line, 1 to 128 bytes, better 32, mode 0600. SIGHUP reads it again. \(WebhookSettings.variable) may contain one itself. Default: none, and calls are not served."
        case .witnessPolicy:
            "A C2SP tlog-policy file: the witnesses that cosign each checkpoint, with their URLs, and the quorum. Default: no witnesses."
        case .witnessFailure:
            "What to do without the quorum: closed (entries wait until it is reached) or open (publish the checkpoint without it). Default: closed."
        case .ledgerMirror:
            "A copy of the published log on another machine: a URL with https (http on loopback), or a folder. The broker doesn't start if the log doesn't continue it, e.g. after a snapshot was restored. Default: none."
        case .notBefore:
            "A checkpoint file kept elsewhere. The broker doesn't start if the log doesn't continue it. Default: none."
        case .logFormat: "Lines on standard error as text or as json, one object a line. Default: text."
        case .logLevel: "The least level that is written: error, warning or info. Default: info."
        case .apnsKeyPath: "Apple's token signing key, a .p8 file."
        case .apnsKeyID: "The key's id: 10 characters."
        case .apnsTeamID: "The team's id: 10 characters."
        case .apnsBundleID:
            "The app's bundle id: the topic of its pushes. With --apns-apps: the default app; without it the first in the list."
        case .apnsCertificate:
            "A client certificate instead of a key: a .p12 file, or PEM with its private key. Apple refuses VoIP, Live Activity and location pushes with one."
        case .apnsCertificatePassphrase: "File whose first line is that file's passphrase."
        case .apnsApps:
            "For several apps: a file with one per line, BUNDLE-ID ENVIRONMENTS key FILE KEY-ID TEAM-ID, or … certificate FILE [PASSPHRASE-FILE]. The first is the default for requests without a bundleId."
        case .apnsEnvironment:
            "The default environment of tokens: production, sandbox or development. Default: production."
        case .apnsProduction: "true or false: another spelling of the same setting. APNS_ENVIRONMENT takes precedence."
        case .apnsEndpoint: "HOST:PORT to send pushes to instead of Apple, e.g. the simulator."
        case .apnsPort:
            "Apple's port in both environments: 443, or 2197 for firewalls that block 443. Default: 443."
        case .apnsCA: "PEM file with the authorities to trust for APNs, instead of the system's."
        case .apnsProxy:
            "HTTP proxy that opens tunnels to Apple (CONNECT): HOST:PORT or USER@HOST:PORT. HTTPS_PROXY is not used. Default: none."
        case .apnsProxyPassword: "File whose first line is that user's password. Mode 0600. SIGHUP reads it again."
        case .apnsSimulatorListen: "The simulator's listener for pushes, ADDRESS:PORT. Default: 127.0.0.1:8789."
        case .apnsSimulatorControl: "The simulator's control listener, ADDRESS:PORT. Default: 127.0.0.1:8790."
        case .apnsSimulatorCertificate: "PEM file with the simulator's certificate and private key."
        }
    }

    /// The key as errors show it, e.g. `--apns-key-path (APNS_KEY_PATH)`.
    var named: String { "--\(rawValue) (\(environment))" }
}
