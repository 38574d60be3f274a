/// The operations on rooms, tokens, pushes and audiences, written once for all engines: each is one whole operation together with its ledger
/// entries. All of it is durable when `Store.write` returns, none of it is kept when it throws.
///
/// No operation gets a key or a secret. Callers pass a keyed index once for each key that may have written it, the current key first.
public struct Transaction {
    public let database: any Database

    public init(_ database: any Database) { self.database = database }

    /// Broker time at which the operation happens, unix milliseconds.
    var moment: UInt64 { database.moment }

    /// Begins an operation that writes.
    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString = #function) throws {
        try database.lock(keys(), for: operation)
    }

    /// Reads each row of a query as a value.
    func rows<Value>(_ sql: StaticString, _ values: SQLValue..., read: (any Row) throws -> Value) throws -> [Value] {
        var found: [Value] = []
        try database.query(sql, values) { found.append(try read($0)) }
        return found
    }

    /// Reads the first row of a query. Returns nil if there is none.
    func first<Value>(_ sql: StaticString, _ values: SQLValue..., read: (any Row) throws -> Value) throws -> Value? {
        var found: Value?
        try database.query(sql, values) { if found == nil { found = try read($0) } }
        return found
    }

    func earliest(_ sql: StaticString, _ values: SQLValue...) throws -> UInt64? {
        var earliest: UInt64?
        try database.query(sql, values) { earliest = $0.timeOrNil(0) }
        return earliest
    }

    func exists(_ sql: StaticString, _ values: SQLValue...) throws -> Bool {
        var isFound = false
        try database.query(sql, values) { _ in isFound = true }
        return isFound
    }

    /// Runs a conditional write at once.
    /// - Returns: true if it changed a row.
    func change(_ sql: StaticString, _ values: SQLValue...) throws -> Bool { try database.change(sql, values) > 0 }

    /// Queues a write. The operation fails unless it changes `count` rows; nil allows any number.
    func queue(_ sql: StaticString, _ values: SQLValue..., expecting count: Int? = 1) throws {
        try database.queue(sql, expecting: count, values)
    }
}
