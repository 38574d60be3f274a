import EventLoop
import HTTP2
import Linux
import TLS
import Vocabulary

/// The state that the connections of a simulator share. Used only on the loop's thread.
final class PushService {
    let loop: EventLoop
    let tls: TLSContext
    let isSandbox: Bool
    /// Limit of open streams per authenticated client.
    let streams: UInt32
    let graceMs: UInt64
    let asksForCertificates: Bool
    let wallMs: @Sendable () -> UInt64
    var rules: Rules
    var faults = FaultPlan() {
        didSet { hasEarlyFaults = faults.has(.headers) }
    }
    private(set) var hasEarlyFaults = false
    var log: PushLog
    let webPush = WebPushFace(capacity: keptPushes)
    /// HTTP/2 is not offered. Then only Web Push is served.
    let isHTTP1Only: Bool
    let record: PushRecord?
    var counts = APNsSimulator.Counts()
    private var random = FastRandom()
    /// Buffers for reads from a socket and for plaintext. Connections keep nothing in them between two calls.
    var input = [UInt8](repeating: 0, count: 1 << 16)
    var plaintext: [UInt8] = []
    /// Buffer for the headers of an answer.
    var answer = HTTP2Headers(capacity: 256)
    private var connections: [ObjectIdentifier: SimulatorConnection] = [:]
    private static let keptPushes = 10_000

    init(_ configuration: APNsSimulator.Configuration, loop: EventLoop, wallMs: @escaping @Sendable () -> UInt64) throws {
        self.loop = loop
        self.wallMs = wallMs
        isSandbox = configuration.isSandbox
        streams = configuration.streams
        graceMs = configuration.graceMs
        asksForCertificates = configuration.clientAuthorities != nil
        isHTTP1Only = configuration.isHTTP1Only
        let alpn = configuration.isHTTP1Only ? ["http/1.1"] : ["h2", "http/1.1"]
        if let authorities = configuration.clientAuthorities {
            tls = try TLSContext.server(
                certificateChain: configuration.certificateChain, privateKey: configuration.privateKey.span, alpn: alpn,
                askingForCertificatesOf: authorities)
        } else {
            tls = try TLSContext.server(
                certificateChain: configuration.certificateChain, privateKey: configuration.privateKey.span, alpn: alpn)
        }
        record = try configuration.record.map { (path) throws(Errno) in try PushRecord(path) }
        rules = Rules(verifier: ProviderTokenVerifier(configuration.keys, environment: isSandbox ? .sandbox : .production))
        log = PushLog(capacity: Self.keptPushes)
    }

    func serve(_ socket: consuming Socket) {
        guard let connection = try? SimulatorConnection(socket, service: self) else { return }
        connections[ObjectIdentifier(connection)] = connection
        counts.connections += 1
        connection.start()
    }

    func forget(_ connection: SimulatorConnection) {
        connections[ObjectIdentifier(connection)] = nil
    }

    func closeAll() {
        for connection in connections.values { connection.close() }
    }

    /// Stores an accepted push.
    /// - Parameter id: the `apns-id` of the answer.
    func keep(_ request: PushRequest, id: [UInt8], at now: UInt64) {
        log.append(.init(request: request, id: request.has(.id) ? nil : id, at: now))
        counts.accepted += 1
        record?.accepted(id)
    }

    /// A faster variant for simulators without a record.
    /// - Parameter madeID: the generated `apns-id` if the request had none.
    func keep(_ request: PushRequest, madeID: [UInt8]?, at now: UInt64) {
        log.append(.init(request: request, id: madeID, at: now))
        counts.accepted += 1
    }

    /// Returns a UUID (RFC 9562, version 4) in lower case. It is unique but not secret.
    func makeUUID() -> [UInt8] {
        let high = random.next() & 0xffff_ffff_ffff_0fff | 0x4000
        let low = random.next() & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000
        return [UInt8](capacity: 36) { text in
            for index in 0..<32 {
                if index == 8 || index == 12 || index == 16 || index == 20 { text.append(UInt8(ascii: "-")) }
                let half = index < 16 ? high : low
                text.append(Hex.digit(UInt8(truncatingIfNeeded: half >> UInt64(60 - index % 16 * 4) & 15)))
            }
        }
    }
}

/// SplitMix64. The system's generator needs a system call per number.
private struct FastRandom {
    private var state = UInt64.random(in: .min ... .max)

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
        return mixed ^ mixed >> 31
    }
}
