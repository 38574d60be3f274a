import Linux
import SQLite

/// The rows of one room from its creation to its acceptance.
public struct RoomRows: Sendable {
    public var room: RoomRecord
    public var code: PendingCode
    public var creatorToken: TokenRecord
    public var joiner: SideRecord
    public var joinerToken: TokenRecord
    public var used: UsedCode

    public init(
        room: RoomRecord, code: PendingCode, creatorToken: TokenRecord, joiner: SideRecord, joinerToken: TokenRecord,
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
/// queue, savepoints or any look at what stands there. The measure that `mayfly bench rows` takes of the broker.
public final class RowLoop {
    private let tables: Tables

    /// Opens or makes the database.
    public init(path: String) throws(StoreError) {
        do {
            let journal = Journal(resolution: 60, limit: .max, now: { Clock.wallMs })
            tables = try Tables(path: path, access: .readWrite, journal: journal)
        } catch {
            throw StoreError(any: error)
        }
    }

    /// Creates some rooms and accepts others, whose creation was committed before, in one durable transaction.
    public func commit(creating: [RoomRows], accepting: [RoomRows]) throws(StoreError) {
        do {
            try tables.begin()
            for rows in creating { try tables.insert(rows.room, code: rows.code, token: rows.creatorToken) }
            for rows in accepting {
                let outcome = try tables.accept(
                    rows.code, joiner: rows.joiner, token: rows.joinerToken, used: rows.used, now: Clock.wallMs)
                guard outcome == .accepted else { throw StoreError.damaged("a room that was just created can't be accepted") }
            }
            try tables.commit()
        } catch {
            tables.rollBack()
            throw StoreError(any: error)
        }
    }
}
