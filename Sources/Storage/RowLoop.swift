import Linux
public import Policy
import SQLite

/// The rows of one room from its creation to its acceptance.
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

/// What SQLite itself needs for creates and accepts: the store's own schema, pragmas and statements on the caller's thread, without
/// queue, savepoints or any look at what stands there. The measure that `mayfly bench rows` takes of the broker, and what fills a
/// database for `mayfly bench fill`.
public final class RowLoop {
    private let database: SQLiteDatabase

    /// Opens or makes the database.
    /// - Parameter cacheKiB: for pages in memory; the store's if nil.
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

    /// The timing that the database remembers.
    public var timing: LedgerTiming { database.journal.timing }

    /// Creates some rooms and accepts others, whose creation was committed before, in one durable transaction.
    public func commit(creating: [RoomRows], accepting: [RoomRows]) throws(StoreError) {
        do {
            try database.begin()
            for rows in creating { try database.transaction.insert(rows.room, code: rows.code, token: rows.creatorToken) }
            for rows in accepting {
                let outcome = try database.transaction.accept(
                    rows.code, joiner: rows.joiner, token: rows.joinerToken, used: rows.used, now: Clock.wallMs)
                guard outcome == .accepted else { throw StoreError.damaged("a room that was just created can't be accepted") }
            }
            try database.commit()
        } catch {
            database.rollBack()
            throw StoreError(any: error)
        }
    }

    /// Adds rooms as they stand once their codes are forgotten, in one durable transaction; their seals wait for the log.
    public func commit(standing: [StandingRoom]) throws(StoreError) {
        do {
            try database.begin()
            for rows in standing { try database.transaction.insert(standing: rows.room, tokens: rows.tokens) }
            try database.commit()
        } catch {
            database.rollBack()
            throw StoreError(any: error)
        }
    }
}

/// An accepted room and its tokens.
public struct StandingRoom: Sendable {
    public var room: RoomRecord
    public var tokens: [NewToken]

    public init(room: RoomRecord, tokens: [NewToken]) {
        self.room = room
        self.tokens = tokens
    }
}

extension Transaction {
    fileprivate func insert(standing room: RoomRecord, tokens: [NewToken]) throws {
        guard let joiner = room.joiner else { throw StoreError.damaged("a room without its second side does not stand") }
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
