import Linux
import Postgres
import Synchronization

/// The PostgreSQL that `make test` starts (scripts/postgres).
public enum TestPostgres {
    public static let uri: String = {
        guard let uri = Environment.all.first(where: { $0.name == "MAYFLY_TEST_POSTGRES" })?.value else {
            preconditionFailure("set MAYFLY_TEST_POSTGRES to the output of `scripts/postgres start FOLDER`")
        }
        return uri
    }()

    /// Returns the URI of a schema that is named after a folder. Creates it if necessary.
    /// - Parameter server: the URI of another server than that of `make test`.
    public static func schema(named folder: String, at server: String = uri) throws -> String {
        let name = name(folder)
        try run("CREATE SCHEMA IF NOT EXISTS \(name)", server)
        return server + "?options=-csearch_path%3D" + name
    }

    public static func dropSchema(named folder: String, at server: String = uri) throws {
        _ = try run("DROP SCHEMA IF EXISTS \(name(folder)) CASCADE", server)
    }

    /// Returns all rows of all tables as text, in an order of their own.
    public static func rows(inSchemaNamed folder: String, at server: String = uri) throws -> [String] {
        let tables = try texts(
            "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND relpersistence = 'p' AND NOT relispartition AND relnamespace = '\(name(folder))'::regnamespace",
            at: server)
        return try tables.flatMap { table in
            try texts("SELECT '\(table) ' || t::text FROM \(name(folder)).\(table) AS t ORDER BY 1", at: server)
        }
    }

    /// Returns the first column of a query, which is text.
    public static func texts(_ sql: String, at server: String = uri) throws -> [String] {
        guard let rows = try run(sql, server) else { return [] }
        var texts: [String] = []
        while rows.next() { texts.append(rows.text(0)) }
        return texts
    }

    /// Returns the name of the schema of a folder.
    public static func name(_ folder: String) -> String {
        "t_"
            + String(folder.split(separator: "/").last ?? "").lowercased().map { $0.isLetter || $0.isNumber ? String($0) : "_" }
            .joined()
    }

    @discardableResult
    private static func run(_ sql: String, _ server: String) throws -> QueryResult? {
        let connection = try PostgresConnection(server, deadlineMs: 5_000)
        try connection.send(text: sql)
        return try connection.receive(deadlineMs: 10_000).last
    }
}

/// Rows that a transaction of its own keeps locked, as that of another client may.
public final class LockedRows: Sendable {
    private let connection: Mutex<PostgresConnection?>
    private let process: String
    private let uri: String

    /// - Parameter query: selects them.
    public init(_ query: String, at uri: String) throws {
        let made = try PostgresConnection(uri, deadlineMs: 5_000)
        for sql in ["BEGIN", "SELECT pg_backend_pid()::text", query + " FOR UPDATE"] { try made.send(text: sql) }
        let answers = try made.receive(deadlineMs: 10_000)
        process = answers.count > 1 && answers[1].next() ? answers[1].text(0) : ""
        self.uri = uri
        connection = Mutex(made)
    }

    /// True while somebody waits for one of them.
    public var areAwaited: Bool {
        get throws {
            try !TestPostgres.texts(
                "SELECT pid::text FROM pg_stat_activity WHERE \(process) = ANY (pg_blocking_pids(pid))", at: uri
            )
            .isEmpty
        }
    }

    public func release() { connection.withLock { $0 = nil } }
}
