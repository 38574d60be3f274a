public import EventLoop
import HTTPServer
public import Linux
public import TLS

/// A faithful APNs for tests, the demo and benchmarks: the provider API over HTTP/2 and TLS, with faults on demand.
///
/// It checks what Apple checks (see `Rules`), keeps what it accepted last in memory, and knows the keys and apps it is given.
/// Its own choices where Apple says nothing are marked "ours" in the sources and in docs/simulator.md.
public actor APNsSimulator: LoopActor {
    public struct Configuration: Sendable {
        public var listen: SocketAddress
        /// Where the control listener is, in plain HTTP; nil for none.
        public var control: SocketAddress?
        /// PEM, leaf first, and the leaf's key.
        public var certificateChain: [UInt8]
        public var privateKey: [UInt8]
        /// The keys it knows, with their teams and apps.
        public var keys: [ProviderKey]
        /// Which service it plays. Answers of the sandbox carry `apns-unique-id`.
        public var isSandbox: Bool
        /// How many accepted pushes are kept, the latest.
        public var keptPushes: Int
        /// How many streams a client may have open once it is known; until then one.
        public var streams: UInt32 = 1000
        /// Between the two frames of a graceful GOAWAY.
        public var graceMs: UInt64 = 100
        /// PEM; clients are asked for certificates, and those from these authorities are a way to authenticate. Nil: none are asked for.
        public var clientAuthorities: [UInt8]?
        /// A file that the accepted pushes' ids are appended to; see `PushRecord`.
        public var record: String?

        /// With one key of one app.
        public init(
            listen: SocketAddress, control: SocketAddress? = nil, certificateChain: [UInt8], privateKey: [UInt8], keyID: String,
            teamID: String,
            publicKey: ES256.PublicKey, bundleID: String, isSandbox: Bool = true, keptPushes: Int = 10_000
        ) {
            self.listen = listen
            self.control = control
            self.certificateChain = certificateChain
            self.privateKey = privateKey
            keys = [ProviderKey(keyID: keyID, teamID: teamID, publicKey: publicKey, bundleIDs: [bundleID])]
            self.isSandbox = isSandbox
            self.keptPushes = keptPushes
        }

        public init(
            listen: SocketAddress, control: SocketAddress? = nil, certificateChain: [UInt8], privateKey: [UInt8],
            keys: [ProviderKey], isSandbox: Bool = true, keptPushes: Int = 10_000
        ) {
            self.listen = listen
            self.control = control
            self.certificateChain = certificateChain
            self.privateKey = privateKey
            self.keys = keys
            self.isSandbox = isSandbox
            self.keptPushes = keptPushes
        }
    }

    /// Since the simulator was made.
    public struct Counts: Sendable, Equatable {
        public var connections = 0
        public var accepted = 0
        /// By reason; by status for a fault without one.
        public var refused: [String: Int] = [:]
    }

    public nonisolated let loop: EventLoop
    private let configuration: Configuration
    private let service: PushService
    private var listener: Listener?
    private var control: HTTPServer?

    /// - Parameter wallMs: unix milliseconds, for provider tokens and time stamps.
    /// - Throws: `TLSError` for a certificate or key that can't be used, `Errno` for the record's file.
    public init(
        _ configuration: Configuration, loop: EventLoop, wallMs: @escaping @Sendable () -> UInt64 = { Clock.wallMs }
    ) throws {
        self.loop = loop
        self.configuration = configuration
        service = try PushService(configuration, loop: loop, wallMs: wallMs)
    }

    /// Where a simulator listens: with the ports that were chosen for port 0.
    public struct Addresses: Sendable, Equatable {
        public let apns: SocketAddress
        public let control: SocketAddress?
    }

    /// Listens.
    /// - Throws: `Errno`.
    public func start() async throws -> Addresses {
        let socket = try Socket.listen(on: configuration.listen)
        let address = try socket.localAddress()
        var controlAddress: SocketAddress?
        if let wanted = configuration.control {
            let server = HTTPServer(
                loop: loop, configuration: ServerConfiguration(address: wanted), handler: Control(simulator: self))
            controlAddress = try await server.start()
            control = server
        }
        listener = try Listener(socket, loop: loop) { [service] socket in service.serve(socket) }
        return Addresses(apns: address, control: controlAddress)
    }

    /// Closes everything. What was accepted can still be asked for here.
    public func stop() async {
        listener?.close()
        listener = nil
        service.closeAll()
        await control?.drain(deadlineMs: 1000)
        control = nil
    }

    /// What was accepted, oldest first.
    public var pushes: [AcceptedPush] { service.log.pushes }

    public func forgetPushes() { service.log.removeAll() }

    public var counts: Counts { service.counts }

    public var faults: FaultPlan { service.faults }

    /// What to do to the requests to come, in place of what was planned.
    public func setFaults(_ plan: FaultPlan) { service.faults = plan }

    var pushesJSON: [UInt8] { service.log.json }
}
