import Dispatch
import Ledger
import Synchronization
import TestPostgres
import Testing
import Vocabulary

@testable import Storage

/// One node leads, several serve, and whoever's term has ended writes nothing.
@Suite struct LeaseTests {
    /// - Returns: two nodes' stores on one database.
    private func pair() throws -> (Fixture, PostgresStore, PostgresStore) {
        let fixture = try Fixture(.postgres)
        guard let first = fixture.store as? PostgresStore, let second = try fixture.reopen() as? PostgresStore else {
            preconditionFailure("the engine is PostgreSQL")
        }
        return (fixture, first, second)
    }

    private static func report(_ name: String) -> NodeReport { NodeReport(name: name, steps: 1, ledgerSize: 0) }

    private func end(_ fixture: Fixture, _ second: PostgresStore) async throws {
        await second.shutDown()
        try await fixture.close()
    }

    // Promise: one-lease
    @Test func oneNodeHasTheLease() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.lease().isFree)
        #expect(try await first.takeLease("a", address: "x", after: 0))
        let lease = try await second.lease()
        #expect(lease.holder == "a" && lease.address == "x" && lease.term == 1 && !lease.isFree)
        #expect(try await !second.takeLease("b", address: "y", after: 1))
        #expect(try await first.renew(Self.report("a")))
        try await first.leave(Self.report("a"))
        // An outdated term isn't enough.
        #expect(try await !second.takeLease("b", address: "y", after: 0))
        #expect(try await second.takeLease("b", address: "y", after: 1))
        #expect(try await !first.renew(Self.report("a")))
        try await end(fixture, second)
    }

    // Promise: suspended-node-writes-nothing
    @Test func whoeverLostTheLeaseWritesNothing() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        try await fixture.create(1)
        try await first.leave(Self.report("a"))
        #expect(try await second.takeLease("b", address: "", after: 1))
        await #expect(throws: StoreError.superseded) { try await fixture.create(2) }
        await #expect(throws: StoreError.superseded) { try await first.setMark("x", [1]) }
        await #expect(throws: StoreError.superseded) {
            try await first.sweep(now: fixture.clock.now + 1_000_000, limit: 10, jobSlack: 0)
        }
        try await fixture.create(3, in: second)
        #expect(try await second.counts().rooms == 2)
        try await end(fixture, second)
    }

    /// Transactions that are under way while the lease moves are either before it or refused.
    @Test(arguments: 0..<8) func nothingIsWrittenBesideATakeover(round: Int) async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        try await withThrowingTaskGroup(of: Void.self) { group in
            for writer in 0..<8 {
                group.addTask {
                    for number in 0..<20 {
                        do throws(StoreError) { try await first.setMark("w\(writer)-\(number)", [1]) } catch {
                            guard error == .superseded else { throw error }
                        }
                    }
                }
            }
            try await first.leave(Self.report("a"))
            #expect(try await second.takeLease("b", address: "", after: 1))
            let rows = try TestPostgres.rows(inSchemaNamed: fixture.folder)
            try await group.waitForAll()
            #expect(try TestPostgres.rows(inSchemaNamed: fixture.folder) == rows)
        }
        try await end(fixture, second)
    }

    // Promise: several-nodes-serve
    @Test func aNodeJoinsTheOneThatLeads() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        #expect(try await second.join("b"))
        try await fixture.create(1)
        try await fixture.create(2, in: second)
        #expect(try await first.counts().rooms == 2)
        #expect(try await second.reports().allSatisfy { $0.life != .over })
        // Neither a second process of a name, nor the lease while it is held.
        let third = try #require(try fixture.reopen() as? PostgresStore)
        #expect(try await !third.join("b"))
        #expect(try await !second.takeLease("b", address: "", after: 1))
        #expect(try await second.renew(Self.report("b")))
        // It keeps its term when it leads.
        try await first.leave(Self.report("a"))
        #expect(try await second.takeLease("b", address: "", after: 1))
        try await fixture.create(3, in: second)
        await #expect(throws: StoreError.superseded) { try await fixture.create(4) }
        await third.shutDown()
        try await end(fixture, second)
    }

    @Test func theNextProcessOfANameEndsTheTermOfTheLast() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        try await first.leave(Self.report("a"))
        #expect(try await second.join("a"))
        await #expect(throws: StoreError.superseded) { try await fixture.create(1) }
        #expect(try await !first.renew(Self.report("a")))
        try await fixture.create(2, in: second)
        try await end(fixture, second)
    }

    /// Stores a knock at the creator of a room.
    private func knock(_ fixture: Fixture, _ number: UInt8, in store: PostgresStore) async throws -> JobRecord {
        let (_, _, token) = try await fixture.create(number, in: store)
        let job = fixture.job(number, token: token, deadline: fixture.clock.now + 20_000)
        let now = fixture.clock.now
        let outcome = try await store.write { try $0.knock(NewJob(job), throttle: 30_000, now: now, knocked: now) }
        #expect(outcome == .queued)
        return job
    }

    // Promise: jobs-of-a-dead-node
    @Test func jobsOfANodeThatIsGoneAreTakenOver() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        #expect(try await second.join("b"))
        let own = try await knock(fixture, 1, in: first)
        let other = try await knock(fixture, 2, in: second)
        #expect(try await first.takeJobsOfGoneNodes().isEmpty)
        // Late, and another node's until its term is ended: it may know an outcome that it couldn't record in an outage.
        fixture.clock.advance(25_000)
        _ = try await first.sweep(now: fixture.clock.now, limit: 10, jobSlack: 1_000)
        #expect(try await second.read { try $0.jobs() }.map(\.job) == [other.job])
        try await second.leave(Self.report("b"))
        _ = try await first.sweep(now: fixture.clock.now, limit: 10, jobSlack: 1_000)
        #expect(try await second.read { try $0.jobs() }.map(\.job) == [other.job])
        #expect(try await first.takeJobsOfGoneNodes().map(\.job) == [other.job])
        #expect(try await first.takeJobsOfGoneNodes().isEmpty)
        // It ended the other's term, so that one can't record another outcome.
        await #expect(throws: StoreError.superseded) {
            try await second.write { try $0.finish(other, JobOutcome(status: 200, reason: nil)) }
        }
        try await first.write { try $0.finish(other, JobOutcome(status: 200, reason: nil)) }
        #expect(try await first.read { try $0.jobs() }.isEmpty)
        _ = own
        try await end(fixture, second)
    }

    @Test func aStartTakesTheJobsOfEarlierRuns() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        let job = try await knock(fixture, 1, in: first)
        try await first.leave(Self.report("a"))
        #expect(try await second.join("a"))
        #expect(try await second.takeJobsOfGoneNodes().isEmpty)
        #expect(try await second.takeOwnJobs().map(\.job) == [job.job])
        try await end(fixture, second)
    }

    @Test func messagesReachAllNodes() async throws {
        let (fixture, first, second) = try pair()
        let (one, two) = (PostgresBus(first), PostgresBus(second))
        let heard = Mutex<[String]>([])
        let (ready, all) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        for bus in [one, two] {
            try bus.start(
                connected: { ready.signal() },
                received: { message in
                    heard.withLock { $0.append(message) }
                    all.signal()
                })
            #expect(Self.passes(ready))
        }
        let long = String(repeating: "x", count: PostgresBus.longestMessage)
        one.post("a")
        two.post(long)
        for _ in 0..<4 { #expect(Self.passes(all)) }
        #expect(heard.withLock(\.self).sorted() == ["a", "a", long, long])
        one.close()
        two.close()
        try await end(fixture, second)
    }

    private static func passes(_ semaphore: DispatchSemaphore) -> Bool {
        semaphore.wait(timeout: .now() + .seconds(20)) == .success
    }

    // Promise: nodes-get-the-log
    @Test func entriesAreKeptForAnotherNodesFolder() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        try await second.report(NodeReport(name: "b", steps: 1, ledgerSize: 0))
        #expect(try await first.reports().map(\.name) == ["a", "b"])
        try await first.record([.requestRefused(cause: .throttled, count: 5)])
        try await fixture.publish(before: .max)
        #expect(try await second.unpublished(after: 0).entries.count == 1)
        #expect(try await first.counts().waitingEntries == 0)
        try await second.report(NodeReport(name: "b", steps: 1, ledgerSize: 1))
        try await first.record([.requestRefused(cause: .throttled, count: 5)])
        try await fixture.publish(before: .max)
        #expect(try await second.unpublished(after: 0).first == 1)
        #expect(try await second.unpublished(after: 0).entries.count == 1)
        #expect(try await second.unpublished(after: 2).entries.isEmpty)
        try await end(fixture, second)
    }

    /// A node that waits for ever must not keep the whole log in the database.
    @Test func fewEntriesAreKeptForANodeThatOnlyWaits() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        #expect(try await second.join("b"))
        try await first.record([.requestRefused(cause: .throttled, count: 5)])
        try await fixture.publish(before: .max)
        // As if the log had grown since.
        let schema = TestPostgres.name(fixture.folder)
        _ = try TestPostgres.texts("UPDATE \(schema).log SET size = 100000")
        try await first.published(upTo: 100_000)
        #expect(try await first.unpublished(after: 0).entries.count == 1)
        _ = try TestPostgres.texts("UPDATE \(schema).member SET held_until = 0 WHERE name = 'b'")
        try await first.published(upTo: 100_000)
        #expect(try await first.unpublished(after: 0).entries.isEmpty)
        try await end(fixture, second)
    }

    /// The same after a crash, while nobody has ended its term.
    @Test func fewEntriesAreKeptForANodeThatHasCrashedAndWaits() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        #expect(try await second.join("b"))
        try await first.record([.requestRefused(cause: .throttled, count: 5)])
        try await fixture.publish(before: .max)
        let schema = TestPostgres.name(fixture.folder)
        _ = try TestPostgres.texts("UPDATE \(schema).log SET size = 100000")
        try await first.published(upTo: 100_000)
        fixture.clock.advance(2_000)
        try await second.report(NodeReport(name: "b", steps: 1, ledgerSize: 0))
        try await first.published(upTo: 100_000)
        #expect(try await first.unpublished(after: 0).entries.isEmpty)
        try await end(fixture, second)
    }

    /// No node can renew while the database is away. Whoever reads first after an outage must not take the others for dead.
    @Test func anOutageIsNoSilence() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        #expect(try await second.join("b"))
        _ = try await knock(fixture, 1, in: second)
        for _ in 0..<3 {
            #expect(try await first.takeJobsOfGoneNodes().isEmpty)
            #expect(try await !second.lease().isFree)
            fixture.clock.advance(12_000)
        }
        // Reading all the time, it sees that nobody renews.
        for _ in 0..<11 {
            _ = try await second.lease()
            fixture.clock.advance(1_000)
        }
        #expect(try await second.lease().isFree)
        try await end(fixture, second)
    }

    /// Otherwise it would purge other nodes' rooms.
    @Test func aNodeWhoseClockIsAheadPurgesByTheDatabases() async throws {
        let (fixture, first, second) = try pair()
        let (room, _, _) = try await fixture.create(1)
        let (day, wall): (Int64, TestClock) = (86_400_000, TestClock(fixture.clock.now))
        let agreed = AgreedClock(wall: { wall.now }, boot: { fixture.clock.now })
        let journal = PostgresJournal(
            uri: try TestPostgres.schema(named: fixture.folder), limit: 1_000, now: { agreed.nowMs },
            clocks: PostgresClocks(agreed: agreed, database: { fixture.clock.now }))
        let other = try PostgresStore(journal, timing: nil, connections: 2)
        #expect(try await other.sweep(now: agreed.nowMs, limit: 10, jobSlack: 0).rooms == 0)
        wall.step(day)
        #expect(try await other.sweep(now: wall.now, limit: 10, jobSlack: 0).rooms == 0)
        let counts = try await first.counts()
        #expect(counts.rooms == 1 && counts.tokens == 1)
        let due = try #require(try await first.nextExpiry(jobSlack: 0))
        #expect(try await other.nextExpiry(jobSlack: 0) == due)
        fixture.clock.advance(room.expires - fixture.clock.now)
        #expect(try await other.sweep(now: wall.now, limit: 10, jobSlack: 0).rooms == 1)
        await other.shutDown()
        try await end(fixture, second)
    }
}
