import Vocabulary

/// A row of a query's result, valid until the next row is read. Columns start at 0.
public protocol Row: AnyObject {
    func int(_ column: Int32) -> Int64
    func isNull(_ column: Int32) -> Bool
    func text(_ column: Int32) -> String
    func blob(_ column: Int32) -> [UInt8]
    /// Lends a blob without a copy.
    func withBlob(_ column: Int32, _ body: (Span<UInt8>) -> Void)
}

/// Reads rows as values. An operation and the engine's own code share these methods.
protocol RowReader {
    func query(_ sql: StaticString, _ values: [SQLValue], _ body: (any Row) throws -> Void) throws
}

extension RowReader {
    /// Reads each row of a query as a value.
    func rows<Value>(_ sql: StaticString, _ values: SQLValue..., read: (any Row) throws -> Value) throws -> [Value] {
        var found: [Value] = []
        try query(sql, values) { found.append(try read($0)) }
        return found
    }

    /// Calls `body` with each row of a query.
    func each(_ sql: StaticString, _ values: SQLValue..., body: (any Row) throws -> Void) throws { try query(sql, values, body) }

    /// Reads the first row of a query. Returns nil if there is none.
    func first<Value>(_ sql: StaticString, _ values: SQLValue..., read: (any Row) throws -> Value) throws -> Value? {
        var found: Value?
        try query(sql, values) { if found == nil { found = try read($0) } }
        return found
    }

    /// Reads the one row of an aggregate as a time. Returns nil if it is null.
    func earliest(_ sql: StaticString, _ values: SQLValue...) throws -> UInt64? {
        var earliest: UInt64?
        try query(sql, values) { earliest = $0.timeOrNil(0) }
        return earliest
    }

    /// Reads the one row of a count, or of another aggregate that is never null.
    func count(_ sql: StaticString, _ values: SQLValue...) throws -> Int {
        var count = 0
        try query(sql, values) { count = $0.number(0) }
        return count
    }

    /// Returns true if the query has a row.
    func exists(_ sql: StaticString, _ values: SQLValue...) throws -> Bool {
        var isFound = false
        try query(sql, values) { _ in isFound = true }
        return isFound
    }
}

extension Row {
    func time(_ column: Int32) -> UInt64 { UInt64(clamping: int(column)) }
    func timeOrNil(_ column: Int32) -> UInt64? { isNull(column) ? nil : time(column) }

    /// Returns a time that the log or its schedule goes by, in unix seconds.
    /// - Throws: `.damaged` after the year 9999. Arithmetic with it could overflow and end the process.
    func logTime(_ column: Int32) throws(StoreError) -> UInt64 {
        let time = time(column)
        guard time < 253_402_300_800 else { throw .damaged("a time of the log is after the year 9999") }
        return time
    }

    func blobOrNil(_ column: Int32) -> [UInt8]? { isNull(column) ? nil : blob(column) }
    func bool(_ column: Int32) -> Bool { int(column) != 0 }

    /// Inlined, since the compiler doesn't specialise methods of `any Row`.
    @inline(__always)
    func number<Number: FixedWidthInteger>(_ column: Int32) -> Number { Number(clamping: int(column)) }

    /// - Throws: `.damaged` unless the column has 16 bytes.
    func id<ID: OpaqueID>(_ column: Int32) throws(StoreError) -> ID {
        var id: ID?
        withBlob(column) { id = ID(bytes: $0) }
        guard let id else { throw .damaged("an id that is not 16 bytes long") }
        return id
    }

    func idOrNil<ID: OpaqueID>(_ column: Int32) throws(StoreError) -> ID? { isNull(column) ? nil : try id(column) }

    /// - Throws: `.damaged` unless the column has 32 bytes.
    func digest(_ column: Int32) throws(StoreError) -> Digest {
        var digest: Digest?
        withBlob(column) { digest = Digest(bytes: $0) }
        guard let digest else { throw .damaged("a digest that is not 32 bytes long") }
        return digest
    }

    func digestOrNil(_ column: Int32) throws(StoreError) -> Digest? { isNull(column) ? nil : try digest(column) }

    /// - Throws: `.damaged` for an unknown number.
    func code<Code: RawRepresentable<UInt8>>(_ column: Int32) throws(StoreError) -> Code {
        guard let number = UInt8(exactly: int(column)), let code = Code(rawValue: number) else {
            throw .damaged("\(int(column)) is no \(Code.self)")
        }
        return code
    }
}
