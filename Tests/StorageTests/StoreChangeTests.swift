import Ledger
import Linux
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// Changes to audiences through the protocol `Store`.
@Suite struct StoreChangeTests {
    private func session(_ fixture: Fixture, _ name: Int = 1, version: UInt64, client: UInt8? = nil, life: UInt64 = 60_000)
        -> SessionRecord
    {
        let expires = fixture.clock.now + life
        return SessionRecord(
            session: Fixture.index(4, name, expires: expires), generation: 1, expires: expires, started: 1, version: version,
            client: client.map { Fixture.blob($0) }, registration: client.map { Fixture.id($0) })
    }

    private func timer(_ fixture: Fixture, _ number: Int = 1, due: UInt64 = 60_000) -> TimerRecord {
        TimerRecord(
            id: Fixture.ref(number), due: fixture.clock.now + due, expires: fixture.clock.now + 600_000, generation: 1,
            sealed: Fixture.blob(4, 104))
    }

    // MARK: Pushes

    @Test(arguments: Engine.allCases) func pushesAreStoredWithTheirFields(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        var jobs: [JobRecord] = []
        for number in 1...3 {
            let record = try await fixture.registered(fixture.registration(number))
            jobs.append(fixture.job(number, record, fields: number == 2 ? nil : Fixture.blob(11, 168)))
        }
        #expect(try await fixture.apply(AudienceChange(jobs: jobs.map { AudienceJob($0) })) == .done)
        #expect(try await fixture.store.read { try $0.jobs() }.sorted { $0.purgeID < $1.purgeID } == jobs)
        #expect(
            try fixture.ops() == ["token.opened", "token.opened", "token.opened", "token.sealed", "token.sealed", "token.sealed"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aPushToAMissingRegistrationChangesNothing(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1))
        let gone = fixture.registration(2)
        let change = AudienceChange(
            jobs: [AudienceJob(fixture.job(1, record)), AudienceJob(fixture.job(2, gone))],
            purges: [RegistrationPurge(record.row, .ended)], session: .set(session(fixture, version: 1), after: nil),
            timer: .begin(timer(fixture)),
            seen: SeenRecord(key: Fixture.index(6, 1, expires: gone.expires), expires: gone.expires))
        #expect(try await fixture.apply(change) == .changed)
        let counts = try await fixture.store.counts()
        #expect(counts.jobs == 0 && counts.registrations == 1 && counts.sessions == 0 && counts.timers == 0)
        #expect(counts.waitingEntries == 0)
        // Everything is applied once it is possible.
        #expect(try await fixture.register(gone) == .registered)
        #expect(try await fixture.apply(change) == .done)
        #expect(try await fixture.store.counts().jobs == 2)
        #expect(try await fixture.apply(change) == .repeated)
        try await fixture.close()
    }

    // Promise: no-entry-no-operation
    @Test(arguments: Engine.allCases) func changesAreRefusedWhileTheLedgerIsBehind(engine: Engine) async throws {
        let fixture = try Fixture(waitingLimit: 1)
        let record = try await fixture.registered(fixture.registration(1))
        try await fixture.store.record([StoreBatchTests.sign])
        let change = AudienceChange(
            jobs: [AudienceJob(fixture.job(1, record), purge: .ended)], session: .set(session(fixture, version: 1), after: nil),
            timer: .begin(timer(fixture)))
        await #expect(throws: StoreError.ledgerBehind) { try await fixture.apply(change) }
        let counts = try await fixture.store.counts()
        #expect(counts.jobs + counts.sessions + counts.timers == 0 && counts.registrations == 1 && counts.waitingEntries == 1)
        try await fixture.close()
    }

    /// The second timer with the same id can't be written, so the earlier writes of the change are rolled back.
    // Promise: operations-whole
    @Test(arguments: Engine.allCases) func aChangeFailingHalfwayLeavesNothing(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1))
        #expect(try await fixture.apply(AudienceChange(timer: .begin(timer(fixture)))) == .done)
        let change = AudienceChange(
            jobs: [AudienceJob(fixture.job(1, record), purge: .ended)], session: .set(session(fixture, version: 1), after: nil),
            timer: .begin(timer(fixture)))
        await #expect(throws: StoreError.self) { try await fixture.apply(change) }
        let counts = try await fixture.store.counts()
        #expect(counts.jobs + counts.sessions == 0 && counts.registrations == 1 && counts.timers == 1)
        #expect(try fixture.ops() == ["token.sealed"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func expiredTokensAreNotOpened(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1, life: 10_000))
        fixture.clock.advance(9_999)
        #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(fixture.job(1, record))])) == .done)
        fixture.clock.advance(1)
        #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(fixture.job(2, record))])) == .changed)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func theLastPushPurgesItsRegistration(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1, session: 1, kind: .liveActivity))
        let job = fixture.job(1, record)
        #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(job, purge: .ended)])) == .done)
        #expect(try await !fixture.store.read { try $0.holds(record.row) })
        let stored = try await fixture.store.read { try $0.jobs() }
        #expect(stored.map(\.isLast) == [true] && stored.map(\.job) == [job.job])
        try await fixture.store.write { try $0.finish(stored[0], JobOutcome(status: 410, reason: .unregistered, purge: true)) }
        #expect(try fixture.ops() == ["token.opened", "push.failed", "token.sealed", "token.purged"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anOutcomePurgesARegistrationOnce(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (record, other) = (
            try await fixture.registered(fixture.registration(1)), try await fixture.registered(fixture.registration(2))
        )
        let jobs = [fixture.job(1, record), fixture.job(2, record), fixture.job(3, other)]
        #expect(try await fixture.apply(AudienceChange(jobs: jobs.map { AudienceJob($0) })) == .done)
        let gone = JobOutcome(status: 410, reason: .unregistered, purge: true, releaseThrottle: true)
        for job in jobs.prefix(2) { try await fixture.store.write({ try $0.finish(job, gone) }) }
        try await fixture.store.write { try $0.finish(jobs[2], JobOutcome(status: 200, reason: nil)) }
        #expect(try await fixture.store.read { try $0.registrations(.owner, [record.owner]) } == [other])
        let ops = try fixture.ops().sorted()
        #expect(ops.count { $0 == "token.purged" } == 1 && ops.count { $0 == "push.failed" } == 2)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anOverdueJobEndsAsUnknown(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1))
        #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(fixture.job(1, record))])) == .done)
        fixture.clock.advance(25_000)
        let result = try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 5_000)
        #expect(result.jobs == 1 && result.tokens == 0)
        #expect(try fixture.entries().joined().contains("\"reason\":\"unknown\""))
        try await fixture.close()
    }

    // MARK: Throttle

    @Test(arguments: Engine.allCases) func anUpdateNeedsTheThrottleItRead(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1, kind: .liveActivity))
        func update(_ number: Int, was: UInt64, opens: UInt64) -> AudienceChange {
            AudienceChange(
                jobs: [
                    AudienceJob(
                        fixture.job(number, record), update: ActivityUpdate(wasOpens: was, opens: opens, stamp: opens / 1_000))
                ])
        }
        #expect(try await fixture.apply(update(1, was: 0, opens: 15_000)) == .done)
        // Another update read the old throttle.
        #expect(try await fixture.apply(update(2, was: 0, opens: 15_000)) == .changed)
        #expect(try await fixture.apply(update(3, was: 15_000, opens: 30_000)) == .done)
        let stored = try await fixture.store.read { try $0.registrations(.owner, [record.owner]) }
        #expect(stored.map(\.opens) == [30_000] && stored.map(\.stamp) == [30])
        #expect(try await fixture.store.counts().jobs == 2)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func onlyOneOfManyConcurrentUpdatesIsSent(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1, kind: .liveActivity))
        let outcomes = try await withThrowingTaskGroup(of: ChangeOutcome.self) { group in
            for number in 0..<16 {
                group.addTask {
                    try await fixture.apply(
                        AudienceChange(
                            jobs: [
                                AudienceJob(
                                    fixture.job(number, record), update: ActivityUpdate(wasOpens: 0, opens: 15_000, stamp: 1))
                            ]))
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(outcomes.count { $0 == .done } == 1 && outcomes.count { $0 == .changed } == 15)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func theNewestUpdateWaitsForTheThrottle(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1, kind: .liveActivity))
        let opens = fixture.clock.now + 15_000
        func wait(_ note: UInt8, was: UInt64) -> AudienceChange {
            AudienceChange(waits: [WaitingUpdate(row: record.row, wasOpens: was, waiting: Fixture.blob(note, 72))])
        }
        func update(_ number: Int, was: UInt64, opens: UInt64) -> AudienceChange {
            AudienceChange(
                jobs: [AudienceJob(fixture.job(number, record), update: ActivityUpdate(wasOpens: was, opens: opens, stamp: 1))])
        }
        func due() async throws -> DueWork { try await fixture.store.read { try $0.due(now: fixture.clock.now, limit: 10) } }
        #expect(try await due() == DueWork())
        #expect(try await fixture.apply(update(1, was: 0, opens: opens)) == .done)
        // The throttle has changed meanwhile.
        #expect(try await fixture.apply(wait(1, was: 0)) == .changed)
        #expect(try await fixture.apply(wait(1, was: opens)) == .done)
        #expect(try await fixture.apply(wait(2, was: opens)) == .done)
        #expect(try await due() == DueWork(next: opens))
        fixture.clock.advance(15_000)
        let work = try await due()
        #expect(work.updates.map(\.waiting) == [Fixture.blob(2, 72)] && work.timers == [] && work.next == nil)
        #expect(try await fixture.apply(update(2, was: opens, opens: opens + 15_000)) == .done)
        #expect(try await due() == DueWork())
        #expect(try await fixture.store.read { try $0.registrations(.owner, [record.owner]) }.map(\.waiting) == [nil])
        // A purged registration has no waiting update.
        #expect(try await fixture.store.write { try $0.unregister([record.row], cause: .ended) } == 1)
        #expect(try await fixture.apply(wait(3, was: opens + 15_000)) == .changed)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aNewerUpdateSurvivesTheSendingOfAnOlderOne(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let record = try await fixture.registered(fixture.registration(1, kind: .liveActivity))
        let (old, new) = (Fixture.blob(1, 72), Fixture.blob(2, 72))
        for waiting in [old, new] {
            #expect(
                try await fixture.apply(
                    AudienceChange(waits: [WaitingUpdate(row: record.row, wasOpens: 0, waiting: waiting)])) == .done)
        }
        func send(_ waiting: [UInt8]) -> AudienceChange {
            let update = ActivityUpdate(wasOpens: 0, wasWaiting: waiting, opens: 15_000, stamp: 1)
            return AudienceChange(jobs: [AudienceJob(fixture.job(1, record), update: update)])
        }
        #expect(try await fixture.apply(send(old)) == .changed)
        // It also survives a change that was read before it.
        var read = record
        read.waiting = old
        #expect(try await fixture.register(fixture.registration(2, kind: .liveActivity), replacing: [read]) == .changed)
        #expect(try await fixture.apply(send(new)) == .done)
        try await fixture.close()
    }

    /// It applies to any version. Changes based on the previous version are refused.
    @Test(arguments: Engine.allCases) func aSessionsStartIsSet(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let first = session(fixture, version: 1, client: 1)
        #expect(try await fixture.apply(AudienceChange(session: .set(first, after: nil))) == .done)
        for started: UInt64 in [70, 30] {
            let change = SessionChange.restart(session: first.session, started: started)
            #expect(try await fixture.apply(AudienceChange(session: change)) == .done)
        }
        var expected = first
        (expected.started, expected.version) = (30, 3)
        #expect(try await fixture.store.read { try $0.session([first.session]) } == expected)
        var next = first
        next.version = 2
        #expect(try await fixture.apply(AudienceChange(session: .set(next, after: 1))) == .changed)
        let gone = SessionChange.delete(expires: first.expires, session: first.session)
        #expect(try await fixture.apply(AudienceChange(session: gone)) == .done)
        let late = SessionChange.restart(session: first.session, started: 9)
        #expect(try await fixture.apply(AudienceChange(session: late)) == .done)
        #expect(try await fixture.store.read { try $0.session([first.session]) } == nil)
        try await fixture.close()
    }

    // MARK: Timers

    @Test(arguments: Engine.allCases) func aTimerIsSettledOnce(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let timer = timer(fixture)
        #expect(try await fixture.apply(AudienceChange(timer: .begin(timer))) == .done)
        #expect(try await fixture.store.read { try $0.timer(timer.id) } == timer)
        let outcomes = try await withThrowingTaskGroup(of: ChangeOutcome.self) { group in
            for answer in 1...8 as ClosedRange<UInt8> {
                group.addTask {
                    try await fixture.apply(
                        AudienceChange(timer: .settle(id: timer.id, expires: timer.expires, answer: answer)))
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(outcomes.count { $0 == .done } == 1 && outcomes.count { $0 == .settled } == 7)
        #expect(try await fixture.store.read { try $0.timer(timer.id) }?.answer != 0)
        #expect(try await fixture.store.read { try $0.due(now: timer.due, limit: 10) } == DueWork())
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aLateAnswerChangesNothing(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (timer, record) = (timer(fixture), try await fixture.registered(fixture.registration(1, life: 700_000)))
        #expect(try await fixture.apply(AudienceChange(timer: .begin(timer))) == .done)
        func settle(_ expires: UInt64, _ number: Int) async throws -> ChangeOutcome {
            try await fixture.apply(
                AudienceChange(
                    jobs: [AudienceJob(fixture.job(number, record))], timer: .settle(id: timer.id, expires: expires, answer: 1)))
        }
        #expect(try await settle(timer.expires + 1, 1) == .changed)
        #expect(try await settle(timer.expires, 2) == .done)
        #expect(try await settle(timer.expires, 3) == .settled)
        fixture.clock.advance(600_000)
        #expect(try await settle(timer.expires, 4) == .settled)
        _ = try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0)
        #expect(try await fixture.store.read { try $0.timer(timer.id) } == nil)
        #expect(try await settle(timer.expires, 5) == .changed)
        #expect(try await fixture.store.counts().jobs == 0)
        try await fixture.close()
    }

    /// Nobody has reported the missed deadline.
    @Test(arguments: Engine.allCases) func unansweredTimersAreKeptUntilReported(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (told, untold) = (timer(fixture, 1), timer(fixture, 2))
        for timer in [told, untold] { #expect(try await fixture.apply(AudienceChange(timer: .begin(timer))) == .done) }
        func sweep() async throws -> Int { try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0).others }
        fixture.clock.advance(600_000)
        #expect(try await sweep() == 0)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == told.expires + 600_000)
        #expect(try await fixture.store.read { try $0.due(now: fixture.clock.now, limit: 10) }.timers.count == 2)
        let settle = AudienceChange(timer: .settle(id: told.id, expires: told.expires, answer: 3))
        #expect(try await fixture.apply(settle) == .done)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == told.expires)
        #expect(try await sweep() == 1)
        // Its note can't be opened any more.
        fixture.clock.advance(600_000)
        #expect(try await sweep() == 1)
        #expect(try await fixture.store.counts().timers == 0)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func dueWorkIsReturnedInOrder(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let timers = [50_000, 20_000, 30_000, 40_000].enumerated().map { timer(fixture, $0, due: UInt64($1)) }
        for timer in timers { #expect(try await fixture.apply(AudienceChange(timer: .begin(timer))) == .done) }
        let start = fixture.clock.now
        func due(_ ms: UInt64, limit: Int = 10) async throws -> DueWork {
            try await fixture.store.read { try $0.due(now: start + ms, limit: limit) }
        }
        #expect(try await due(19_999) == DueWork(next: start + 20_000))
        #expect(try await due(20_000) == DueWork(timers: [timers[1]], next: start + 30_000))
        #expect(try await due(45_000) == DueWork(timers: [timers[1], timers[2], timers[3]], next: start + 50_000))
        // More than the limit, so `next` is now.
        #expect(try await due(45_000, limit: 2) == DueWork(timers: [timers[1], timers[2]], next: start + 45_000))
        #expect(try await due(50_000).next == nil)
        try await fixture.close()
    }

    // MARK: Who is gone

    @Test(arguments: Engine.allCases) func aChangeCanSkipMissingRegistrations(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (gone, here) = (
            try await fixture.registered(fixture.registration(1)), try await fixture.registered(fixture.registration(2))
        )
        #expect(try await fixture.store.write { try $0.unregister([gone.row], cause: .ended) } == 1)
        var change = AudienceChange(
            jobs: [gone, here].enumerated().map { AudienceJob(fixture.job($0, $1)) },
            session: .set(session(fixture, version: 1), after: nil))
        #expect(try await fixture.apply(change) == .changed)
        #expect(try await fixture.store.counts().jobs == 0)
        change.leavesOutGone = true
        #expect(try await fixture.apply(change) == .leftOut([gone.row]))
        #expect(try await fixture.store.read { try $0.jobs() }.map(\.purgeID) == [here.purgeID])
        // All other rows must still be as they were read.
        change.jobs = [AudienceJob(fixture.job(3, here))]
        #expect(try await fixture.apply(change) == .changed)
        change.session = .set(session(fixture, version: 2), after: 1)
        #expect(try await fixture.apply(change) == .done)
        try await fixture.close()
    }

    // MARK: Sessions

    @Test(arguments: Engine.allCases) func oneOfConcurrentClaimsWins(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let outcomes = try await withThrowingTaskGroup(of: ChangeOutcome.self) { group in
            for client in 0..<8 as Range<UInt8> {
                group.addTask {
                    try await fixture.apply(
                        AudienceChange(session: .set(session(fixture, version: 1, client: client), after: nil)))
                }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(outcomes.count { $0 == .done } == 1 && outcomes.count { $0 == .changed } == 7)
        let index = session(fixture, version: 1).session
        let first = try #require(try await fixture.store.read { try $0.session([Fixture.index(4, 9, expires: 1), index]) })
        #expect(first.version == 1 && first.client != nil && first.registration != nil)
        // Only after the version that was read.
        let second = session(fixture, version: 2, client: 77)
        #expect(try await fixture.apply(AudienceChange(session: .set(second, after: 3))) == .changed)
        #expect(try await fixture.apply(AudienceChange(session: .set(second, after: nil))) == .changed)
        #expect(try await fixture.apply(AudienceChange(session: .set(second, after: 1))) == .done)
        #expect(try await fixture.apply(AudienceChange(session: .set(second, after: 1))) == .changed)
        #expect(try await fixture.store.read { try $0.session([index]) } == second)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aSessionMovesToALaterSlot(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let first = session(fixture, version: 1)
        #expect(try await fixture.apply(AudienceChange(session: .set(first, after: nil))) == .done)
        fixture.clock.advance(10_000)
        let second = session(fixture, version: 2)
        #expect(try await fixture.apply(AudienceChange(session: .set(second, after: 2, replacing: first.session))) == .changed)
        #expect(try await fixture.apply(AudienceChange(session: .set(second, after: 1, replacing: first.session))) == .done)
        #expect(try await fixture.store.read { try $0.session([first.session]) } == nil)
        #expect(try await fixture.store.read { try $0.session([second.session, first.session]) } == second)
        #expect(try await fixture.store.counts().sessions == 1)
        #expect(
            try await fixture.apply(AudienceChange(session: .delete(expires: second.expires, session: second.session))) == .done)
        #expect(
            try await fixture.apply(AudienceChange(session: .delete(expires: second.expires, session: second.session))) == .done)
        #expect(try await fixture.store.counts().sessions == 0)
        try await fixture.close()
    }

    // MARK: Once

    @Test(arguments: Engine.allCases) func aRepeatIsDetectedUntilTheMarkExpires(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        func seen(_ others: [Digest] = []) -> SeenRecord {
            let expires = fixture.clock.now + 60_000
            return SeenRecord(key: Fixture.index(6, 1, expires: expires), expires: expires, others: others)
        }
        let first = seen()
        let outcomes = try await withThrowingTaskGroup(of: ChangeOutcome.self) { group in
            for _ in 0..<8 { group.addTask { try await fixture.apply(AudienceChange(seen: first)) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(outcomes.count { $0 == .done } == 1 && outcomes.count { $0 == .repeated } == 7)
        fixture.clock.advance(30_000)
        #expect(try await fixture.apply(AudienceChange(seen: seen([first.key]))) == .repeated)
        fixture.clock.advance(30_000)
        // Expired and not swept yet.
        #expect(try await fixture.apply(AudienceChange(seen: seen([first.key]))) == .done)
        #expect(try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0).others == 1)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == fixture.clock.now + 60_000)
        try await fixture.close()
    }

    /// Before the sweep, while the ratchet is held, a new session can replace it.
    @Test(arguments: Engine.allCases) func anExpiredSessionDoesNotCount(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let first = session(fixture, version: 5)
        #expect(try await fixture.apply(AudienceChange(session: .set(first, after: nil))) == .done)
        var next = first
        next.version = 0
        fixture.clock.advance(59_999)
        #expect(try await fixture.apply(AudienceChange(session: .set(next, after: nil))) == .changed)
        fixture.clock.advance(1)
        #expect(try await fixture.apply(AudienceChange(session: .set(next, after: 5))) == .changed)
        #expect(try await fixture.apply(AudienceChange(session: .set(next, after: nil))) == .done)
        #expect(try await fixture.store.counts().sessions == 1)
        try await fixture.close()
    }

    // MARK: Forgetting

    @Test(arguments: Engine.allCases) func theSweepDeletesExpiredRows(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        for number in 0..<5 {
            let expires = fixture.clock.now + 10_000
            #expect(
                try await fixture.apply(
                    AudienceChange(
                        session: .set(session(fixture, number, version: 1, life: 10_000), after: nil),
                        timer: .begin(
                            TimerRecord(
                                id: Fixture.ref(number), due: expires - 1, expires: expires, generation: 1, answer: 1,
                                sealed: Fixture.blob(4, 104))),
                        seen: SeenRecord(key: Fixture.index(6, number, expires: expires), expires: expires))) == .done)
        }
        let young = session(fixture, 9, version: 1, life: 10_001)
        #expect(try await fixture.apply(AudienceChange(session: .set(young, after: nil))) == .done)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == fixture.clock.now + 10_000)
        fixture.clock.advance(10_000)
        var (others, isMore) = (0, true)
        while isMore {
            let result = try await fixture.store.sweep(now: fixture.clock.now, limit: 2, jobSlack: 0)
            (others, isMore) = (others + result.others, result.more)
            #expect(result.others <= 6 && result.tokens == 0 && result.hasErased)
        }
        #expect(others == 15)
        let counts = try await fixture.store.counts()
        #expect(counts.sessions == 1 && counts.timers == 0)
        #expect(try await fixture.store.read { try $0.session([young.session]) } == young)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == young.expires)
        #expect(try fixture.ops() == [])
        try await fixture.close()
    }
}

private func * (list: [String], times: Int) -> [String] { repeatElement(list, count: times).flatMap(\.self) }
