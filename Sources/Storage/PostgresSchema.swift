/// The tables of `Schema` in PostgreSQL's words, and what only this engine has.
///
/// A thief of the server's files learns more than `Schema` says: each row has the number of the transaction that wrote it. So the rows of one
/// operation are linked (e.g. a waiting seal and its token), and all rows have an order.
enum PostgresSchema {
    static let version: UInt64 = 3

    /// Each is one statement.
    static let statements: [String] = (Schema.shared.map { translated($0) }.joined() + own).split(separator: ";").map {
        String($0)
    }
    .filter { !$0.allSatisfy(\.isWhitespace) }

    /// A table that is partitioned by its first column, an expiry in unix milliseconds. Deleted rows stay in a table's file, so a partition is dropped
    /// when all its rows have expired.
    struct Partitioned: Sendable {
        let table: String
        /// The span of a partition, milliseconds.
        let width: UInt64
    }

    static let partitioned = [
        Partitioned(table: "token", width: 3_600_000), Partitioned(table: "job", width: 600_000),
        Partitioned(table: "registration", width: 86_400_000),
    ]

    private static func translated(_ table: String) -> String {
        let lines = table.split(separator: "\n").filter { !$0.drop { $0 == " " }.hasPrefix("--") }
        var text = lines.joined(separator: "\n") + "\n"
        for (word, other) in [("INTEGER", "BIGINT"), ("BLOB", "BYTEA")] {
            text = text.split(separator: word).joined(separator: other)
        }
        let isPartitioned = partitioned.contains { text.hasPrefix("CREATE TABLE \($0.table) (") }
        let end = isPartitioned ? ") PARTITION BY RANGE (\(text.hasPrefix("CREATE TABLE job") ? "deadline" : "expires"))" : ")"
        return text.split(separator: ") WITHOUT ROWID").joined(separator: end) + withoutStatistics(table) + ";\n"
    }

    /// Returns the statement that keeps sealed values and keyed hashes of a table, or of a partition of it, out of the planner's statistics.
    /// - Parameter table: its definition.
    static func withoutStatistics(_ table: String, partition: String? = nil) -> String {
        let words = table.split { " ,()\n".contains($0) }
        let columns = zip(words, words.dropFirst()).filter { $0.1 == "BLOB" }.map { "ALTER \($0.0) SET STATISTICS 0" }
        let name = partition ?? String(words[(words.firstIndex(of: "TABLE") ?? 0) + 1])
        return columns.isEmpty ? "" : "ALTER TABLE \(name) \(columns.joined(separator: ", "))"
    }

    /// Returns the definition of a partitioned table.
    static func definition(_ table: String) -> String { Schema.shared.first { $0.contains("CREATE TABLE \(table) (") } ?? "" }

    private static let own = """
        -- The numbers of entries without a sort key.
        CREATE SEQUENCE entry_number;

        -- Frozen batches: their boundary and, once complete, their window.
        CREATE TABLE batch (moment BIGINT PRIMARY KEY, window_start BIGINT);

        -- The latest closed window, and the count of entries that wait for publication, which is counted again at each `stamp`.
        ALTER TABLE schedule ADD COLUMN closed_up_to BIGINT NOT NULL DEFAULT 0, ADD COLUMN backlog BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN stamp BIGINT NOT NULL DEFAULT 0;
        INSERT INTO schedule (one, last_batch) VALUES (1, 0);

        -- How many entries of the head are in the folder of the node that leads. Rows of `unpublished` are kept for other nodes' folders.
        ALTER TABLE log ADD COLUMN published BIGINT NOT NULL DEFAULT 0;

        -- The node that leads, and where others reach it. `held_until` rises at each renewal. 1: given up. See `Lease`.
        CREATE TABLE lease (
            one BIGINT PRIMARY KEY CHECK (one = 1), holder TEXT, address TEXT NOT NULL, held_until BIGINT NOT NULL, term BIGINT NOT NULL);
        INSERT INTO lease (one, address, held_until, term) VALUES (1, '', 0, 0);

        -- A name that the server loses in a crash or a failover, as all rows of such a table.
        CREATE UNLOGGED TABLE incarnation (one BIGINT PRIMARY KEY CHECK (one = 1), name UUID NOT NULL);

        -- Each node's last report (see `NodeReport`), and its term. `held_until` rises at each renewal. 0: ended by another node. 1: given up.
        CREATE TABLE member (
            name TEXT PRIMARY KEY, term BIGINT NOT NULL DEFAULT 0, held_until BIGINT NOT NULL DEFAULT 0, steps BIGINT NOT NULL,
            ledger_size BIGINT NOT NULL, seen BIGINT NOT NULL);

        -- The node that sends the push. Each session sets `mayfly.node`.
        ALTER TABLE job ADD COLUMN owner TEXT NOT NULL DEFAULT coalesce(current_setting('mayfly.node', true), '');

        """.split(separator: "\n").filter { !$0.hasPrefix("--") }.joined(separator: "\n")
}
