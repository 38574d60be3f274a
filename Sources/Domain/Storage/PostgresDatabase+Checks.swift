import Postgres
import Vocabulary

// What must hold before a broker uses a server.
extension PostgresDatabase {
    /// - Throws: `.noSchema` without tables; `.unavailable` with what to change otherwise.
    func check() throws {
        try checkServer()
        try checkSchema()
    }

    private func checkServer() throws {
        let version = try serverVersion()
        guard version >= Self.oldest else {
            throw StoreError.unavailable("the server has version \(version / 10_000). Mayfly needs PostgreSQL 15 or later")
        }
        try checkDurability()
        try checkRights()
    }

    private static let oldest = 150_000

    /// Nothing may be acknowledged that a crash of the server could lose.
    private func checkDurability() throws {
        for setting in ["fsync", "full_page_writes"] {
            guard try value(of: setting) == "on" else {
                throw StoreError.unavailable(
                    "the server has \(setting) off, so a crash could lose what was acknowledged. Turn it on")
            }
        }
        let commit = try value(of: "synchronous_commit")
        guard commit == "on" || commit == "remote_apply" else {
            throw StoreError.unavailable(
                "the server has synchronous_commit \(commit), so a crash could lose what was acknowledged. Set it to on")
        }
    }

    private func value(of setting: String) throws -> String {
        try first("SELECT current_setting($1)", .text(setting)) { $0.text(0) } ?? ""
    }

    private func checkRights() throws {
        guard try exists("SELECT 1 WHERE current_schema() IS NOT NULL") else {
            throw StoreError.unavailable("no schema of the role's search_path exists. Create it, or name another one")
        }
        let rights = try rows(
            """
            SELECT rolsuper, has_schema_privilege(current_schema(), 'CREATE'), pg_has_role('pg_checkpoint', 'USAGE'),
            has_function_privilege('pg_switch_wal()', 'EXECUTE') FROM pg_roles WHERE rolname = current_user
            """
        ) { row in (0..<4).map { row.bool($0) } }[0]
        if rights[0] { throw StoreError.unavailable("the role is a superuser. Give Mayfly a role of its own without that right") }
        let grants = [
            "CREATE ON SCHEMA of its tables, for their partitions", "the role pg_checkpoint",
            "EXECUTE ON FUNCTION pg_switch_wal()",
        ]
        let missing = zip(grants, rights[1...]).filter { !$0.1 }.map(\.0)
        if !missing.isEmpty {
            throw StoreError.unavailable("the role lacks rights. Grant it \(missing.joined(separator: ", and "))")
        }
    }

    private func checkSchema() throws {
        guard try exists("SELECT 1 WHERE to_regclass('node') IS NOT NULL") else { throw StoreError.noSchema }
        guard try exists("SELECT 1 FROM pg_class WHERE oid = to_regclass('node') AND pg_has_role(relowner, 'USAGE')") else {
            throw StoreError.unavailable("its tables belong to another role. Connect as that role, or change their owner")
        }
        guard let mark = try mark(Self.versionMark) else { throw StoreError.noSchema }
        let version = mark.reduce(0) { $0 << 8 | UInt64($1) }
        guard version == PostgresSchema.version else {
            throw StoreError.otherVersion(found: version, needed: PostgresSchema.version)
        }
        for kind in PostgresSchema.partitioned {
            guard try exists("SELECT 1 FROM pg_partitioned_table WHERE partrelid = to_regclass($1)", .text(kind.table)) else {
                throw StoreError.damaged("the table \(kind.table) is not partitioned")
            }
        }
    }

    static let versionMark = "schema.version"

    /// Begins a read transaction that lasts until `endReading`.
    func beginReading() throws {
        try check()
        // A command computes for a while between its reads.
        try runAlone(["SET idle_in_transaction_session_timeout = 600000", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"])
    }

    func endReading() { disconnect() }

    /// - Returns: false if the tables exist.
    @discardableResult
    func makeSchema() throws -> Bool {
        try checkServer()
        do {
            try checkSchema()
            return false
        } catch StoreError.noSchema {}
        let mark = "INSERT INTO node (name, value) VALUES ('\(Self.versionMark)', int8send(\(PostgresSchema.version)))"
        try runAlone(["BEGIN"] + PostgresSchema.statements + [mark, "COMMIT"])
        // The locks' names depend on the tables.
        disconnect()
        return true
    }
}
