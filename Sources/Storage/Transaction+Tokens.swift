import Ledger
public import Vocabulary

// Tokens of rooms.
extension Transaction {
    public func token(_ purgeID: EntryID, expires: UInt64) throws -> TokenRecord? {
        try first(
            """
            SELECT room, slot, kind, environment, generation, topic, sealed, ref, is_long FROM token
            WHERE expires = $1 AND purge_id = $2
            """, .time(expires), .id(purgeID)
        ) { row in
            try TokenRecord(
                purgeID: purgeID, ref: row.blob(7), room: row.digest(0), slot: UInt8(clamping: row.int(1)),
                kind: row.code(2), environment: row.code(3), generation: UInt32(clamping: row.int(4)), expires: expires,
                topic: row.text(5), sealed: row.blob(6), isLong: row.int(8) != 0)
        }
    }

    func holdsToken(_ purgeID: EntryID, expires: UInt64) throws -> Bool {
        try exists("SELECT 1 FROM token WHERE expires = $1 AND purge_id = $2", .time(expires), .id(purgeID))
    }

    /// The clock may have stepped since the caller read it.
    func checkLife(expires: UInt64) throws(StoreError) {
        guard expires > moment else { throw .unavailable("a token expired before it was stored") }
    }

    /// - Precondition: `checkLife` did not throw.
    func insert(_ new: NewToken) throws {
        let token = new.record
        try queue(
            """
            INSERT INTO token (expires, purge_id, ref, is_long, room, slot, kind, environment, generation, topic, sealed)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
            """, .time(token.expires), .id(token.purgeID), .blob(token.ref), .bool(token.isLong), .digest(token.room),
            .number(token.slot), .code(token.kind), .code(token.environment), .number(token.generation),
            .text(token.topic), .blob(token.sealed))
        try database.record(.sealed(new.sealedID, expires: token.expires, isLong: token.isLong))
    }

    /// Deletes a token's row and records the purge. A token that is gone isn't recorded again.
    @discardableResult
    func purge(_ purgeID: EntryID, expires: UInt64, cause: PurgeCause) throws -> Bool {
        let isLong = try first(
            "DELETE FROM token WHERE expires = $1 AND purge_id = $2 RETURNING is_long", .time(expires), .id(purgeID)
        ) { $0.int(0) != 0 }
        guard let isLong else { return false }
        try database.record(.purged(purgeID, cause, expires: expires, isLong: isLong))
        return true
    }
}
