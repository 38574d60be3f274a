import Ledger
import Linux
import Policy
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// Long random stories of audiences. The store matches a simple model, and its log verifies.
@Suite struct AudienceStoryTests {
    @Test(arguments: [1, 2, 3], Engine.allCases) func aRandomStoryVerifies(seed: UInt64, engine: Engine) async throws {
        let fixture = try Fixture(engine)
        try await fixture.store.start([started()], marks: [])
        var chance = Chance(state: seed)
        var current: [RowName: RegistrationRecord] = [:]
        var jobs: [JobID: JobRecord] = [:]
        var outcomes: [String: Int] = [:]
        for number in 0..<1_500 {
            let some = current.values.sorted { $0.purgeID < $1.purgeID }.randomElement(using: &chance)
            switch chance.next() % 9 {
            case 0, 1:
                var record = fixture.registration(
                    number, owner: Int(chance.next() % 3), device: Int(chance.next() % 12), session: Int(chance.next() % 3),
                    kind: .liveActivity, life: 120_000 - fixture.clock.now % 60_000)
                var replaced: [RegistrationRecord] = []
                if let some, chance.next().isMultiple(of: 2) { replaced = [some] }
                record.opens = replaced.first?.opens ?? 0
                let outcome = try await fixture.register(record, replacing: replaced, limit: 2)
                let isTaken = current.values.contains { $0.device == record.device && !replaced.contains($0) }
                let count = current.values.count { $0.owner == record.owner && !replaced.contains($0) }
                #expect(outcome == (isTaken ? .changed : count >= 2 ? .tooMany : .registered))
                if outcome == .registered {
                    for old in replaced { current[old.row] = nil }
                    current[record.row] = record
                }
                outcomes["\(outcome)", default: 0] += 1
            case 2:
                guard let some else { continue }
                #expect(try await fixture.store.write { try $0.unregister([some.row], cause: .ended) } == 1)
                current[some.row] = nil
            case 3, 4, 5:
                // To all of one audience. Some registrations may be gone, and some get their last push.
                guard let some else { continue }
                var change = AudienceChange()
                for record in current.values where record.audience == some.audience {
                    let job = fixture.job(number * 100 + change.jobs.count, record)
                    let update = ActivityUpdate(wasOpens: record.opens, opens: fixture.clock.now + 15_000, stamp: 1)
                    change.jobs.append(
                        AudienceJob(
                            job, update: chance.next().isMultiple(of: 2) ? update : nil,
                            purge: chance.next().isMultiple(of: 16) ? .ended : nil))
                }
                let isChanged = chance.next().isMultiple(of: 4)
                if isChanged { change.jobs.append(AudienceJob(fixture.job(number * 100 + 99, fixture.registration(number)))) }
                if chance.next().isMultiple(of: 4) { change.purges.append(RegistrationPurge(some.row, .policy)) }
                let outcome = try await fixture.apply(change)
                #expect(outcome == (isChanged ? .changed : .done))
                outcomes["change \(outcome)", default: 0] += 1
                if isChanged { continue }
                let purged = change.purges.map(\.row)
                for push in change.jobs {
                    var job = push.job.record
                    job.isLast = push.purge != nil || purged.contains(job.row)
                    jobs[job.job] = job
                    if let update = push.update {
                        current[job.row]?.opens = update.opens
                        current[job.row]?.stamp = update.stamp
                    }
                }
                for push in change.jobs where push.purge != nil { current[push.row] = nil }
                for row in purged { current[row] = nil }
            case 6:
                guard let job = jobs.values.sorted(by: { $0.job < $1.job }).randomElement(using: &chance)
                else { continue }
                let isGone = chance.next().isMultiple(of: 6)
                try await fixture.store.write { [job] in
                    try $0.finish(
                        job, JobOutcome(status: isGone ? 410 : 200, reason: isGone ? .unregistered : nil, purge: isGone))
                }
                jobs[job.job] = nil
                if isGone { current[job.row] = nil }
            case 7:
                fixture.clock.advance(chance.next() % 4_000)
            default:
                let now = fixture.clock.now
                while try await fixture.store.sweep(now: now, limit: 7, jobSlack: 5_000).more {}
                current = current.filter { $0.value.expires > now }
                jobs = jobs.filter { $0.value.deadline + 5_000 > now }
                let epoch = now / 300_000
                if epoch > 2 { try await fixture.store.record([.keysRatcheted(epoch: epoch - 2, swept: 0)]) }
            }
            if number.isMultiple(of: 50) {
                let found = try await stored(fixture)
                #expect(found == current.values.sorted { $0.purgeID < $1.purgeID })
                #expect(try await fixture.store.read { try $0.jobs() }.count == jobs.count)
            }
        }
        #expect(outcomes.count == 5 && outcomes.values.allSatisfy { $0 > 3 }, "\(outcomes)")
        for job in jobs.values {
            try await fixture.store.write({ [job] in try $0.finish(job, JobOutcome(status: 200, reason: nil)) })
        }
        fixture.clock.advance(200_000)
        while try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).more {}
        // The midnight after the last expiry.
        fixture.clock.advance(86_400_000)
        try await fixture.store.record([.keysRatcheted(epoch: 1, swept: 0)])
        var model = LogModel(.standard)
        model.admit(try await fixture.publish(before: .max))
        #expect(model.ops["token.sealed", default: 0] > 100 && model.ops["token.opened", default: 0] > 200)
        #expect(model.ops["token.sealed"] == model.ops["token.purged"] && model.live.isEmpty && model.closed.count > 0)
        #expect(model.ops["token.opened"] == model.ops["push.delivered", default: 0] + model.ops["push.failed", default: 0])
        try await checkIsEmpty(fixture)
        try await fixture.close()
    }

    /// After a kill, the store has exactly the acknowledged changes.
    @Test func aStoryContinuesAfterReopening() async throws {
        let fixture = try Fixture()
        try await fixture.store.start([started()], marks: [])
        let record = try await fixture.registered(fixture.registration(1, session: 1, kind: .liveActivity))
        let change = AudienceChange(
            jobs: [AudienceJob(fixture.job(1, record, fields: Fixture.blob(1, 104)))],
            timer: .begin(
                TimerRecord(
                    id: Fixture.ref(5), due: fixture.clock.now + 60_000, expires: fixture.clock.now + 600_000, generation: 1,
                    sealed: Fixture.blob(1, 104))))
        #expect(try await fixture.apply(change) == .done)
        // Without a shutdown, so the write-ahead log is read again.
        let copy = fixture.folder + "/copy.sqlite"
        for suffix in ["", "-wal"] {
            let bytes = try File.read(fixture.path + suffix, limit: 1 << 26)
            try File.replaceDurably(copy + suffix, bytes.span, mode: 0o600)
        }
        let clock = fixture.clock
        let again = try SQLiteStore(path: copy, resolution: 1, timing: nil, now: { clock.now })
        #expect(try await again.read { try $0.registrations(.session, [record.session!]) } == [record])
        #expect(try await again.read { try $0.jobs() }.map(\.fields) == [Fixture.blob(1, 104)])
        #expect(try await again.read { try $0.due(now: clock.now + 60_000, limit: 5) }.timers.count == 1)
        #expect(try await again.counts().waitingEntries == 2, "the start and the opening")
        await again.shutDown()
        try await fixture.close()
    }

    // MARK: Versions

    // Promise: other-formats-refused
    @Test func otherVersionsAreRefused() async throws {
        for version in [1, 2, 10, 11, 13, 99] as [UInt64] {
            let fixture = try Fixture()
            await fixture.store.shutDown()
            try SQLiteConnection(path: fixture.path).execute("PRAGMA user_version = \(version)")
            let before = try File.read(fixture.path, limit: 10_000_000)
            let refusal = StoreError.otherVersion(found: version, needed: 12)
            #expect(throws: refusal) { try fixture.reopen() }
            #expect(throws: refusal) { try StoreSnapshot(.file(fixture.path)) }
            #expect(try File.read(fixture.path, limit: 10_000_000) == before)
            #expect(refusal.description.contains("have version \(version)") && refusal.description.contains("empty state folder"))
            try fixture.remove()
        }
    }

    @Test func tablesOfAnotherProgramAreRefused() async throws {
        let fixture = try Fixture()
        await fixture.store.shutDown()
        try SQLiteConnection(path: fixture.path).execute("PRAGMA user_version = 0")
        #expect(throws: StoreError.damaged("its tables have no version")) { try fixture.reopen() }
        try fixture.remove()
    }

    // MARK: Parts

    private func started() -> Entry.Op {
        .brokerStarted(
            node: EntryText("n")!, version: EntryText("1")!, policy: Digest.sha256([1].span), resolutionSeconds: 1,
            binary: Digest.sha256([2].span))
    }

    private func stored(_ fixture: Fixture) async throws -> [RegistrationRecord] {
        let owners = try fixture.tables().rows("SELECT DISTINCT owner FROM registration") { try $0.digest(0) }
        return try await fixture.store.read { try $0.registrations(.owner, owners) }.sorted {
            $0.purgeID < $1.purgeID
        }
    }

    private func checkIsEmpty(_ fixture: Fixture) async throws {
        let counts = try fixture.tables().rows(
            """
            SELECT (SELECT count(*) FROM registration), (SELECT count(*) FROM registration_index), (SELECT count(*) FROM session),
            (SELECT count(*) FROM timer), (SELECT count(*) FROM seen), (SELECT count(*) FROM job)
            """
        ) { row in (0..<6).map { row.int($0) } }
        #expect(counts == [[0, 0, 0, 0, 0, 0]])
    }
}

/// Reproducible random numbers (SplitMix64).
struct Chance: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
        return mixed ^ mixed >> 31
    }
}
