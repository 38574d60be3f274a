import Ledger
import Linux
import Policy
import SQLite
import Vocabulary

/// Moves a SQLite broker to PostgreSQL. Rows are copied as they are, so no token is opened.
public enum StoreMove {
    /// The numbers of moved rows.
    public struct Counts: Sendable, Equatable {
        public var rooms = 0
        public var tokens = 0
        public var registrations = 0
    }

    public enum Failure: Error, Sendable, Equatable, CustomStringConvertible {
        case noFile
        /// Entries wait for their window or for the folder.
        case unpublished
        case occupied
        /// The rows are moved, but the file is left. The text names the system's error.
        case fileIsLeft(String)
        case sqlite(StoreError)
        case postgres(StoreError)

        public var description: String {
            switch self {
            case .noFile: "no SQLite broker to move: mayfly.sqlite is missing or empty. Name the broker's folder with --state"
            case .unpublished:
                "the SQLite broker has entries that are not published yet. Start it without --database, stop it cleanly, then run this again"
            case .occupied: "the PostgreSQL database has rows of another broker already. Use an empty database"
            case .fileIsLeft(let text):
                "the rows are in PostgreSQL, but the SQLite file can't be destroyed: \(text). Correct that, then run this again"
            case .sqlite(let error): "SQLite: \(error)"
            case .postgres(let error): "PostgreSQL: \(error)"
            }
        }

        fileprivate init(any error: any Error) {
            switch error {
            case let error as Failure: self = error
            case is SQLiteError: self = .sqlite(StoreError(any: error))
            default: self = .postgres(StoreError(any: error))
            }
        }
    }

    /// Moves all rows in one transaction. Then destroys the file, so that no second broker can continue its log.
    /// - Precondition: the state folder is locked.
    /// - Returns: nil if an earlier run moved the rows and was killed before the file was destroyed.
    public static func run(from path: String, to uri: String) throws(Failure) -> Counts? {
        let isUnfinished = File.exists(path + renamed)
        try destroyRest(of: path)
        if isUnfinished, !File.exists(path) { return nil }
        let counts = try copy(path, uri)
        do {
            // The new name keeps brokers from a file that is partly erased.
            try File.rename(path, to: path + renamed)
            try File.syncFolder(File.folder(of: path))
        } catch { throw .fileIsLeft(error.reason) }
        try destroyRest(of: path)
        return counts
    }

    private static let renamed = ".moved"

    private static func destroyRest(of path: String) throws(Failure) {
        guard File.exists(path + renamed) else { return }
        do {
            // If there is another file of the old name, they belong to that one.
            let logs = File.exists(path) ? [] : ["-wal", "-shm"]
            for suffix in logs + [renamed] where File.exists(path + suffix) { try File.removeAndErase(path + suffix) }
        } catch { throw .fileIsLeft(error.reason) }
    }

    /// - Returns: nil if an earlier run copied the rows.
    private static func copy(_ path: String, _ uri: String) throws(Failure) -> Counts? {
        let source = try open(path)
        let target = PostgresDatabase(PostgresJournal(uri: uri))
        defer { target.disconnect() }
        do {
            try target.makeSchema()
            try target.check()
            return try Copy(source: source, target: target).run()
        } catch { throw Failure(any: error) }
    }

    /// Opens the file and empties its write-ahead log, which could otherwise be left to another broker's file.
    private static func open(_ path: String) throws(Failure) -> SQLiteDatabase {
        do {
            guard try DatabaseAddress.file(path).exists() else { throw Failure.noFile }
            let journal = Journal(resolution: 1, timing: .standard, limit: 0, now: { 0 })
            let source = try SQLiteDatabase(path: path, access: .readWrite, journal: journal)
            if try source.exists("SELECT 1 FROM entry") || source.exists("SELECT 1 FROM unpublished") {
                throw Failure.unpublished
            }
            guard try source.connection.checkpointTruncating(waitMs: 5_000) else {
                throw StoreError.unavailable("another process reads it. Wait for that, then run this again")
            }
            return source
        } catch { throw error as? Failure ?? .sqlite(StoreError(any: error)) }
    }
}

/// The transaction that copies all rows.
private struct Copy {
    let source: SQLiteDatabase
    let target: PostgresDatabase

    private typealias Column = (name: String, literal: String)

    /// The mark of a database whose rows came from SQLite. Its value is the checkpoint that the log had.
    private static let mark = "moved"

    func run() throws -> StoreMove.Counts? {
        let head = try source.logHead()
        let checkpoint = Array((head?.checkpoint ?? "").utf8)
        if try target.mark(Self.mark) == checkpoint { return nil }
        try refuseRows()
        for kind in PostgresSchema.partitioned where kind.table != PostgresSchema.waitingTable { try makePartitions(kind) }
        for boundary in Set(try batches().map(\.boundary)) {
            try target.makePartition(PostgresSchema.waitingTable, Int64(clamping: boundary))
        }
        // No broker starts meanwhile, since a start sets marks.
        try target.runAlone([
            "BEGIN", "SET LOCAL standard_conforming_strings = on", "LOCK TABLE node IN SHARE ROW EXCLUSIVE MODE",
        ])
        try refuseRows()
        try target.change("INSERT INTO node (name, value) VALUES ($1, $2)", .text(Self.mark), .blob(checkpoint))
        var counts: [String: Int] = [:]
        let tables = try source.rows("SELECT name FROM sqlite_master WHERE type = 'table'") { $0.text(0) }
        for table in tables where !["batch", "schedule", "waiting"].contains(table) {
            counts[table] = try copy(try columns(of: table), from: table, to: table)
        }
        try copyWaiting()
        _ = try copy(
            [("moment", "moment"), ("window_start", "quote(window_start)")],
            from: "(SELECT DISTINCT moment, window_start FROM batch WHERE moment IS NOT NULL)", to: "batch")
        try target.change("UPDATE log SET published = size")
        try source.each("SELECT looked, last_batch, closed FROM schedule") { row in
            _ = try target.change(
                "UPDATE schedule SET looked = $1, last_batch = $2, closed = $3, closed_up_to = $4", .time(row.timeOrNil(0)),
                .time(row.time(1)), .time(row.timeOrNil(2)), .time(head?.window ?? 0))
        }
        try target.runAlone(["COMMIT"])
        return StoreMove.Counts(
            rooms: counts["room"] ?? 0, tokens: counts["token"] ?? 0, registrations: counts["registration"] ?? 0)
    }

    private func refuseRows() throws {
        let isUsed = try target.exists(
            """
            SELECT 1 WHERE EXISTS (SELECT 1 FROM log) OR EXISTS (SELECT 1 FROM room) OR EXISTS (SELECT 1 FROM token)
            OR EXISTS (SELECT 1 FROM registration) OR EXISTS (SELECT 1 FROM node WHERE name <> $1)
            """, .text(PostgresDatabase.versionMark))
        if isUsed { throw StoreMove.Failure.occupied }
    }

    private func makePartitions(_ kind: PostgresSchema.Partitioned) throws {
        let expiry = try columns(of: kind.table)[0].name
        let starts = try source.connection.prepare("SELECT DISTINCT \(expiry) / \(kind.width) FROM \(kind.table)")
        while try starts.step() { try target.makePartition(kind.table, starts.int(0) * Int64(clamping: kind.width)) }
    }

    /// Returns a table's columns, each with SQLite's expression for its value as a literal of PostgreSQL.
    private func columns(of table: String) throws -> [Column] {
        try source.rows("SELECT name, type FROM pragma_table_info($1)", .text(table)) { row in
            let name = row.text(0)
            return (
                name, row.text(1) == "BLOB" ? "iif(\(name) IS NULL, 'NULL', '''\\x' || hex(\(name)) || '''')" : "quote(\(name))"
            )
        }
    }

    private typealias WaitingBatch = (number: Int64, boundary: UInt64, last: (rank: UInt8, id: EntryID)?)

    /// Returns the batches with their boundaries, by which PostgreSQL numbers them. An open batch gets the next boundary after the last processed one.
    private func batches() throws -> [WaitingBatch] {
        let looked = try source.earliest("SELECT looked FROM schedule") ?? 0
        let timing = try source.recordedTiming(expecting: nil) ?? .standard
        return try source.batches().map { batch in
            (batch.number, batch.moment ?? timing.boundary(after: looked, isLong: batch.isLong), batch.last)
        }
    }

    /// Copies waiting entries that are not in the log. PostgreSQL has a row for each.
    private func copyWaiting() throws {
        var insert = Insert(target, into: "waiting (batch, rank, id, until, cause)")
        for batch in try batches() {
            if batch.last == nil { try readingSource { try source.checkRuns(batch.number) } }
            for rank in [3, 4] as [UInt8] where rank >= batch.last?.rank ?? 3 {
                let last = batch.last?.rank == rank ? batch.last?.id : nil
                var merge = try readingSource { try source.merge([batch.number], rank: rank, after: last) }
                while let entry = try readingSource({ try merge.next()?.entry }) {
                    let cause = entry.cause.map { String($0.column) } ?? "NULL"
                    try insert.add("(\(batch.boundary), \(rank), '\\x\(entry.id)', \(entry.until), \(cause))")
                }
            }
        }
        try insert.end()
    }

    private func readingSource<Value>(_ read: () throws -> Value) throws -> Value {
        do { return try read() } catch { throw StoreMove.Failure.sqlite(StoreError(any: error)) }
    }

    /// - Returns: the number of rows.
    private func copy(_ columns: [Column], from rows: String, to table: String) throws -> Int {
        let literals = columns.map(\.literal).joined(separator: " || ',' || ")
        let tuples = try source.connection.prepare("SELECT '(' || \(literals) || ')' FROM \(rows)")
        var insert = Insert(target, into: "\(table) (\(columns.map(\.name).joined(separator: ", ")))")
        var count = 0
        while try tuples.step() {
            try insert.add(tuples.text(0))
            count += 1
        }
        try insert.end()
        return count
    }
}

/// INSERT statements of some hundred rows.
private struct Insert {
    private let target: PostgresDatabase
    private let start: String
    private var text = ""

    private static let statementBytes = 262_144

    init(_ target: PostgresDatabase, into table: String) { (self.target, start) = (target, "INSERT INTO \(table) VALUES ") }

    mutating func add(_ tuple: String) throws {
        text += (text.isEmpty ? start : ",") + tuple
        if text.utf8.count >= Self.statementBytes { try end() }
    }

    mutating func end() throws {
        if !text.isEmpty { try target.runAlone([text]) }
        text = ""
    }
}
