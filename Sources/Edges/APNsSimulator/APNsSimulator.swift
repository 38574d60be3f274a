public import EventLoop
import HTTPServer
public import Linux
public import TLS

/// A faithful APNs for tests, the demo and benchmarks: the provider API over HTTP/2 and TLS, with faults on demand.
///
/// It checks requests like Apple (see `Rules`), keeps the last accepted pushes in memory, and knows the configured keys and apps.
/// On the same listener it also is a Web Push service, see `WebPushFace`.
/// Choices that Apple doesn't document are marked "ours" in the sources and in docs/simulator.md.
public actor APNsSimulator: LoopActor {
    public struct Configuration: Sendable {
        public var listen: SocketAddress
        /// The address of the control listener, which speaks plain HTTP. Nil for none.
        public var control: SocketAddress?
        /// PEM, leaf first.
        public var certificateChain: [UInt8]
        /// The leaf's key in PEM.
        public var privateKey: [UInt8]
        /// The known keys, with their teams and apps.
        public var keys: [ProviderKey]
        /// The service it simulates. Answers of the sandbox have `apns-unique-id`.
        public var isSandbox: Bool
        /// Limit of open streams per client once it is authenticated. Before, the limit is one.
        public var streams: UInt32 = 1000
        /// Time between the two frames of a graceful GOAWAY.
        public var graceMs: UInt64 = 100
        /// PEM. Clients may authenticate with certificates from these authorities. Nil: no certificates are requested.
        public var clientAuthorities: [UInt8]?
        /// A file for the ids of accepted pushes, see `PushRecord`. Nil for none.
        public var record: String?
        /// Offers no HTTP/2, like many self-hosted Web Push services. Then APNs is not served.
        public var isHTTP1Only = false
        /// The address of the listener for real browsers, see `BrowserListener`. Nil for none.
        public var browsers: SocketAddress?

        /// A configuration with one key of one app.
        public init(
            listen: SocketAddress, control: SocketAddress? = nil, certificateChain: [UInt8], privateKey: [UInt8], keyID: String,
            teamID: String, publicKey: ES256.PublicKey, bundleID: String, isSandbox: Bool = true
        ) {
            let key = ProviderKey(keyID: keyID, teamID: teamID, publicKey: publicKey, bundleIDs: [bundleID])
            self.init(
                listen: listen, control: control, certificateChain: certificateChain, privateKey: privateKey, keys: [key],
                isSandbox: isSandbox)
        }

        public init(
            listen: SocketAddress, control: SocketAddress? = nil, certificateChain: [UInt8], privateKey: [UInt8],
            keys: [ProviderKey], isSandbox: Bool = true
        ) {
            self.listen = listen
            self.control = control
            self.certificateChain = certificateChain
            self.privateKey = privateKey
            self.keys = keys
            self.isSandbox = isSandbox
        }
    }

    /// Totals since the simulator was created.
    public struct Counts: Sendable, Equatable {
        public var connections = 0
        public var accepted = 0
        /// By reason, or by status for a fault without a reason.
        public var refused: [String: Int] = [:]
    }

    public nonisolated let loop: EventLoop
    private let configuration: Configuration
    private let service: PushService
    private var listener: Listener?
    private var control: HTTPServer?
    private var browserListener: HTTPServer?
    let browsers: Browsers

    /// - Parameter wallMs: returns unix milliseconds, for provider tokens and time stamps.
    /// - Throws: `TLSError` for an invalid certificate or key, `Errno` for the record's file.
    public init(
        _ configuration: Configuration, loop: EventLoop, wallMs: @escaping @Sendable () -> UInt64 = { Clock.wallMs }
    ) throws {
        self.loop = loop
        self.configuration = configuration
        service = try PushService(configuration, loop: loop, wallMs: wallMs)
        browsers = Browsers(service.webPush, wallMs: wallMs)
    }

    /// The addresses of the listeners, with the ports that the system chose for port 0.
    public struct Addresses: Sendable, Equatable {
        public let apns: SocketAddress
        public let control: SocketAddress?
        public let browsers: SocketAddress?
    }

    /// Starts to listen.
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
        var browserAddress: SocketAddress?
        if let wanted = configuration.browsers {
            let server = HTTPServer(
                loop: loop, configuration: ServerConfiguration(address: wanted), handler: BrowserListener(simulator: self))
            browserAddress = try await server.start()
            browserListener = server
        }
        service.webPush.origin = "https://\(address)"
        listener = try Listener(socket, loop: loop) { [service] socket in service.serve(socket) }
        return Addresses(apns: address, control: controlAddress, browsers: browserAddress)
    }

    /// Closes all connections and listeners. Accepted pushes can still be read.
    public func stop() async {
        listener?.close()
        listener = nil
        service.closeAll()
        await control?.drain(deadlineMs: 1000)
        control = nil
        await browserListener?.drain(deadlineMs: 100)
        browserListener = nil
    }

    /// The last accepted pushes, oldest first.
    public var pushes: [AcceptedPush] { service.log.pushes }

    /// The last accepted Web Push messages, oldest first.
    public var webPushes: [AcceptedWebPush] { service.webPush.log.pushes }

    /// Forgets the accepted pushes of both faces.
    public func forgetPushes() {
        service.log.removeAll()
        service.webPush.log.removeAll()
    }

    public var counts: Counts { service.counts }

    public var faults: FaultPlan { service.faults }

    /// Replaces the planned faults.
    public func setFaults(_ plan: FaultPlan) { service.faults = plan }

    var pushesJSON: [UInt8] { service.pushesJSON }
    var webPush: WebPushFace { service.webPush }
    var wallMs: @Sendable () -> UInt64 { service.wallMs }
}

/// Accepts connections from a listening socket.
private final class Listener: EventSource {
    private let socket: Socket
    private let loop: EventLoop
    private let accept: (consuming Socket) -> Void
    private var registration: Registration?

    /// The pause after an error, e.g. if the process is out of descriptors.
    private static let pauseMs: UInt64 = 100

    init(_ socket: consuming Socket, loop: EventLoop, accept: @escaping (consuming Socket) -> Void) throws {
        self.socket = socket
        self.loop = loop
        self.accept = accept
        registration = try loop.add(self.socket.raw, .read, self)
    }

    func ready(_ events: Events) {
        do {
            for _ in 0..<64 {
                guard let accepted = try socket.accept() else { return }
                accept(accepted.take())
            }
        } catch {
            guard let registration else { return }
            loop.modify(registration, [])
            loop.after(Self.pauseMs) { [weak self] in
                if let self, let registration = self.registration { loop.modify(registration, .read) }
            }
        }
    }

    func close() {
        if let registration { loop.remove(registration) }
        registration = nil
    }
}
