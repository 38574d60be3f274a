import Courier
import EventLoop
import Linux
import Sealing
import TLS
import Vocabulary
import WebPush

/// Measures a courier alone, on one thread: as fast as the server answers, or at a steady rate.
actor CourierBench: LoopActor {
    nonisolated let loop: EventLoop
    private let courier: any PushSender
    private let samples: [Push]
    private var left: Int
    private var failures = 0
    private var waits: [UInt64] = []

    private init(_ loop: EventLoop, _ courier: any PushSender, _ samples: [Push], _ pushes: Int) {
        self.loop = loop
        self.courier = courier
        self.samples = samples
        left = pushes
        waits.reserveCapacity(pushes)
    }

    static func run(_ flags: Flags) async throws {
        let pem = try File.read(try flags.required("key"), limit: 65_536)
        let key = try ES256.PrivateKey(pem: pem.span)
        let loop = try EventLoop(name: "courier")
        try loop.start()
        if let file = flags["subscriptions"] {
            let (courier, samples) = try webPush(loop, VAPIDKey(key), subscriptions: file, authority: try flags.required("ca"))
            try await measure(loop, courier, samples, flags)
            await courier.stop(withinMs: 1000)
        } else {
            let (courier, samples) = try apns(loop, key, flags)
            try await measure(loop, courier, samples, flags)
            await courier.stop(withinMs: 1000)
        }
        loop.stop()
    }

    private static func measure(_ loop: EventLoop, _ courier: any PushSender, _ samples: [Push], _ flags: Flags) async throws {
        let pushes = try flags.count("pushes", default: 200_000, most: 10_000_000)
        let inFlight = try flags.count("in-flight", default: 1000, most: 100_000)
        let rate = try flags["rate"].map { _ in try flags.count("rate", default: 0) }
        let bench = CourierBench(loop, courier, samples, pushes)
        // Warms up: the handshake and the growth of the stream limit are not measured.
        await bench.flood(min(pushes, 2000), inFlight)
        await bench.begin(pushes)
        let start = (Clock.monotonicNs, Clock.processNs)
        if let rate { await bench.pace(rate) } else { await bench.flood(pushes, inFlight) }
        let (elapsed, busy) = (Clock.monotonicNs - start.0, Clock.processNs - start.1)
        await bench.report(pushes, elapsedNs: elapsed, busyNs: busy)
    }

    private static func apns(_ loop: EventLoop, _ key: ES256.PrivateKey, _ flags: Flags) throws -> (Courier, [Push]) {
        guard let address = SocketAddress(parsing: try flags.required("endpoint")), let port = address.port else {
            throw UsageError("--endpoint must be ADDRESS:PORT")
        }
        let token = try ProviderToken(
            keyID: flags["key-id"] ?? "ABCDE12345", teamID: flags["team-id"] ?? "TEAM123456", key: key)
        var configuration = Courier.Configuration(providerToken: token) { Standard.error("courier: \($0)\n") }
        let topic = flags["topic"] ?? "com.example.app"
        configuration.apps = [topic]
        configuration.production = Endpoint(host: address.host, port: port)
        configuration.trust = .authorities(try File.read(try flags.required("ca"), limit: 1_048_576))
        return (try Courier(loop: loop, configuration), try (0..<4096).map { try sample($0, topic) })
    }

    /// - Parameters:
    ///   - subscriptions: a file with a subscription a line, `endpoint p256dh auth`, all at one host.
    ///   - authority: the file with the certificate of that host.
    private static func webPush(
        _ loop: EventLoop, _ key: VAPIDKey, subscriptions: String, authority: String
    ) throws -> (WebPushCourier, [Push]) {
        let lines = String(decoding: try File.read(subscriptions, limit: 10_485_760), as: UTF8.self)
            .split(separator: "\n").map { $0.split(separator: " ").map { Array($0.utf8) } }
        guard let first = lines.first?.first, lines.allSatisfy({ $0.count == 3 }) else {
            throw UsageError("--subscriptions must have lines of endpoint, p256dh and auth")
        }
        let endpoint = try PushEndpoint(first.span, nil)
        var configuration = WebPushCourier.Configuration(keys: [key], contact: "mailto:ops@chat.example") {
            Standard.error("courier: \($0)\n")
        }
        configuration.hosts = try PushHosts("\(endpoint.host):\(endpoint.port) private ca \(authority)")
        configuration.authorities = [authority: try File.read(authority, limit: 1_048_576)]
        let samples = try lines.map { line in
            let (endpoint, point, auth) = (line[0], line[1], line[2])
            let subscription = try Subscription(
                endpoint: endpoint.span, p256dh: point.span, auth: auth.span, configuration.hosts)
            return sample(subscription, key)
        }
        return (WebPushCourier(loop: loop, configuration), samples)
    }

    private static func sample(_ number: Int, _ topic: String) throws -> Push {
        let digits = String(number, radix: 16)
        let id = "00000000-0000-4000-8000-" + String(repeating: "0", count: 12 - digits.count) + digits
        let payload =
            #"{"aps":{"alert":{"title":"Waiting","body":"Your chat partner is waiting"},"sound":"default"},"roomId":"\#(id)"}"#
        let token = (0..<32).map { UInt8(truncatingIfNeeded: number &* 31 &+ $0 &* 7) }
        return Push(
            apnsID: id, address: PushAddress(.apns(AppID(bundleID: topic), .production), token: try Secret(copying: token.span)),
            expirationS: Clock.wallMs / 1000 + 120, collapseID: "q1w2e3r4t5y6u7i8o9p0aa",
            payload: Array(payload.utf8), sealedAtMs: 0, deadlineMs: Clock.wallMs + 3_600_000)
    }

    private static func sample(_ subscription: Subscription, _ key: VAPIDKey) -> Push {
        let handle = "q1w2e3r4t5y6u7i8o9p0aa"
        var push = Push(
            apnsID: "", address: PushAddress(.webPush(key: key.number), token: subscription.secret), expirationS: nil,
            collapseID: handle, payload: MessageBench.text(handle), sealedAtMs: 0, deadlineMs: Clock.wallMs + 3_600_000)
        push.ttlS = 120
        return push
    }

    private func begin(_ pushes: Int) {
        failures = 0
        waits.removeAll(keepingCapacity: true)
        left = pushes
    }

    /// Sends all pushes, with `inFlight` of them at a time.
    private func flood(_ pushes: Int, _ inFlight: Int) async {
        left = pushes
        await withDiscardingTaskGroup { group in
            for lane in 0..<inFlight { group.addTask(executorPreference: loop) { await self.sendOn(lane) } }
        }
    }

    private func sendOn(_ lane: Int) async {
        var number = lane
        while left > 0 {
            left -= 1
            await send(number)
            number += 1
        }
    }

    /// Sends `rate` pushes per second, however long the answers take.
    private func pace(_ rate: Int) async {
        let pushes = left
        await withDiscardingTaskGroup { group in
            let start = Clock.monotonicMs
            var sent = 0
            while sent < pushes {
                let due = min(pushes, Int(Clock.monotonicMs - start) * rate / 1000)
                while sent < due {
                    let number = sent
                    group.addTask(executorPreference: loop) { await self.send(number) }
                    sent += 1
                }
                try? await loop.sleep(1)
            }
        }
    }

    private func send(_ number: Int) async {
        let start = Clock.monotonicNs / 1000
        if case .failed = await courier.send(samples[number % samples.count]) { failures += 1 }
        waits.append(Clock.monotonicNs / 1000 - start)
    }

    private func report(_ pushes: Int, elapsedNs: UInt64, busyNs: UInt64) {
        waits.sort()
        let wait = { (share: Double) in self.waits[min(self.waits.count - 1, Int(Double(self.waits.count) * share))] }
        let perSecond = { (ns: UInt64) in Int(Double(pushes) / (Double(max(1, ns)) / 1e9)) }
        Standard.output(
            """
            {"pushes": \(pushes), "failed": \(failures), "seconds": \(Double(elapsedNs) / 1e9), "cpuSeconds": \(Double(busyNs) / 1e9), \
            "pushesPerSecond": \(perSecond(elapsedNs)), "pushesPerCPUSecond": \(perSecond(busyNs)), \
            "answerP50us": \(wait(0.5)), "answerP99us": \(wait(0.99)), "answerP999us": \(wait(0.999))}

            """)
    }
}
