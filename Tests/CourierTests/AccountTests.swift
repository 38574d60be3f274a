import EventLoop
import HTTP2
import Linux
import Synchronization
import TLS
import Testing
import Vocabulary

@testable import Courier

/// Several apps, teams and environments in one courier, by tokens and by certificates.
@Suite struct AccountTests {
    static let client = try! SelfSignedCertificate.make(names: ["push.example"], days: 1)

    static func token(_ keyID: String, team: String = "TEAM123456") throws -> ProviderToken {
        try ProviderToken(keyID: keyID, teamID: team, key: Stage.key)
    }

    static func certificate(_ identity: SelfSignedCertificate = client) throws -> ClientCertificate {
        try ClientCertificate(pem: identity.certificate.span, key: identity.privateKey.span)
    }

    // MARK: Choosing

    @Test(arguments: [
        (PushType.alert, "com.app"), (.background, "com.app"), (.voip, "com.app.voip"),
        (.liveactivity, "com.app.push-type.liveactivity"),
    ])
    func aTopicBelongsToItsApp(type: PushType, topic: String) throws {
        let account = try Account(.token(Self.token("K")), topics: ["com.app"])
        #expect(account.serves(topic, .production, type))
        #expect(!account.serves("com.other" + type.topicSuffix, .production, type))
        // Another type's suffix is part of a name.
        #expect(!account.serves("com.app.complication.voip", .production, type))
    }

    @Test func theFirstAccountThatServesIsTaken() throws {
        let accounts = Accounts([
            try Account(.token(Self.token("ONE")), topics: ["com.one"], environments: [.production]),
            try Account(.certificate(Self.certificate()), topics: ["com.two"]),
            try Account(.token(Self.token("TWO")), topics: ["com.two", "com.three"], environments: [.sandbox]),
        ])
        #expect(accounts.index("com.one", .production, .alert) == 0)
        #expect(accounts.index("com.one", .sandbox, .alert) == nil)
        #expect(accounts.index("com.two", .sandbox, .alert) == 1)
        #expect(accounts.index("com.two.voip", .sandbox, .voip) == 2)
        #expect(accounts.index("com.two.voip", .production, .voip) == nil)
        #expect(accounts.account(for: "com.four", .production, .alert) == nil)
        #expect(accounts.account(for: "com.three", .sandbox, .alert)?.environments == [.sandbox])
    }

    @Test func aCertificateTakesNoKindThatNeedsAToken() throws {
        let account = try Account(.certificate(Self.certificate()))
        let refused = PushType.allCases.filter { !account.takes($0) }
        #expect(refused == [.voip, .liveactivity])
        #expect(PushType.allCases.allSatisfy { Account(try! Self.token("K")).takes($0) })
    }

    @Test func anAccountNeedsTopics() throws {
        #expect(throws: CourierError.noTopics) { _ = try Account(.token(Self.token("K")), topics: []) }
        #expect(throws: CourierError.noTopics) { _ = try Account(.token(Self.token("K")), topics: [""]) }
    }

    @Test func aCertificateIsForTheTopicsThatItLists() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        var output = [UInt8](repeating: 0, count: 1024)
        var span = output.mutableSpan
        let arguments = [
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
            "/UID=com.app/CN=Apple Push Services", "-keyout", folder + "/key", "-out", folder + "/pem",
        ]
        let ended = try ChildProcess.read("/usr/bin/openssl", arguments: arguments, into: &span, deadlineMs: 20_000)
        #expect(ended == .ended(.status(0), count: 0))
        let (pem, key) = (try File.read(folder + "/pem", limit: 65_536), try File.read(folder + "/key", limit: 65_536))
        let certificate = Credential.certificate(try ClientCertificate(pem: pem.span, key: key.span))

        #expect(throws: CourierError.notInCertificate("com.other", listed: ["com.app"])) {
            _ = try Account(certificate, topics: ["com.app", "com.other"])
        }
        for account in [try Account(certificate), try Account(certificate, topics: ["com.app"])] {
            #expect(account.serves("com.app", .production, .alert))
            #expect(!account.serves("com.other", .production, .alert))
        }
    }

    // MARK: Sending

    @Test func eachAccountHasItsOwnConnections() async throws {
        let accounts = [
            try Account(.token(Self.token("KEYONE")), topics: ["com.one"]),
            try Account(.token(Self.token("KEYTWO", team: "OTHERTEAM1")), topics: ["com.two"], environments: [.sandbox]),
        ]
        try await Stage.play(accounts: accounts, script: ScriptedServer.accepting) { stage in
            var outcomes: [Outcome] = []
            for (topic, environment) in [
                ("com.one", PushEnvironment.production), ("com.one", .sandbox), ("com.two", .sandbox), ("com.one", .production),
                ("com.two", .sandbox),
            ] {
                var push = Push.sample(outcomes.count + 1, topic: topic)
                push.environment = environment
                outcomes.append(await stage.courier.send(push))
            }
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let requests = await stage.server.requests
            #expect(requests.map(\.connection) == [1, 2, 3, 1, 3])
            let byTopic = Dictionary(grouping: requests) { $0.fields["apns-topic"]! }
            let ones = Set(byTopic["com.one"]!.map { $0.fields["authorization"]! })
            let twos = Set(byTopic["com.two"]!.map { $0.fields["authorization"]! })
            #expect(ones.count == 1 && twos.count == 1 && ones.isDisjoint(with: twos))
        }
    }

    @Test func accountsOfOneKeyShareItsToken() async throws {
        let accounts = [
            try Account(.token(Self.token("KEY")), topics: ["com.one"]),
            try Account(.token(Self.token("KEY")), topics: ["com.two"]),
        ]
        try await Stage.play(accounts: accounts, script: ScriptedServer.accepting) { stage in
            for topic in ["com.one", "com.two"] { #expect(await stage.courier.send(Push.sample(topic: topic)) == .delivered) }
            let requests = await stage.server.requests
            #expect(Set(requests.map { $0.fields["authorization"]! }).count == 1)
            #expect(Set(requests.map(\.connection)).count == 2)
        }
    }

    /// Or a kill at the first request loses it, and the next start makes another too soon for Apple.
    @Test func aProviderTokensBirthIsStoredBeforeItIsUsed() async throws {
        let births = Stage.IssuedTokens()
        let stores = Mutex<CheckedContinuation<Void, Never>?>(nil)
        let token = try ProviderToken(keyID: "KEY", teamID: "TEAM123456", key: Stage.key) { birth in
            births.add(birth)
            await withCheckedContinuation { continuation in stores.withLock { $0 = continuation } }
        }
        let accounts = ["com.one", "com.two"].map { try! Account(.token(token), topics: [$0]) }
        try await Stage.play(accounts: accounts, script: ScriptedServer.accepting) { stage in
            async let outcomes = stage.send((1...20).map { Push.sample($0, topic: $0 % 2 == 0 ? "com.one" : "com.two") })
            #expect(await stage.comes { await stage.server.openConnections == 2 })
            try await stage.loop.sleep(50)
            #expect(await stage.server.requests.isEmpty)
            #expect(births.all.count == 1)
            stores.withLock { $0?.resume() }
            #expect(await outcomes.allSatisfy { $0 == .delivered })
            let used = Set(await stage.server.requests.map { $0.fields["authorization"]! })
            #expect(used.count == 1 && births.all.count == 1)
        }
    }

    @Test func aPushWithoutAnAccountFailsUnsent() async throws {
        let accounts = [try Account(.token(Self.token("SECRETKEY1")), topics: ["com.one"], environments: [.production])]
        try await Stage.play(accounts: accounts, script: ScriptedServer.accepting) { stage in
            var push = Push.sample(topic: "com.one")
            push.environment = .sandbox
            let refused = Outcome.failed(status: 0, reason: .topicDisallowed, verdict: .configuration)
            #expect(await stage.courier.send(push) == refused)
            #expect(await stage.courier.send(Push.sample(topic: "com.other")) == refused)
            #expect(await stage.server.connections == 0)
            #expect(
                stage.alarms.all == [
                    .noAccount(.sandbox, topic: "com.one", .alert), .noAccount(.production, topic: "com.other", .alert),
                ])
        }
    }

    /// A broker may run before its operator has a key: a push then ends at once, and no token is purged for it.
    @Test func withoutAnyAccountPushesEndAtOnce() async throws {
        try await Stage.play(accounts: [], script: ScriptedServer.accepting) { stage in
            let outcomes = await stage.send((1...5).map { Push.sample($0) })
            #expect(outcomes.allSatisfy { $0 == .failed(status: 0, reason: .notConfigured, verdict: .configuration) })
            #expect(outcomes.count == 5)
            #expect(await stage.server.connections == 0)
            #expect(stage.alarms.all == [.noAccount(.production, topic: "example.app", .alert)])
        }
    }

    @Test func alarmsNameTopicAndEnvironmentAndNoKey() async throws {
        let accounts = [try Account(.token(Self.token("SECRETKEY1")), topics: ["com.one"])]
        let script: ScriptedServer.Script = { _ in [.answer(403, #"{"reason":"InvalidProviderToken"}"#)] }
        try await Stage.play(accounts: accounts, script: script) { stage in
            _ = await stage.courier.send(Push.sample(deadlineInMs: 250, topic: "com.one"))
            let text = "\(stage.alarms.all)"
            #expect(text.contains("com.one") && text.contains("production") && text.contains("InvalidProviderToken"))
            #expect(!text.contains("SECRETKEY1") && !text.contains("TEAM123456") && !text.contains("eyJ"))
        }
    }

    /// Where one team's key or one app's certificate is served worse than another's, someone must know whose.
    @Test func alarmsOfTheNetworkSayWhichAppsTheyConcern() async throws {
        let several = [
            try Account(.token(Self.token("ONE")), topics: ["com.one"]),
            try Account(.token(Self.token("TWO", team: "OTHERTEAM1")), topics: Set((1...9).map { "com.two.\($0)" })),
        ]
        let names = [
            "com.one": " for com.one", "com.two.7": " for com.two.1, com.two.2, com.two.3, com.two.4, com.two.5 and 4 more",
        ]
        func alarms(
            _ accounts: [Account]?, _ manner: ScriptedServer.Manner, withinMs: UInt64, _ script: @escaping ScriptedServer.Script
        ) async throws -> Set<String> {
            var said: Set<String> = []
            try await Stage.play(manner: manner, accounts: accounts, script: script) { stage in
                _ = await stage.send(names.keys.map { Push.sample(deadlineInMs: withinMs, topic: $0) })
                said = Set(stage.alarms.all.map(\.description))
            }
            return said
        }
        let unreachable = try await alarms(several, .hangsUp, withinMs: 200, ScriptedServer.accepting)
        let unanswered = try await alarms(several, .http2, withinMs: 1_500) { _ in [.reset(.internalError)] }
        for name in names.values {
            #expect(unreachable.contains { $0.hasPrefix("APNs (production) can't be reached\(name): ") }, "\(unreachable)")
            #expect(
                unanswered.contains { $0.hasPrefix("APNs (production) can be reached but answers no push\(name). ") },
                "\(unanswered)")
        }
        #expect(unreachable.count == 2 && unanswered.count == 2)
        // One key for all: there is nothing to tell apart.
        let alone = try await alarms(nil, .hangsUp, withinMs: 200, ScriptedServer.accepting)
        #expect(alone.count == 1 && alone.allSatisfy { $0.hasPrefix("APNs (production) can't be reached: ") }, "\(alone)")
    }

    // MARK: Certificates

    @Test func aCertificateSpeaksInTheHandshakeAndNotInTheHeaders() async throws {
        let accounts = [try Account(.certificate(Self.certificate()), topics: ["com.app"])]
        let script: ScriptedServer.Script = {
            $0.onConnection == 1 ? [.settings(100), .answer(200)] : [.after(10, [.answer(200)])]
        }
        try await Stage.play(
            firstStreams: 1000, manner: .clientAuthorities(Self.client.certificate), accounts: accounts, script: script
        ) { stage in
            let outcomes = await stage.send((1...50).map { Push.sample($0, topic: "com.app") })
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let requests = await stage.server.requests
            #expect(requests.allSatisfy { $0.fields["authorization"] == nil && $0.fields["apns-topic"] == "com.app" })
            // Here too, all streams come with the first good answer only.
            #expect(requests.first?.openStreams == 1)
            #expect(requests.contains { $0.openStreams > 10 })
        }
    }

    @Test func aCertificateThatIsRefusedIsAConfigurationAlarm() async throws {
        let accounts = [try Account(.certificate(Self.certificate()), topics: ["com.app"])]
        try await Stage.play(
            manner: .clientAuthorities(Stage.identity.certificate), accounts: accounts, script: ScriptedServer.accepting
        ) { stage in
            let outcome = await stage.courier.send(Push.sample(deadlineInMs: 250, topic: "com.app"))
            #expect(outcome == .failed(status: 0, reason: .unreachable, verdict: .keep))
            #expect(stage.alarms.all == [.configuration(.apns(.production), topic: "com.app", .badCertificate)])
            #expect(await stage.server.connections <= FaultyPeerTests.mostConnections)
        }
    }
}
