import Linux
import Postgres

/// The lease on a deployment's log and keys: one node serves at a time. Times are the database's, in unix ms.
public struct Lease: Sendable, Equatable {
    /// The node that has it or had it last. Nil before the first lease.
    public var holder: String?
    /// Where other nodes reach it. Empty if it serves none.
    public var address: String
    public var until: UInt64
    /// How often the lease has been taken. A node whose term is over can write nothing.
    public var term: UInt64
    /// The database's time.
    public var now: UInt64

    public var isFree: Bool { until <= now }
}

/// What a node tells the others by way of the database, every few seconds.
public struct NodeReport: Sendable, Equatable {
    public var name: String
    /// The step of its keys, or 0 if it has none.
    public var steps: UInt64
    /// The entries in its ledger folder.
    public var ledgerSize: UInt64
    /// The database's time of the report, unix ms.
    public var seen: UInt64

    public init(name: String, steps: UInt64, ledgerSize: UInt64, seen: UInt64 = 0) {
        (self.name, self.steps, self.ledgerSize, self.seen) = (name, steps, ledgerSize, seen)
    }
}

// Leases are renewed on a thread of their own, since operations may wait for locks.
extension PostgresStore {
    /// How long a node may serve after its last renewal, and how long a node's keys may live without contact. Milliseconds.
    public static let leaseMs: UInt64 = 10_000
    public static let longestSilenceMs: UInt64 = 600_000

    public func lease() async throws(StoreError) -> Lease {
        try await runAside { database in try database.read { try database.lease() } }
    }

    /// Takes the lease if it is free. From then on this store's writes are refused once another node takes it.
    public func takeLease(_ name: String, address: String, after term: UInt64) async throws(StoreError) -> Bool {
        let journal = journal
        return try await runAside { database in
            let isTaken = try database.write(isSignOfLife: false) { try database.takeLease(name, address, after: term) }
            if isTaken { journal.term = term + 1 }
            return isTaken
        }
    }

    /// - Returns: false if another node has taken the lease.
    public func renewLease() async throws(StoreError) -> Bool { try await extendLease(by: Self.leaseMs) }

    /// Gives the lease back, so that another node can take it at once.
    public func releaseLease() async throws(StoreError) { _ = try await extendLease(by: 0) }

    private func extendLease(by ms: UInt64) async throws(StoreError) -> Bool {
        guard let term = journal.term else { return false }
        return try await runAside { database in
            do {
                return try database.write(isSignOfLife: false) { try database.extendLease(term, by: ms) }
            } catch {
                if StoreError(any: error) == .superseded { return false }
                throw error
            }
        }
    }

    public func report(_ report: NodeReport) async throws(StoreError) {
        try await runAside { database in try database.write(isSignOfLife: false) { try database.report(report) } }
    }

    /// Returns all nodes' reports, also of nodes that are gone.
    public func reports() async throws(StoreError) -> [NodeReport] {
        try await runAside { database in try database.read { try database.reports() } }
    }

    /// Returns the latest generation of keys that any row was sealed under, or 0. It reads all rows.
    public func latestGeneration() async throws(StoreError) -> UInt64 {
        try await runAside { database in try database.read { try database.latestGeneration() } }
    }
}

extension PostgresDatabase {
    func lease() throws -> Lease {
        try only(
            "SELECT holder, address, held_until, term, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM lease"
        ) { row in
            Lease(
                holder: row.isNull(0) ? nil : row.text(0), address: row.text(1), until: row.time(2), term: row.time(3),
                now: row.time(4))
        }
    }

    func takeLease(_ name: String, _ address: String, after term: UInt64) throws -> Bool {
        _ = try lockSchedule()
        let changed = try change(
            """
            UPDATE lease SET holder = $1, address = $2, term = term + 1,
            held_until = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $3
            WHERE term = $4 AND held_until <= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
            """, [.text(name), .text(address), .time(PostgresStore.leaseMs), .time(term)])
        guard changed == 1 else { return false }
        // A transaction reads the term under its window's lock. So none that read the old one is left, and none can read it any more.
        let windows = journal.resolution
        let start = (clock / 1_000 - min(clock / 1_000, Self.longestLife)) / windows * windows
        for window in stride(from: start, through: clock / 1_000 + Self.longestLife, by: Int(windows)) { try closeAlone(window) }
        return true
    }

    func extendLease(_ term: UInt64, by ms: UInt64) throws -> Bool {
        let changed = try change(
            """
            UPDATE lease SET held_until = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1
            WHERE term = $2
            """, [.time(ms), .time(term)])
        return changed == 1
    }

    func report(_ report: NodeReport) throws {
        try queue(
            """
            INSERT INTO member (name, steps, ledger_size, seen) VALUES ($1, $2, $3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            ON CONFLICT (name) DO UPDATE SET steps = excluded.steps, ledger_size = excluded.ledger_size, seen = excluded.seen
            """, .text(report.name), .time(report.steps), .time(report.ledgerSize))
    }

    func reports() throws -> [NodeReport] {
        try rows("SELECT name, steps, ledger_size, seen FROM member ORDER BY name") {
            NodeReport(name: $0.text(0), steps: $0.time(1), ledgerSize: $0.time(2), seen: $0.time(3))
        }
    }

    func latestGeneration() throws -> UInt64 {
        try rows(
            """
            SELECT greatest((SELECT max(creator_generation) FROM room), (SELECT max(joiner_generation) FROM room),
            (SELECT max(generation) FROM token), (SELECT max(generation) FROM registration), (SELECT max(generation) FROM timer), 0)
            """
        ) { $0.time(0) }[0]
    }
}
