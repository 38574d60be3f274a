import Ledger
import Linux
import Policy
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// Buckets: closings, absences and publication in pieces.
@Suite struct StoreBucketTests {
    private static let quick = StoreBatchTests.quick
    private static let sign = StoreBatchTests.sign

    private func buckets(_ fixture: Fixture) throws -> [UInt64: Bucket] {
        Dictionary(uniqueKeysWithValues: try fixture.tables().buckets().map { ($0.until, $0.bucket) })
    }

    @Test(arguments: Engine.allCases) func aBucketCountsPublishedEntries(engine: Engine) async throws {
        let fixture = try Fixture(engine, timing: Self.quick, now: 1_700_000_000)
        try await fixture.store.start([Self.sign], marks: [])
        for number in 0..<6 { _ = try await fixture.registered(fixture.registration(number, owner: number, life: 12_000)) }
        let early = fixture.registration(0, owner: 0, life: 12_000).row
        let late = fixture.registration(1, owner: 1, life: 12_000).row
        #expect(try await fixture.store.write { try $0.unregister([early], cause: .policy) } == 1)
        #expect(try buckets(fixture).isEmpty)
        fixture.clock.advance(10_000)
        try await fixture.store.setMark("a", [1])
        #expect(try buckets(fixture).isEmpty, "frozen, and not in the log")
        let entries = try await fixture.publish(before: .max)
        #expect(entries.count == 8 && LogModel.Line(entries[7]).string("cause") == "policy")
        #expect(try buckets(fixture) == [1_700_000_020: Bucket(sealed: 6, ended: 1)])
        #expect(try await fixture.store.write { try $0.unregister([late], cause: .ended) } == 1)
        fixture.clock.advance(10_000)
        while try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).more {}
        let closing = try await fixture.publish(before: .max)
        #expect(LogModel.Line(closing[5]).text.contains(#""ended":2,"expired":4,"op":"bucket.closed","sealed":6"#))
        #expect(closing.count == 6)
        #expect(try buckets(fixture).isEmpty)
        try await fixture.close()
    }

    /// Two days of 20 s end while the broker is down, then twenty thousand.
    @Test(arguments: Engine.allCases) func bucketsOfAnAbsenceAreClosed(engine: Engine) async throws {
        let fixture = try Fixture(engine, timing: Self.quick, now: 1_700_000_000)
        try await fixture.store.start([Self.sign], marks: [])
        for life in [15_000, 35_000, 300_000] as [UInt64] {
            _ = try await fixture.registered(fixture.registration(Int(life), owner: 1, life: life))
        }
        await fixture.store.shutDown()
        var log: [ClosedEntry] = []
        for (pause, closings) in [(50_000, 2), (400_000_000, 16_384)] as [(UInt64, Int)] {
            fixture.clock.advance(pause)
            let again = try fixture.reopen()
            try await again.start([Self.sign], marks: [])
            while try await again.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).more {}
            let entries = try await fixture.publish(again, before: .max)
            #expect(entries.count { $0.source.rank == 5 } == closings, "the oldest and the newest")
            log += entries
            await again.shutDown()
        }
        var model = LogModel(Self.quick)
        model.admit(log)
        #expect(model.ops["token.sealed"] == 3 && model.ops["token.purged"] == 3 && model.live.isEmpty)
        try fixture.remove()
    }

    /// The log doesn't depend on the size of the pieces.
    @Test(arguments: [1, 7, 64, .max], Engine.allCases) func piecesOfAnySizeMakeTheSameLog(limit: Int, engine: Engine)
        async throws
    {
        let fixture = try Fixture(engine, timing: Self.quick, now: 1_700_000_000)
        try await fixture.store.start([Self.sign], marks: [])
        var log: [ClosedEntry] = []
        var jobs: [JobRecord] = []
        for number in 0..<200 {
            var record = fixture.registration(number, owner: number, life: UInt64(number % 7) * 9_000 + 3_000)
            record.isLong = number.isMultiple(of: 3)
            _ = try await fixture.registered(record)
            if number.isMultiple(of: 4) {
                jobs.append(fixture.job(number, record))
                #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(jobs.last!)])) == .done)
            }
            if number % 8 == 5 {
                let job = jobs.removeFirst()
                try await fixture.store.write { try $0.finish(job, JobOutcome(status: 200, reason: nil)) }
            }
            if number % 5 == 1 {
                let row = record.row
                #expect(try await fixture.store.write { try $0.unregister([row], cause: .ended) } == 1)
            }
            fixture.clock.advance(700)
            if number % 9 == 0 { while try await fixture.store.sweep(now: fixture.clock.now, limit: 3, jobSlack: 0).more {} }
            // Publication pauses for a while.
            if !(50..<150).contains(number) { log += try await fixture.publish(limit: limit) }
        }
        fixture.clock.advance(60_000)
        while try await fixture.store.sweep(now: fixture.clock.now, limit: 50, jobSlack: 0).more {}
        log += try await fixture.publish(limit: limit)
        fixture.clock.advance(20_000)
        _ = try await fixture.publish(before: 0)
        log += try await fixture.publish(before: .max, limit: limit)
        var model = LogModel(Self.quick)
        model.admit(log)
        #expect(model.ops["token.sealed"] == 200 && model.ops["token.purged"] == 200 && model.live.values.allSatisfy { $0 == 0 })
        #expect(model.ended == 40 && model.booked == 40 && model.batches.count > 10)
        #expect(try await fixture.store.counts().waitingEntries == 0)
        #expect(try fixture.entries().isEmpty)
        #expect(try buckets(fixture).isEmpty)
        try await fixture.close()
    }
}
