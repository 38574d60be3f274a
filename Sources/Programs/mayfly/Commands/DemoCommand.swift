import API
import EventLoop
import HTTP1
import HTTPServer
import Ledger
import Linux
import Policy
import Sealing
import Sodium
import Storage
import Vocabulary

/// `mayfly demo`: runs broker and simulator with throw-away keys.
enum DemoCommand {
    private static let keys: [Setting] = ServeCommand.keys + [.apnsSimulatorListen, .apnsSimulatorControl]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(
                Terminal.help(
                    """
                    usage: mayfly demo [--stay] [FLAGS]
                    Starts broker and APNs simulator with throw-away keys, and plays the story of one room. With --stay they keep running, and a page
                    under /demo/ plays it in the browser.
                    """, keys))
        }
        var configuration = try Configuration(words, keys: keys, switches: ["stay"])
        guard configuration.operands.isEmpty else { throw UsageError("demo accepts flags only") }
        try ServiceLog.use(configuration)
        for key in [Setting.tlsCertificate, .tlsKey, .tlsClientCA] where configuration[key] != nil {
            throw UsageError(
                "demo serves only cleartext on loopback: remove \(key.named), or use `mayfly serve`")
        }
        if case .unix = try configuration.address(.listen) {
            throw UsageError("demo listens only on ADDRESS:PORT. For a Unix-domain socket use `mayfly serve`")
        }
        let state = try configuration.state
        try KeysCommand.makeThrowaway(
            state, origin: configuration[.origin] ?? "mayfly.localhost/audit", wrapping: try WrappingKeySource(configuration))
        if case .server(let uri) = state.database { try PostgresStore.makeSchema(uri: uri) }
        let simulatorAddress = configuration.value(.apnsSimulatorListen)
        let control = configuration.value(.apnsSimulatorControl)
        for (key, value) in [
            (Setting.resolution, "1"), (.apnsKeyPath, state.apnsKey), (.apnsKeyID, "THROWAWAY1"), (.apnsTeamID, "THROWAWAY2"),
            (.apnsBundleID, "org.example.app"), (.policy, "trial,companion,monitor,calls"), (.apnsEndpoint, simulatorAddress),
            (.apnsCA, state.simulatorCA),
        ] { configuration.setDefault(key, value) }
        let hasOwnUsers = JWTSettings.areGiven(configuration)
        if !hasOwnUsers {
            configuration.setDefault(.jwtAlgorithm, JSONWebAlgorithm.hs256.rawValue)
            configuration.setDefault(.jwtKey, state.jwtSecret)
        }
        let hasOwnWebhooks = WebhookSettings.areGiven(configuration)
        if !hasOwnWebhooks { configuration.setDefault(.webhookSecrets, state.webhookSecret) }
        let hasOwnWebPush = WebPushSettings.areGiven(configuration)
        if !hasOwnWebPush { try setWebPush(&configuration, state, simulator: simulatorAddress) }
        let settings = try ServiceSettings(configuration)
        if !hasOwnWebPush { _ = try await settings.webPush?.enable(in: state) }
        let signer = hasOwnUsers ? nil : try JSONWebSigner(algorithm: .hs256, path: state.jwtSecret)

        let loop = try EventLoop(name: "demo")
        try loop.start()
        let client = HTTPClient(loop: loop)
        let simulator = SimulatorProcess(loop: loop)
        try await simulator.start(
            [
                "apns-simulator", "\(SimulatorCommand.withParent)\(ProcessControl.id)",
                "--listen", simulatorAddress, "--control", control,
                "--apns-key-path", try configuration.required(.apnsKeyPath),
                "--apns-key-id", try configuration.required(.apnsKeyID),
                "--apns-team-id", try configuration.required(.apnsTeamID),
                "--apns-bundle-id", try configuration.required(.apnsBundleID), "--certificate", state.simulatorCertificate,
            ])
        do {
            try await simulator.waitUntilReady(client, "http://\(control)/pushes")
            let site =
                configuration.has("stay")
                ? DemoSite(control: "http://\(control)", client: client, isInContainer: !settings.listen.isLoopback) : nil
            let service = try await Service.start(settings) { broker in
                guard let site else { return broker }
                return DemoHandler(broker: broker, site: site)
            }
            do {
                if let site {
                    site.begin(service)
                    try await stay(service, state, control, signer, showsWebhooks: !hasOwnWebhooks)
                } else {
                    try await Story(
                        service: service, state: state, control: "http://\(control)", client: client, loop: loop,
                        timing: settings.policies.ledger
                    ).play()
                }
            } catch {
                await service.stop()
                throw error
            }
            await service.stop()
        } catch {
            await simulator.stop()
            throw error
        }
        await simulator.stop()
    }

    /// Sets the throw-away key. Messages may also go to the simulator.
    private static func setWebPush(_ configuration: inout Configuration, _ state: StateFolder, simulator: String) throws {
        let hosts = state.keys + "/web-push-hosts"
        let port = simulator.split(separator: ":").last ?? ""
        // The certificate beside this list.
        let lines = [simulator, "localhost:\(port)"].map { "\($0) private ca simulator-ca.pem\n" }
        let text = Array(lines.joined().utf8)
        try File.replaceDurably(hosts, text.span, mode: 0o600)
        for (key, value) in [
            (Setting.vapidKey, state.vapidKey), (.vapidContact, "mailto:demo@example.org"), (.webOrigin, "https://localhost"),
            (.webPushHosts, hosts),
        ] { configuration.setDefault(key, value) }
    }

    private static func stay(
        _ service: Service, _ state: StateFolder, _ control: String, _ signer: JSONWebSigner?, showsWebhooks: Bool
    ) async throws {
        let program = CommandLine.arguments.first ?? "mayfly"
        Terminal.out(
            """
            Mayfly is ready, with throw-away keys: for development only.
              demo page  http://\(service.address)/demo/
              apps       http://\(service.address)/api/rooms    ws://\(service.address)/ws
              pushes     http://\(control)/pushes
              web push   http://\(service.address)/api/push    what a page subscribes with: docs/web-push.md
              operator   http://\(service.operatorAddress)/metrics
              audit log  http://\(service.address)/audit/    \(program) audit verify \(state.ledger) --key \(state.verifierKey)
            """)
        if let signer {
            let now = Clock.wallMs / 1_000
            var claims = JSONWebSigner.Claims(user: "user-1", issuedAtS: now, expiresAtS: now + 86_400)
            let user = try signer.token(claims)
            (claims.user, claims.scope) = ("back-end", "broker.notify")
            Terminal.out(
                """
                JWTs signed with the throw-away secret \(state.jwtSecret), valid for a day. For more: \(program) jwt --sub USER --algorithm HS256 --key \(state.jwtSecret)
                  user-1     \(user)
                  back end   \(try signer.token(claims))
                """)
        }
        if showsWebhooks {
            let secret = String(decoding: try File.read(state.webhookSecret, limit: 256), as: UTF8.self)
            Terminal.out(
                """
                Webhooks of calls, at http://\(service.address)/webhooks/call, signed with the throw-away secret \(state.webhookSecret)
                  secret     \(secret.prefix { $0 != "\n" })
                """)
        }
        Terminal.out("Ctrl-C ends it.")
        await ServiceSignals(loop: service.loop).waitForStop()
    }
}

/// The story of one room, played over real sockets. Each step is checked.
private struct Story {
    let service: Service
    let state: StateFolder
    let control: String
    let client: HTTPClient
    let loop: EventLoop
    let timing: LedgerTiming

    /// The demo waits for the log's next batch if an "hour" of the log is at most so many seconds.
    private static let longestHour: UInt64 = 60

    // New for each run: pushes of an interrupted earlier run may be sent during this one.
    private let code = String(Int.random(in: 100_000...999_999))
    private let creatorToken = Hex.encode(Sodium.randomBytes(32).span)
    private let joinerToken = Hex.encode(Sodium.randomBytes(32).span)

    func play() async throws {
        let api = "http://\(service.address)"
        Terminal.out("The story of one room, with throw-away keys. What leaves for a push service goes to the simulator.\n")

        step("1", "Ann makes a room and leaves her phone's push address with the broker, which seals it.")
        let made = try await call(
            .post, "\(api)/api/rooms",
            "{\"joinid\":\"\(code)\",\"expiresInSeconds\":600,\"client1\":\"ann\",\"client1_token\":\"\(creatorToken)\"}",
            expect: 201)
        let room = try made.text("roomid")

        step("2", "Ben types the join code and leaves his.")
        let joined = try await call(
            .post, "\(api)/api/rooms/accept",
            "{\"joinid\":\"\(code)\",\"client2\":\"ben\",\"client2_token\":\"\(joinerToken)\"}", expect: 200)
        guard try joined.text("roomid") == room else { throw CheckFailed("Ben got another room") }
        try check(try await pushes() == 0, "No push was sent yet.")

        step("3", "Ben opens the room; Ann is away. Ben's room id lets the broker open Ann's address, for this one push.")
        let ben = try await socket(room, "ben")
        let hello = try await ben.next()
        try check(
            hello.contains("\"type\":\"joined\"") && hello.contains("\"delivery\":\"queued\""),
            "The push is stored and on its way.")
        let arrived = try await waitForPush()
        try check(arrived.contains(creatorToken), "The simulator received it for Ann's phone.")
        try check(arrived.contains("Your chat partner is waiting"), "It says: Your chat partner is waiting.")
        for secret in [room, code, "ann", "ben"] where arrived.contains("\"\(secret)\"") {
            throw CheckFailed("the push says too much")
        }
        Terminal.out("     Nothing in it names the room, the code or a person.")

        step("4", "Ann comes back. Ben is present, so no push is sent.")
        let ann = try await socket(room, "ann")
        try check(try await ann.next().contains("\"delivery\":\"peer_present\""), "Ann joined; Ben is present.")
        try check(try await ben.next().contains("peer_joined"), "Ben saw Ann come.")
        try check(try await pushes() == 1, "Still one push in all.")

        step("5", "Ann ends the room: both addresses are destroyed.")
        let closed = try await call(.delete, "\(api)/api/room", nil, bearer: room, expect: 200)
        try check(closed.body.contains("\"purged\":2"), "Two addresses purged.")
        try check(try await ben.next().contains("room_closed"), "Ben was notified.")
        _ = try await call(.get, "\(api)/api/room", nil, bearer: room, expect: 404)
        Terminal.out("     The room is gone.")
        await ann.end()
        await ben.end()

        step("6", "The log is checked as an auditor would check it.")
        let hour = timing.hourSeconds
        let isWaitedFor = hour <= Self.longestHour
        Terminal.out("     Seals and purges are published together, every \(hour) s.")
        let refs = try [made, joined].map { try AuditCommand.ref($0.text("ref")) }
        let (report, found) = try await published(refs, within: isWaitedFor ? 2 * hour + 5 : 3)
        Terminal.out("     Signature, order and totals of its \(report.size) entries are right.")
        try check(
            found.delivered >= 1 && (found.purged >= 2 || !isWaitedFor),
            "Ann and Ben find their own entries in it: \(found.sealed) addresses sealed, \(found.opened) opened for a push, "
                + "\(found.purged) destroyed.")
        Terminal.out("\nThe ledger's verdict: good.")
    }

    /// How many entries the holders of some refs find. The log may have those of earlier stories, too.
    private struct Found {
        var sealed = 0
        var opened = 0
        var delivered = 0
        var purged = 0

        mutating func add(_ story: TokenStory) {
            sealed += story.seals.count
            opened += story.pushes.count
            purged += story.purges.count
            for push in story.pushes {
                if case .pushDelivered? = push.outcome?.entry.op { delivered += 1 }
            }
        }
    }

    /// Verifies the log until it contains the purges of all refs, or the time is over.
    private func published(_ refs: [Ref], within seconds: UInt64) async throws -> (Report, Found) {
        let source = FolderSource(state.ledger)
        let key = try AuditCommand.verifierKey(state.verifierKey)
        let end = Clock.monotonicNs + seconds * 1_000_000_000
        while true {
            try await loop.sleep(1_000)
            let report = try await Verifier(source, key: key).verify()
            var found = Found()
            for ref in refs {
                if let story = try await Self.story(of: ref, in: source, key) { found.add(story) }
            }
            if found.purged >= refs.count || Clock.monotonicNs > end { return (report, found) }
        }
    }

    /// Returns nil if the log has no entry about the token yet.
    private static func story(of ref: Ref, in source: FolderSource, _ key: VerifierKey) async throws -> TokenStory? {
        do throws(VerificationFailure) {
            return try await TokenStory.find(in: source, key: key, ref: ref)
        } catch {
            guard error.code == .missing else { throw error }
            return nil
        }
    }

    private func step(_ number: String, _ text: String) { Terminal.out("\(number).   \(text)") }

    private func check(_ isTrue: Bool, _ text: String) throws {
        guard isTrue else { throw CheckFailed("mayfly demo: this check failed: \(text)") }
        Terminal.out("     \(text)")
    }

    /// The body of an answer.
    private struct Answer {
        let body: String

        func text(_ name: String) throws -> String {
            let mark = "\"\(name)\":\""
            guard let start = body.firstRange(of: mark) else { throw CheckFailed("mayfly demo: an answer without \(name)") }
            return String(body[start.upperBound...].prefix { $0 != "\"" })
        }
    }

    private func call(
        _ method: Method, _ url: String, _ body: String?, bearer: String? = nil, expect status: UInt16
    ) async throws -> Answer {
        let answer = try await client.send(
            url, method: method, headers: bearer.map { [.init("Authorization", "Bearer \($0)")] } ?? [],
            body: Array((body ?? "").utf8))
        guard answer.status == status else {
            throw CheckFailed("mayfly demo: \(method.name) answered \(answer.status) instead of \(status)")
        }
        return Answer(body: String(decoding: answer.body, as: UTF8.self))
    }

    private func listed() async throws -> String { try await call(.get, control + "/pushes", nil, expect: 200).body }

    /// The number of pushes to this story's phones.
    private func pushes() async throws -> Int {
        let list = try await listed()
        return [creatorToken, joinerToken].reduce(0) { $0 + list.ranges(of: $1).count }
    }

    private func waitForPush() async throws -> String {
        for _ in 0..<100 {
            let list = try await listed()
            if list.contains(creatorToken) { return list }
            try await loop.sleep(20)
        }
        throw CheckFailed("mayfly demo: no push arrived within two seconds")
    }

    private func socket(_ room: String, _ name: String) async throws -> Phone {
        let socket = WebSocketClient(loop: loop)
        try await socket.connect("ws://\(service.address)/ws")
        try await socket.send(Array("{\"type\":\"join_room\",\"roomid\":\"\(room)\",\"client\":\"\(name)\"}".utf8))
        return Phone(socket: socket)
    }

    /// The open WebSocket of one side.
    private struct Phone {
        let socket: WebSocketClient

        func next() async throws -> String {
            guard let message = try await socket.receive(timeoutMs: 5_000) else {
                throw CheckFailed("mayfly demo: a socket closed early")
            }
            return String(decoding: message, as: UTF8.self)
        }

        func end() async { await socket.close() }
    }
}

/// The simulator as a child process.
///
/// The kernel ends the child with the thread that started it. So this actor runs on a loop whose thread lives as long as this process.
private actor SimulatorProcess: LoopActor {
    nonisolated let loop: EventLoop
    private var child: ChildProcess?

    init(loop: EventLoop) { self.loop = loop }

    func start(_ arguments: [String]) throws {
        child = try ChildProcess.spawn(try ProcessControl.executable(), arguments: arguments)
    }

    func waitUntilReady(_ client: HTTPClient, _ url: String) async throws {
        for _ in 0..<250 {
            let answer = try? await client.send(url, timeoutMs: 1_000)
            // If the child has ended, another process answered.
            guard try child?.poll() == nil else { break }
            if answer?.status == 200 { return }
            try await loop.sleep(20)
        }
        throw CommandFailed("the APNs simulator did not start; its error is printed above")
    }

    func stop() {
        try? child?.send(.terminate)
        _ = try? child?.wait()
        child = nil
    }
}
