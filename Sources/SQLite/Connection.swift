internal import CSQLite

/// A SQLite connection. Not `Sendable`: it belongs to the thread that uses it, so it is opened without SQLite's own locks.
@safe public final class Connection {
    let handle: OpaquePointer
    /// Statements by the address of their text, which for a literal is as good as the text and quicker to compare.
    private var cache: [UInt: Statement] = [:]

    /// Without the counts of memory that SQLite keeps under a lock of the whole process.
    private static let configured: Void = { _ = mayfly_sqlite3_keep_no_memory_statistics() }()

    public enum Access: Sendable { case readWrite, readOnly }

    /// Opens the file, making it when `access` is `.readWrite`. The file's mode follows the process's umask.
    ///
    /// What a checkpoint writes into the file holds no remnant of rows that are gone (`shim.h` says how), given `secure_delete` and no
    /// `auto_vacuum`.
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

    // `close_v2` waits for statements that are finalised after it.
    deinit {
        unsafe sqlite3_close_v2(handle)
        unsafe frames?.deallocate()
    }

    /// Runs statements that give no rows and take no values.
    public func execute(_ sql: String) throws(SQLiteError) {
        let code = unsafe sqlite3_exec(handle, sql, nil, nil, nil)
        guard code == SQLITE_OK else { throw SQLiteError(code, "execute") }
    }

    /// The statement of a literal, compiled at its first use; reset, so that each use starts afresh.
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

    /// Compiles one statement, kept for as long as the returned value lives. Its parameters are `$1`, `$2` and so on, or `?`.
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

    /// Whether a transaction is open. SQLite itself rolls one back on some errors (a full disk, out of memory).
    public var inTransaction: Bool { unsafe sqlite3_get_autocommit(handle) == 0 }

    private var busyTimeoutMs: Int32 = 0

    /// Waits this long for a lock that another process holds before `isBusy` is thrown.
    public func setBusyTimeout(milliseconds: Int32) {
        busyTimeoutMs = milliseconds
        unsafe sqlite3_busy_timeout(handle, milliseconds)
    }

    private var frames: UnsafeMutablePointer<Int32>?

    /// From now on the caller sees to checkpoints; SQLite makes none by itself.
    public func takeOverCheckpoints() {
        guard unsafe frames == nil else { return }
        let counter = UnsafeMutablePointer<Int32>.allocate(capacity: 1)
        unsafe counter.initialize(to: 0)
        unsafe frames = unsafe counter
        unsafe mayfly_sqlite3_count_frames(handle, counter)
    }

    /// Pages in the WAL after this connection's last commit, since `takeOverCheckpoints`.
    public var framesInLog: Int { unsafe Int(frames?.pointee ?? 0) }

    /// Copies what it can of the WAL into the database, durably. Waits for no reader or writer, and none waits for it but those of this
    /// connection.
    public func checkpoint() throws(SQLiteError) {
        let code = unsafe sqlite3_wal_checkpoint_v2(handle, nil, SQLITE_CHECKPOINT_PASSIVE, nil, nil)
        if code & 0xff == SQLITE_BUSY || code & 0xff == SQLITE_LOCKED { return }
        guard code == SQLITE_OK else { throw SQLiteError(code, "checkpoint") }
    }

    /// Copies the whole WAL into the database and cuts the WAL to zero bytes.
    /// - Parameter waitMs: for readers and writers that stand in the way; nobody writes meanwhile.
    /// - Returns: false when one still did and something was left.
    public func checkpointTruncating(waitMs: Int32) throws(SQLiteError) -> Bool {
        unsafe sqlite3_busy_timeout(handle, waitMs)
        defer { unsafe sqlite3_busy_timeout(handle, busyTimeoutMs) }
        let code = unsafe sqlite3_wal_checkpoint_v2(handle, nil, SQLITE_CHECKPOINT_TRUNCATE, nil, nil)
        if code & 0xff == SQLITE_BUSY || code & 0xff == SQLITE_LOCKED { return false }
        guard code == SQLITE_OK else { throw SQLiteError(code, "checkpoint") }
        return true
    }
}
