import Linux
import Policy
import SQLite
import Vocabulary

/// How much lies in a database, by what it is. Times are unix milliseconds.
public struct Holdings: Sendable, Equatable {
    public var rooms = 0
    public var acceptedRooms = 0
    /// Rooms whose row says when a side was last knocked at.
    public var knockedRooms = 0
    public var pendingCodes = 0
    public var shortCodes = 0
    public var usedCodes = 0
    /// Answers to accepts that may still be asked for again.
    public var retries = 0
    public var tokens = 0
    /// Rooms in which both sides have a token.
    public var pairs = 0
    /// Tokens of audiences.
    public var registrations = 0
    /// When the last of them expires.
    public var latestRegistration: UInt64?
    public var sessions = 0
    /// When the last of them expires, and of the following.
    public var latestSession: UInt64?
    public var latestSeen: UInt64?
    /// Events and calls that were named, so that they happen once.
    public var seen = 0
    public var waitingEntries = 0
    /// Of rooms and their tokens.
    public var latestExpiry: UInt64?

    public init() {}
}

/// One look at a broker's database from beside the broker: it reads in one transaction, changes nothing and makes nobody wait.
///
/// While it is open the write-ahead log can't be emptied: look, and let go.
public final class StoreSnapshot {
    private let database: SQLiteDatabase

    /// - Throws: `damaged` for another version's file, `unavailable` if there is none, `readOnly` on a read-only file system: SQLite makes
    ///   files beside the database even to read it.
    public init(path: String) throws(StoreError) {
        do {
            database = try SQLiteDatabase(
                path: path, access: .readOnly, journal: Journal(resolution: 1, timing: .standard, limit: 0, now: { 0 }))
            try database.checkVersion()
            try database.beginReading()
        } catch {
            throw (error as? SQLiteError)?.isUnopened == true && Self.isReadOnly(path) ? .readOnly : StoreError(any: error)
        }
    }

    deinit { database.endReading() }

    private static func isReadOnly(_ path: String) -> Bool {
        do {
            try File.checkWritable(File.folder(of: path))
            return false
        } catch { return error.isReadOnly }
    }

    public func read<Value>(_ body: (Transaction) throws -> Value) throws(StoreError) -> Value {
        try look { try body($0.transaction) }
    }

    public func holdings() throws(StoreError) -> Holdings { try look { try $0.holdings() } }
    public func logHead() throws(StoreError) -> LogHead? { try look { try $0.logHead() } }
    public func mark(_ name: String) throws(StoreError) -> [UInt8]? { try look { try $0.mark(name) } }

    private func look<Value>(_ body: (SQLiteDatabase) throws -> Value) throws(StoreError) -> Value {
        do { return try body(database) } catch { throw StoreError(any: error) }
    }
}

extension SQLiteDatabase {
    func checkVersion() throws {
        let found = try rows("PRAGMA user_version") { $0.int(0) }[0]
        if found == Schema.version - 1 { throw StoreError.unavailable("it is of the version before: start the broker once") }
        guard found == Schema.version else { throw StoreError.damaged("schema version \(found), expected \(Schema.version)") }
    }

    func holdings() throws -> Holdings {
        var holdings = try rows(
            """
            SELECT count(*), count(joiner_client), count(*) FILTER (WHERE creator_knocked > 0 OR joiner_knocked > 0), count(pending),
            count(short) FILTER (WHERE pending IS NOT NULL), count(*) FILTER (WHERE code IS NOT NULL AND pending IS NULL),
            count(retry), count(*) FILTER (WHERE creator_token IS NOT NULL AND joiner_token IS NOT NULL), max(expires) FROM room
            """
        ) { row in
            var holdings = Holdings()
            holdings.rooms = Int(row.int(0))
            holdings.acceptedRooms = Int(row.int(1))
            holdings.knockedRooms = Int(row.int(2))
            holdings.pendingCodes = Int(row.int(3))
            holdings.shortCodes = Int(row.int(4))
            holdings.usedCodes = Int(row.int(5))
            holdings.retries = Int(row.int(6))
            holdings.pairs = Int(row.int(7))
            holdings.latestExpiry = row.isNull(8) ? nil : row.time(8)
            return holdings
        }[0]
        let tokens = try rows("SELECT count(*), max(expires) FROM token") { ($0.int(0), $0.isNull(1) ? nil : $0.time(1)) }[0]
        holdings.tokens = Int(tokens.0)
        holdings.latestExpiry = [holdings.latestExpiry, tokens.1].compactMap(\.self).max()
        (holdings.registrations, holdings.latestRegistration) = try rows("SELECT count(*), max(expires) FROM registration") {
            (Int($0.int(0)), $0.isNull(1) ? nil : $0.time(1))
        }[0]
        (holdings.sessions, holdings.latestSession) = try rows("SELECT count(*), max(session) FROM session") {
            (Int($0.int(0)), try $0.digestOrNil(1)?.indexExpiry)
        }[0]
        (holdings.seen, holdings.latestSeen) = try rows("SELECT count(*), max(key) FROM seen") {
            (Int($0.int(0)), try $0.digestOrNil(1)?.indexExpiry)
        }[0]
        holdings.waitingEntries = try waitingEntries()
        return holdings
    }
}
