import TLS
import Testing

@testable import Courier

/// Keys and certificates are replaced while pushes are under way.
@Suite struct RenewableCourierTests {
    /// By a key of this id, to the stage's server.
    static func courier(_ keyID: String, _ stage: Stage) throws -> Courier {
        var configuration = Courier.Configuration(accounts: [try Account(.token(AccountTests.token(keyID)))])
        configuration.production = Endpoint(host: "127.0.0.1", port: stage.server.port)
        configuration.trust = .authorities(Stage.identity.certificate)
        configuration.timing = Stage.timing
        return try Courier(loop: stage.loop, configuration)
    }

    /// The first request of all is answered after 100 ms, and until then its connection takes no other.
    static let slowAtFirst: ScriptedServer.Script = { request in
        request.number == 1 ? [.after(100, [.answer(200)])] : [.settings(1000), .answer(200)]
    }

    @Test func whatIsUnderWayEndsOnTheOldOneAndTheRestGoesByTheNew() async throws {
        try await Stage.play(script: Self.slowAtFirst) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            async let outcomes = withTaskGroup(of: Outcome.self) { group in
                for number in 1...20 { group.addTask { await renewable.send(Push.sample(number)) } }
                return await group.reduce(into: []) { $0.append($1) }
            }
            #expect(await stage.comes { await stage.server.requests.count == 1 })
            renewable.replace(by: try Self.courier("NEW", stage))
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
    @Test func theOldOneGoes() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            weak let old = renewable.courier
            #expect(await renewable.send(Push.sample()) == .delivered)
            #expect(old != nil)
            renewable.replace(by: try Self.courier("NEW", stage))
            #expect(await stage.comes { old == nil })
            #expect(await renewable.send(Push.sample(2)) == .delivered)
            await renewable.stop(withinMs: 200)
        }
    }

    @Test func whatCanBeSentIsAskedOfTheNewOne() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            let renewable = RenewableCourier(stage.courier)
            #expect(renewable.accounts.account(for: "com.one", .production, .alert) != nil)
            let one = try Account(.token(AccountTests.token("NEW")), topics: ["com.two"])
            renewable.replace(by: try Courier(loop: stage.loop, Courier.Configuration(accounts: [one])))
            #expect(renewable.accounts.account(for: "com.one", .production, .alert) == nil)
            #expect(renewable.accounts.account(for: "com.two", .production, .alert) != nil)
        }
    }

    @Test func afterAStopNoneTakesItsPlace() async throws {
        try await Stage.play(script: ScriptedServer.accepting) { stage in
            let renewable = RenewableCourier(try Self.courier("OLD", stage))
            await renewable.stop(withinMs: 200)
            renewable.replace(by: try Self.courier("NEW", stage))
            #expect(await renewable.send(Push.sample()) == .failed(status: 0, reason: .stopped, verdict: .keep))
            #expect(await stage.server.connections == 0)
        }
    }
}
