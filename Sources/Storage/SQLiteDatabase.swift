import Ledger
import Policy
import SQLite
import Vocabulary

/// The embedded engine: one connection with its prepared statements, used by one thread. `SQLiteDatabase+*.swift` have its part of `Store`.
final class SQLiteDatabase: EngineRows {
    let connection: Connection
    let journal: Journal
    /// Entries to record after an absence.
    let resumption: [Entry.Op]
    /// The length of the write-ahead log in frames at the latest checkpoint.
    var framesCopied = 0
    var isCheckpointing = false
    /// True if the latest sweep left rows to purge.
    var isSweeping = false
    /// The books at the start of the transaction.
    private var beginning: Books?
    /// The books and the counts of changes and of waiting entries at the start of the operation.
    private var marked = (books: Books(), changes: Int64(0), added: 0)
    /// The transaction's waiting entries, by batch and rank. Its commit writes them.
    var added: [(place: RunPlace, entry: WaitingEntry)] = []
    /// The writer's copy of the runs of batches, by the key of batch and rank. A rollback clears it.
    var runs: [Int64: WaitingRuns] = [:]
    /// The merge of a batch that is being published. The next part continues it in place of reading each run again.
    var pausedMerge: (numbers: [Int64], rank: UInt8, merge: RunMerge)?
    /// True if the current transaction records `resumption`.
    var hasResumed = false

    /// Opens the database. Creates the schema if necessary.
    init(path: String, access: Connection.Access, journal: Journal, resumption: [Entry.Op] = []) throws {
        connection = try Connection(path: path, access: access)
        self.journal = journal
        self.resumption = resumption
        connection.setBusyTimeout(milliseconds: 5_000)
        // Temporary data of sorts and rollbacks must not reach the disk.
        try connection.execute("PRAGMA temp_store = MEMORY;")
        if access == .readWrite {
            try connection.execute(
                """
                PRAGMA auto_vacuum = NONE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;
                PRAGMA foreign_keys = OFF; PRAGMA cache_size = -8192;
                PRAGMA wal_autocheckpoint = 4000;
                """)
            try makeSchema()
        }
    }

    private func version() throws -> Int64 {
        let version = try connection.prepare("PRAGMA user_version")
        guard try version.step() else { throw StoreError.damaged("no version") }
        defer { version.reset() }
        return version.int(0)
    }

    static func otherVersion(_ found: Int64) -> StoreError {
        found > 0
            ? .otherVersion(found: UInt64(found), needed: UInt64(Schema.version)) : .damaged("its tables have no version")
    }

    private func makeSchema() throws {
        let found = try version()
        if found == Schema.version { return }
        let tables = try connection.prepare("SELECT count(*) FROM sqlite_master")
        guard try tables.step(), found == 0, tables.int(0) == 0 else { throw Self.otherVersion(found) }
        tables.reset()
        try connection.execute("BEGIN IMMEDIATE; \(Schema.statements) PRAGMA user_version = \(Schema.version); COMMIT")
    }

    var timing: LedgerTiming { journal.timing }

    // MARK: Statements

    func query(_ sql: StaticString, _ values: [SQLValue], _ body: (any Row) throws -> Void) throws {
        let statement = try connection.cached(sql)
        bind(values, to: statement)
        defer { statement.reset() }
        while try statement.step() { try body(statement) }
    }

    func change(_ sql: StaticString, _ values: [SQLValue]) throws -> Int {
        let statement = try connection.cached(sql)
        bind(values, to: statement)
        _ = try statement.step()
        statement.reset()
        return connection.changes
    }

    func queue(_ sql: StaticString, expecting count: Int?, _ values: [SQLValue]) throws {
        let changed = try change(sql, values)
        if let count, changed != count { throw StoreError.damaged("a statement changed \(changed) rows in place of \(count)") }
    }

    /// Runs a statement without result rows.
    /// - Returns: the number of changed rows.
    @discardableResult
    func run(_ sql: StaticString, _ values: SQLValue...) throws -> Int { try change(sql, values) }

    private func bind(_ values: [SQLValue], to statement: Statement) {
        for (index, value) in values.enumerated() {
            let parameter = Int32(index + 1)
            switch value {
            case .int(let value): statement.bind(value, at: parameter)
            case .blob(let value): statement.bind(value, at: parameter)
            case .id(let value): value.withBytes { statement.bind($0, at: parameter) }
            case .digest(let value): value.withBytes { statement.bind($0, at: parameter) }
            case .text(let value): statement.bind(value, at: parameter)
            case .null: statement.bindNull(at: parameter)
            }
        }
    }

    // MARK: An operation

    var moment: UInt64 { journal.moment }

    func admit(_ use: LedgerUse) throws(StoreError) { if journal.isFull(use.rawValue) { throw .ledgerBehind } }

    /// Does nothing, since only one thread writes.
    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString) {}

    func record(_ entry: NewEntry) throws {
        switch entry {
        case .event(let op): try record([op], [])
        case .sealed(let id, let expires, let isLong): addSealed(id, expires: expires, isLong: isLong)
        case .purged(let id, let cause, let expires, let isLong): addPurged(id, cause, expires: expires, isLong: isLong)
        }
    }

    // MARK: Transactions

    /// The thread has begun the transaction and ends it.
    func write<Value>(isSignOfLife: Bool, _ body: () throws -> Value) throws -> Value { try body() }

    /// Reads in one transaction, since others write meanwhile.
    func read<Value>(_ body: () throws -> Value) throws -> Value {
        if inTransaction { return try body() }
        try beginReading()
        defer { endReading() }
        return try body()
    }

    func lockFirst(_ key: LockKey) {}
    var mostLocked: Int? { nil }
    var inTransaction: Bool { connection.inTransaction }
    func beginReading() throws { try run("BEGIN") }
    func endReading() { try? connection.execute("COMMIT") }
    func begin() throws {
        journal.begin()
        beginning = journal.books
        hasResumed = false
        try run("BEGIN IMMEDIATE")
    }
    func commit() throws {
        try writeWaiting()
        try run("COMMIT")
        beginning = nil
    }
    func savepoint() throws { try run("SAVEPOINT operation") }
    func release() throws { try run("RELEASE operation") }
    func rollBackToSavepoint() throws {
        try run("ROLLBACK TO operation")
        try run("RELEASE operation")
    }
    func beginOperation() { marked = (journal.books, connection.totalChanges, added.count) }
    /// True if the operation has changed a row.
    var hasChanged: Bool { connection.totalChanges != marked.changes }
    /// Restores the books after an operation that left no change.
    func forgetOperation() {
        journal.books = marked.books
        added.removeLast(added.count - marked.added)
    }
    func rollBack() {
        if let beginning { journal.books = beginning }
        beginning = nil
        (added, runs, pausedMerge) = ([], [:], nil)
        if inTransaction { try? connection.execute("ROLLBACK") }
    }
}

extension Statement: Row {}
