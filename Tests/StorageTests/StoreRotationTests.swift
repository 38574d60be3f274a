import Ledger
import Linux
import Policy
import Testing
import Vocabulary

@testable import Storage

/// Rotation from one log to the next.
@Suite struct StoreRotationTests {
    static let next = EntryText("log.example/b")!
    static let end = Checkpoint(origin: "log.example/a", size: 0, root: Digest.sha256([1].span))
    static let (closing, moving) = (StoreMark("rotation", [1]), StoreMark("rotation", [2]))
    private static let quick = StoreBatchTests.quick
    private static let (sign, stop) = (StoreBatchTests.sign, StoreBatchTests.stop)

    private func close(_ fixture: Fixture) async throws -> Bool {
        try await fixture.store.closeLog([Self.stop], next: Self.next, mark: Self.closing)
    }

    /// The final checkpoint of the closed log. Its size is the store's head's.
    private func end(_ fixture: Fixture) async throws -> Checkpoint {
        var end = Self.end
        end.size = try #require(try await fixture.store.logHead()).size
        return end
    }

    private func register(_ numbers: Range<Int>, _ fixture: Fixture, life: UInt64) async throws -> [RegistrationRecord] {
        var records: [RegistrationRecord] = []
        for number in numbers {
            records.append(try await fixture.registered(fixture.registration(number, owner: number, life: life)))
        }
        return records
    }

    @Test(arguments: Engine.allCases) func aLogIsClosedAfterEverythingIsPublished(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        #expect(try await !close(fixture), "there is no log")
        try await fixture.store.start([Self.sign], marks: [])
        try await fixture.publish(before: .max)
        try await fixture.store.record([Self.sign])
        #expect(try await !close(fixture), "an entry waits")
        // In the log, but not known to be in the folder.
        let entries = try await fixture.store.closedEntries(before: .max, limit: .max)
        #expect(try await fixture.store.commit(LogHead(size: 2, checkpoint: "b", window: 1), after: 1, entries: entries))
        #expect(try await !close(fixture), "an entry is on its way")
        #expect(try await fixture.store.mark("rotation") == nil)
        try await fixture.store.published(upTo: 2)
        #expect(try await close(fixture))
        #expect(try await fixture.store.mark("rotation") == [1])
        let last = try await fixture.publish(before: .max).map { LogModel.Line($0) }
        #expect(last.map(\.op) == ["broker.stopped", "ledger.closed"] && last[1].string("next") == "log.example/b")
        try await fixture.close()
    }

    /// Published and waiting tokens, a job, and a bucket of each kind.
    // Promise: rotation-carries-balances
    @Test(arguments: Engine.allCases) func balancesAreCarriedAndWaitingEntriesKept(engine: Engine) async throws {
        let fixture = try Fixture(engine, timing: Self.quick, now: 1_700_000_000)
        try await fixture.store.start([Self.sign], marks: [])
        let records = try await register(0..<5, fixture, life: 30_000)
        _ = try await register(10..<13, fixture, life: 50_000)
        _ = try await register(20..<22, fixture, life: 15_000)
        #expect(try await fixture.store.write { try $0.unregister([records[0].row], cause: .ended) } == 1)
        fixture.clock.advance(10_000)
        var log = try await fixture.publish()
        fixture.clock.advance(1_000)
        log += try await fixture.publish()
        // These wait for a batch.
        let late = try await register(30..<31, fixture, life: 19_500)
        #expect(try await fixture.store.write { try $0.unregister([records[1].row], cause: .ended) } == 1)
        let job = fixture.job(1, records[2])
        #expect(try await fixture.apply(AudienceChange(jobs: [AudienceJob(job)])) == .done)
        fixture.clock.advance(1_000)
        log += try await fixture.publish()
        #expect(try await close(fixture))
        log += try await fixture.publish(before: .max)
        var model = LogModel(Self.quick)
        model.admit(log)
        #expect(
            log.suffix(5).map { LogModel.Line($0).op } == ["broker.stopped"] + [String](repeating: "bucket.closed", count: 3) + [
                "ledger.closed"
            ])
        #expect(LogModel.Line(log[log.count - 3]).text.contains(#""ended":1,"expired":0,"op":"bucket.closed","sealed":5,"#))
        let end = try await end(fixture)
        let window = fixture.clock.now / 1_000

        // However long it takes.
        fixture.clock.advance(3_000)
        #expect(try await fixture.store.beginLog(after: end, marks: [Self.moving, StoreMark("origins", [7])]))
        #expect(try await fixture.store.logHead() == nil)
        #expect(try await fixture.store.mark("rotation") == [2])
        #expect(try await fixture.store.mark("origins") == [7])
        // Rows are unchanged.
        #expect(try await fixture.store.read { try $0.jobs() } == [job])
        #expect(try await fixture.store.read { try $0.registrations(.owner, [late[0].owner]) } == late)
        await fixture.store.shutDown()

        let again = try fixture.reopen()
        try await again.start([Self.sign], marks: [])
        try await again.write { try $0.finish(job, JobOutcome(status: 200, reason: nil)) }
        var second = try await fixture.publish(again, before: .max)
        let lines = second.map { LogModel.Line($0) }
        #expect(
            lines.map(\.op) == [
                "ledger.opened", "bucket.carried", "bucket.carried", "bucket.carried", "keys.generated", "push.delivered",
            ])
        #expect(second.prefix(4).allSatisfy { $0.window == window }, "as of the closing: from there on the log is silent")
        #expect(lines[0].text.contains(#""jobs":1,"op":"ledger.opened","previous":"log.example/a","root":"#))
        #expect(lines[0].number("size") == Int(end.size))
        #expect(lines[1...3].map { $0.number("live") } == [2, 4, 3])
        // Until everything has expired.
        for _ in 0..<8 {
            fixture.clock.advance(10_000)
            while try await again.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).more {}
            second += try await fixture.publish(again, before: .max)
        }
        var next = LogModel(Self.quick)
        next.admit(second)
        #expect(next.ops["token.sealed"] == 1 && next.ops["token.purged"] == 10 && next.live.isEmpty && next.booked == 1)
        await again.shutDown()
        try fixture.remove()
    }

    /// A midnight's batch can't be published in the next log.
    @Test(arguments: Engine.allCases) func aMidnightIsPublishedBeforeTheLogIsClosed(engine: Engine) async throws {
        let fixture = try Fixture(engine, timing: Self.quick, now: 1_700_000_000)
        try await fixture.store.start([Self.sign], marks: [])
        _ = try await register(0..<3, fixture, life: 15_000)
        fixture.clock.advance(20_000)
        #expect(try await !close(fixture), "an entry waits")
        try await fixture.publish(before: .max)
        #expect(try await !close(fixture), "the batch waits for its purges")
        while try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).more {}
        #expect(try await !close(fixture), "the batch waits")
        try await fixture.publish(before: .max)
        #expect(try await close(fixture))
        #expect(try await fixture.publish(before: .max).count == 2, "nothing is left in any bucket")
        #expect(try await fixture.store.beginLog(after: try await end(fixture), marks: []))
        #expect(try await fixture.publish(before: .max).count == 1)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anUnpublishedLogIsNotDeleted(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        try await fixture.store.start([Self.sign], marks: [])
        #expect(try await !fixture.store.beginLog(after: Self.end, marks: [Self.moving]), "there is no log")
        try await fixture.publish(before: .max)
        #expect(try await close(fixture))
        var end = Self.end
        for size in 0...1 as ClosedRange<UInt64> {
            end.size = size
            #expect(try await !fixture.store.beginLog(after: end, marks: [Self.moving]), "the last entries wait")
        }
        try await fixture.publish(before: .max)
        for size in [0, 1, 2, 4] as [UInt64] {
            end.size = size
            #expect(try await !fixture.store.beginLog(after: end, marks: [Self.moving]), "another head")
        }
        #expect(try await fixture.store.mark("rotation") == [1])
        #expect(try await fixture.store.logHead()?.size == 3)
        try await fixture.close()
    }
}
