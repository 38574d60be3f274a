import Courier
import Linux
import Policy
import Sealing
import Storage
import Testing
import Vocabulary

@testable import Broker
@testable import EventLoop

/// Callers who know a token but don't own the phone.
@Suite struct PossessionTests {
    /// Creates a room with this token for its creator. Returns the joiner, who will knock.
    private func room(
        _ fixture: BrokerFixture, _ number: Int, token: Secret, environment: PushEnvironment = .production
    ) async throws -> Caller {
        let made = try await fixture.create("a-room-\(number)", token: token, environment: environment)
        _ = try await fixture.accept("a-room-\(number)")
        return fixture.caller(made.room, "joiner")
    }

    /// Knocks once in each of these rooms. Returns how many knocks were queued.
    private func knocks(_ fixture: BrokerFixture, _ rooms: Range<Int>, at token: Secret) async throws -> Int {
        var taken = 0
        for number in rooms {
            let delivery = try await fixture.broker.rooms.report(
                try await room(fixture, number, token: token), leaving: false)
            #expect([.queued, .throttled].contains(delivery))
            if delivery == .queued { taken += 1 }
        }
        return taken
    }

    @Test func manyRoomsShareATokensBudget() async throws {
        let fixture = try await BrokerFixture { ScriptedCourier(loop: $0) { _ in (0, .delivered) } }
        let share = fixture.broker.policies.rooms.tokenKnocks
        #expect(try await knocks(fixture, 0..<share.count + 10, at: fixture.token()) == share.count)
        #expect(try await knocks(fixture, 100..<101, at: fixture.token(8)) == 1, "another token")
        fixture.clock.advance(share.windowMs)
        #expect(try await knocks(fixture, 200..<201, at: fixture.token()) == 1, "the next window")
        try await fixture.end()
    }

    /// All knock at the same moment. Knocks that wait for the store are counted already.
    @Test func concurrentKnocksAreCounted() async throws {
        let fixture = try await BrokerFixture { ScriptedCourier(loop: $0) { _ in (0, .delivered) } }
        let share = fixture.broker.policies.rooms.tokenKnocks.count
        var callers: [Caller] = []
        for number in 0..<share + 10 { callers.append(try await room(fixture, number, token: try fixture.token())) }
        let taken = try await withThrowingTaskGroup { group in
            for caller in callers { group.addTask { try await fixture.broker.rooms.report(caller, leaving: false) == .queued } }
            return try await group.reduce(0) { $0 + ($1 ? 1 : 0) }
        }
        #expect(taken == share)
        try await fixture.end()
    }

    /// Rooms that are closed before their push leaves ring nowhere, so they must not silence the phone.
    @Test func unsentPushesAreRefunded() async throws {
        let fixture = try await BrokerFixture()
        let share = fixture.broker.policies.rooms.tokenKnocks.count
        for number in 0..<share {
            let caller = try await room(fixture, number, token: try fixture.token())
            #expect(try await fixture.broker.rooms.report(caller, leaving: false) == .queued)
            #expect(try await fixture.broker.rooms.close(caller.room) == 1)
        }
        for _ in 0..<400 where try await !fixture.store.read({ try $0.jobs() }).isEmpty {
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(try await knocks(fixture, 100..<101, at: fixture.token()) == 1)
        try await fixture.end()
    }

    /// Knocks that their side's throttle refuses cost nothing of the token's budget.
    @Test func throttledKnocksCostNoBudget() async throws {
        let fixture = try await BrokerFixture { ScriptedCourier(loop: $0) { _ in (0, .delivered) } }
        let caller = try await room(fixture, 0, token: try fixture.token())
        let share = fixture.broker.policies.rooms.tokenKnocks.count
        var taken = 0
        for _ in 0..<share * 2 {
            do {
                if try await fixture.broker.rooms.report(caller, leaving: false) == .queued { taken += 1 }
            } catch {
                guard case .tooManyRequests(1...5) = BrokerError(thrown: error) else { throw error }
            }
        }
        #expect(taken == 1)
        #expect(try await knocks(fixture, 1..<share + 5, at: fixture.token()) == share - 1)
        try await fixture.end()
    }

    @Test func theWrongEnvironmentCostsNoBudget() async throws {
        let fixture = try await BrokerFixture { ScriptedCourier(loop: $0) { _ in (0, .delivered) } }
        for number in 0...fixture.broker.policies.rooms.tokenKnocks.count {
            let caller = try await room(fixture, number, token: try fixture.token(), environment: .sandbox)
            _ = try await fixture.broker.rooms.report(caller, leaving: false)
        }
        #expect(try await knocks(fixture, 100..<101, at: fixture.token()) == 1)
        try await fixture.end()
    }

    /// This holds even if no knock follows. A later image of the process contains no counts.
    @Test func countsAreDeletedWhenTheirWindowEnds() async throws {
        try await MachineClock.play("forgets") { loop, machine in
            let simulated = try SimulatedBroker(loop: loop, machine: machine, resolution: 60)
            try await simulated.start()
            let facts = Facts()
            try await simulated.makeRoom(facts)
            let broker = try #require(await simulated.run?.broker)
            let room = try #require(facts.room(Chance(seed: 1)))
            _ = try await broker.rooms.accept(
                AcceptRoom(joinid: room.code, client: Facts.joiner, address: nil), from: BrokerFixture.here)
            let knock = try await broker.rooms.report(Caller(room: room.id, client: Facts.joiner, member: nil), leaving: false)
            #expect(knock == .queued)
            let window = broker.policies.rooms.tokenKnocks.windowMs
            await simulated.advance(window - 1_000)
            let before = await broker.rooms.tokenKnocks.count
            await simulated.advance(2_000)
            let after = await broker.rooms.tokenKnocks.count
            #expect(before == 1 && after == 0)
            // The networks of creators are kept for ten minutes.
            let addresses = broker.shared.charges.windowEnd
            await simulated.advance(window)
            let none = broker.shared.charges.windowEnd
            #expect(addresses != nil && none == nil)
            await simulated.stop()
            await simulated.runOut()
            try simulated.remove()
        }
    }
}
