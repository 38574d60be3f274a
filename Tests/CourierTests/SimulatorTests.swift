import APNsSimulator
import EventLoop
import Linux
import Sealing
import TLS
import Testing
import Vocabulary

@testable import Courier

/// The courier against the simulator, which checks requests as Apple does and does what it is told to.
@Suite struct SimulatorTests {
    struct World {
        let simulator: APNsSimulator
        let courier: Courier
        let alarms = Stage.Alarms()

        static func play(keyID: String = "ABCDE12345", _ body: (World) async throws -> Void)
            async throws
        {
            // Two threads, as when the simulator is a process of its own.
            let loops = try (EventLoop(name: "simulator"), EventLoop(name: "courier"))
            try loops.0.start()
            try loops.1.start()
            let world = try await World(loops.0, loops.1, keyID)
            try await body(world)
            await world.courier.stop(withinMs: 100)
            await world.simulator.stop()
            loops.0.stop()
            loops.1.stop()
        }

        private init(_ theirs: EventLoop, _ ours: EventLoop, _ keyID: String) async throws {
            let publicKey = try Stage.key.publicKeyPEM()
            simulator = try APNsSimulator(
                .init(
                    listen: .v4(0x7f00_0001, port: 0), certificateChain: Stage.identity.certificate,
                    privateKey: Stage.identity.privateKey, keyID: keyID, teamID: "TEAM123456",
                    publicKey: ES256.PublicKey(pem: publicKey.span), bundleID: "example.app"), loop: theirs)
            let port = try await simulator.start().apns.port!
            let alarms = alarms
            let token = try ProviderToken(keyID: "ABCDE12345", teamID: "TEAM123456", key: Stage.key)
            var configuration = Courier.Configuration(providerToken: token) { alarms.add($0) }
            configuration.apps = Stage.apps
            configuration.production = Endpoint(host: "127.0.0.1", port: port)
            configuration.sandbox = configuration.production
            configuration.trust = .authorities(Stage.identity.certificate)
            configuration.timing.retry = Stage.timing.retry
            configuration.timing.reconnect = Stage.timing.reconnect
            courier = try Courier(loop: ours, configuration)
        }

        func send(_ numbers: ClosedRange<Int>, deadlineInMs: UInt64 = 30_000) async -> [Outcome] {
            await withTaskGroup(of: Outcome.self) { group in
                for number in numbers { group.addTask { await courier.send(.sample(number, deadlineInMs: deadlineInMs)) } }
                return await group.reduce(into: []) { $0.append($1) }
            }
        }

        var delivered: [String] { get async { await simulator.pushes.map(\.token) } }
    }

    @Test func everyKindOfPushIsAccepted() async throws {
        let kinds: [(PushType, String, UInt8, UInt64)] = [
            (.alert, "example.app", 10, 60), (.background, "example.app", 5, 60), (.voip, "example.app.voip", 10, 0),
            (.liveactivity, "example.app.push-type.liveactivity", 5, 60),
        ]
        try await World.play { world in
            for (kind, _, priority, expirationS) in kinds {
                var push = Push.sample()
                (push.type, push.priority, push.expirationS) = (kind, priority, expirationS)
                push.payload = Array((kind == .background ? #"{"aps":{"content-available":1}}"# : #"{"aps":{"alert":"x"}}"#).utf8)
                let outcome = await world.courier.send(push)
                #expect(outcome == .delivered, "\(kind)")
            }
            let accepted = await world.simulator.pushes
            #expect(accepted.map { $0.headers["apns-push-type"] } == kinds.map { $0.0.rawValue })
            #expect(accepted.map { $0.headers["apns-topic"] } == kinds.map { $0.1 })
            #expect(accepted.allSatisfy { $0.token == Push.sampleHex(1) })
            #expect(await world.simulator.counts.connections == 1)
        }
    }

    @Test func aThousandAtOnceGoOverOneConnectionOnceEach() async throws {
        try await World.play { world in
            let outcomes = await world.send(1...1000)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(Set(await world.delivered) == Set((1...1000).map(Push.sampleHex)))
            #expect(await world.delivered.count == 1000)
            #expect(await world.simulator.counts.connections == 1)
        }
    }

    @Test func refusedStreamsAreDeliveredOnceEach() async throws {
        try await World.play { world in
            var busy = Fault()
            (busy.refuse, busy.rate) = (true, 0.05)
            await world.simulator.setFaults(FaultPlan(always: [busy]))
            let outcomes = await world.send(1...500)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(await world.delivered.sorted() == (1...500).map(Push.sampleHex).sorted())
            #expect(await world.simulator.counts.connections == 1)
        }
    }

    @Test func goAwaysInARowLoseNothing() async throws {
        try await World.play { world in
            var goAway = Fault()
            (goAway.goaway, goAway.rate) = (true, 0.02)
            var refused = Fault()
            (refused.goaway, refused.refuse, refused.rate) = (true, true, 0.02)
            await world.simulator.setFaults(FaultPlan(always: [goAway, refused]))
            let outcomes = await world.send(1...500)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            #expect(Set(await world.delivered) == Set((1...500).map(Push.sampleHex)))
            let accepted = await world.simulator.pushes
            #expect(accepted.count == 500)
            #expect(Set(accepted.compactMap { $0.headers["apns-id"] }).count == 500)
        }
    }

    /// What was lost after Apple took it is sent again under its own id, by which Apple drops the second one.
    @Test func lostResponsesAreRetriedWithTheSameID() async throws {
        try await World.play { world in
            var lost = Fault()
            (lost.drop, lost.accepted, lost.rate) = (true, true, 0.02)
            var reset = Fault()
            (reset.reset, reset.accepted, reset.rate) = (true, true, 0.02)
            await world.simulator.setFaults(FaultPlan(always: [lost, reset]))
            let outcomes = await world.send(1...200)
            #expect(outcomes.allSatisfy { $0 == .delivered })
            let accepted = await world.simulator.pushes
            #expect(Set(accepted.map(\.token)).count == 200)
            #expect(accepted.count > 200)
            #expect(Set(accepted.compactMap { $0.headers["apns-id"] }).count == 200)
        }
    }

    @Test func anotherKeyIsAConfigurationFaultThatPurgesNothing() async throws {
        try await World.play(keyID: "ZZZZZ99999") { world in
            let outcomes = await world.send(1...50, deadlineInMs: 400)
            #expect(outcomes.allSatisfy { if case .failed(403, _, .configuration) = $0 { true } else { false } })
            #expect(!world.alarms.all.isEmpty)
            #expect(await world.simulator.counts.connections <= FaultyPeerTests.mostConnections + 2)
        }
    }
}
