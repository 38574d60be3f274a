/// Every key that Mayfly can be told, as a flag (`--listen`) or in the environment (`MAYFLY_LISTEN`). A flag wins. The text of
/// each key is the manual: `mayfly COMMAND --help` prints it, and `docs/reference.md` names every key.
enum Key: String, CaseIterable {
    case state
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
    case origin
    case node
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
    case apnsSimulatorListen = "apns-simulator-listen"
    case apnsSimulatorControl = "apns-simulator-control"
    case apnsSimulatorCertificate = "apns-simulator-certificate"

    /// The name in the environment. Apple's own settings keep the names that other servers use for them.
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

    /// Shorter flags where a command leaves no doubt.
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

    /// Beside a secret's file, people give the secret.
    var isSecret: Bool { self == .apnsCertificatePassphrase || self == .wrappingKey || self == .webhookSecrets }

    var manual: String {
        switch self {
        case .state:
            "Folder with keys/, mayfly.sqlite, ledger/ and ledger.vkey. Default: var. Never back up keys/."
        case .ratchetKey:
            "The key file, if it is to lie elsewhere than in keys/, e.g. on a tmpfs: then a restart of the machine forgets all. Default: keys/ratchet.key in the state folder."
        case .wrappingKey:
            "What the key file lies sealed under: a file of 32 bytes or their base64, e.g. a systemd credential; or command:PROGRAM WORDS, whose output they are. Default: it is not wrapped."
        case .listen: "Where apps connect, ADDRESS:PORT or unix:PATH (107 bytes at most). Default: 127.0.0.1:8787."
        case .tlsCertificate:
            "PEM file with the certificate apps are shown, and those between it and its authority. With it the public listener speaks TLS, HTTP/2 too. SIGHUP reads it and the key again."
        case .tlsKey: "PEM file with that certificate's private key, unencrypted. Mode 0600."
        case .tlsClientCA:
            "PEM file with authorities: only clients with a certificate from one of them are served, e.g. an app's own back end."
        case .operatorListen:
            "Where /healthz, /readyz, /metrics and two calls for APNs are served, ADDRESS:PORT. Default: 127.0.0.1:8788. Loopback only."
        case .allowCleartext:
            "An address (without port) beyond loopback on which cleartext is served all the same, e.g. 10.0.0.5 behind a proxy that ends TLS."
        case .trustedProxies:
            "Addresses, separated by commas, whose X-Forwarded-For is believed; unix for a proxy on a Unix socket. Default: none."
        case .backEnds:
            "Addresses and networks of the operator's own back ends, separated by commas, e.g. 10.0.0.7,2001:db8::/48; certificates for whoever shows one of --tls-client-ca. Each has a larger share of what is finite. Default: none."
        case .backEndCreations:
            "Rooms, registrations and token replacements that one back end may ask for in ten minutes, 1 to 1000000. Default: 200000."
        case .origin:
            "The log's name: its URL without the scheme, e.g. push.example.org/audit. Needed by `keys init`; a broker finds it in the key."
        case .node: "This broker's name in the log. Default: node-1."
        case .resolution:
            "Length of a ledger window in seconds, 1 to 60. It divides the policy's ledger.hourSeconds. Default: 60."
        case .policy:
            "Policy files and names of built-in policies (rooms, companion, monitor, calls, trial), separated by commas, at most one of a kind. Default: rooms, which is also in force if none of them is for rooms; with users known, companion and monitor too, and calls with a webhook secret."
        case .jwtAlgorithm:
            "How the JWTs of users are signed: HS256, ES256 or EdDSA (Ed25519); no other is taken. Default: none, and only rooms are served."
        case .jwtKey:
            "The key of JWTs. HS256: a file with the secret, 32 bytes or more, mode 0600. Else, in PEM, the public key that they are verified by; only `mayfly jwt --sub` takes the private one, which signs. SIGHUP reads it again."
        case .jwtJWKS:
            "Instead of one key to verify by: a JWK set (RFC 7517), from which a JWT names its key by kid. SIGHUP reads it again."
        case .jwtIssuer: "What iss must be; `mayfly jwt --sub` writes it. Default: anything, and none is written."
        case .jwtAudience: "What aud must name; `mayfly jwt --sub` writes it. Default: there must be no aud, and none is written."
        case .jwtUserClaim: "The claim that names the user; `mayfly jwt --sub` writes it. Default: sub."
        case .webhookSecrets:
            "File with the secrets that webhooks of calls are signed by, one a line, 1 to 128 bytes each, better 32, mode 0600. SIGHUP reads it again. One may also stand in \(WebhookSettings.variable) itself. Default: none, and calls are not served."
        case .witnessPolicy:
            "A C2SP tlog-policy file: the witnesses that are asked to cosign each checkpoint, with their URLs, and the quorum. Default: none are asked."
        case .witnessFailure:
            "What becomes of a checkpoint without the quorum: closed (entries wait until it is reached) or open (published as it is). Default: closed."
        case .ledgerMirror:
            "A copy of the published log on another machine: a URL with https (http on loopback), or a folder. A start is refused if the log does not continue it, e.g. after a snapshot was put back. Default: none."
        case .notBefore:
            "A checkpoint file kept elsewhere. A start is refused if the log does not continue it. Default: none."
        case .apnsKeyPath: "Apple's token signing key, a .p8 file."
        case .apnsKeyID: "The key's id: 10 characters."
        case .apnsTeamID: "The team's id: 10 characters."
        case .apnsBundleID:
            "The app's bundle id: the topic of its pushes. With --apns-apps: which of these is meant where nobody names one; default: the first."
        case .apnsCertificate:
            "A client certificate in place of a key: a .p12 file, or PEM with its private key. Apple takes no VoIP, Live Activity or location pushes by one."
        case .apnsCertificatePassphrase: "File whose first line is that file's passphrase."
        case .apnsApps:
            "For several apps: a file with one a line, BUNDLE-ID ENVIRONMENTS key FILE KEY-ID TEAM-ID, or … certificate FILE [PASSPHRASE-FILE]. The first is meant where a request has no bundleId."
        case .apnsEnvironment:
            "production, sandbox or development: what a token is for when the app does not say. Default: production."
        case .apnsProduction: "true or false: the same, as other servers spell it. APNS_ENVIRONMENT wins."
        case .apnsEndpoint: "HOST:PORT to send pushes to instead of Apple, e.g. the simulator."
        case .apnsPort:
            "443 or 2197: Apple's port, in both environments. 2197 is for firewalls that let it out and not 443. Default: 443."
        case .apnsCA: "PEM file with the certificates that APNs is trusted by, instead of the system's."
        case .apnsSimulatorListen: "Where the simulator takes pushes, ADDRESS:PORT. Default: 127.0.0.1:8789."
        case .apnsSimulatorControl: "Where the simulator is asked and told, ADDRESS:PORT. Default: 127.0.0.1:8790."
        case .apnsSimulatorCertificate: "PEM file with the simulator's certificate and private key."
        }
    }

    /// As errors name it: `--apns-key-path (APNS_KEY_PATH)`.
    var named: String { "--\(rawValue) (\(environment))" }
}
