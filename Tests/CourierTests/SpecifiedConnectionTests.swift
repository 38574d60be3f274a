import APNsSimulator
import EventLoop
import Linux
import Sealing
import TLS
import TestCertificates
import Testing
import Vocabulary

@testable import Courier

/// Sections "Endpoints" and "Provider token".
@Suite(.timeLimit(.minutes(1))) struct ProviderRows {
    @Test func theEndpointsAreApples() {
        #expect(Endpoint.production == Endpoint(host: "api.push.apple.com", port: 443))
        #expect(Endpoint.sandbox == Endpoint(host: "api.sandbox.push.apple.com", port: 443))
    }

    @Test func oneTokenServesAllConnectionsAndPushes() async throws {
        try await SimulatedAPNs.play { world in
            let goAway = Fault.with { ($0.goaway, $0.rate) = (true, 0.02) }
            let drop = Fault.with { ($0.drop, $0.accepted, $0.rate) = (true, true, 0.02) }
            await world.plan(always: [goAway, drop])
            let outcomes = await world.send(1...200)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(await world.connections > 1)
            #expect(world.issued.all.count == 1)
            // Another one within 20 minutes would have been refused.
            #expect(await world.simulator.counts.refused.isEmpty)
        }
    }

    /// The simulator refuses a token that is older than an hour: one from before that must be replaced before it is used.
    @Test(arguments: [(49, 0), (61, 1)] as [(UInt64, Int)])
    func aStoredTokenIsUsedWhileItLastsAndNotAfter(minutes: UInt64, issues: Int) async throws {
        let now = Clock.wallMs / 1000
        let setting = try SimulatedAPNs.setting { $0.issuedAtS = now - minutes * 60 }
        try await SimulatedAPNs.play(setting) { world in
            #expect(await world.send() == .delivered)
            #expect(await world.simulator.counts.refused.isEmpty)
            #expect(world.issued.all.count { $0 >= now - ProviderToken.backdatedS } == issues)
        }
    }

    @Test(arguments: [
        ("ZZZZZ99999", SimulatedAPNs.teamID, [APNsEnvironment.production, .sandbox], PushReason.invalidProviderToken),
        (SimulatedAPNs.keyID, "OTHERTEAM0", [.production, .sandbox], .invalidProviderToken),
        (SimulatedAPNs.keyID, SimulatedAPNs.teamID, [.production], .badEnvironmentKeyIDInToken),
    ])
    func aWrongKeyIsAnAlarmAndNoLoop(
        keyID: String, team: String, environments: [APNsEnvironment], reason: PushReason
    ) async throws {
        let setting = try SimulatedAPNs.setting { setting in
            setting.simulator.keys = [try SimulatedAPNs.key(keyID, team: team, environments: Set(environments))]
        }
        try await SimulatedAPNs.play(setting) { world in
            let outcome = await world.send { $0.deadlineMs = Clock.wallMs + 250 }
            #expect(outcome == .failed(status: 403, reason: reason, verdict: .configuration))
            // A key may be invalid because of a clock, which can be set before the deadline.
            #expect(await world.refusals == 1 || reason == .invalidProviderToken)
            #expect(await world.refusals <= FaultyPeerTests.mostConnections)
            #expect(world.alarms.all.count == 1)
        }
    }

    /// A connection belongs to the team and key of its first push: each account has its own.
    @Test func teamsAndKeysShareNoConnection() async throws {
        let names = [
            ("KEYONE0001", "TEAMONE001", "com.one"), ("KEYTWO0002", "TEAMONE001", "com.two"),
            ("KEYTHREE03", "TEAMTWO002", "com.three"),
        ]
        let setting = try SimulatedAPNs.setting { setting in
            setting.simulator.keys = try names.map { try SimulatedAPNs.key($0, team: $1, [$2]) }
            setting.accounts = try names.map { key, team, topic in
                try Account(.token(ProviderToken(keyID: key, teamID: team, key: Stage.key)), topics: [topic])
            }
        }
        try await SimulatedAPNs.play(setting) { world in
            for number in 1...30 {
                let topic = names[number % 3].2
                #expect(await world.send(number) { $0.setApp(topic) } == .delivered)
            }
            #expect(await world.connections == 3)
            #expect(await world.simulator.counts.refused.isEmpty)
        }
    }

    // MARK: Certificates

    private func play(
        _ files: ClientCertificateFiles, trusted: ClientCertificateFiles? = nil, _ body: (SimulatedAPNs) async throws -> Void
    ) async throws {
        let setting = try SimulatedAPNs.setting { setting in
            setting.simulator.clientAuthorities = (trusted ?? files).certificate
            setting.accounts = [try Account(.certificate(try files.identity()), topics: ["example.app"])]
        }
        try await SimulatedAPNs.play(setting, body)
    }

    @Test func aCertificateNeedsNoToken() async throws {
        try await play(ClientCertificateFiles(userIDs: ["example.app"])) { world in
            let outcomes = await world.send(1...100)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(await world.simulator.counts.refused.isEmpty)
            // What needs one never leaves.
            let voip = await world.send { $0.type = .voip }
            #expect(voip == .failed(status: 0, reason: .topicDisallowed, verdict: .configuration))
            #expect(await world.refusals == 0)
        }
    }

    @Test func aWrongCertificateRaisesAnAlarmAndIsNotHammered() async throws {
        let files = try ClientCertificateFiles(userIDs: ["example.app"])
        try await play(files, trusted: ClientCertificateFiles(userIDs: ["x"])) { world in
            #expect(await world.send() == .failed(status: 403, reason: .badCertificate, verdict: .configuration))
            #expect(await world.refusals == 1)
            #expect(world.alarms.all.count == 1)
        }
        let production = try ClientCertificateFiles(userIDs: ["example.app"], marks: [ClientCertificateFiles.production])
        try await play(production) { world in
            let outcome = await world.send()
            #expect(outcome == .failed(status: 403, reason: .badCertificateEnvironment, verdict: .configuration))
            #expect(await world.refusals == 1)
        }
    }
}

/// Section "Connection rules".
@Suite(.timeLimit(.minutes(1))) struct ConnectionRows {
    /// The peer has taken 40 pushes, and answers them late. Meanwhile others go by another connection.
    @Test(arguments: [false, true]) func aGoAwayWhoseAnswersAreSlowSendsNothingTwice(graceful: Bool) async throws {
        let setting = try SimulatedAPNs.setting { ($0.timing.requestMs, $0.timing.pingMs) = (10_000, 2_000) }
        try await SimulatedAPNs.play(setting) { world in
            #expect(await world.send(1000) == .delivered)
            await world.plan(always: [.with { ($0.goaway, $0.graceful, $0.pauseMs, $0.rate) = (true, graceful, 400, 0.025) }])
            async let slow = world.send(1...40)
            try await world.until { await world.accepted.count == 41 }
            await world.plan()
            #expect(await world.send(41) == .delivered)
            #expect(await slow.allSatisfy { $0 == .delivered })
            #expect(await world.accepted.count == 42)
            #expect(Set(await world.accepted.compactMap { $0.headers["apns-id"] }).count == 42)
            #expect(await world.courier.figures.retries == 0)
            #expect(await world.connections == 2)
        }
    }

    /// Every tenth answer ends its connection, and with it most others. With waits that grow, 30 pushes would take minutes.
    @Test func replacingWorkingConnectionsDoesNotGrowWaits() async throws {
        let setting = try SimulatedAPNs.setting { setting in
            setting.timing.reconnect = Backoff(firstMs: 50, longestMs: 60_000)
            // What was under way on a connection that ends waits before it goes again. That is not what this is about.
            setting.timing.retry = Backoff(firstMs: 2, longestMs: 2)
            setting.timing.requestMs = 20_000
        }
        try await SimulatedAPNs.play(setting) { world in
            await world.plan(always: [.with { ($0.drop, $0.rate) = (true, 0.1) }])
            #expect(await world.send(1...30, deadlineInMs: 20_000).allSatisfy { $0 == .delivered })
            #expect(await world.connections >= 12)
        }
    }

    // MARK: Peers at their worst, once each; the next connection is a good one

    static let worst: [(String, Fault)] = [
        ("a flood of PINGs", .with { ($0.at, $0.pings) = (.connect, 20_000) }),
        ("a flood of SETTINGS", .with { ($0.at, $0.settings) = (.connect, 5_000) }),
        ("a DATA frame on stream 0", .with { ($0.at, $0.raw) = (.connect, [0, 0, 1, 0, 0, 0, 0, 0, 0, 7]) }),
        ("half a frame too large", .with { ($0.at, $0.raw) = (.connect, [0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1, 0]) }),
        ("HTTP/1.1", .with { ($0.at, $0.raw) = (.connect, Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8)) }),
        ("GOAWAY at once", .with { ($0.at, $0.goaway) = (.connect, true) }),
        ("the end at once", .with { ($0.at, $0.drop) = (.connect, true) }),
        ("silence at once", .with { ($0.at, $0.stall) = (.connect, true) }),
        ("a window that never opens", .with { ($0.at, $0.window) = (.connect, 0) }),
        ("half an answer", .with { ($0.reason, $0.form.half) = ("BadDeviceToken", true) }),
        ("a reset", .with { $0.reset = true }), ("silence", .with { $0.silent = true }),
        ("an answer slower than the deadline", .with { ($0.reason, $0.form.dribbleMs) = ("BadDeviceToken", 2000) }),
    ]

    @Test(arguments: worst) func noPushIsLostToAFaultyPeer(name: String, fault: Fault) async throws {
        let setting = try SimulatedAPNs.setting { setting in
            setting.faults = FaultPlan(next: [fault])
            setting.timing.requestMs = 200
        }
        try await SimulatedAPNs.play(setting) { world in
            let outcomes = await world.send(1...10)
            #expect(outcomes.allSatisfy { $0 == .delivered }, "\(name): \(outcomes)")
            #expect(Set(await world.accepted.map(\.token)).count == 10)
            // One after the fault; another if a loaded machine takes longer than the deadline.
            #expect(await world.connections <= 3)
        }
    }
}
