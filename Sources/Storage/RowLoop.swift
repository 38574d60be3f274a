import Linux
public import Policy
import SQLite

/// The rows of one room, from its creation to its acceptance.
public struct RoomRows: Sendable {
    public var room: RoomRecord
    public var code: PendingCode
    public var creatorToken: NewToken
    public var joiner: SideRecord
    public var joinerToken: NewToken
    public var used: UsedCode

    public init(
        room: RoomRecord, code: PendingCode, creatorToken: NewToken, joiner: SideRecord, joinerToken: NewToken,
        used: UsedCode
    ) {
        self.room = room
        self.code = code
        self.creatorToken = creatorToken
        self.joiner = joiner
        self.joinerToken = joinerToken
        self.used = used
    }
}

/// Writes rooms on the caller's thread with the store's schema and statements, but without its queue, savepoints and checks.
///
/// `mayfly-bench rows` uses it as the lower bound for the store, and `mayfly-bench fill` to fill a database.
public final class RowLoop {
    private let database: SQLiteDatabase

    /// Opens or creates the database.
    /// - Parameter cacheKiB: the page cache. Nil for the store's own.
    public init(path: String, cacheKiB: Int? = nil) throws(StoreError) {
        do {
            let journal = Journal(resolution: 60, timing: .standard, limit: .max / 1_000, now: { Clock.wallMs })
            database = try SQLiteDatabase(path: path, access: .readWrite, journal: journal)
            try database.adopt(nil)
            if let cacheKiB { try database.connection.execute("PRAGMA cache_size = -\(cacheKiB)") }
            try database.resumeJournal()
        } catch {
            throw StoreError(any: error)
        }
    }

    /// The timing recorded in the database.
    public var timing: LedgerTiming { database.journal.timing }

    /// Creates some rooms and accepts others, created by an earlier call, in one durable transaction.
    public func commit(creating: [RoomRows], accepting: [RoomRows]) throws(StoreError) {
        try commit { transaction in
            for rows in creating { try transaction.insert(rows.room, code: rows.code, token: rows.creatorToken) }
            for rows in accepting {
                let outcome = try transaction.accept(
                    rows.code, joiner: rows.joiner, token: rows.joinerToken, used: rows.used, now: Clock.wallMs)
                guard outcome == .accepted else { throw StoreError.damaged("a room that was just created can't be accepted") }
            }
        }
    }

    /// Adds accepted rooms without their codes, in one durable transaction. Their seals wait for the log.
    public func commit(accepted: [AcceptedRoom]) throws(StoreError) {
        try commit { transaction in
            for rows in accepted { try transaction.insert(accepted: rows.room, tokens: rows.tokens) }
        }
    }

    private func commit(_ body: (Transaction) throws -> Void) throws(StoreError) {
        do {
            try database.begin()
            try body(database.transaction)
            try database.commit()
        } catch {
            database.rollBack()
            throw StoreError(any: error)
        }
    }
}

/// An accepted room and its tokens.
public struct AcceptedRoom: Sendable {
    public var room: RoomRecord
    public var tokens: [NewToken]

    public init(room: RoomRecord, tokens: [NewToken]) {
        self.room = room
        self.tokens = tokens
    }
}

extension Transaction {
    fileprivate func insert(accepted room: RoomRecord, tokens: [NewToken]) throws {
        guard let joiner = room.joiner else { throw StoreError.damaged("an accepted room has no second side") }
        let creator = room.creator
        try queue(
            """
            INSERT INTO room (expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked)
            VALUES ($1, $2, $3, $4, $5, 0, $6, 0, $7, $8, $9, 0, $10, 0)
            """, .time(room.expires), .digest(room.room), .number(creator.generation), .digest(creator.client),
            .digest(creator.member), .id(creator.token), .number(joiner.generation), .digest(joiner.client),
            .digest(joiner.member),
            .id(joiner.token))
        for token in tokens { try insert(token) }
    }
}
