import API
import EventLoop
import HTTPServer
import Ledger
import Linux
import Policy
import Sealing

/// `mayfly demo`: broker and simulator with throw-away keys.
enum DemoCommand {
    private static let keys: [Key] = ServeCommand.keys + [.apnsSimulatorListen, .apnsSimulatorControl]

    static func run(_ words: [String]) async throws {
        if words.asksForHelp {
            return Terminal.out(
                Terminal.help(
                    """
                    usage: mayfly demo [--stay] [FLAGS]
                    Starts broker and APNs simulator with throw-away keys, and plays the story of one room. With --stay they keep running.
                    """, keys))
        }
        var configuration = try Configuration(words, keys: keys, switches: ["stay"])
        guard configuration.operands.isEmpty else { throw UsageError("demo accepts flags only") }
        for key in [Key.tlsCertificate, .tlsKey, .tlsClientCA] where configuration[key] != nil {
            throw UsageError(
                "demo serves only cleartext on loopback: remove \(key.named), or use `mayfly serve`")
        }
        if case .unix = try configuration.address(.listen, default: "127.0.0.1:8787") {
            throw UsageError("demo listens only on ADDRESS:PORT. For a Unix-domain socket use `mayfly serve`")
        }
        let state = configuration.state
        try KeysCommand.makeThrowaway(
            state, origin: configuration[.origin] ?? "mayfly.localhost/audit", wrapping: try WrappingKeySource(configuration))
        let simulatorAddress = configuration[.apnsSimulatorListen] ?? "127.0.0.1:8789"
        let control = configuration[.apnsSimulatorControl] ?? "127.0.0.1:8790"
        for (key, value) in [
            (Key.resolution, "1"), (.apnsKeyPath, state.apnsKey), (.apnsKeyID, "THROWAWAY1"), (.apnsTeamID, "THROWAWAY2"),
            (.apnsBundleID, "org.example.app"), (.policy, "trial,companion,monitor,calls"), (.apnsEndpoint, simulatorAddress),
            (.apnsCA, state.simulatorCA),
        ] { configuration.setDefault(key, value) }
        let hasOwnUsers = JWTSettings.keys.contains { configuration[$0] != nil }
        if !hasOwnUsers {
            configuration.setDefault(.jwtAlgorithm, JSONWebAlgorithm.hs256.rawValue)
            configuration.setDefault(.jwtKey, state.jwtSecret)
        }
        let hasOwnWebhooks = WebhookSettings.areGiven(configuration)
        if !hasOwnWebhooks { configuration.setDefault(.webhookSecrets, state.webhookSecret) }
        let settings = try ServiceSettings(configuration)
        let signer = hasOwnUsers ? nil : try JSONWebSigner(algorithm: .hs256, path: state.jwtSecret)

        let loop = try EventLoop(name: "demo")
        try loop.start()
        let client = HTTPClient(loop: loop)
        let simulator = SimulatorProcess(loop: loop)
        try await simulator.start(
            [
                "apns-simulator", "--with-parent", "--listen", simulatorAddress, "--control", control,
                "--apns-key-path", try configuration.required(.apnsKeyPath), "--apns-key-id",
                try configuration.required(.apnsKeyID),
                "--apns-team-id", try configuration.required(.apnsTeamID),
                "--apns-bundle-id", try configuration.required(.apnsBundleID), "--certificate", state.simulatorCertificate,
            ])
        do {
            try await simulator.waitUntilReady(client, "http://\(control)/pushes")
            let service = try await Service.start(settings)
            do {
                if configuration.has("stay") {
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

    private static func stay(
        _ service: Service, _ state: StateFolder, _ control: String, _ signer: JSONWebSigner?, showsWebhooks: Bool
    ) async throws {
        let program = CommandLine.arguments.first ?? "mayfly"
        Terminal.out(
            """
            Mayfly is ready, with throw-away keys: for development only.
              apps       http://\(service.address)/api/rooms    ws://\(service.address)/ws
              pushes     http://\(control)/pushes
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
