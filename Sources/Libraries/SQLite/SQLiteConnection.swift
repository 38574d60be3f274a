internal import CSQLite

/// A SQLite connection. Not `Sendable`: it belongs to one thread, so SQLite's own locks are off.
@safe public final class SQLiteConnection {
    let handle: OpaquePointer
    /// Statements by the address of their literal's text, which is quicker to compare than the text.
    private var cache: [UInt: Statement] = [:]

    /// Turns off SQLite's memory statistics, which take a process-wide lock.
    private static let configured: Void = { _ = mayfly_sqlite3_keep_no_memory_statistics() }()

    public enum Access: Sendable { case readWrite, readOnly }

    /// Opens the file and creates it if `access` is `.readWrite`. The file's mode follows the umask.
    ///
    /// Checkpoints leave no remnants of deleted rows in the file (see `shim.h`), given `secure_delete` and no `auto_vacuum`.
    /// - Throws: `SQLiteError`, e.g. `isUnopened` for a folder that can't be written, `isDamaged` for a file that is no database.
    public init(path: String, access: Access = .readWrite) throws(SQLiteError) {
        Self.configured
        let flags =
            (access == .readWrite ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY)
            | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE
        var opened: OpaquePointer?
        let code = unsafe sqlite3_open_v2(path, &opened, flags, nil)
        guard code == SQLITE_OK, let handle = unsafe opened else {
            unsafe sqlite3_close_v2(opened)
            throw SQLiteError(code, "open")
        }
        unsafe self.handle = handle
        guard access == .readWrite else { return }
        let cleared = unsafe mayfly_sqlite3_clear_gaps(handle)
        // `deinit` closes the connection.
        guard cleared == SQLITE_OK else { throw SQLiteError(cleared, "open") }
    }

    // `close_v2` allows statements to be finalised later.
    deinit {
        unsafe sqlite3_close_v2(handle)
        unsafe frames?.deallocate()
    }

    /// Runs statements without results and parameters.
    public func execute(_ sql: String) throws(SQLiteError) {
        let code = unsafe sqlite3_exec(handle, sql, nil, nil, nil)
        guard code == SQLITE_OK else { throw SQLiteError(code, "execute") }
    }

    /// Returns the statement of a literal, reset. It is compiled at its first use.
    public func cached(_ sql: StaticString) throws(SQLiteError) -> Statement {
        let key = unsafe UInt(bitPattern: sql.utf8Start)
        if let known = cache[key] {
            known.reset()
            return known
        }
        let made = try prepare(sql.description)
        cache[key] = made
        return made
    }

    /// Compiles a statement that lives as long as the returned value. Parameters are `$1`, `$2` and so on, or `?`.
    public func prepare(_ sql: String) throws(SQLiteError) -> Statement {
        var compiled: OpaquePointer?
        let code = unsafe sqlite3_prepare_v3(handle, sql, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &compiled, nil)
        guard code == SQLITE_OK, let compiled = unsafe compiled else { throw SQLiteError(code, "prepare") }
        let statement = unsafe Statement(compiled)
        guard statement.isNumberedInOrder else { throw SQLiteError(SQLITE_MISUSE, "prepare") }
        return statement
    }

    /// Rows changed by the last INSERT, UPDATE or DELETE.
    public var changes: Int { Int(unsafe sqlite3_changes64(handle)) }

    /// Rows changed since the connection was opened.
    public var totalChanges: Int64 { unsafe sqlite3_total_changes64(handle) }

    /// Whether a transaction is open. SQLite rolls back by itself on some errors (a full disk, out of memory).
    public var inTransaction: Bool { unsafe sqlite3_get_autocommit(handle) == 0 }

    private var busyTimeoutMs: Int32 = 0

    /// How long to wait for another process's lock before `isBusy` is thrown.
    public func setBusyTimeout(milliseconds: Int32) {
        busyTimeoutMs = milliseconds
        unsafe sqlite3_busy_timeout(handle, milliseconds)
    }

    private var frames: UnsafeMutablePointer<Int32>?

    /// Turns off automatic checkpoints: the caller does them from now on.
    public func takeOverCheckpoints() {
        guard unsafe frames == nil else { return }
        let counter = UnsafeMutablePointer<Int32>.allocate(capacity: 1)
        unsafe counter.initialize(to: 0)
        unsafe frames = unsafe counter
        unsafe mayfly_sqlite3_count_frames(handle, counter)
    }

    /// Pages in the WAL after this connection's last commit, counted since `takeOverCheckpoints`.
    public var framesInLog: Int { unsafe Int(frames?.pointee ?? 0) }

    /// Copies as much of the WAL as possible into the database, durably. Doesn't wait for readers or writers, and blocks only this connection.
    public func checkpoint() throws(SQLiteError) { _ = try checkpoint(SQLITE_CHECKPOINT_PASSIVE) }

    /// Copies the whole WAL into the database and truncates the WAL.
    /// - Parameter waitMs: the wait for readers and writers. Writers are blocked meanwhile.
    /// - Returns: false if one of them was still active and part of the WAL is left.
    public func checkpointTruncating(waitMs: Int32) throws(SQLiteError) -> Bool {
        unsafe sqlite3_busy_timeout(handle, waitMs)
        defer { unsafe sqlite3_busy_timeout(handle, busyTimeoutMs) }
        return try checkpoint(SQLITE_CHECKPOINT_TRUNCATE)
    }

    /// - Returns: false if another connection was in the way.
    private func checkpoint(_ mode: Int32) throws(SQLiteError) -> Bool {
        let code = unsafe sqlite3_wal_checkpoint_v2(handle, nil, mode, nil, nil)
        if code == SQLITE_OK { return true }
        let error = SQLiteError(code, "checkpoint")
        guard error.isBusy else { throw error }
        return false
    }
}

/// A failed SQLite call and its extended result code (https://sqlite.org/rescode.html). Never contains bound values or SQL.
public struct SQLiteError: Error, Sendable, Equatable, CustomStringConvertible {
    public let code: Int32
    public let call: String

    init(_ code: Int32, _ call: String) {
        self.code = code
        self.call = call
    }

    /// The primary result code: the low eight bits.
    public var primary: Int32 { code & 0xff }
    public var isFull: Bool { primary == SQLITE_FULL }
    public var isReadOnly: Bool { primary == SQLITE_READONLY || primary == SQLITE_PERM }
    /// The database, or a file that SQLite keeps beside it, could not be opened or created.
    public var isUnopened: Bool { primary == SQLITE_CANTOPEN }
    public var isDamaged: Bool { primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB }
    public var isBusy: Bool { primary == SQLITE_BUSY || primary == SQLITE_LOCKED }

    public var description: String {
        let text = unsafe String(cString: sqlite3_errstr(code))
        return "SQLite: \(text) (code \(code)) in \(call)"
    }
}
