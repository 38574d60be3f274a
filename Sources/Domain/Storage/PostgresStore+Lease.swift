import Linux
import Postgres

/// The lease on a deployment's log and keys: of all nodes that serve, one leads.
public struct Lease: Sendable, Equatable {
    /// The node that has the lease or had it last. Nil before the first lease.
    public var holder: String?
    /// Where other nodes reach the holder. Empty if it shares its keys with none.
    public var address: String
    /// Larger at each renewal. 0 or 1 if it was ended or given up.
    public var stamp: UInt64
    /// How often the lease has been taken.
    public var term: UInt64
    /// True if it was given up, or not renewed for a term while this process looked.
    public var isFree: Bool
}

/// A node's report to the others through the database, every few seconds.
public struct NodeReport: Sendable, Equatable {
    public var name: String
    /// The step of its keys, or 0 if it has none.
    public var steps: UInt64
    /// The entries in its ledger folder.
    public var ledgerSize: UInt64
    /// For how long the node has not reported while this process looked, milliseconds.
    public var silentMs: UInt64 = 0
    /// Its term: `.over` if it doesn't serve.
    public var life = NodeLife.over
    /// True if it has reported again after a crash, and has not joined since.
    public var isWaiting = false

    public init(name: String, steps: UInt64, ledgerSize: UInt64) {
        (self.name, self.steps, self.ledgerSize) = (name, steps, ledgerSize)
    }
}

// A node may write while the database has its term in `member`, and lead while it has the lease. Whoever takes the lease, or a dead node's jobs, ends that
// node's term. Both are renewed on another thread than operations, since these may wait for locks.
//
// Clocks may step, the database's too. So a renewal only raises a number, and whoever watches it judges by its own monotonic clock.
extension PostgresStore {
    /// From a renewal to the end of term and lease, milliseconds.
    public static let leaseMs: UInt64 = 10_000
    /// How long a node may keep its keys without contact, milliseconds.
    public static let longestSilenceMs: UInt64 = 600_000

    public func lease() async throws(StoreError) -> Lease {
        try await run(on: nodes) { database in try database.read { try database.lease() } }
    }

    /// Begins to serve under this name. From then on this store's writes are refused once another node has ended its term.
    /// - Returns: false if another process serves under the name, or did so a moment ago.
    public func join(_ name: String) async throws(StoreError) -> Bool {
        try await begin { database in
            try database.write(isSignOfLife: false) { try database.join(name).map { PostgresNode(name: name, term: $0) } }
        } != nil
    }

    /// Takes the lease if it is free, and joins unless this node has joined.
    /// - Parameter mark: what all nodes have in common, for those that join.
    public func takeLease(
        _ name: String, address: String, after term: UInt64, mark: StoreMark? = nil
    ) async throws(StoreError) -> Bool {
        let node = try await begin { database in
            let lease = try database.read { try database.lease() }
            guard lease.isFree, lease.term == term else { return nil }
            return try database.write(isSignOfLife: false) { try database.takeLease(name, address, after: lease, mark) }
        }
        if node != nil { journal.leaseTerm = term + 1 }
        return node != nil
    }

    private func begin(
        _ body: @escaping @Sendable (PostgresDatabase) throws -> PostgresNode?
    ) async throws(StoreError) -> PostgresNode? {
        let journal = journal
        return try await run(on: nodes) { database in
            guard let node = try body(database) else { return nil }
            // Then no earlier process of this name, or of the node that led, can write any more.
            try database.waitForWriters()
            journal.node = node
            return node
        }
    }

    /// Renews this node's term, and the lease if this node leads.
    /// - Returns: false if another node has ended the term or taken the lease.
    public func renew(_ report: NodeReport) async throws(StoreError) -> Bool { try await extend(isLeaving: false, report) }

    /// Ends term and lease, so that another node can take the lease at once.
    public func leave(_ report: NodeReport) async throws(StoreError) { _ = try await extend(isLeaving: true, report) }

    private func extend(isLeaving: Bool, _ report: NodeReport) async throws(StoreError) -> Bool {
        guard let node = journal.node else { return false }
        let (journal, leaseTerm) = (journal, journal.leaseTerm)
        return try await run(on: renewals) { database in
            do {
                let renewal = try database.renewing { try database.extend(node, leaseTerm, isLeaving: isLeaving, report) }
                if let renewal, !isLeaving { journal.note(renewal: renewal) }
                return renewal != nil
            } catch {
                if StoreError(any: error) == .superseded { return false }
                throw error
            }
        }
    }

    /// Ends `.lostCommits` if the database has this node's term and every lease that was seen.
    /// - Parameter continues: returns true if the database's log is the one that this node has seen.
    public func recheckCommits(_ continues: () async throws -> Bool) async throws {
        guard journal.fault == .lostCommits else { return }
        let hasAllTerms = try await run(on: nodes) { database in try database.read { try database.hasAllTerms() } }
        if hasAllTerms, try await continues() { journal.forgetLoss() }
    }

    /// Reports for a node that has not joined.
    public func report(_ report: NodeReport) async throws(StoreError) {
        try await run(on: nodes) { database in try database.write(isSignOfLife: false) { try database.report(report) } }
    }

    /// Returns all nodes' reports, also of nodes that are gone.
    public func reports() async throws(StoreError) -> [NodeReport] {
        try await run(on: nodes) { database in try database.read { try database.reports() } }
    }

    /// Takes the jobs of earlier runs of this node, and those that no node has owned. Call it once at a start.
    public func takeOwnJobs() async throws(StoreError) -> [JobRecord] {
        guard let name = journal.node?.name else { return [] }
        return try await run(on: nodes) { database in
            try database.write { try database.takeJobs(of: [name, ""], for: name) }.sorted { $0.deadline < $1.deadline }
        }
    }

    /// Takes over the jobs of nodes that serve no more, and ends the terms of these nodes.
    public func takeJobsOfGoneNodes() async throws(StoreError) -> [JobRecord] {
        guard let name = journal.node?.name else { return [] }
        return try await run(on: nodes) { database in
            // Most of the time there are none.
            let owners = try database.read { try database.goneOwners(besides: name) }
            if owners.isEmpty { return [] }
            let gone = try database.write { try database.endTerms(owners) }
            try database.waitForWriters()
            return try database.write { try database.takeJobs(of: gone, for: name) }.sorted { $0.deadline < $1.deadline }
        }
    }

    /// Returns all jobs of this node if the answer to a commit was lost since the last call. That may have stored jobs of which the outbox knows
    /// nothing, because their operations were told that they failed.
    public func jobsAfterUnknownCommit() async throws(StoreError) -> [JobRecord] {
        guard let name = journal.node?.name, journal.takeUnknownCommit() else { return [] }
        do {
            return try await run(on: nodes) { database in
                // The server may still be at it.
                _ = try database.write { try database.endTerms([]) }
                try database.waitForWriters()
                return try database.write { try database.takeJobs(of: [name], for: name) }.sorted { $0.deadline < $1.deadline }
            }
        } catch {
            journal.noteUnknownCommit()
            throw error
        }
    }

    /// Returns the latest generation of any room, token, registration or timer, or 0. Reads all these rows.
    public func latestGeneration() async throws(StoreError) -> UInt64 {
        try await run(on: nodes) { database in try database.read { try database.latestGeneration() } }
    }
}

extension PostgresDatabase {
    func lease() throws -> Lease {
        try only(
            "SELECT holder, address, held_until, term FROM lease"
        ) { row in
            let holder = row.isNull(0) ? nil : row.text(0)
            if row.time(3) < journal.latestLease { journal.noteLoss() }
            journal.note(lease: row.time(3))
            let life = journal.life(.lease(of: holder), stamp: row.time(2))
            return Lease(
                holder: holder, address: row.text(1), stamp: row.time(2), term: row.time(3), isFree: life == .over)
        }
    }

    /// - Returns: the node's term, or nil if an earlier process may still have it.
    func join(_ name: String) throws -> UInt64? {
        _ = try lockSchedule()
        let stamp = try first("SELECT held_until FROM member WHERE name = $1", .text(name)) { $0.time(0) } ?? 0
        guard journal.life(.term(of: name), stamp: stamp) == .over else { return nil }
        try countBacklog()
        return try first(
            """
            INSERT INTO member (name, term, held_until, steps, ledger_size, seen)
            SELECT $1, 1, now, 0, 0, now FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock
            ON CONFLICT (name) DO UPDATE SET term = member.term + 1, held_until = greatest(excluded.held_until, member.seen + 1),
            seen = greatest(excluded.seen, member.seen + 1) RETURNING term
            """, .text(name)
        ) { $0.time(0) }
    }

    /// - Parameter free: the lease as this process has watched it.
    func takeLease(_ name: String, _ address: String, after free: Lease, _ mark: StoreMark?) throws -> PostgresNode? {
        _ = try lockSchedule()
        let last = try lease().holder
        let changed = try change(
            """
            UPDATE lease SET holder = $1, address = $2, term = term + 1,
            held_until = greatest(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, held_until + 1)
            WHERE term = $3 AND held_until = $4
            """, [.text(name), .text(address), .time(free.term), .time(free.stamp)])
        guard changed == 1 else { return nil }
        if let mark { try setMark(mark.name, mark.value) }
        if let last, last != name {
            try change("UPDATE member SET term = term + 1, held_until = 0 WHERE name = $1", .text(last))
        }
        if let node = journal.node {
            try countBacklog()
            return node
        }
        guard let own = try join(name) else {
            throw StoreError.unavailable("an earlier run of this node may still be alive, for ten seconds at most")
        }
        return PostgresNode(name: name, term: own)
    }

    /// Renews the term, and the lease if this node leads.
    /// - Parameter isLeaving: ends both instead.
    /// - Returns: the renewed `held_until`; 0 at a server that has lost this node's term or lease; nil if another node has ended the term or taken the lease.
    func extend(_ node: PostgresNode, _ leaseTerm: UInt64?, isLeaving: Bool, _ report: NodeReport) throws -> UInt64? {
        // A server that has lost this node's term gets it again.
        let renewal = try first(
            """
            UPDATE member SET term = $5, held_until = CASE WHEN $1::bigint = 1 THEN 1 ELSE greatest(clock.now, held_until + 1) END, steps = $2,
            ledger_size = $3, seen = greatest(clock.now, seen + 1)
            FROM (SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS clock WHERE name = $4 AND term <= $5 RETURNING held_until
            """, .bool(isLeaving), .time(report.steps), .time(report.ledgerSize), .text(node.name), .time(node.term)
        ) { $0.time(0) }
        let lost: UInt64? = journal.fault == .lostCommits ? 0 : nil
        guard let renewal, let leaseTerm else { return renewal ?? lost }
        let leads = try change(
            """
            UPDATE lease SET held_until =
            CASE WHEN $1::bigint = 1 THEN 1 ELSE greatest(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, held_until + 1) END
            WHERE term = $2 AND holder = $3
            """, [.bool(isLeaving), .time(leaseTerm), .text(node.name)])
        return leads == 1 ? renewal : lost
    }

    /// Returns true if the database has this node's term and the latest lease that was seen.
    func hasAllTerms() throws -> Bool {
        let term = try journal.node.map { node in
            try first("SELECT term FROM member WHERE name = $1", .text(node.name)) { $0.time(0) } ?? 0 >= node.term
        }
        let isLeaseThere = try only("SELECT term, coalesce(holder, '') FROM lease") { row in
            guard let own = journal.leaseTerm else { return row.time(0) >= journal.latestLease }
            return row.time(0) == own && row.text(1) == journal.node?.name
        }
        return term != false && isLeaseThere
    }

    func report(_ report: NodeReport) throws {
        try queue(
            """
            INSERT INTO member (name, steps, ledger_size, seen) VALUES ($1, $2, $3, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
            ON CONFLICT (name) DO UPDATE SET steps = excluded.steps, ledger_size = excluded.ledger_size,
            seen = greatest(excluded.seen, member.seen + 1)
            """, .text(report.name), .time(report.steps), .time(report.ledgerSize))
    }

    func reports() throws -> [NodeReport] { try memberRows().map(\.report) }

    private func memberRows() throws -> [(report: NodeReport, stamp: UInt64)] {
        try rows("SELECT name, steps, ledger_size, seen, held_until FROM member ORDER BY name") { row in
            var report = NodeReport(name: row.text(0), steps: row.time(1), ledgerSize: row.time(2))
            report.silentMs = journal.unchangedMs(.report(of: report.name), stamp: row.time(3))
            report.life = journal.life(.term(of: report.name), stamp: row.time(4))
            // A node that serves renews both in one transaction. This process may first see them a moment apart, hence the second.
            report.isWaiting = report.silentMs + 1_000 < journal.unchangedMs(.term(of: report.name), stamp: row.time(4))
            return (report, row.time(4))
        }
    }

    /// Returns the other nodes that renewed their term in the last minute by the database's clock. One look can't tell more.
    func recentNodes(besides name: String) throws -> [String] {
        try rows(
            """
            SELECT name FROM member WHERE name <> $1 AND held_until > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 60000
            ORDER BY name
            """, .text(name)
        ) { $0.text(0) }
    }

    // MARK: Jobs

    /// Returns the nodes whose term has run out and that own jobs, with the stamp that they have not renewed.
    func goneOwners(besides name: String) throws -> [(name: String, stamp: UInt64)] {
        let over = try memberRows().filter { $0.report.name != name && $0.report.life == .over }
        if over.isEmpty { return [] }
        let owners = try rows(
            "SELECT DISTINCT owner FROM job WHERE owner = ANY (string_to_array($1, chr(10)))",
            .text(over.map(\.report.name).joined(separator: "\n"))
        ) { $0.text(0) }
        return over.filter { owners.contains($0.report.name) }.map { ($0.report.name, $0.stamp) }
    }

    /// - Parameter gone: as `goneOwners` returned them. One that was renewed since goes on.
    /// - Returns: the names of those whose terms are ended now.
    func endTerms(_ gone: [(name: String, stamp: UInt64)]) throws -> [String] {
        _ = try lockSchedule()
        let ended = try gone.filter { owner in
            try change(
                "UPDATE member SET term = term + 1, held_until = 0 WHERE name = $1 AND held_until = $2",
                [.text(owner.name), .time(owner.stamp)]) == 1
        }
        try countBacklog()
        return ended.map(\.name)
    }

    func takeJobs(of owners: [String], for name: String) throws -> [JobRecord] {
        try owners.flatMap { owner in
            try rows(
                """
                UPDATE job SET owner = $1 WHERE owner = $2 RETURNING deadline, job, not_before, purge_id, room, slot, kind, template,
                generation, expires, sealed, fields, is_last
                """, .text(name), .text(owner), read: JobRecord.init)
        }
    }

    func latestGeneration() throws -> UInt64 {
        try UInt64(
            clamping: count(
                """
                SELECT greatest((SELECT max(creator_generation) FROM room), (SELECT max(joiner_generation) FROM room),
                (SELECT max(code_generation) FROM room),
                (SELECT max(generation) FROM token), (SELECT max(generation) FROM job), (SELECT max(generation) FROM registration),
                (SELECT max(generation) FROM session), (SELECT max(generation) FROM timer), 0)
                """))
    }
}
