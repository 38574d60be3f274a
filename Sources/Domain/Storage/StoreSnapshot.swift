import Linux
import Policy
import SQLite
import Vocabulary

/// The number of rows of each kind in a database. Times are unix milliseconds.
public struct Holdings: Sendable, Equatable {
    public var rooms = 0
    public var acceptedRooms = 0
    /// Rooms whose row has the time of a knock.
    public var knockedRooms = 0
    public var pendingCodes = 0
    public var shortCodes = 0
    public var usedCodes = 0
    /// Stored answers for retried accepts.
    public var retries = 0
    public var tokens = 0
    /// Rooms in which both sides have a token.
    public var pairs = 0
    /// Tokens of audiences.
    public var registrations = 0
    public var latestRegistration: UInt64?
    public var sessions = 0
    public var latestSession: UInt64?
    public var latestSeen: UInt64?
    /// Marks of events and calls, which prevent duplicates.
    public var seen = 0
    public var waitingEntries = 0
    /// The latest expiry of a room or its tokens.
    public var latestExpiry: UInt64?
}

/// The sealed tokens of rooms that expire together.
public struct SealedTokens: Sendable, Equatable {
    /// Unix ms.
    public let expires: UInt64
    public let count: Int
    public let bytes: Int
}

/// Reads a broker's database from another process, in one read transaction that blocks no request.
///
/// Release it soon: until then, the engine can't forget deleted rows.
public final class StoreSnapshot {
    private let database: any StoreEngine

    /// - Throws: `.otherVersion` or `.noSchema`; `.damaged`; `.unavailable` if there is no file; `.readOnly` on a read-only file system, since
    ///   SQLite creates files beside the database even for reading.
    public init(_ address: DatabaseAddress) throws(StoreError) {
        switch address {
        case .file(let path):
            database = try Self.open(path)
        case .server(let uri):
            let database = PostgresDatabase(PostgresJournal(uri: uri))
            do { try database.beginReading() } catch { throw StoreError(any: error) }
            self.database = database
        }
    }

    private static func open(_ path: String) throws(StoreError) -> SQLiteDatabase {
        do {
            let database = try SQLiteDatabase(
                path: path, access: .readOnly, journal: Journal(resolution: 1, timing: .standard, limit: 0, now: { 0 }))
            guard try database.hasSchema() else { throw StoreError.damaged("its tables have no version") }
            try database.beginReading()
            return database
        } catch {
            throw (error as? SQLiteError)?.isUnopened == true && isReadOnly(path) ? .readOnly : StoreError(any: error)
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
        try use { try body(Transaction($0)) }
    }

    public func holdings() throws(StoreError) -> Holdings { try use { try $0.holdings() } }

    /// Returns the sealed tokens of rooms, soonest expiry first.
    public func sealedTokens() throws(StoreError) -> [SealedTokens] { try use { try $0.sealedTokens() } }
    public func logHead() throws(StoreError) -> LogHead? { try use { try $0.logHead() } }
    /// Returns the other nodes that renewed their term in the last minute. None for a file.
    public func recentNodes(besides name: String) throws(StoreError) -> [String] {
        guard let database = database as? PostgresDatabase else { return [] }
        return try use { _ in try database.recentNodes(besides: name) }
    }

    /// - Throws: `.wrongClock` if the server's clock and this machine's differ by more than a minute.
    public func checkClock() throws(StoreError) {
        guard let database = database as? PostgresDatabase else { return }
        try use { _ in _ = try database.time() }
    }

    public func mark(_ name: String) throws(StoreError) -> [UInt8]? { try use { try $0.mark(name) } }

    public func unpublished(after size: UInt64) throws(StoreError) -> (first: UInt64, entries: [[UInt8]]) {
        try use { try $0.unpublished(after: size) }
    }

    /// - Throws: `.otherTiming` if the state folder has another timing of the log.
    public func check(_ timing: LedgerTiming) throws(StoreError) { try use { _ = try $0.recordedTiming(expecting: timing) } }

    private func use<Value>(_ body: (any StoreEngine) throws -> Value) throws(StoreError) -> Value {
        do { return try body(database) } catch { throw StoreError(any: error) }
    }
}

extension StoreEngine {
    func sealedTokens() throws -> [SealedTokens] {
        try rows("SELECT expires, count(*), CAST(sum(length(sealed)) AS BIGINT) FROM token GROUP BY expires ORDER BY expires") {
            SealedTokens(expires: $0.time(0), count: $0.number(1), bytes: $0.number(2))
        }
    }

    func holdings() throws -> Holdings {
        var holdings = try rows(
            """
            SELECT count(*), count(joiner_client), count(*) FILTER (WHERE creator_knocked > 0 OR joiner_knocked > 0), count(pending),
            count(short) FILTER (WHERE pending IS NOT NULL), count(*) FILTER (WHERE code IS NOT NULL AND pending IS NULL),
            count(retry), count(*) FILTER (WHERE creator_token IS NOT NULL AND joiner_token IS NOT NULL), max(expires) FROM room
            """
        ) { row in
            Holdings(
                rooms: row.number(0), acceptedRooms: row.number(1), knockedRooms: row.number(2), pendingCodes: row.number(3),
                shortCodes: row.number(4), usedCodes: row.number(5), retries: row.number(6), pairs: row.number(7),
                latestExpiry: row.timeOrNil(8))
        }[0]
        holdings.tokens = try count("SELECT count(*) FROM token")
        holdings.latestExpiry = try [holdings.latestExpiry, earliest("SELECT max(expires) FROM token")].compactMap(\.self).max()
        holdings.registrations = try count("SELECT count(*) FROM registration")
        holdings.latestRegistration = try earliest("SELECT max(expires) FROM registration")
        holdings.sessions = try count("SELECT count(*) FROM session")
        holdings.latestSession = try indexExpiry("SELECT session FROM session ORDER BY session DESC LIMIT 1")
        holdings.seen = try count("SELECT count(*) FROM seen")
        holdings.waitingEntries = try waitingEntries()
        holdings.latestSeen = try indexExpiry("SELECT key FROM seen ORDER BY key DESC LIMIT 1")
        return holdings
    }
}
