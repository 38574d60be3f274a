import Ledger
import Linux
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// Operations on registrations through the protocol `Store`.
@Suite struct StoreRegistrationTests {
    @Test(arguments: Engine.allCases) func aRegistrationIsFoundByEachOfItsIndexes(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        var full = fixture.registration(1, owner: 7, session: 5, kind: .liveActivity)
        (full.preferences, full.opens, full.stamp, full.waiting) = (0xffff_0000, 12, 34, Fixture.blob(3, 72))
        let record = full
        #expect(try await fixture.register(record) == .registered)
        let other = try await fixture.registered(fixture.registration(2, owner: 8))
        let store = fixture.store
        #expect(try await store.read { try $0.registrations(.audience, [record.audience]) } == [record])
        #expect(try await store.read { try $0.registrations(.owner, [record.owner]) } == [record])
        #expect(try await store.read { try $0.registrations(.session, [record.session!]) } == [record])
        // Each lookup finds its own kind of index, under any index.
        #expect(try await store.read { try $0.registrations(.owner, [record.audience]) } == [])
        #expect(try await store.read { try $0.registrations(.session, [record.owner, record.device]) } == [])
        #expect(
            try await store.read { try $0.registrations(.owner, [Fixture.index(2, 99, expires: 1), other.owner, record.owner]) }
                == [
                    other, record,
                ])
        #expect(try await store.read { try $0.holds(record.row) })
        #expect(try await !store.read { try $0.holds(RowName(expires: record.expires + 1, purgeID: record.purgeID)) })
        #expect(try await !store.read { try $0.holds(RowName(expires: record.expires, purgeID: Fixture.ref(99))) })
        let counts = try await store.counts()
        #expect(counts.registrations == 2 && counts.tokens == 0)
        let text = try fixture.entries()
        #expect(text.count == 2 && text.allSatisfy { $0.contains("token.sealed") })
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func renewingPurgesWhatItReplaces(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let old = try await fixture.registered(fixture.registration(1, device: 5))
        fixture.clock.advance(10_000)
        // With another expiry, so all indexes differ.
        var renewed = fixture.registration(2, device: 5)
        renewed.id = old.id
        let new = renewed
        #expect(try await fixture.register(new, replacing: [old], devices: [new.device, old.device]) == .registered)
        #expect(try await fixture.store.read { try $0.registrations(.owner, [old.owner, new.owner]) } == [new])
        #expect(try await !fixture.store.read { try $0.holds(old.row) })
        let text = try fixture.entries()
        #expect(text.count == 3 && text.count { $0.contains("\"cause\":\"ended\"") } == 1)
        // The replaced registration is gone, so replacing it again fails.
        #expect(try await fixture.register(fixture.registration(3, device: 5), replacing: [old]) == .changed)
        #expect(try await fixture.store.counts().registrations == 1)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anOwnersTokenIsRegisteredOnce(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let first = try await fixture.registered(fixture.registration(1, device: 5))
        #expect(try await fixture.register(fixture.registration(2, device: 5)) == .changed)
        fixture.clock.advance(10_000)
        // It is stored under an earlier index.
        let later = fixture.registration(3, device: 5)
        #expect(try await fixture.register(later, devices: [later.device, first.device]) == .changed)
        #expect(try await fixture.store.read { try $0.registrations(.owner, [first.owner, later.owner]) } == [first])
        // For another owner it has another index.
        #expect(try await fixture.register(fixture.registration(4, owner: 2, device: 6)) == .registered)
        #expect(try fixture.ops() == ["token.sealed", "token.sealed"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func concurrentRegistrationsOfATokenLeaveOne(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let outcomes = try await withThrowingTaskGroup(of: RegisterOutcome.self) { group in
            for number in 0..<16 { group.addTask { try await fixture.register(fixture.registration(number, device: 5)) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(outcomes.count { $0 == .registered } == 1 && outcomes.count { $0 == .changed } == 15)
        let old = try #require(
            try await fixture.store.read { try $0.registrations(.owner, [fixture.registration(0).owner]) }.first)
        // Then concurrent renewals.
        let renewals = try await withThrowingTaskGroup(of: RegisterOutcome.self) { group in
            for number in 20..<36 {
                group.addTask { try await fixture.register(fixture.registration(number, device: 5), replacing: [old]) }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(renewals.count { $0 == .registered } == 1 && renewals.count { $0 == .changed } == 15)
        #expect(try fixture.ops().sorted() == ["token.purged", "token.sealed", "token.sealed"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func registrationsOfAKindAreLimitedPerOwner(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        var rows: [RegistrationRecord] = []
        for number in 0..<3 { rows.append(try await fixture.registered(fixture.registration(number))) }
        #expect(try await fixture.register(fixture.registration(3), limit: 3) == .tooMany)
        #expect(try await fixture.register(fixture.registration(4, kind: .liveActivity), limit: 3) == .registered)
        #expect(try await fixture.register(fixture.registration(5, owner: 2), limit: 3) == .registered)
        // Registrations under other indexes count too.
        fixture.clock.advance(10_000)
        let (first, later) = (rows[0], fixture.registration(6))
        #expect(
            try await fixture.store.write {
                try $0.register(
                    NewRegistration(later), replacing: [], devices: [later.device], owners: [first.owner, later.owner], limit: 3)
            }
                == .tooMany)
        // A replaced registration doesn't count.
        #expect(
            try await fixture.store.write {
                try $0.register(
                    NewRegistration(later), replacing: [first], devices: [later.device], owners: [first.owner, later.owner],
                    limit: 3)
            }
                == .registered)
        #expect(try await fixture.store.counts().registrations == 5)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func unregisteringPurgesOnce(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1, session: 3))
        let other = try await fixture.registered(fixture.registration(2, session: 3))
        let gone = RowName(expires: record.expires, purgeID: Fixture.ref(99))
        #expect(try await fixture.store.write { try $0.unregister([record.row, gone, record.row], cause: .ended) } == 1)
        #expect(try await fixture.store.write { try $0.unregister([record.row], cause: .ended) } == 0)
        #expect(try await fixture.store.read { try $0.registrations(.session, [record.session!]) } == [other])
        #expect(try fixture.entries().count { $0.contains("\"cause\":\"ended\"") } == 1)
        // Its indexes are gone, so the same token can be registered again.
        var again = record
        again.context.purgeID = Fixture.ref(3)
        #expect(try await fixture.register(again) == .registered)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func preferencesAreSetOnExistingRegistrations(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1))
        #expect(try await fixture.store.write { try $0.setPreferences(record.row, removing: .max, adding: 5) })
        #expect(try await fixture.store.write { try $0.setPreferences(record.row, removing: 3, adding: 8) })
        #expect(try await fixture.store.read { try $0.registrations(.owner, [record.owner]) }.map(\.preferences) == [12])
        // A renewal based on old preferences is refused, so no change is lost.
        var renewed = record
        renewed.context.purgeID = Fixture.ref(9)
        #expect(try await fixture.register(renewed, replacing: [record]) == .changed)
        #expect(try await fixture.store.write { try $0.unregister([record.row], cause: .ended) } == 1)
        #expect(try await !fixture.store.write { try $0.setPreferences(record.row, removing: 0, adding: 1) })
        #expect(try fixture.ops() == ["token.sealed", "token.purged"])
        try await fixture.close()
    }

    /// It would not be found, or would outlive its key.
    @Test(arguments: Engine.allCases) func anIndexWithAnotherExpiryIsRefused(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let edits: [(inout RegistrationRecord) -> Void] = [
            { $0.audience = Fixture.blob(1) }, { $0.owner = Fixture.index(2, 1, expires: $0.expires + 1) },
            { $0.device = Fixture.blob(1) }, { $0.session = Fixture.blob(1) }, { $0.context.expiryMs += 1 },
        ]
        for edit in edits {
            var record = fixture.registration(1, session: 1)
            edit(&record)
            await #expect(throws: StoreError.self) { try await fixture.register(record) }
        }
        var session = SessionRecord(
            session: Fixture.index(4, 1, expires: 5), generation: 1, expires: 5, started: 1, version: 1)
        session.expires = 6
        await #expect(throws: StoreError.self) {
            try await fixture.apply(AudienceChange(session: .set(session, after: nil)))
        }
        await #expect(throws: StoreError.self) {
            try await fixture.apply(AudienceChange(seen: SeenRecord(key: Fixture.blob(1), expires: 5)))
        }
        #expect(try await fixture.store.counts().waitingEntries == 0)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anExpiredRegistrationIsRefused(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = fixture.registration(1, life: 10_000)
        fixture.clock.advance(600_000)
        await #expect(throws: StoreError.self) { try await fixture.register(record) }
        #expect(try await fixture.store.counts().registrations == 0)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func registrationsAreRefusedWhileTheLedgerIsBehindAndPurgesAreNot(engine: Engine)
        async throws
    {
        let fixture = try Fixture(waitingLimit: 2)
        let first = try await fixture.registered(fixture.registration(1))
        let second = try await fixture.registered(fixture.registration(2))
        try await fixture.store.record([StoreBatchTests.sign, StoreBatchTests.sign])
        await #expect(throws: StoreError.ledgerBehind) { try await fixture.register(fixture.registration(3)) }
        await #expect(throws: StoreError.ledgerBehind) {
            try await fixture.apply(AudienceChange(purges: [RegistrationPurge(first.row, .ended)]))
        }
        #expect(try await fixture.store.write { try $0.unregister([first.row], cause: .ended) } == 1)
        fixture.clock.advance(60_000)
        #expect(try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0).tokens == 1)
        #expect(try await !fixture.store.read { try $0.holds(second.row) })
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func registrationsSurviveReopening(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1, session: 2))
        await fixture.store.shutDown()
        let again = try fixture.reopen()
        #expect(try await again.read { try $0.registrations(.session, [record.session!]) } == [record])
        await again.shutDown()
        try fixture.remove()
    }

    // MARK: Forgetting

    @Test(arguments: Engine.allCases) func theSweepDeletesRegistrationsWithTheirIndexes(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let old = try await fixture.registered(fixture.registration(1, session: 1, life: 10_000))
        let young = try await fixture.registered(fixture.registration(2, session: 1, life: 10_001))
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == old.expires)
        fixture.clock.advance(9_999)
        #expect(try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0) == SweepResult())
        fixture.clock.advance(1)
        let result = try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0)
        #expect(result.tokens == 1 && result.ends == [old.expires] && result.others == 4 && !result.more && result.hasErased)
        #expect(try await fixture.store.read { try $0.registrations(.owner, [old.owner, young.owner]) } == [young])
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == young.expires)
        #expect(try fixture.entries().count { $0.contains("\"cause\":\"expired\"") } == 1)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func sweepsAreBounded(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        for number in 0..<7 { _ = try await fixture.registered(fixture.registration(number, life: 10_000)) }
        fixture.clock.advance(10_000)
        var (passes, tokens, others) = (0, 0, 0)
        var isMore = true
        while isMore {
            let result = try await fixture.store.sweep(now: fixture.clock.now, limit: 2, jobSlack: 0)
            #expect(result.tokens <= 2 && result.tokens == result.ends.count)
            (passes, tokens, others, isMore) = (passes + 1, tokens + result.tokens, others + result.others, result.more)
        }
        #expect(passes == 4 && tokens == 7 && others == 21)
        // Empty partitions are left.
        if engine == .sqlite { #expect(try await fixture.store.nextExpiry(jobSlack: 0) == nil) }
        #expect(try fixture.ops().count { $0 == "token.purged" } == 7)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func everythingIsPurged(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        for number in 0..<5 { _ = try await fixture.registered(fixture.registration(number)) }
        let record = try await fixture.registered(fixture.registration(9, session: 1))
        let expires = record.expires
        let done = try await fixture.apply(
            AudienceChange(
                jobs: [AudienceJob(fixture.job(1, record))],
                session: .set(
                    SessionRecord(session: record.session!, generation: 1, expires: expires, started: 1, version: 1), after: nil),
                timer: .begin(
                    TimerRecord(id: Fixture.ref(1), due: expires, expires: expires, generation: 1, sealed: Fixture.blob(1, 104))),
                seen: SeenRecord(key: Fixture.index(6, 1, expires: expires), expires: expires)))
        #expect(done == .done)
        while try await fixture.store.forgetAll(limit: 2).more {}
        let counts = try await fixture.store.counts()
        #expect(counts.registrations + counts.sessions + counts.timers + counts.jobs == 0)
        // Empty partitions are left.
        if engine == .sqlite { #expect(try await fixture.store.nextExpiry(jobSlack: 0) == nil) }
        #expect(try fixture.ops().count { $0 == "token.purged" } == 6)
        try await fixture.close()
    }
}

/// A back end's own ids of requests.
@Suite struct RequestNamesTests {
    private func timer(_ fixture: Fixture, _ number: Int, due: UInt64) -> TimerRecord {
        TimerRecord(
            id: Fixture.ref(number), due: fixture.clock.now + due, expires: fixture.clock.now + 600_000, generation: 1,
            sealed: Fixture.blob(4, 104))
    }

    /// The newest timer of a name is found, and only under its own kind of index.
    @Test(arguments: Engine.allCases) func aTimerIsFoundByItsBackEndsID(engine: Engine) async throws {
        let fixture = try Fixture(engine)
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
        // The index is deleted with its row.
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
