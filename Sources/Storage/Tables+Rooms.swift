import Ledger
import SQLite
import Vocabulary

extension Tables {
    func room(_ room: Digest) throws -> RoomRecord? {
        try rows(
            """
            SELECT expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked,
            code_expires FROM room WHERE room = ?
            """, .digest(room), read: Self.room
        ).first
    }

    private static func room(_ row: Statement) throws(StoreError) -> RoomRecord {
        let joiner = row.isNull(9) ? nil : try side(row, from: 8)
        return try RoomRecord(
            room: row.digest(1), expires: row.time(0), codeExpires: joiner == nil && !row.isNull(14) ? row.time(14) : nil,
            creator: side(row, from: 2), joiner: joiner)
    }

    private static func side(_ row: Statement, from column: Int32) throws(StoreError) -> SideRecord {
        try SideRecord(
            generation: UInt32(clamping: row.int(column)), client: row.digest(column + 1), member: row.digest(column + 2),
            proven: row.int(column + 3) != 0, token: row.idOrNil(column + 4), knocked: row.time(column + 5))
    }

    /// A room and the code that leads to it, live or not.
    private static func joinable(_ row: Statement) throws(StoreError) -> JoinableRoom {
        let room = try room(row)
        if row.isNull(18) {
            return JoinableRoom(
                room: room,
                code: .used(
                    try UsedCode(
                        code: row.digest(15), expires: row.time(14), retry: row.blobOrNil(20),
                        retryGeneration: UInt32(clamping: row.int(16)), retryUntil: row.time(21))))
        }
        return JoinableRoom(
            room: room,
            code: .pending(
                try PendingCode(
                    code: row.digest(15), expires: row.time(14), room: room.room, roomExpires: room.expires,
                    generation: UInt32(clamping: row.int(16)), pending: row.blob(18), creator: row.blobOrNil(19),
                    creatorUntil: row.time(21), short: row.int(17) == 1)))
    }

    /// The rooms whose code stands under one of the indexes, expired ones too. One by one: `IN` would build a table of them first.
    private func joinable(_ indexes: [Digest]) throws -> [JoinableRoom] {
        try indexes.flatMap { try joinable($0) }
    }

    private func joinable(_ index: Digest) throws -> [JoinableRoom] {
        try rows(
            """
            SELECT expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked,
            code_expires, code, code_generation, short, pending, creator, retry, retry_until FROM room WHERE code = ?
            """, .digest(index), read: Self.joinable)
    }

    func joinable(_ indexes: [Digest], now: UInt64) throws -> JoinableRoom? {
        try joinable(indexes).first { $0.code.expires > now }.map { Self.withoutLateAnswer($0, now: now) }
    }

    /// The sweeper may not have deleted the sealed answer yet.
    private static func withoutLateAnswer(_ found: JoinableRoom, now: UInt64) -> JoinableRoom {
        var found = found
        switch found.code {
        case .used(var code) where code.retryUntil <= now:
            code.retry = nil
            found.code = .used(code)
        case .pending(var code) where code.creatorUntil <= now:
            code.creator = nil
            found.code = .pending(code)
        default: break
        }
        return found
    }

    func token(_ purgeID: EntryID, expires: UInt64) throws -> TokenRecord? {
        try rows(
            """
            SELECT room, slot, kind, environment, generation, topic, sealed, ref, is_long FROM token
            WHERE expires = ? AND purge_id = ?
            """, .time(expires), .id(purgeID)
        ) { row in
            try TokenRecord(
                purgeID: purgeID, ref: row.blob(7), room: row.digest(0), slot: UInt8(clamping: row.int(1)),
                kind: row.code(2), environment: row.code(3),
                generation: UInt32(clamping: row.int(4)), expires: expires, topic: row.text(5), sealed: row.blob(6),
                isLong: row.int(8) != 0)
        }.first
    }

    func create(
        _ room: RoomRecord, code: PendingCode, otherIndexes: [Digest], token: NewToken?, shortLimit: Int, now: UInt64
    ) throws -> CreateOutcome {
        try refuseWhenLedgerIsBehind(.creation)
        let indexes = [code.code] + otherIndexes
        let standing = try joinable(indexes)
        if let taken = standing.first(where: { $0.code.expires > now }) {
            return .taken(Self.withoutLateAnswer(taken, now: now).code)
        }
        // What stands there has expired and was not swept yet.
        for old in standing { try end(old) }
        if code.short, try rows("SELECT count(*) FROM room WHERE short = 1", read: { Int($0.int(0)) })[0] >= shortLimit {
            return .tooManyShort
        }
        try insert(room, code: code, token: token)
        return .created
    }

    /// The rows of a new room and its ledger entry, without a look at what stands there.
    func insert(_ room: RoomRecord, code: PendingCode, token: NewToken?) throws {
        let creator = room.creator
        try run(
            """
            INSERT INTO room (expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, due, code, code_expires, code_generation, short, pending, creator, retry_until)
            VALUES (?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?)
            """, .time(room.expires), .digest(room.room), .number(creator.generation), .digest(creator.client),
            .digest(creator.member), .id(token?.record.purgeID),
            .time(code.creator == nil ? code.expires : min(code.creatorUntil, code.expires)), .digest(code.code),
            .time(code.expires), .number(code.generation), code.short ? .int(1) : .null, .blob(code.pending),
            .blob(code.creator), .time(code.creatorUntil))
        if let token { try insert(token) }
    }

    func accept(
        _ code: PendingCode, joiner: SideRecord, token: NewToken?, used: UsedCode, now: UInt64
    ) throws -> AcceptOutcome {
        try refuseWhenLedgerIsBehind(.creation)
        guard code.expires > now,
            try run(
                """
                UPDATE room SET joiner_generation = ?, joiner_client = ?, joiner_member = ?, joiner_proven = 0, joiner_token = ?,
                joiner_knocked = 0, due = ?, code_expires = ?, code_generation = ?, short = NULL, pending = NULL, creator = NULL,
                retry = ?, retry_until = ?
                WHERE expires = ? AND room = ? AND code = ? AND code_expires = ? AND pending IS NOT NULL
                """, .number(joiner.generation), .digest(joiner.client), .digest(joiner.member), .id(token?.record.purgeID),
                .time(used.retry == nil ? used.expires : min(used.retryUntil, used.expires)), .time(used.expires),
                .number(used.retryGeneration), .blob(used.retry), .time(used.retryUntil), .time(code.roomExpires),
                .digest(code.room), .digest(code.code), .time(code.expires)) == 1
        else { return .changed }
        if let token { try insert(token) }
        return .accepted
    }

    func replaceToken(room index: Digest, slot: UInt8, proven: Bool, token: NewToken) throws -> Bool {
        try refuseWhenLedgerIsBehind(.creation)
        guard let room = try room(index), room.expires == token.record.expires, let side = room[slot], proven || !side.proven
        else {
            return false
        }
        if let old = side.token { try purge(old, expires: room.expires, cause: .ended) }
        try insert(token)
        try setToken(token.record.purgeID, room: room, slot: slot)
        return true
    }

    func withdrawToken(room index: Digest, slot: UInt8, proven: Bool) throws -> Int? {
        guard let room = try room(index), let side = room[slot], proven || !side.proven else { return nil }
        guard let token = side.token else { return 0 }
        try setToken(nil, room: room, slot: slot)
        return try purge(token, expires: room.expires, cause: .ended) ? 1 : 0
    }

    func markProven(room index: Digest, slot: UInt8) throws -> Bool {
        if slot == 1 {
            // While the room is pending, `due` may be the end of the sealed answer, which goes now.
            return try run(
                """
                UPDATE room SET creator_proven = 1, creator = NULL, due = CASE WHEN pending IS NULL THEN due ELSE code_expires END
                WHERE room = ?
                """, .digest(index)) == 1
        }
        return try run("UPDATE room SET joiner_proven = 1 WHERE room = ? AND joiner_client IS NOT NULL", .digest(index)) == 1
    }

    func close(room index: Digest) throws -> Int? {
        try room(index).map { try delete($0) }
    }

    // MARK: Parts

    func insert(_ new: NewToken) throws {
        let token = new.record
        // The clock may have stepped since the caller read it.
        guard token.expires > journal.moment else { throw StoreError.unavailable("a token expired before it was stored") }
        try run(
            """
            INSERT INTO token (expires, purge_id, ref, is_long, room, slot, kind, environment, generation, topic, sealed)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """, .time(token.expires), .id(token.purgeID), .blob(token.ref), .bool(token.isLong), .digest(token.room),
            .number(token.slot), .code(token.kind), .code(token.environment), .number(token.generation),
            .text(token.topic), .blob(token.sealed))
        try waitSealed(new.sealedID, expires: token.expires, isLong: token.isLong)
    }

    func setToken(_ purgeID: EntryID?, room: RoomRecord, slot: UInt8) throws {
        if slot == 1 {
            try run(
                "UPDATE room SET creator_token = ? WHERE expires = ? AND room = ?", .id(purgeID), .time(room.expires),
                .digest(room.room))
        } else {
            try run(
                "UPDATE room SET joiner_token = ? WHERE expires = ? AND room = ?", .id(purgeID), .time(room.expires),
                .digest(room.room))
        }
    }

    /// Deletes a token's row and records the purge. A token that is gone isn't recorded again.
    @discardableResult
    func purge(_ purgeID: EntryID, expires: UInt64, cause: PurgeCause) throws -> Bool {
        let found = try rows(
            "DELETE FROM token WHERE expires = ? AND purge_id = ? RETURNING is_long", .time(expires), .id(purgeID)
        ) { $0.int(0) != 0 }
        guard let isLong = found.first else { return false }
        try waitPurged(purgeID, cause, expires: expires, isLong: isLong)
        return true
    }

    /// Deletes a room with its tokens and its code, pending or used.
    /// - Returns: how many tokens it had.
    func delete(_ room: RoomRecord) throws -> Int {
        var purged = 0
        for side in [room.creator, room.joiner] {
            if let token = side?.token, try purge(token, expires: room.expires, cause: .ended) { purged += 1 }
        }
        try run("DELETE FROM room WHERE expires = ? AND room = ?", .time(room.expires), .digest(room.room))
        return purged
    }

    /// The rooms of which something ends by `now`, at most `limit`.
    func due(_ now: UInt64, limit: Int) throws -> [JoinableRoom] {
        try rows(
            """
            SELECT expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked,
            code_expires, code, code_generation, short, pending, creator, retry, retry_until
            FROM room WHERE due <= ? ORDER BY due LIMIT ?
            """, .time(now), .number(limit), read: Self.joinable)
    }

    /// Ends a code. A room that still waits for it goes with it; one that was accepted forgets it.
    /// - Returns: how many rooms and tokens were deleted.
    @discardableResult
    func end(_ joinable: JoinableRoom) throws -> (rooms: Int, tokens: Int) {
        if case .pending = joinable.code { return (1, try delete(joinable.room)) }
        try run(
            """
            UPDATE room SET due = NULL, code = NULL, code_expires = NULL, code_generation = NULL, retry = NULL, retry_until = NULL
            WHERE expires = ? AND room = ?
            """, .time(joinable.room.expires), .digest(joinable.room.room))
        return (0, 0)
    }

    /// Deletes the sealed answer to a create or an accept. The code stays until its own end.
    func forgetAnswer(_ joinable: JoinableRoom) throws {
        try run(
            "UPDATE room SET due = code_expires, retry = NULL, creator = NULL WHERE expires = ? AND room = ?",
            .time(joinable.room.expires), .digest(joinable.room.room))
    }
}
