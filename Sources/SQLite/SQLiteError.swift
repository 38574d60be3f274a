internal import CSQLite

/// A failed SQLite call: the extended result code (https://sqlite.org/rescode.html) and which call it was.
///
/// Bound values and SQL text never become part of it.
public struct SQLiteError: Error, Sendable, Equatable, CustomStringConvertible {
    public let code: Int32
    public let call: String

    init(_ code: Int32, _ call: String) {
        self.code = code
        self.call = call
    }

    /// The eight low bits: the kind of failure without its detail.
    public var primary: Int32 { code & 0xff }
    public var isConstraint: Bool { primary == SQLITE_CONSTRAINT }
    public var isFull: Bool { primary == SQLITE_FULL }
    public var isReadOnly: Bool { primary == SQLITE_READONLY || primary == SQLITE_PERM }
    /// A file could not be opened or made: the database, or one that SQLite keeps beside it.
    public var isUnopened: Bool { primary == SQLITE_CANTOPEN }
    public var isDamaged: Bool { primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB }
    public var isBusy: Bool { primary == SQLITE_BUSY || primary == SQLITE_LOCKED }

    public var description: String {
        let text = unsafe String(cString: sqlite3_errstr(code))
        return "SQLite: \(text) (code \(code)) in \(call)"
    }
}
