public import Ledger
public import Shares
public import Vocabulary

/// The operations on rooms, tokens, pushes and audiences, written once for all engines. Each is atomic and includes its ledger entries. It is
/// durable when `Store.write` returns, and leaves nothing if that throws. See `Store` for the exception.
///
/// Operations never receive a key or a secret. Callers pass a keyed index once for each key that may have made it, the current key first.
public struct Transaction {
    public let database: any Database

    public init(_ database: any Database) { self.database = database }

    /// The time of the operation in broker time, unix milliseconds.
    var moment: UInt64 { database.moment }

    /// Begins an operation that writes.
    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString = #function) throws {
        try database.lock(keys(), for: operation)
    }

    /// Runs a conditional write at once.
    /// - Returns: true if it changed a row.
    func change(_ sql: StaticString, _ values: SQLValue...) throws -> Bool { try database.change(sql, values) > 0 }

    /// Queues a write. The operation fails unless it changes `count` rows. Nil allows any number.
    func queue(_ sql: StaticString, _ values: SQLValue..., expecting count: Int? = 1) throws {
        try database.queue(sql, expecting: count, values)
    }
}

extension Transaction: RowReader {
    func query(_ sql: StaticString, _ values: [SQLValue], _ body: (any Row) throws -> Void) throws {
        try database.query(sql, values, body)
    }
}

/// The transaction of one operation, implemented by an engine.
///
/// An operation locks, reads, decides and then writes. It refuses before its first write. So an engine may hold queued writes and entries
/// back until the operation ends, and send them with the commit.
public protocol Database: AnyObject {
    /// The time of the operation in broker time, unix milliseconds.
    var moment: UInt64 { get }
    /// - Throws: `.ledgerBehind` if too many entries wait for publication. Purges and outcomes are never refused.
    func admit(_ urgency: Urgency) throws(StoreError)
    /// Holds the keys until the operation's transaction ends. Waits for other holders, or ends the operation and runs it again later. An engine
    /// with a single writer ignores the call.
    /// - Parameter operation: its name.
    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString) throws
    /// Calls `body` with each row of a query. Statements are literals with parameters `$1`, `$2` and so on.
    func query(_ sql: StaticString, _ values: [SQLValue], _ body: (any Row) throws -> Void) throws
    /// Runs a query once for each list of values. An engine with a server sends them together.
    func query(_ sql: StaticString, each lists: [[SQLValue]], _ body: (any Row) throws -> Void) throws
    /// Changes rows at once.
    /// - Returns: the number of changed rows, for the operation's decision. An operation may still refuse after a change of 0 rows.
    func change(_ sql: StaticString, _ values: [SQLValue]) throws -> Int
    /// Changes rows at the latest with the commit.
    /// - Parameter count: the operation fails if another number of rows changes. Nil allows any number.
    func queue(_ sql: StaticString, expecting count: Int?, _ values: [SQLValue]) throws
    /// Adds a ledger entry to the operation.
    func record(_ entry: NewEntry) throws
}

extension Database {
    public func query(_ sql: StaticString, each lists: [[SQLValue]], _ body: (any Row) throws -> Void) throws {
        for values in lists { try query(sql, values, body) }
    }
}

/// A key that only one operation can hold at a time.
public enum LockKey: Sendable, Hashable {
    case room(Digest)
    case code(Digest)
    /// The count of pending rooms with short codes.
    case shortCodes
    case owner(Digest)
    case device(Digest)
    case registration(RowName)
    case session(Digest)
    case timer(RequestID)
    case seen(Digest)
    /// For the making of partitions, on PostgreSQL.
    case partitions
    /// For changes of the ledger's schedule, and for sweeps, on PostgreSQL.
    case schedule, sweep
}

/// A ledger entry of an operation.
public enum NewEntry: Sendable {
    /// An entry that names no token. It is published with its window.
    case event(Entry.Op)
    /// A token's sealing, which waits for its batch. `expires`: the token's expiry, unix ms.
    case sealed(EntryID, expires: UInt64, isLong: Bool)
    /// A token's purge, which waits for its batch. The purge of an expired token is recorded as expired.
    case purged(EntryID, PurgeCause, expires: UInt64, isLong: Bool)
}

/// A value for a statement's parameter.
public enum SQLValue: Sendable {
    case int(Int64)
    case blob([UInt8])
    case id(AnyID)
    case digest(Digest)
    case text(String)
    case null

    static func time(_ value: UInt64) -> SQLValue { .int(Int64(clamping: value)) }
    static func time(_ value: UInt64?) -> SQLValue { value.map { .time($0) } ?? .null }
    static func number(_ value: some BinaryInteger) -> SQLValue { .int(Int64(clamping: value)) }
    static func code(_ value: some RawRepresentable<UInt8>) -> SQLValue { .int(Int64(value.rawValue)) }
    static func bool(_ value: Bool) -> SQLValue { .int(value ? 1 : 0) }
    static func blob(_ value: [UInt8]?) -> SQLValue { value.map { .blob($0) } ?? .null }
    static func id(_ value: some OpaqueID) -> SQLValue { .id(AnyID(high: value.high, low: value.low)) }
    static func id(_ value: (some OpaqueID)?) -> SQLValue { value.map { .id($0) } ?? .null }
    static func digest(_ value: Digest?) -> SQLValue { value.map { .digest($0) } ?? .null }

    /// An id whose type no longer matters.
    public struct AnyID: OpaqueID {
        public let high, low: UInt64

        public init(high: UInt64, low: UInt64) { (self.high, self.low) = (high, low) }
    }
}
