import Storage
import Testing

/// What every store must do with a back end's own ids of approvals and questions.
@Suite struct RequestNamesTests {
    private func timer(_ fixture: Fixture, _ number: Int, due: UInt64) -> TimerRecord {
        TimerRecord(
            id: Fixture.ref(number), due: fixture.clock.now + due, expires: fixture.clock.now + 600_000, generation: 1,
            sealed: Fixture.blob(4, 104))
    }

    /// The newest of a name counts, and nobody finds one by another's index.
    @Test func aTimerIsFoundByItsOwnID() async throws {
        let fixture = try Fixture()
        let (user, creator, other) = (Fixture.blob(7), Fixture.blob(8), Fixture.blob(9))
        var (first, second) = (timer(fixture, 1, due: 60_000), timer(fixture, 2, due: 70_000))
        first.names = RequestNames(user: user, creator: creator)
        second.names = RequestNames(user: user, creator: other)
        for timer in [second, first] { #expect(try await fixture.apply(AudienceChange(timer: .begin(timer))) == .done) }
        #expect(try await fixture.store.read { try $0.timer(named: [Fixture.blob(1), user], by: .user) } == second)
        #expect(try await fixture.store.read { try $0.timer(named: [creator], by: .creator) } == first)
        #expect(try await fixture.store.read { try $0.timer(named: [other, creator], by: .creator) } == second)
        #expect(try await fixture.store.read { try $0.timer(named: [creator], by: .user) } == nil)
        #expect(try await fixture.store.read { try $0.timer(named: [user], by: .creator) } == nil)
        #expect(try await fixture.store.read { try $0.timer(named: [], by: .user) } == nil)
        // It goes with its row.
        for timer in [first, second] {
            let settled = TimerChange.settle(id: timer.id, expires: timer.expires, answer: 1)
            #expect(try await fixture.apply(AudienceChange(timer: settled)) == .done)
        }
        fixture.clock.advance(600_000)
        _ = try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0)
        #expect(try await fixture.store.read { try $0.timer(named: [user], by: .user) } == nil)
        #expect(try await fixture.store.read { try $0.timer(named: [creator, other], by: .creator) } == nil)
        try await fixture.close()
    }
}
