import Ledger
import TestPostgres
import Testing

@testable import Storage

/// One node holds the lease, and whoever lost it writes nothing.
@Suite struct LeaseTests {
    /// - Returns: two nodes' stores on one database.
    private func pair() throws -> (Fixture, PostgresStore, PostgresStore) {
        let fixture = try Fixture(.postgres)
        guard let first = fixture.store as? PostgresStore, let second = try fixture.reopen() as? PostgresStore else {
            preconditionFailure("the engine is PostgreSQL")
        }
        return (fixture, first, second)
    }

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
        #expect(try await first.renewLease())
        try await first.releaseLease()
        // An outdated term isn't enough.
        #expect(try await !second.takeLease("b", address: "y", after: 0))
        #expect(try await second.takeLease("b", address: "y", after: 1))
        #expect(try await !first.renewLease())
        try await end(fixture, second)
    }

    // Promise: suspended-node-writes-nothing
    @Test func whoeverLostTheLeaseWritesNothing() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        try await fixture.create(1)
        try await first.releaseLease()
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
            try await first.releaseLease()
            #expect(try await second.takeLease("b", address: "", after: 1))
            let rows = try TestPostgres.rows(inSchemaNamed: fixture.folder)
            try await group.waitForAll()
            #expect(try TestPostgres.rows(inSchemaNamed: fixture.folder) == rows)
        }
        try await end(fixture, second)
    }

    // Promise: standby-gets-the-log
    @Test func entriesAreKeptForAnotherNodesFolder() async throws {
        let (fixture, first, second) = try pair()
        #expect(try await first.takeLease("a", address: "", after: 0))
        try await second.report(NodeReport(name: "b", steps: 1, ledgerSize: 0))
        #expect(try await first.reports().map(\.name) == ["b"])
        try await first.record([.requestRefused(cause: .throttled, count: 5)])
        try await fixture.publish(before: .max)
        #expect(try await second.unpublished().entries.count == 1)
        #expect(try await first.counts().waitingEntries == 0)
        try await second.report(NodeReport(name: "b", steps: 1, ledgerSize: 1))
        try await first.record([.requestRefused(cause: .throttled, count: 5)])
        try await fixture.publish(before: .max)
        #expect(try await second.unpublished().first == 1)
        #expect(try await second.unpublished().entries.count == 1)
        try await end(fixture, second)
    }
}
