/// Why a call to PostgreSQL failed. Never contains SQL, a value of a row, or the server's text about one.
public enum PostgresError: Error, Sendable, Equatable, CustomStringConvertible {
    /// libpq, or a function of it, is not on this machine.
    case library(String)
    /// The URI can't be parsed.
    case address
    /// No connection could be made. The text names the server's answer or the system's error.
    case refused(String)
    /// The connection broke. Statements that were sent may have run.
    case lost(String)
    /// The same, because a deadline passed without an answer.
    case silent
    /// The answer to a COMMIT was lost, and the server doesn't know whether it happened.
    case unknownCommit
    /// The server refused a statement: its five-character SQLSTATE.
    case statement(String)

    /// The server's class of the error: see the appendix on error codes.
    public var state: String? { if case .statement(let state) = self { state } else { nil } }
    /// The server has refused a statement in a session that goes on.
    public var isRefusal: Bool { state != nil && !endsSession }
    /// A statement changed the wrong number of rows.
    public var isWrongCount: Bool { state == "22012" }
    public var isFull: Bool { state == "53100" }
    public var isDamaged: Bool { state == "XX001" || state == "XX002" }
    /// The table of the statement doesn't exist.
    public var isNoTable: Bool { state == "42P01" }
    /// The row belongs to a partition that doesn't exist, or violates another check.
    public var isOutOfRange: Bool { state == "23514" }
    /// A text could not be cast to a number.
    public var isInvalidText: Bool { state == "22P02" }
    /// A unique index has another row of the same key.
    public var isDuplicate: Bool { state == "23505" }
    /// Conflicts with another transaction. A retry may succeed.
    public var isConflict: Bool { ["40001", "40P01", "55P03", "23505"].contains(state) }
    /// A lock was not free in time.
    public var isLockTimeout: Bool { state == "55P03" }
    /// The session can't continue: the server stops, or is a standby server.
    public var endsSession: Bool {
        switch self {
        case .lost, .silent: return true
        default: break
        }
        return state.map { $0.hasPrefix("57P") || $0.hasPrefix("08") || ["25006", "25P03"].contains($0) } ?? false
    }

    /// Says where a password goes, if the server wants one or refuses it.
    private static func remedy(_ text: String) -> String {
        guard text.contains("password") else { return "" }
        return ". Write the password into a file of libpq's (PGPASSFILE), and name it in the address with passfile=FILE"
    }

    public var description: String {
        switch self {
        case .library(let name): "\(name) is missing: install PostgreSQL's client library (Debian: libpq5)"
        case .address: "the database's address can't be parsed: it must be postgresql://[user@]host[:port]/name[?option=value]"
        case .refused(let text): "no connection to PostgreSQL: \(text)\(Self.remedy(text))"
        case .lost(let text): "the connection to PostgreSQL was lost: \(text)"
        case .silent: "the connection to PostgreSQL was lost: no answer in time"
        case .unknownCommit: "the answer to a commit was lost, so it is unknown whether it is durable"
        case .statement(let state):
            "PostgreSQL refused a statement (SQLSTATE \(state)\(Self.names[state].map { ", \($0)" } ?? ""))"
        }
    }

    /// Names of https://www.postgresql.org/docs/current/errcodes-appendix.html that an operator may see.
    private static let names = [
        "23505": "unique_violation", "23514": "check_violation", "25006": "read_only_sql_transaction",
        "3F000": "invalid_schema_name", "40001": "serialization_failure", "40P01": "deadlock_detected",
        "42501": "insufficient_privilege", "42P01": "undefined_table", "53100": "disk_full", "53200": "out_of_memory",
        "53300": "too_many_connections", "53400": "configuration_limit_exceeded", "55P03": "lock_not_available",
        "57014": "query_canceled", "57P01": "admin_shutdown", "57P02": "crash_shutdown", "57P03": "cannot_connect_now",
        "58030": "io_error", "XX001": "data_corrupted", "XX002": "index_corrupted",
    ]
}
