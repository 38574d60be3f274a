import Ledger
import SQLite
import Vocabulary

/// One connection with its prepared statements: the SQL of every operation, without threads. The operations themselves stand
/// in the extensions in `Tables+*`.
final class Tables {
    let database: Database
    let journal: Journal
    /// What the log is told after an absence.
    let resumption: [Entry.Op]
    /// The write-ahead log's length in frames at which a checkpoint is due, and whether one is under way.
    var checkpointAt = SQLiteStore.checkpointFrames
    var isCheckpointing = false
    /// The books at the start of the transaction.
    private var beginning: Books?
    /// The books and the count of changes at the start of the operation.
    private var marked = (books: Books(), changes: Int64(0))
    /// Whether the transaction under way tells the log of an absence.
    var hasResumed = false

    /// Opens the file and makes the schema where there is none.
    init(path: String, access: Database.Access, journal: Journal, resumption: [Entry.Op] = []) throws {
        database = try Database(path: path, access: access)
        self.journal = journal
        self.resumption = resumption
        database.setBusyTimeout(milliseconds: 5_000)
        // What does not fit while something is sorted or rolled back goes to no file.
        try database.execute("PRAGMA temp_store = MEMORY;")
        if access == .readWrite {
            try database.execute(
                """
                PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;
                PRAGMA foreign_keys = OFF; PRAGMA cache_size = -8192;
                PRAGMA wal_autocheckpoint = 4000;
                """)
            try makeSchema()
        }
    }

    private func makeSchema() throws {
        let version = try database.prepare("PRAGMA user_version")
        guard try version.step() else { throw StoreError.damaged("no version") }
        let found = version.int(0)
        version.reset()
        if found == Schema.version { return }
        let tables = try database.prepare("SELECT count(*) FROM sqlite_master")
        guard try tables.step(), found == 0, tables.int(0) == 0 else {
            throw StoreError.damaged("schema version \(found), expected \(Schema.version)")
        }
        tables.reset()
        try database.execute("BEGIN IMMEDIATE; \(Schema.statements) PRAGMA user_version = \(Schema.version); COMMIT")
    }

    /// Runs a statement that gives no rows.
    /// - Returns: how many rows it changed.
    @discardableResult
    func run(_ sql: StaticString, _ values: SQLValue...) throws(SQLiteError) -> Int {
        let statement = try database.cached(sql)
        bind(values, to: statement)
        _ = try statement.step()
        statement.reset()
        return database.changes
    }

    /// The rows of a query, each turned into a value; none of the database stays locked afterwards.
    func rows<Row>(_ sql: StaticString, _ values: SQLValue..., read: (Statement) throws -> Row) throws -> [Row] {
        let statement = try database.cached(sql)
        bind(values, to: statement)
        defer { statement.reset() }
        var rows: [Row] = []
        while try statement.step() { rows.append(try read(statement)) }
        return rows
    }

    /// The same, one row after the other, without keeping any.
    func each(_ sql: StaticString, _ values: SQLValue..., body: (Statement) throws -> Void) throws {
        let statement = try database.cached(sql)
        bind(values, to: statement)
        defer { statement.reset() }
        while try statement.step() { try body(statement) }
    }

    private func bind(_ values: [SQLValue], to statement: Statement) {
        for (index, value) in values.enumerated() {
            let place = Int32(index + 1)
            switch value {
            case .int(let value): statement.bind(value, at: place)
            case .blob(let value): statement.bind(value, at: place)
            case .id(let value): value.withBytes { statement.bind($0, at: place) }
            case .digest(let value): value.withBytes { statement.bind($0, at: place) }
            case .text(let value): statement.bind(value, at: place)
            case .null: statement.bindNull(at: place)
            }
        }
    }

    // MARK: Transactions

    var inTransaction: Bool { database.inTransaction }
    func beginReading() throws { try run("BEGIN") }
    func endReading() { try? database.execute("COMMIT") }
    func begin() throws {
        journal.begin()
        beginning = journal.books
        hasResumed = false
        try run("BEGIN IMMEDIATE")
    }
    func commit() throws {
        try run("COMMIT")
        beginning = nil
    }
    func savepoint() throws { try run("SAVEPOINT operation") }
    func release() throws { try run("RELEASE operation") }
    func rollBackToSavepoint() throws {
        try run("ROLLBACK TO operation")
        try run("RELEASE operation")
    }
    func beginOperation() { marked = (journal.books, database.totalChanges) }
    /// True if the operation has changed a row.
    var hasChanged: Bool { database.totalChanges != marked.changes }
    /// Restores the books after an operation that left no change.
    func forgetOperation() { journal.books = marked.books }
    func rollBack() {
        if let beginning { journal.books = beginning }
        beginning = nil
        if inTransaction { try? database.execute("ROLLBACK") }
    }
}

enum SQLValue {
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
    struct AnyID: OpaqueID {
        let high, low: UInt64
    }
}

extension Statement {
    func time(_ column: Int32) -> UInt64 { UInt64(clamping: int(column)) }
    func blobOrNil(_ column: Int32) -> [UInt8]? { isNull(column) ? nil : blob(column) }

    /// - Throws: `.damaged` if the column has not 16 bytes.
    func id<ID: OpaqueID>(_ column: Int32) throws(StoreError) -> ID {
        guard let id = withBlob(column, { ID(bytes: $0) }) else { throw .damaged("an id that is not 16 bytes long") }
        return id
    }

    func idOrNil<ID: OpaqueID>(_ column: Int32) throws(StoreError) -> ID? { isNull(column) ? nil : try id(column) }

    /// - Throws: `.damaged` if the column has not 32 bytes.
    func digest(_ column: Int32) throws(StoreError) -> Digest {
        guard let digest = withBlob(column, { Digest(bytes: $0) }) else { throw .damaged("a digest that is not 32 bytes long") }
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
