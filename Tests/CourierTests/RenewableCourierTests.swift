import TLS
import Testing
import Vocabulary

@testable import Courier

/// Keys and certificates are replaced while pushes are under way.
@Suite struct RenewableCourierTests {
    /// By a key of this id, to the stage's server.
    static func courier(_ keyID: String, _ stage: Stage, _ timing: Timing = Stage.timing) throws -> Courier {
        var configuration = Courier.Configuration(accounts: [try Account(.token(AccountTests.token(keyID)))])
        configuration.apps = Stage.apps
        configuration.production = Endpoint(host: "127.0.0.1", port: stage.server.port)
        configuration.trust = .authorities(Stage.identity.certificate)
        configuration.timing = timing
        return try Courier(loop: stage.loop, configuration)
    }

    /// The first request of all is answered after 100 ms, and until then its connection takes no other.
    static let slowAtFirst: ScriptedServer.Script = { request in
        request.number == 1 ? [.after(100, [.answer(200)])] : [.settings(1000), .answer(200)]
    }

    @Test func pushesInFlightFinishOnTheOldCourierAndOthersUseTheNew() async throws {
        try await Stage.play(script: Self.slowAtFirst) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            async let outcomes = withTaskGroup(of: Outcome.self) { group in
                for number in 1...20 { group.addTask { await renewable.send(Push.sample(number)) } }
                return await group.reduce(into: []) { $0.append($1) }
            }
            #expect(await stage.comes { await stage.server.requests.count == 1 })
            _ = await renewable.replace(by: try Self.courier("NEW", stage), after: [])
            #expect(await outcomes.allSatisfy { $0 == .delivered })
            #expect(await renewable.send(Push.sample(21)) == .delivered)
            let requests = await stage.server.requests
            #expect(requests.map(\.connection).sorted() == [1] + [Int](repeating: 2, count: 20))
            #expect(Set(requests.map(\.apnsID)).count == 21)
            #expect(Set(requests.map { $0.fields["authorization"]! }).count == 2)
            #expect(await stage.comes { await stage.server.openConnections == 1 })
            await renewable.stop(withinMs: 200)
        }
    }

    /// Or the private key of each stays in memory.
    @Test func theOldCourierIsReleased() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            weak let old = renewable.courier
            #expect(await renewable.send(Push.sample()) == .delivered)
            #expect(old != nil)
            _ = await renewable.replace(by: try Self.courier("NEW", stage), after: [])
            #expect(await stage.comes { old == nil })
            #expect(await renewable.send(Push.sample(2)) == .delivered)
            await renewable.stop(withinMs: 200)
        }
    }

    @Test func accountsAreThoseOfTheNewCourier() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            let renewable = RenewableCourier(stage.courier)
            #expect(renewable.accounts.account(for: "com.one", .production, .alert) != nil)
            let one = try Account(.token(AccountTests.token("NEW")), topics: ["com.two"])
            _ = await renewable.replace(by: try Courier(loop: stage.loop, Courier.Configuration(accounts: [one])), after: [])
            #expect(renewable.accounts.account(for: "com.one", .production, .alert) == nil)
            #expect(renewable.accounts.account(for: "com.two", .production, .alert) != nil)
        }
    }

    @Test func aStoppedCourierIsNotReplaced() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            await renewable.stop(withinMs: 200)
            _ = await renewable.replace(by: try Self.courier("NEW", stage), after: [])
            #expect(await renewable.send(Push.sample()) == .failed(status: 0, reason: .stopped, verdict: .keep))
            #expect(await stage.server.connections == 0)
        }
    }

    // MARK: Asking Apple first

    /// A token of zeros, which the question goes to.
    static let nobody = String(repeating: "00", count: 32)
    static let question = Probe(topic: "example.app", environment: .production, isRequired: true)

    /// Waits long enough for a slow answer.
    static let patient = {
        var timing = Stage.timing
        timing.requestMs = 2000
        return timing
    }()

    /// Refuses the second connection's provider as long as `refuses` says so; the courier before has the first.
    static func refusingTheNew(
        _ reason: String = "InvalidProviderToken", _ refuses: @escaping @Sendable (ScriptedServer.Request) -> Bool
    )
        -> ScriptedServer.Script
    {
        { request in
            request.connection > 1 && refuses(request)
                ? [.after(50, [.answer(403, #"{"reason":"\#(reason)"}"#)])] : [.settings(1000), .after(5, [.answer(200)])]
        }
    }

    @Test func aRejectedKeyIsNotUsedAndNoPushIsLost() async throws {
        try await Stage.play(script: Self.refusingTheNew { _ in true }) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            #expect(await renewable.send(Push.sample(1000)) == .delivered)
            async let renewal = renewable.replace(by: try Self.courier("NEW", stage), after: [Self.question])
            for number in 1...20 { #expect(await renewable.send(Push.sample(number)) == .delivered) }
            #expect(try await renewal == .refused(topic: "example.app", .production, .invalidProviderToken))
            #expect(await renewable.send(Push.sample(21)) == .delivered)
            let requests = await stage.server.requests
            // The question with two provider tokens, and each push once.
            #expect(requests.filter { $0.connection > 1 }.map(\.token) == [Self.nobody, Self.nobody])
            #expect(Set(requests.map(\.apnsID)).count == 23 && requests.count == 24)
            #expect(await stage.comes { await stage.server.openConnections == 1 })
            await renewable.stop(withinMs: 200)
        }
    }

    @Test func pushesUseTheOldCourierUntilAppleAcceptsTheNew() async throws {
        let script: ScriptedServer.Script = { request in
            request.token == Self.nobody
                ? [.settings(1000), .after(200, [.answer(400, #"{"reason":"BadDeviceToken"}"#)])]
                : [.settings(1000), .answer(200)]
        }
        try await Stage.play(script: script) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            async let renewal = renewable.replace(by: try Self.courier("NEW", stage, Self.patient), after: [Self.question])
            #expect(await stage.comes { await stage.server.requests.count == 1 })
            #expect(await renewable.send(Push.sample(1)) == .delivered)
            #expect(try await renewal == .inUse)
            #expect(await renewable.send(Push.sample(2)) == .delivered)
            let keys = await stage.server.requests.map { $0.fields["authorization"]! }
            // By the question's key goes the second push, and not the first.
            #expect(keys[0] != keys[1] && keys[0] == keys[2])
            await renewable.stop(withinMs: 200)
        }
    }

    /// A key may be for one environment. Nothing is lost there unless the present one is taken.
    @Test(arguments: [false, true]) func noPushIsLostIfBothAreRejected(oldIsTaken: Bool) async throws {
        let script: ScriptedServer.Script = { request in
            let isRefused = request.fields["apns-topic"] == "other.app" && (request.connection > 1 || !oldIsTaken)
            return isRefused ? [.answer(403, #"{"reason":"BadEnvironmentKeyIdInToken"}"#)] : [.settings(1000), .answer(200)]
        }
        try await Stage.play(script: script) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            #expect(await renewable.send(Push.sample(1)) == .delivered)
            let other = Probe(topic: "other.app", environment: .production, isRequired: false)
            let renewal = await renewable.replace(by: try Self.courier("NEW", stage), after: [Self.question, other])
            let refused = RenewableCourier.Renewal.refused(topic: "other.app", .production, .badEnvironmentKeyIDInToken)
            #expect(renewal == (oldIsTaken ? refused : .inUse))
            await renewable.stop(withinMs: 200)
        }
    }

    @Test func theOldCourierStaysIfAppleIsUnreachable() async throws {
        let script: ScriptedServer.Script = { $0.token == Self.nobody ? [] : [.settings(1000), .answer(200)] }
        try await Stage.play(script: script) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage), probeMs: 300)
            let renewal = await renewable.replace(by: try Self.courier("NEW", stage), after: [Self.question])
            #expect(renewal == .unknown(topic: "example.app", .production, .unknown))
            #expect(await renewable.send(Push.sample(1)) == .delivered)
            await renewable.stop(withinMs: 200)
        }
    }

    @Test func theLastCandidateWins() async throws {
        let script: ScriptedServer.Script = { request in
            request.number == 1 ? [.settings(1000), .after(100, [.answer(200)])] : [.settings(1000), .answer(200)]
        }
        try await Stage.play(script: script) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            async let first = renewable.replace(by: try Self.courier("FIRST", stage), after: [Self.question])
            #expect(await stage.comes { await stage.server.requests.count == 1 })
            #expect(await renewable.replace(by: try Self.courier("SECOND", stage), after: [Self.question]) == .inUse)
            #expect(try await first == .superseded)
            #expect(await renewable.send(Push.sample(1)) == .delivered)
            let keys = await stage.server.requests.map { $0.fields["authorization"]! }
            #expect(keys[1] == keys[2] && keys[0] != keys[2])
            await renewable.stop(withinMs: 200)
        }
    }
}
