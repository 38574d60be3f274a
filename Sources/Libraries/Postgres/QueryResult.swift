internal import CPostgres

/// The result of a statement: its rows, and the position of the row that is being read. Columns start at 0.
@safe public final class QueryResult {
    private let functions: mayfly_pq
    private let result: OpaquePointer
    private var row: Int32 = -1
    public let count: Int32

    /// - Parameter result: taken over.
    init(_ functions: mayfly_pq, _ result: OpaquePointer) {
        self.functions = functions
        unsafe self.result = unsafe result
        count = unsafe functions.PQntuples(result)
    }

    deinit { unsafe functions.PQclear(result) }

    /// Advances to the next row. Returns false if there is none.
    public func next() -> Bool {
        row += 1
        return row < count
    }

    /// The number of rows that the statement changed or returned.
    public var changed: Int {
        guard let text = unsafe functions.PQcmdTuples(result) else { return 0 }
        return unsafe Int(String(cString: text)) ?? 0
    }

    public func isNull(_ column: Int32) -> Bool { unsafe functions.PQgetisnull(result, row, column) != 0 }

    /// Reads an integer of any size, or a `boolean` as 0 or 1. Null is 0.
    public func int(_ column: Int32) -> Int64 {
        var value: Int64 = 0
        withBlob(column) { bytes in
            guard bytes.count > 0 else { return }
            // The sign of the first byte, except for a boolean, which is 0 or 1.
            value = Int64(Int8(bitPattern: bytes[0]))
            for index in 1..<bytes.count { value = value << 8 | Int64(bytes[index]) }
        }
        return value
    }

    public func text(_ column: Int32) -> String { String(decoding: blob(column), as: UTF8.self) }

    public func blob(_ column: Int32) -> [UInt8] {
        var bytes: [UInt8] = []
        withBlob(column) { span in bytes = unsafe span.withUnsafeBytes { unsafe [UInt8]($0) } }
        return bytes
    }

    /// Lends a value's bytes in place. Null has none.
    public func withBlob(_ column: Int32, _ body: (Span<UInt8>) -> Void) {
        let count = unsafe Int(functions.PQgetlength(result, row, column))
        let start = unsafe UnsafeRawPointer(functions.PQgetvalue(result, row, column))?.assumingMemoryBound(to: UInt8.self)
        let buffer = unsafe UnsafeBufferPointer(start: start, count: start == nil ? 0 : count)
        unsafe body(buffer.span)
    }
}
