import EventLoop
import Linux
import Sealing
import Sodium
import Synchronization
import TLS
import Testing
import Vocabulary
import WebPush

@testable import Courier

/// The rules for hosts that strangers chose. Real services are in `test_web_push.py`.
@Suite struct WebPushCourierTests {
    private final class LookUps: Sendable {
        private let state = Mutex<[String: Int]>([:])
        var names: [String: Int] { state.withLock(\.self) }
        func note(_ name: String) { state.withLock { $0[name, default: 0] += 1 } }
    }

    private let loop: EventLoop
    private let key: VAPIDKey
    private let lookUps = LookUps()

    init() throws {
        loop = try EventLoop(name: "web-push")
        try loop.start()
        key = try VAPIDKey(ES256.PrivateKey())
    }

    private func courier(
        _ addresses: [SocketAddress], own: [SocketAddress] = [], hosts: PushHosts = .public
    ) -> WebPushCourier {
        var configuration = WebPushCourier.Configuration(keys: [key], contact: "mailto:ops@chat.example")
        configuration.hosts = hosts
        configuration.resolver = { [lookUps] endpoint in
            lookUps.note(endpoint.host)
            return addresses.map { $0.with(port: endpoint.port) }
        }
        configuration.ownAddresses = { own }
        return WebPushCourier(loop: loop, configuration)
    }

    private func push(to host: String, key number: UInt8? = nil, withinMs: UInt64 = 2_000) throws -> Push {
        let point = try ECDHKey().point
        let (endpoint, auth) = (Array("https://\(host)/x".utf8), Base64.url.encode(Sodium.randomBytes(16).span))
        let (pointText, authText) = (Array(Base64.url.encode(point.span).utf8), Array(auth.utf8))
        let all = try PushHosts("localhost:1\n127.0.0.1:1")
        let subscription = try Subscription(endpoint: endpoint.span, p256dh: pointText.span, auth: authText.span, all)
        let now = Clock.wallMs
        return Push(
            apnsID: Push.randomID(), address: PushAddress(.webPush(key: number ?? key.number), token: subscription.secret),
            expirationS: nil, payload: [1], sealedAtMs: now, deadlineMs: now + withinMs)
    }

    @Test(arguments: ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1"])
    func inwardAddressesAreNotCalled(address: String) async throws {
        let courier = courier([try #require(SocketAddress(numeric: address, port: 0))])
        let outcome = await courier.send(try push(to: "push.example"))
        #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
        let figures = await courier.figures
        #expect(figures.inward > 0 && figures.failedElsewhere == 1)
        await courier.stop(withinMs: 100)
    }

    @Test(arguments: ["203.0.114.7", "::ffff:203.0.114.7", "64:ff9b::203.0.114.7"])
    func thisMachinesOwnAddressIsNotCalled(spelling: String) async throws {
        let own = try #require(SocketAddress(numeric: "203.0.114.7", port: 0))
        let courier = courier([try #require(SocketAddress(numeric: spelling, port: 0))], own: [own])
        let outcome = await courier.send(try push(to: "push.example"))
        #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
        #expect(await courier.figures.inward > 0)
        await courier.stop(withinMs: 100)
    }

    /// An endpoint that was sealed before the rules changed, or that somebody wrote into the database.
    @Test func aNumericHostIsNotCalledEither() async throws {
        let inward = [try #require(SocketAddress(numeric: "127.0.0.1", port: 0))]
        let (unlisted, listed) = (courier(inward), courier(inward, hosts: try PushHosts("127.0.0.1:1\nlocalhost:1")))
        for host in ["127.0.0.1:1", "localhost:1"] {
            let outcome = await unlisted.send(try push(to: host))
            #expect(outcome == .failed(status: 0, reason: .topicDisallowed, verdict: .keep))
        }
        #expect(lookUps.names.isEmpty)
        // Without `private`, a listed host's address must be a public one, also if its name is its address.
        for host in ["127.0.0.1:1", "localhost:1"] {
            let outcome = await listed.send(try push(to: host, withinMs: 700))
            #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
        }
        let figures = await listed.figures
        #expect(figures.failedElsewhere == 2 && figures.inward == 2)
        await unlisted.stop(withinMs: 100)
        await listed.stop(withinMs: 100)
    }

    @Test func unknownKeysAndClosedListsFail() async throws {
        let only = courier([], hosts: try PushHosts("only\npush.example"))
        #expect(
            await only.send(try push(to: "other.example")) == .failed(status: 0, reason: .topicDisallowed, verdict: .keep))
        #expect(
            await only.send(try push(to: "push.example", key: key.number &+ 1))
                == .failed(status: 0, reason: .topicDisallowed, verdict: .configuration))
        await only.stop(withinMs: 100)
        #expect(await only.send(try push(to: "push.example")) == .failed(status: 0, reason: .stopped, verdict: .keep))
    }

    /// `localhost` may be ::1 first, and the proxy listens on 127.0.0.1 only.
    @Test func allAddressesOfAProxyAreTried() async throws {
        try await ScriptedProxy.play(.says("HTTP/1.1 502 Bad Gateway\r\n\r\n")) { proxy in
            var configuration = WebPushCourier.Configuration(keys: [key], contact: "mailto:ops@chat.example")
            configuration.proxy = Proxy(Endpoint(host: "proxy.example", port: proxy.port))
            configuration.resolver = { endpoint in
                let addresses = endpoint.host == "proxy.example" ? ["::1", "127.0.0.1"] : ["203.0.114.7"]
                return addresses.compactMap { SocketAddress(numeric: $0, port: endpoint.port) }
            }
            configuration.ownAddresses = { [] }
            let courier = WebPushCourier(loop: loop, configuration)
            _ = await courier.send(try push(to: "push.example", withinMs: 5_000))
            #expect(await proxy.requests.first?.hasPrefix("CONNECT 203.0.114.7:443 ") == true)
            await courier.stop(withinMs: 100)
        }
    }

    /// Of a stranger's name two addresses are called, of both kinds. The proxy is asked for each.
    @Test func aStrangersNameKeepsAnIPv4Address() async throws {
        try await ScriptedProxy.play(.says("HTTP/1.1 502 Bad Gateway\r\n\r\n")) { proxy in
            var configuration = WebPushCourier.Configuration(keys: [key], contact: "mailto:ops@chat.example")
            configuration.proxy = Proxy(proxy.endpoint)
            configuration.resolver = { endpoint in
                let addresses = endpoint.port == 443 ? ["2606:4700::1", "2606:4700::2", "203.0.114.7"] : ["127.0.0.1"]
                return addresses.compactMap { SocketAddress(numeric: $0, port: endpoint.port) }
            }
            configuration.ownAddresses = { [] }
            let courier = WebPushCourier(loop: loop, configuration)
            _ = await courier.send(try push(to: "push.example", withinMs: 3_000))
            let called = Set(await proxy.requests.compactMap { $0.split(separator: " ").dropFirst().first.map(String.init) })
            #expect(called == ["[2606:4700::1]:443", "203.0.114.7:443"])
            await courier.stop(withinMs: 100)
        }
    }

    /// Names are looked up slowly, and each answer serves for a while.
    @Test func strangersNamesAreLookedUpSlowly() async throws {
        let courier = courier([])
        let start = Clock.monotonicMs
        await withTaskGroup { group in
            for number in 0..<24 {
                group.addTask { [self] in
                    guard let push = try? push(to: "host-\(number).example") else { return }
                    _ = await courier.send(push)
                }
            }
        }
        let (names, took) = (lookUps.names, Clock.monotonicMs - start)
        // Eight a second, for two seconds; retries of one name are answered from memory.
        #expect(names.count <= 8 * Int(took / 1_000 + 1) + 1 && names.values.allSatisfy { $0 == 1 })
        #expect(names.count >= 8)
        await courier.stop(withinMs: 100)
    }

    /// They never left, so they are no answer of the host's.
    @Test func pushesBeyondAHostsMinuteEndAsLate() async throws {
        let courier = courier([])
        let outcomes = await withTaskGroup(of: Outcome?.self) { group in
            for _ in 0..<200 {
                group.addTask { [self] in
                    guard let push = try? push(to: "push.example", withinMs: 1_000) else { return nil }
                    return await courier.send(push)
                }
            }
            return await group.reduce(into: [Outcome]()) { all, one in if let one { all.append(one) } }
        }
        let late = outcomes.count { $0 == .failed(status: 0, reason: .late, verdict: .keep) }
        let unreachable = outcomes.count { $0 == .failed(status: 0, reason: .unreachable, verdict: .keep) }
        // A minute may have begun meanwhile.
        #expect(late + unreachable == 200 && late >= 80)
        #expect(await courier.figures.failedElsewhere == 200)
        await courier.stop(withinMs: 100)
    }

    @Test(arguments: [("", false), ("*.example", false), ("known.example", true)])
    func strangersNamesDelayNoNamedHost(list: String, isFound: Bool) async throws {
        let courier = courier([], hosts: try PushHosts(list))
        let names = await withTaskGroup { group in
            // Four seconds of look-ups.
            for number in 0..<32 { group.addTask { [self] in _ = try? await courier.send(push(to: "host-\(number).example")) } }
            try? await Task.sleep(for: .milliseconds(500))
            _ = try? await courier.send(push(to: "known.example", withinMs: 1_000))
            return lookUps.names
        }
        #expect((names["known.example"] != nil) == isFound)
        await courier.stop(withinMs: 100)
    }

    /// Strangers' pushes must not use up what a server gets that the operator knows.
    @Test(arguments: [("", true), ("push.example", false), ("*.example", false)])
    func onlyAnUnlistedHostGetsFewPushesAMinute(list: String, isLimited: Bool) async throws {
        let courier = courier([], hosts: try PushHosts(list))
        let outcomes = await withTaskGroup(of: Outcome?.self) { group in
            // A minute may begin in between. Under a sanitizer 130 pushes take a while.
            for _ in 0..<130 { group.addTask { [self] in try? await courier.send(push(to: "push.example", withinMs: 3_000)) } }
            return await group.reduce(into: [Outcome?]()) { $0.append($1) }
        }
        #expect(outcomes.contains(.failed(status: 0, reason: .late, verdict: .keep)) == isLimited)
        await courier.stop(withinMs: 100)
    }

    @Test func everyPushEndsAtAStop() async throws {
        let courier = courier([])
        let outcomes = await withTaskGroup(of: Outcome?.self) { group in
            for number in 0..<100 {
                group.addTask { [self] in
                    guard let push = try? push(to: "push-\(number % 2 / 2).example", withinMs: 120_000) else { return nil }
                    return await courier.send(push)
                }
            }
            group.addTask {
                try? await Task.sleep(for: .milliseconds(300))
                await courier.stop(withinMs: 200)
                return nil
            }
            return await group.reduce(into: [Outcome]()) { all, one in if let one { all.append(one) } }
        }
        // Also those that wait for their host's next minute.
        #expect(outcomes.count == 100 && outcomes.allSatisfy { $0 == .failed(status: 0, reason: .stopped, verdict: .keep) })
    }
}
