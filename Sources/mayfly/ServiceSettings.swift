import API
import Broker
import Courier
import Linux
import Policy
import Sealing
import TLS

/// What `serve` needs, read and checked before anything is opened.
struct ServiceSettings {
    let state: StateFolder
    let wrapping: WrappingKeySource?
    let listen: SocketAddress
    let certificate: CertificateFiles?
    let operatorListen: SocketAddress
    let proxies: TrustedProxies
    let origin: String?
    let node: String
    let resolution: UInt64
    let policy: Policy
    let witnesses: WitnessSettings?
    let topic: String
    let environment: PushEnvironment
    let apnsKey: ES256.PrivateKey
    let apnsKeyID: String
    let apnsTeamID: String
    let apnsEndpoint: Endpoint?
    let apnsTrust: TLSContext.Trust

    init(_ configuration: Configuration) throws {
        state = configuration.state
        wrapping = try WrappingKeySource(configuration)
        try RotationMark.refuse(state)
        guard File.exists(state.ledgerKey) else {
            throw CheckFailed(
                "mayfly: \(state.ledgerKey) is missing: make a state folder's keys with `mayfly keys init --state \(state.path) --origin NAME`"
            )
        }
        guard File.exists(state.ratchetKey) else {
            throw CheckFailed(
                "mayfly: \(state.ratchetKey) is missing, and the log's key is not: look whether this is the right place. If it is lost for good, "
                    + "`mayfly keys renew` makes another and forgets all that was sealed; `mayfly keys init` makes the keys of an empty state folder"
            )
        }
        listen = try configuration.address(.listen, default: "127.0.0.1:8787")
        operatorListen = try configuration.address(.operatorListen, default: "127.0.0.1:8788")
        certificate = try CertificateFiles(configuration)
        if certificate == nil { try Self.checkCleartext(listen, allowed: configuration[.allowCleartext]) }
        guard operatorListen.isLoopback else {
            throw UsageError("--operator-listen must be on loopback: it has no authentication")
        }
        let hosts = (configuration[.trustedProxies] ?? "").split(separator: ",").map { String($0.filter { $0 != " " }) }
        for host in hosts where host != "unix" && SocketAddress(numeric: host, port: 0) == nil {
            throw UsageError("--trusted-proxies: \(host) is no numeric address")
        }
        proxies = TrustedProxies(hosts: Set(hosts))
        if case .unix = listen {
            if !hosts.contains("unix") {
                Terminal.log(
                    "warning: without --trusted-proxies unix all callers behind the Unix-domain socket count as one and share its budgets"
                )
            }
        } else if hosts.contains("unix") {
            Terminal.log("warning: --trusted-proxies unix means nothing here: --listen is no Unix-domain socket")
        }
        origin = configuration[.origin]
        node = configuration[.node] ?? "node-1"
        let window = configuration[.resolution] ?? "60"
        guard let seconds = UInt64(window), (1...3_600).contains(seconds) else {
            throw UsageError("--resolution must be a whole number of seconds from 1 to 3600")
        }
        resolution = seconds
        policy = try PolicyCommand.load(configuration[.policy] ?? "rooms")
        guard let knock = policy.templates[Broker.template], knock.fields.isEmpty else {
            throw CheckFailed(
                "mayfly: the policy \(policy.name) has no template \(Broker.template) without fields, which rooms send")
        }
        let slot = knock.timing.slotMs
        if slot > 0, seconds * 1_000 % slot != 0 {
            Terminal.log(
                "warning: the log's windows of \(seconds) s cut the slots of \(slot / 1_000) s in which pushes leave: with Apple's records, the log tells more about when people knocked. Make --resolution a whole multiple"
            )
        }
        witnesses = try WitnessSettings(configuration)
        topic = try configuration.required(.apnsBundleID)
        environment = try Self.environment(configuration)
        apnsKeyID = try configuration.required(.apnsKeyID)
        apnsTeamID = try configuration.required(.apnsTeamID)
        apnsKey = try APNsCommand.signingKey(configuration)
        if let path = configuration[.apnsKeyPath], let mode = try? File.status(path)?.mode, mode & 0o077 != 0 {
            Terminal.log("warning: others than this user can read \(path), by which pushes are signed: make its mode 0600")
        }
        apnsEndpoint = try configuration[.apnsEndpoint].map { try Self.endpoint($0) }
        if let path = configuration[.apnsCA] {
            do {
                apnsTrust = .authorities(try File.read(path, limit: 1_048_576))
            } catch {
                throw CheckFailed("mayfly: the certificates in \(path) can't be read: \(error)")
            }
        } else {
            apnsTrust = .system
        }
    }

    private static func checkCleartext(_ address: SocketAddress, allowed: String?) throws {
        guard !address.isLoopback, address.host != allowed else { return }
        throw UsageError(
            "--listen \(address.host) is beyond loopback, and tokens must not travel in cleartext. Give --tls-certificate and --tls-key, "
                + "or end TLS in a proxy on this machine, or name the address in --allow-cleartext.")
    }

    private static func environment(_ configuration: Configuration) throws -> PushEnvironment {
        switch (configuration[.apnsEnvironment], configuration[.apnsProduction]) {
        case ("production", _), (nil, nil), (nil, "true"), (nil, "1"): return .production
        case ("sandbox", _), ("development", _), (nil, "false"), (nil, "0"): return .sandbox
        case (nil, _): throw UsageError("--apns-production takes true or false")
        default: throw UsageError("--apns-environment takes production, sandbox or development")
        }
    }

    private static func endpoint(_ text: String) throws -> Endpoint {
        if let address = SocketAddress(parsing: text), let port = address.port { return Endpoint(host: address.host, port: port) }
        let parts = text.split(separator: ":")
        guard parts.count == 2, let port = UInt16(parts[1]), port > 0 else { throw UsageError("--apns-endpoint is no HOST:PORT") }
        return Endpoint(host: String(parts[0]), port: port)
    }
}
