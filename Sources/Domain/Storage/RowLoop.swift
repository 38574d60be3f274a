import Linux
package import Policy
import SQLite

/// Runs operations on the caller's thread with the store's schema and statements, but without its queue, savepoints and checks.
///
/// `mayfly-bench rows` measures with it the least work that the store's rows need. `mayfly-bench fill` fills a database with it.
package final class RowLoop {
    private let database: SQLiteDatabase

    /// Opens or creates the database.
    /// - Parameter cacheKiB: the page cache. Nil for the store's own.
    package init(path: String, cacheKiB: Int? = nil) throws(StoreError) {
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
    package var timing: LedgerTiming { database.journal.timing }

    /// Runs operations in one durable transaction.
    package func commit(_ body: (Transaction) throws -> Void) throws {
        do {
            try database.begin()
            try body(database.transaction)
            try database.commit()
        } catch {
            database.rollBack()
            throw error
        }
    }
}

extension Transaction {
    /// Inserts an accepted room without its code, and its tokens. Their seals wait for the log.
    package func insert(accepted room: RoomRecord, tokens: [NewToken]) throws {
        guard let joiner = room.joiner else { throw StoreError.damaged("an accepted room has no second side") }
        let creator = room.creator
        try queue(
            """
            INSERT INTO room (expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked)
            VALUES ($1, $2, $3, $4, $5, 0, $6, 0, $7, $8, $9, 0, $10, 0)
            """, .time(room.expires), .digest(room.room), .number(creator.generation), .digest(creator.client),
            .digest(creator.member), .id(creator.token), .number(joiner.generation), .digest(joiner.client),
            .digest(joiner.member), .id(joiner.token))
        for token in tokens { try insert(token) }
    }
}
