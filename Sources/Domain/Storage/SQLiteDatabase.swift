import Ledger
import Policy
import SQLite
import Shares
import Vocabulary

/// The embedded engine: one connection with its prepared statements, used by one thread. `SQLiteDatabase+*.swift` have its part of `Store`.
final class SQLiteDatabase: StoreEngine {
    let connection: SQLiteConnection
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
    init(path: String, access: SQLiteConnection.Access, journal: Journal, resumption: [Entry.Op] = []) throws {
        connection = try SQLiteConnection(path: path, access: access)
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

    /// - Throws: `.otherVersion`; `.damaged` if its tables have no version.
    /// - Returns: false if it has no tables.
    func hasSchema() throws -> Bool {
        guard let found = try first("PRAGMA user_version", read: { $0.int(0) }) else { throw StoreError.damaged("no version") }
        if found == 0, try !exists("SELECT 1 FROM sqlite_master LIMIT 1") { return false }
        guard found > 0 else { throw StoreError.damaged("its tables have no version") }
        if found == Schema.version { return true }
        throw StoreError.otherVersion(found: UInt64(found), needed: UInt64(Schema.version))
    }

    private func makeSchema() throws {
        if try hasSchema() { return }
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

    func admit(_ urgency: Urgency) throws(StoreError) { if journal.isFull(urgency) { throw .ledgerBehind } }

    /// Does nothing, since only one thread writes.
    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString) {}

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
    func beginReading() throws { try change("BEGIN") }
    func endReading() { try? connection.execute("COMMIT") }
    func begin() throws {
        journal.begin()
        beginning = journal.books
        hasResumed = false
        try change("BEGIN IMMEDIATE")
    }
    func commit() throws {
        try writeWaiting()
        try change("COMMIT")
        beginning = nil
    }
    func savepoint() throws { try change("SAVEPOINT operation") }
    func release() throws { try change("RELEASE operation") }
    func rollBackToSavepoint() throws {
        try change("ROLLBACK TO operation")
        try change("RELEASE operation")
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
