import Testing
import Vocabulary

@testable import Storage

/// Approvals are found by their session: those that wait for an answer, and those that a back end has asked for.
@Suite struct ListedApprovalsTests {
    private func timer(_ fixture: Fixture, _ number: Int, due: UInt64) -> TimerRecord {
        TimerRecord(
            id: Fixture.ref(number), due: fixture.clock.now + due, expires: fixture.clock.now + 600_000, generation: 1,
            sealed: Fixture.blob(4, 104))
    }

    /// A change that shows the oldest pending approval fails if another one is the oldest by now.
    @Test(arguments: Engine.allCases) func approvalsAreListedUntilTheyEnd(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let expires = fixture.clock.now + 900_000
        let (pending, asked) = (Fixture.index(7, 1, expires: expires), Fixture.index(7, 2, expires: expires))
        let other = Fixture.index(7, 3, expires: expires)
        let timers = [timer(fixture, 1, due: 20_000), timer(fixture, 2, due: 10_000), timer(fixture, 3, due: 30_000)]
        for (timer, list) in zip(timers, [pending, pending, other]) {
            #expect(try await fixture.apply(AudienceChange(timer: .begin(timer, listed: [list, asked]))) == .done)
        }
        func listed(_ except: RequestID? = nil, after: UInt64 = 0) async throws -> [RequestID] {
            try await fixture.store.read {
                try $0.pendingTimers(listed: [other, pending], except: except, now: fixture.clock.now + after).map(\.id)
            }
        }
        #expect(try await listed() == [timers[1].id, timers[0].id, timers[2].id])
        #expect(try await listed(timers[1].id) == [timers[0].id, timers[2].id])
        #expect(try await listed(after: 10_000) == [timers[0].id, timers[2].id])
        func settle(_ timer: TimerRecord, showing request: RequestID?) async throws -> ChangeOutcome {
            var change = AudienceChange(
                timer: .settle(id: timer.id, expires: timer.expires, answer: 1, listed: [pending, other]))
            change.oldest = OldestRequest(list: [pending], except: timer.id, request: request)
            return try await fixture.apply(change)
        }
        #expect(try await settle(timers[1], showing: nil) == .changed)
        #expect(try await settle(timers[1], showing: timers[0].id) == .done)
        #expect(try await listed() == [timers[0].id, timers[2].id])
        // Their back end finds all of them until they are forgotten.
        #expect(try await fixture.store.read { try $0.timers(listed: [asked], limit: 9) }.count == 3)
        #expect(try await fixture.store.read { try $0.timers(listed: [asked], limit: 2) }.count == 2)
        #expect(try await settle(timers[0], showing: nil) == .done)
        #expect(try await settle(timers[2], showing: nil) == .done)
        fixture.clock.advance(900_000)
        _ = try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == nil, "no index is left")
        try await fixture.close()
    }

    /// An index outlives its approval. Such indexes don't count.
    @Test(arguments: Engine.allCases) func forgottenApprovalsDontCount(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let asked = Fixture.index(7, 1, expires: fixture.clock.now + 1_200_000)
        func begin(_ number: Int) async throws -> TimerRecord {
            let timer = timer(fixture, number, due: 10_000)
            #expect(try await fixture.apply(AudienceChange(timer: .begin(timer, listed: [asked]))) == .done)
            return timer
        }
        for number in 1...3 {
            let timer = try await begin(number)
            let end = TimerChange.settle(id: timer.id, expires: timer.expires, answer: 1)
            #expect(try await fixture.apply(AudienceChange(timer: end)) == .done)
        }
        fixture.clock.advance(700_000)
        _ = try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0)
        #expect(try await fixture.store.read { try $0.timers() }.isEmpty)
        for number in 4...6 { _ = try await begin(number) }
        #expect(try await fixture.store.read { try $0.timers(listed: [asked], limit: 9) }.count == 3)
        #expect(try await fixture.store.read { try $0.timers(listed: [asked], limit: 2) }.count == 2)
        try await fixture.close()
    }
}
