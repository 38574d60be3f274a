internal import CSQLite

/// A compiled statement. Parameters count from 1 and columns from 0, as in SQLite.
@safe public final class Statement {
    private let statement: OpaquePointer
    init(_ statement: OpaquePointer) { unsafe self.statement = unsafe statement }

    deinit { unsafe sqlite3_finalize(statement) }

    /// SQLite treats `$2` as a name and numbers parameters by first occurrence. Whether both numberings agree.
    var isNumberedInOrder: Bool {
        let count = unsafe sqlite3_bind_parameter_count(statement)
        return (0..<count).allSatisfy { index in
            guard let name = unsafe sqlite3_bind_parameter_name(statement, index + 1) else { return true }
            return unsafe String(cString: name) == "$\(index + 1)"
        }
    }

    public func bind(_ value: Int64, at index: Int32) {
        unsafe sqlite3_bind_int64(statement, index, value)
    }
    public func bind(_ value: [UInt8], at index: Int32) {
        // An empty array has no address, and SQLite would read a null pointer as NULL.
        if value.isEmpty { unsafe sqlite3_bind_zeroblob(statement, index, 0) } else { bind(value.span, at: index) }
    }
    /// Binds a blob that is not empty.
    public func bind(_ value: Span<UInt8>, at index: Int32) {
        unsafe value.withUnsafeBytes { bytes in
            _ = unsafe mayfly_sqlite3_bind_blob(statement, index, bytes.baseAddress, Int32(bytes.count))
        }
    }
    public func bind(_ value: String, at index: Int32) {
        var value = value
        value.withUTF8 { bytes in
            let start = unsafe UnsafeRawPointer(bytes.baseAddress)?.assumingMemoryBound(to: CChar.self)
            _ = unsafe mayfly_sqlite3_bind_text(statement, index, start, Int32(bytes.count))
        }
    }
    public func bindNull(at index: Int32) {
        unsafe sqlite3_bind_null(statement, index)
    }

    /// Advances to the next row.
    /// - Returns: false if there is none.
    public func step() throws(SQLiteError) -> Bool {
        switch unsafe sqlite3_step(statement) {
        case SQLITE_ROW: return true
        case SQLITE_DONE: return false
        case let code:
            unsafe sqlite3_reset(statement)
            throw SQLiteError(code, "step")
        }
    }

    /// Ends the statement's read transaction and clears the bound values.
    public func reset() {
        unsafe sqlite3_reset(statement)
        unsafe sqlite3_clear_bindings(statement)
    }

    public func int(_ column: Int32) -> Int64 { unsafe sqlite3_column_int64(statement, column) }
    public func isNull(_ column: Int32) -> Bool { unsafe sqlite3_column_type(statement, column) == SQLITE_NULL }
    public func blob(_ column: Int32) -> [UInt8] {
        guard let bytes = unsafe sqlite3_column_blob(statement, column) else { return [] }
        let count = Int(unsafe sqlite3_column_bytes(statement, column))
        return unsafe [UInt8](UnsafeRawBufferPointer(start: bytes, count: count))
    }
    /// Lends a blob in place until the next step.
    public func withBlob(_ column: Int32, _ body: (Span<UInt8>) -> Void) {
        let bytes = unsafe sqlite3_column_blob(statement, column)
        let count = unsafe bytes == nil ? 0 : Int(sqlite3_column_bytes(statement, column))
        let buffer = unsafe UnsafeBufferPointer(start: bytes?.assumingMemoryBound(to: UInt8.self), count: count)
        unsafe body(buffer.span)
    }
    public func text(_ column: Int32) -> String {
        guard let bytes = unsafe sqlite3_column_text(statement, column) else { return "" }
        return unsafe String(cString: bytes)
    }
}
