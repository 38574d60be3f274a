import Linux
import Postgres

/// The lease on a deployment's log and keys: of all nodes that serve, one leads. Times are the database's, in unix ms.
public struct Lease: Sendable, Equatable {
    /// The node that has the lease or had it last. Nil before the first lease.
    public var holder: String?
    /// Where other nodes reach the holder. Empty if it shares its keys with none.
    public var address: String
    public var until: UInt64
    /// How often the lease has been taken.
    public var term: UInt64
    /// The database's time.
    public var now: UInt64

    public var isFree: Bool { until <= now }
}

/// A node's report to the others through the database, every few seconds.
public struct NodeReport: Sendable, Equatable {
    public var name: String
    /// The step of its keys, or 0 if it has none.
    public var steps: UInt64
    /// The entries in its ledger folder.
    public var ledgerSize: UInt64
    /// The database's time of the report, unix ms.
    public var seen: UInt64
    /// True if the node serves.
    public var serves = false

    public init(name: String, steps: UInt64, ledgerSize: UInt64, seen: UInt64 = 0) {
        (self.name, self.steps, self.ledgerSize, self.seen) = (name, steps, ledgerSize, seen)
    }
}

// A node may write while the database has its term in `member`, and lead while it has the lease. Whoever takes the lease, or a dead node's jobs, ends that
// node's term. Both are renewed on another thread than operations, since these may wait for locks.
extension PostgresStore {
    /// From a renewal to the end of term and lease, milliseconds.
    public static let leaseMs: UInt64 = 10_000
    /// How long a node may keep its keys without contact, milliseconds.
    public static let longestSilenceMs: UInt64 = 600_000

    public func lease() async throws(StoreError) -> Lease {
        try await runAside { database in try database.read { try database.lease() } }
    }

    /// Begins to serve under this name. From then on this store's writes are refused once another node has ended its term.
    /// - Returns: false if another process serves under the name, or did so a moment ago.
    public func join(_ name: String) async throws(StoreError) -> Bool {
        try await begin { database in try database.join(name).map { PostgresNode(name: name, term: $0) } } != nil
    }

    /// Takes the lease if it is free, and joins unless this node has joined.
    /// - Parameter mark: what all nodes have in common, for those that join.
    public func takeLease(
        _ name: String, address: String, after term: UInt64, mark: StoreMark? = nil
    ) async throws(StoreError) -> Bool {
        let node = try await begin { database in try database.takeLease(name, address, after: term, mark) }
        if node != nil { journal.leaseTerm = term + 1 }
        return node != nil
    }

    private func begin(
        _ body: @escaping @Sendable (PostgresDatabase) throws -> PostgresNode?
    ) async throws(StoreError) -> PostgresNode? {
        let journal = journal
        return try await runAside { database in
            let node = try database.write(isSignOfLife: false) { try body(database) }
            if let node { journal.node = node }
            return node
        }
    }

    /// Renews this node's term, and the lease if this node leads.
    /// - Returns: false if another node has ended the term or taken the lease.
    public func renew(_ report: NodeReport) async throws(StoreError) -> Bool { try await extend(by: Self.leaseMs, report) }

    /// Ends term and lease, so that another node can take the lease at once.
    public func leave(_ report: NodeReport) async throws(StoreError) { _ = try await extend(by: 0, report) }

    private func extend(by ms: UInt64, _ report: NodeReport) async throws(StoreError) -> Bool {
        guard let node = journal.node else { return false }
        let leaseTerm = journal.leaseTerm
        return try await renewing { database in
            do {
                return try database.write(isSignOfLife: false) { try database.extend(node, leaseTerm, by: ms, report) }
            } catch {
                if StoreError(any: error) == .superseded { return false }
                throw error
            }
        }
    }

    /// Reports for a node that has not joined.
    public func report(_ report: NodeReport) async throws(StoreError) {
        try await runAside { database in try database.write(isSignOfLife: false) { try database.report(report) } }
    }

    /// Returns all nodes' reports, also of nodes that are gone.
    public func reports() async throws(StoreError) -> [NodeReport] {
        try await runAside { database in try database.read { try database.reports() } }
    }

    /// Takes the jobs of earlier runs of this node, and those that no node has owned. Call it once at a start.
    public func takeOwnJobs() async throws(StoreError) -> [JobRecord] {
        guard let name = journal.node?.name else { return [] }
        return try await runAside { database in
            try database.write { try database.takeJobs(of: [name, ""], for: name) }.sorted { $0.deadline < $1.deadline }
        }
    }

    /// Takes over the jobs of nodes that serve no more, and ends the terms of these nodes.
    public func takeJobsOfGoneNodes() async throws(StoreError) -> [JobRecord] {
        guard let name = journal.node?.name else { return [] }
        return try await runAside { database in
            // Most of the time there are none.
            guard try database.read({ try !database.goneOwners(besides: name).isEmpty }) else { return [] }
            return try database.write {
                let gone = try database.endTermsOfGoneOwners(besides: name)
                return try database.takeJobs(of: gone, for: name)
            }.sorted { $0.deadline < $1.deadline }
        }
    }

    /// Returns the latest generation of any room, token, registration or timer, or 0. Reads all these rows.
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

    /// - Returns: the node's term, or nil if an earlier process may still have it.
    func join(_ name: String) throws -> UInt64? {
        _ = try lockSchedule()
        let term = try first(
            """
            INSERT INTO member (name, term, held_until, steps, ledger_size, seen)
            SELECT $1, 1, now + $2, 0, 0, now FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock
            ON CONFLICT (name) DO UPDATE SET term = member.term + 1, held_until = excluded.held_until, seen = excluded.seen
            WHERE member.held_until <= excluded.seen RETURNING term
            """, .text(name), .time(PostgresStore.leaseMs)
        ) { $0.time(0) }
        if term != nil { try waitForOldTerms() }
        return term
    }

    func takeLease(_ name: String, _ address: String, after term: UInt64, _ mark: StoreMark?) throws -> PostgresNode? {
        _ = try lockSchedule()
        let last = try lease().holder
        let changed = try change(
            """
            UPDATE lease SET holder = $1, address = $2, term = term + 1,
            held_until = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $3
            WHERE term = $4 AND held_until <= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
            """, [.text(name), .text(address), .time(PostgresStore.leaseMs), .time(term)])
        guard changed == 1 else { return nil }
        if let mark { try setMark(mark.name, mark.value) }
        if let last, last != name {
            _ = try change("UPDATE member SET term = term + 1, held_until = 0 WHERE name = $1", .text(last))
        }
        if let node = journal.node {
            try waitForOldTerms()
            return node
        }
        guard let own = try join(name) else {
            throw StoreError.unavailable("an earlier run of this node may still be alive, for ten seconds at most")
        }
        return PostgresNode(name: name, term: own)
    }

    /// Waits for all open transactions and keeps new ones out: each reads its node's term under its window's lock. So none goes on with an old term.
    private func waitForOldTerms() throws {
        let windows = journal.resolution
        let start = (clock / 1_000 - min(clock / 1_000, Self.longestLife)) / windows * windows
        for window in stride(from: start, through: clock / 1_000 + Self.longestLife, by: Int(windows)) { try closeAlone(window) }
    }

    func extend(_ node: PostgresNode, _ leaseTerm: UInt64?, by ms: UInt64, _ report: NodeReport) throws -> Bool {
        let isOwn = try change(
            """
            UPDATE member SET held_until = clock.now + $1, steps = $2, ledger_size = $3, seen = clock.now
            FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock WHERE name = $4 AND term = $5
            """, [.time(ms), .time(report.steps), .time(report.ledgerSize), .text(node.name), .time(node.term)])
        guard isOwn == 1, let leaseTerm else { return isOwn == 1 }
        let leads = try change(
            """
            UPDATE lease SET held_until = floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1
            WHERE term = $2
            """, [.time(ms), .time(leaseTerm)])
        return leads == 1
    }

    func report(_ report: NodeReport) throws {
        try queue(
            """
            INSERT INTO member (name, steps, ledger_size, seen) VALUES ($1, $2, $3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            ON CONFLICT (name) DO UPDATE SET steps = excluded.steps, ledger_size = excluded.ledger_size, seen = excluded.seen
            """, .text(report.name), .time(report.steps), .time(report.ledgerSize))
    }

    func reports() throws -> [NodeReport] {
        try rows(
            """
            SELECT name, steps, ledger_size, seen, held_until > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
            FROM member ORDER BY name
            """
        ) {
            var report = NodeReport(name: $0.text(0), steps: $0.time(1), ledgerSize: $0.time(2), seen: $0.time(3))
            report.serves = $0.int(4) != 0
            return report
        }
    }

    // MARK: Jobs

    /// Returns the nodes whose term has run out and that own jobs.
    func goneOwners(besides name: String) throws -> [String] {
        try rows(
            """
            SELECT name FROM member WHERE name <> $1 AND held_until <= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
            AND EXISTS (SELECT 1 FROM job WHERE owner = name)
            """, .text(name)
        ) { $0.text(0) }
    }

    func endTermsOfGoneOwners(besides name: String) throws -> [String] {
        _ = try lockSchedule()
        let gone = try rows(
            """
            UPDATE member SET term = term + 1, held_until = 0
            WHERE name <> $1 AND held_until <= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
            AND EXISTS (SELECT 1 FROM job WHERE owner = name) RETURNING name
            """, .text(name)
        ) { $0.text(0) }
        if !gone.isEmpty { try waitForOldTerms() }
        return gone
    }

    func takeJobs(of owners: [String], for name: String) throws -> [JobRecord] {
        try owners.flatMap { owner in
            try rows(
                """
                UPDATE job SET owner = $1 WHERE owner = $2 RETURNING deadline, job, not_before, purge_id, room, slot, kind, environment, topic,
                template, generation, expires, sealed, fields, is_last
                """, .text(name), .text(owner), read: JobRecord.init)
        }
    }

    func latestGeneration() throws -> UInt64 {
        try rows(
            """
            SELECT greatest((SELECT max(creator_generation) FROM room), (SELECT max(joiner_generation) FROM room),
            (SELECT max(code_generation) FROM room),
            (SELECT max(generation) FROM token), (SELECT max(generation) FROM job), (SELECT max(generation) FROM registration),
            (SELECT max(generation) FROM session), (SELECT max(generation) FROM timer), 0)
            """
        ) { $0.time(0) }[0]
    }
}
