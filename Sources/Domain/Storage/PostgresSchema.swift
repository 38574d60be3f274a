/// The tables of `Schema` in PostgreSQL's words, and what only this engine has.
///
/// A thief of the server's files learns more than `Schema` says: each row has the number of the transaction that wrote it. So the rows of one
/// transaction, which has up to eight operations, are linked (e.g. waiting seals and their tokens), and all rows have an order.
enum PostgresSchema {
    static let version: UInt64 = 4

    /// Each is one statement.
    static let statements: [String] = (tables.map { translated($0) }.joined() + own).split(separator: ";").map {
        String($0)
    }
    .filter { !$0.allSatisfy(\.isWhitespace) }

    private static let tables = Schema.shared + [waiting, unpublished, batches]

    /// A table that is partitioned by its first column. Deleted rows stay in a table's file, so a partition is dropped when all its rows have expired,
    /// or when all its entries are in the log.
    struct Partitioned: Sendable {
        let table: String
        /// Its first column: an expiry in unix milliseconds, or a batch's boundary.
        let column: String
        /// The span of a partition, in the column's unit.
        let width: UInt64
        /// The storage parameters of a partition.
        var storage = "autovacuum_vacuum_scale_factor = 0.05"

        /// Returns the first value of the partition that a value belongs to.
        func start(of value: UInt64) -> UInt64 { value / width * width }
    }

    static let partitioned = [
        Partitioned(table: "token", column: "expires", width: 3_600_000),
        Partitioned(table: "job", column: "deadline", width: 600_000),
        Partitioned(table: "registration", column: "expires", width: 86_400_000),
        Partitioned(table: "room", column: "expires", width: 86_400_000),
        // Its rows are never changed or deleted one by one.
        Partitioned(table: waitingTable, column: "batch", width: 1, storage: "autovacuum_enabled = off"),
    ]

    static let waitingTable = "waiting"

    private static let unpublished = """
        -- Entries under the head that the folder may lack, many per row, in the log's order. Public.
        CREATE TABLE unpublished (
            first INTEGER NOT NULL PRIMARY KEY,
            count INTEGER NOT NULL, limited INTEGER NOT NULL, bytes BLOB NOT NULL
        ) WITHOUT ROWID;

        """

    private static let waiting = """
        -- Seals (rank 3) and purges (rank 4), each in the partition of its batch. A partition gets its index when its batch is complete, and is
        -- dropped when its batch is in the log. `unsequenced` has the entries that the log lacks.
        -- Thief: ids, causes and days of expiry, and by the rows' places the order in which they were written.
        CREATE TABLE waiting (
            batch INTEGER NOT NULL,
            rank INTEGER NOT NULL,
            id BLOB NOT NULL,
            until INTEGER NOT NULL, cause INTEGER
        ) WITHOUT ROWID;

        """

    private static let batches = """
        -- Frozen batches: their boundary and, once complete, their window. `rank` and `id` are those of its last seal or purge in the log.
        CREATE TABLE batch (
            moment INTEGER NOT NULL PRIMARY KEY,
            window_start INTEGER, rank INTEGER, id BLOB
        ) WITHOUT ROWID;

        """

    private static func translated(_ table: String) -> String {
        let lines = table.split(separator: "\n").filter { !$0.drop { $0 == " " }.hasPrefix("--") }
        var text = lines.joined(separator: "\n") + "\n"
        for (word, other) in [("INTEGER", "BIGINT"), ("BLOB", "BYTEA")] {
            text = text.split(separator: word).joined(separator: other)
        }
        let kind = partitioned.first { text.hasPrefix("CREATE TABLE \($0.table) (") }
        let end = kind.map { ") PARTITION BY RANGE (\($0.column))" } ?? ")"
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
    static func definition(_ table: String) -> String { tables.first { $0.contains("CREATE TABLE \(table) (") } ?? "" }

    private static let own = """
        -- The numbers of entries without a sort key.
        CREATE SEQUENCE entry_number;

        -- `closed_up_to` is the latest closed window. `backlog` is how many entries waited for publication at the count that `stamp` numbers.
        -- `sequenced` is the boundary of the last batch that is in the log.
        ALTER TABLE schedule ADD COLUMN closed_up_to BIGINT NOT NULL DEFAULT 0, ADD COLUMN backlog BIGINT NOT NULL DEFAULT 0,
            ADD COLUMN stamp BIGINT NOT NULL DEFAULT 0, ADD COLUMN sequenced BIGINT NOT NULL DEFAULT 0;
        INSERT INTO schedule (one, last_batch) VALUES (1, 0);

        CREATE VIEW unsequenced AS SELECT batch, rank, id, until, cause FROM waiting WHERE batch > (SELECT sequenced FROM schedule)
            AND NOT EXISTS (SELECT 1 FROM batch WHERE waiting.batch <= moment AND (waiting.rank, waiting.id) <= (batch.rank, batch.id));

        -- How many entries of the head are in the folder of the node that leads. Rows of `unpublished` are kept for other nodes' folders.
        ALTER TABLE log ADD COLUMN published BIGINT NOT NULL DEFAULT 0;

        -- The node that leads, and where others reach it. `held_until` rises at each renewal. 1: given up. See `Lease`.
        CREATE TABLE lease (
            one BIGINT PRIMARY KEY CHECK (one = 1), holder TEXT, address TEXT NOT NULL, held_until BIGINT NOT NULL, term BIGINT NOT NULL);
        INSERT INTO lease (one, address, held_until, term) VALUES (1, '', 0, 0);

        -- A name that lives until the server crashes or another is promoted, which empties the unlogged table. A clean restart keeps it.
        CREATE UNLOGGED TABLE incarnation (one BIGINT PRIMARY KEY CHECK (one = 1), name UUID NOT NULL);

        -- Each node's last report (see `NodeReport`), and its term. `held_until` rises at each renewal. 0: ended by another node. 1: given up.
        CREATE TABLE member (
            name TEXT PRIMARY KEY, term BIGINT NOT NULL DEFAULT 0, held_until BIGINT NOT NULL DEFAULT 0, steps BIGINT NOT NULL,
            ledger_size BIGINT NOT NULL, seen BIGINT NOT NULL);

        -- The node that sends the push. Each session sets `mayfly.node`.
        ALTER TABLE job ADD COLUMN owner TEXT NOT NULL DEFAULT coalesce(current_setting('mayfly.node', true), '');

        """.split(separator: "\n").filter { !$0.hasPrefix("--") }.joined(separator: "\n")
}
