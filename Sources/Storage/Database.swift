public import Ledger
public import Vocabulary

/// What the operations of `Transaction` ask of an engine: one operation's transaction.
///
/// An operation locks, reads, decides and then writes, and refuses before its first write. So an engine may keep what is queued and recorded
/// until the operation ends, and send it together with the commit.
public protocol Database: AnyObject {
    /// When the operation happens, in broker time: unix milliseconds.
    var moment: UInt64 { get }
    /// - Throws: `.ledgerBehind` when so many entries wait to be published that this is not taken any more.
    func admit(_ use: LedgerUse) throws(StoreError)
    /// Waits until no other operation holds one of the keys, and holds them until this one ends. Nothing where one thread writes.
    /// - Parameter operation: its name.
    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString) throws
    /// Calls `body` with each row of a query. Statements are literals with parameters `$1`, `$2` and so on.
    func query(_ sql: StaticString, _ values: [SQLValue], _ body: (any Row) throws -> Void) throws
    /// Changes rows at once.
    /// - Returns: how many, by which the operation decides: 0 is no write.
    func change(_ sql: StaticString, _ values: [SQLValue]) throws -> Int
    /// Changes rows, at the end of the operation at the latest.
    /// - Parameter count: the operation fails if it turns out to be another; nil for any.
    func queue(_ sql: StaticString, expecting count: Int?, _ values: [SQLValue]) throws
    /// Adds an entry for the ledger, which is kept or undone with the operation.
    func record(_ entry: NewEntry) throws
}

/// A row of a query's result, until the next one is read. Columns are counted from 0.
public protocol Row: AnyObject {
    func int(_ column: Int32) -> Int64
    func isNull(_ column: Int32) -> Bool
    func text(_ column: Int32) -> String
    func blob(_ column: Int32) -> [UInt8]
    /// Lends a blob where it lies.
    func withBlob(_ column: Int32, _ body: (Span<UInt8>) -> Void)
}

/// What operations exclude each other by.
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
}

/// What a ledger that is behind still takes, in thousandths of its limit. Purges and outcomes are never refused.
public enum LedgerUse: Int, Sendable {
    /// New tokens stop first: each of them brings more entries later.
    case creation = 700
    case knock = 850
}

/// What an operation adds to the ledger.
public enum NewEntry: Sendable {
    /// About no token: it comes with its window.
    case event(Entry.Op)
    /// A token's sealing or purge, which waits for its batch. `expires`: the token's, unix ms. A token that has expired is recorded as expired.
    case sealed(EntryID, expires: UInt64, isLong: Bool)
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

extension Row {
    func time(_ column: Int32) -> UInt64 { UInt64(clamping: int(column)) }
    func timeOrNil(_ column: Int32) -> UInt64? { isNull(column) ? nil : time(column) }
    func blobOrNil(_ column: Int32) -> [UInt8]? { isNull(column) ? nil : blob(column) }

    /// - Throws: `.damaged` if the column has not 16 bytes.
    func id<ID: OpaqueID>(_ column: Int32) throws(StoreError) -> ID {
        var id: ID?
        withBlob(column) { id = ID(bytes: $0) }
        guard let id else { throw .damaged("an id that is not 16 bytes long") }
        return id
    }

    func idOrNil<ID: OpaqueID>(_ column: Int32) throws(StoreError) -> ID? { isNull(column) ? nil : try id(column) }

    /// - Throws: `.damaged` if the column has not 32 bytes.
    func digest(_ column: Int32) throws(StoreError) -> Digest {
        var digest: Digest?
        withBlob(column) { digest = Digest(bytes: $0) }
        guard let digest else { throw .damaged("a digest that is not 32 bytes long") }
        return digest
    }

    func digestOrNil(_ column: Int32) throws(StoreError) -> Digest? { isNull(column) ? nil : try digest(column) }

    /// - Throws: `.damaged` for a number that no version of this program writes there.
    func code<Code: RawRepresentable<UInt8>>(_ column: Int32) throws(StoreError) -> Code {
        guard let number = UInt8(exactly: int(column)), let code = Code(rawValue: number) else {
            throw .damaged("\(int(column)) is no \(Code.self)")
        }
        return code
    }
}
