import Ledger
import Shares
public import Vocabulary

/// The outcome of creating a room.
public enum CreateOutcome: Sendable, Equatable {
    case created
    /// The code is taken, perhaps by an earlier attempt of the same caller.
    case taken(CodeRecord)
    /// The policy's limit of pending rooms with short codes is reached.
    case tooManyShort
}

/// The outcome of accepting a room.
public enum AcceptOutcome: Sendable, Equatable {
    case accepted
    /// Code or room have changed since they were read. Read again.
    case changed
}

/// The outcome of replacing a token.
public enum ReplaceOutcome: Sendable, Equatable {
    case replaced
    /// The side's token has changed since it was read. Read again.
    case changed
    /// The room is gone, or the side has used its secret and the caller has not.
    case refused
}

extension Transaction {
    public func room(_ room: Digest) throws -> RoomRecord? {
        try first(
            """
            SELECT expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked,
            code_expires FROM room WHERE expires = $1 AND room = $2
            """, .time(room.indexExpiry), .digest(room), read: Self.room)
    }

    private static func room(_ row: any Row) throws(StoreError) -> RoomRecord {
        let joiner = row.isNull(9) ? nil : try side(row, from: 8)
        return try RoomRecord(
            room: row.digest(1), expires: row.time(0), codeExpires: joiner == nil ? row.timeOrNil(14) : nil,
            creator: side(row, from: 2), joiner: joiner)
    }

    private static func side(_ row: any Row, from column: Int32) throws(StoreError) -> SideRecord {
        try SideRecord(
            generation: row.number(column), client: row.digest(column + 1), member: row.digest(column + 2),
            proven: row.bool(column + 3), token: row.idOrNil(column + 4), knocked: row.time(column + 5))
    }

    /// Reads a room with its code, which may have expired.
    private static func joinable(_ row: any Row) throws(StoreError) -> JoinableRoom {
        let room = try room(row)
        let code: CodeRecord =
            if row.isNull(18) {
                try .used(
                    UsedCode(
                        code: row.digest(15), expires: row.time(14), retry: row.blobOrNil(20),
                        retryGeneration: row.number(16), retryUntil: row.time(21)))
            } else {
                try .pending(
                    PendingCode(
                        code: row.digest(15), expires: row.time(14), room: room.room, roomExpires: room.expires,
                        generation: row.number(16), pending: row.blob(18), creator: row.blobOrNil(19),
                        creatorUntil: row.time(21), short: row.int(17) == 1))
            }
        return JoinableRoom(room: room, code: code)
    }

    /// Returns the rooms with the codes under some indexes, which may have expired.
    private func joinables(_ indexes: [Digest]) throws -> [JoinableRoom] {
        var found: [JoinableRoom] = []
        // One query each, since `IN` would build a temporary table first.
        try database.query(
            """
            SELECT expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked,
            code_expires, room.code, code_generation, short, pending, creator, retry, retry_until
            FROM code JOIN room USING (expires, room) WHERE code.code = $1
            """, each: indexes.map { [.digest($0)] }
        ) { found.append(try Self.joinable($0)) }
        return found
    }

    /// Returns the room with an unexpired code under one of the indexes.
    public func joinable(_ indexes: [Digest], now: UInt64) throws -> JoinableRoom? {
        // Today's index comes first, and most codes are of today.
        for index in indexes {
            if let found = try joinables([index]).first, found.code.expires > now {
                return Self.withoutLateAnswer(found, now: now)
            }
        }
        return nil
    }

    /// Removes a sealed answer that has expired. The sweeper may not have deleted it yet.
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

    /// Inserts room, code and token unless the code is taken under any of its indexes.
    public func create(
        _ room: RoomRecord, code: PendingCode, otherIndexes: [Digest], token: NewToken?, shortLimit: Int, now: UInt64
    ) throws -> CreateOutcome {
        try room.room.check(expires: room.expires)
        let indexes = [code.code] + otherIndexes
        try lock(indexes.map { .code($0) } + [.room(room.room)] + (code.short ? [.shortCodes] : []))
        try database.admit(.creation)
        let existing = try joinables(indexes)
        if let taken = existing.first(where: { $0.code.expires > now }) {
            return .taken(Self.withoutLateAnswer(taken, now: now).code)
        }
        if code.short {
            let others = try count("SELECT count(*) FROM room WHERE short = 1")
            if others - existing.count(where: \.code.isShort) >= shortLimit { return .tooManyShort }
        }
        if let token { try checkLife(expires: token.record.expires) }
        // These have expired and were not swept yet.
        for old in existing { try end(old) }
        try insert(room, code: code, token: token)
        return .created
    }

    /// Inserts a new room with its ledger entry, without any checks.
    package func insert(_ room: RoomRecord, code: PendingCode, token: NewToken?) throws {
        let creator = room.creator
        try queue(
            """
            INSERT INTO room (expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, due, code, code_expires, code_generation, short, pending, creator, retry_until)
            VALUES ($1, $2, $3, $4, $5, 0, $6, 0, $7, $8, $9, $10, $11, $12, $13, $14)
            """, .time(room.expires), .digest(room.room), .number(creator.generation), .digest(creator.client),
            .digest(creator.member), .id(token?.record.purgeID),
            .time(code.creator == nil ? code.expires : min(code.creatorUntil, code.expires)), .digest(code.code),
            .time(code.expires), .number(code.generation), code.short ? .int(1) : .null, .blob(code.pending),
            .blob(code.creator), .time(code.creatorUntil))
        try queue(
            "INSERT INTO code (code, expires, room) VALUES ($1, $2, $3)", .digest(code.code), .time(room.expires),
            .digest(room.room))
        if let token { try insert(token) }
    }

    /// Adds the joiner to the room if `code` is still pending. The code is used from then on.
    public func accept(
        _ code: PendingCode, joiner: SideRecord, token: NewToken?, used: UsedCode, now: UInt64
    ) throws -> AcceptOutcome {
        try lock([.code(code.code), .room(code.room)])
        try database.admit(.creation)
        guard code.expires > now else { return .changed }
        if let token { try checkLife(expires: token.record.expires) }
        let isPending = try change(
            """
            UPDATE room SET joiner_generation = $1, joiner_client = $2, joiner_member = $3, joiner_proven = 0, joiner_token = $4,
            joiner_knocked = 0, due = $5, code_expires = $6, code_generation = $7, short = NULL, pending = NULL, creator = NULL,
            retry = $8, retry_until = $9
            WHERE expires = $10 AND room = $11 AND code = $12 AND code_expires = $13 AND pending IS NOT NULL
            """, .number(joiner.generation), .digest(joiner.client), .digest(joiner.member), .id(token?.record.purgeID),
            .time(used.retry == nil ? used.expires : min(used.retryUntil, used.expires)), .time(used.expires),
            .number(used.retryGeneration), .blob(used.retry), .time(used.retryUntil), .time(code.roomExpires),
            .digest(code.room), .digest(code.code), .time(code.expires))
        guard isPending else { return .changed }
        if let token { try insert(token) }
        return .accepted
    }

    /// Sets a side's token and purges the previous one.
    /// - Parameter proven: true if the caller has presented the side's member secret.
    /// - Parameter previous: the side's token when the caller compared it with the new one.
    public func replaceToken(
        room index: Digest, slot: UInt8, proven: Bool, previous: EntryID?, token: NewToken
    ) throws -> ReplaceOutcome {
        try lock([.room(index)])
        try database.admit(.creation)
        guard let room = try room(index), room.expires == token.record.expires, let side = room[slot], proven || !side.proven
        else { return .refused }
        guard side.token == previous else { return .changed }
        try checkLife(expires: room.expires)
        if let old = side.token { try purge(old, expires: room.expires, cause: .ended) }
        try insert(token)
        try setToken(token.record.purgeID, room: room, slot: slot)
        return .replaced
    }

    /// Removes a side's token.
    /// - Returns: the number of purged tokens. Nil in the cases in which `replaceToken` returns `.refused`.
    public func withdrawToken(room index: Digest, slot: UInt8, proven: Bool) throws -> Int? {
        try lock([.room(index)])
        guard let room = try room(index), let side = room[slot], proven || !side.proven else { return nil }
        guard let token = side.token else { return 0 }
        let isPurged = try purge(token, expires: room.expires, cause: .ended)
        try setToken(nil, room: room, slot: slot)
        return isPurged ? 1 : 0
    }

    /// Records that a side has used its member secret. Deletes the sealed answer to a repeated create.
    /// - Returns: false if the room is gone.
    public func markProven(room index: Digest, slot: UInt8) throws -> Bool {
        try lock([.room(index)])
        if slot == 1 {
            // A pending room's `due` may be the expiry of the deleted answer.
            return try change(
                """
                UPDATE room SET creator_proven = 1, creator = NULL, due = CASE WHEN pending IS NULL THEN due ELSE code_expires END
                WHERE expires = $1 AND room = $2
                """, .time(index.indexExpiry), .digest(index))
        }
        return try change(
            "UPDATE room SET joiner_proven = 1 WHERE expires = $1 AND room = $2 AND joiner_client IS NOT NULL",
            .time(index.indexExpiry), .digest(index))
    }

    /// Deletes the room, its tokens and its code.
    /// - Returns: the number of purged tokens. Nil if the room is gone.
    public func close(room index: Digest) throws -> Int? {
        try lock([.room(index)])
        return try room(index).map { try delete($0) }
    }

    // MARK: Parts

    func setToken(_ purgeID: EntryID?, room: RoomRecord, slot: UInt8) throws {
        let sql: StaticString =
            slot == 1
            ? "UPDATE room SET creator_token = $1 WHERE expires = $2 AND room = $3"
            : "UPDATE room SET joiner_token = $1 WHERE expires = $2 AND room = $3"
        try queue(sql, .id(purgeID), .time(room.expires), .digest(room.room))
    }

    func setKnocked(_ time: UInt64, room: RoomRecord, slot: UInt8) throws {
        let sql: StaticString =
            slot == 1
            ? "UPDATE room SET creator_knocked = $1 WHERE expires = $2 AND room = $3"
            : "UPDATE room SET joiner_knocked = $1 WHERE expires = $2 AND room = $3"
        try queue(sql, .time(time), .time(room.expires), .digest(room.room))
    }

    /// Deletes a room with its tokens and its code, pending or used.
    /// - Returns: the number of purged tokens.
    func delete(_ room: RoomRecord) throws -> Int {
        var purged = 0
        for side in [room.creator, room.joiner] {
            if let token = side?.token, try purge(token, expires: room.expires, cause: .ended) { purged += 1 }
        }
        try queue(
            "DELETE FROM code WHERE code = (SELECT code FROM room WHERE expires = $1 AND room = $2)", .time(room.expires),
            .digest(room.room), expecting: nil)
        try queue("DELETE FROM room WHERE expires = $1 AND room = $2", .time(room.expires), .digest(room.room))
        return purged
    }

    /// Frees a code. Its room's row must lose it, too.
    func forget(code: Digest) throws { try queue("DELETE FROM code WHERE code = $1", .digest(code), expecting: nil) }

    /// Returns the rooms in which a code or answer expires by `now`, at most `limit`.
    func dueRooms(_ now: UInt64, limit: Int) throws -> [JoinableRoom] {
        try rows(
            """
            SELECT expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_token,
            creator_knocked, joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_token, joiner_knocked,
            code_expires, code, code_generation, short, pending, creator, retry, retry_until
            FROM room WHERE due <= $1 ORDER BY due LIMIT $2
            """, .time(now), .number(limit), read: Self.joinable)
    }

    /// Ends a code. A pending room is deleted with it. An accepted room only loses the code.
    /// - Returns: the number of deleted rooms and tokens.
    @discardableResult
    func end(_ joinable: JoinableRoom) throws -> (rooms: Int, tokens: Int) {
        guard case .used(let used) = joinable.code else { return (1, try delete(joinable.room)) }
        try forget(code: used.code)
        try queue(
            """
            UPDATE room SET due = NULL, code = NULL, code_expires = NULL, code_generation = NULL, retry = NULL, retry_until = NULL
            WHERE expires = $1 AND room = $2
            """, .time(joinable.room.expires), .digest(joinable.room.room))
        return (0, 0)
    }

    /// Deletes the sealed answer to a create or an accept. The code stays until it expires.
    func forgetAnswer(_ joinable: JoinableRoom) throws {
        try queue(
            "UPDATE room SET due = code_expires, retry = NULL, creator = NULL WHERE expires = $1 AND room = $2",
            .time(joinable.room.expires), .digest(joinable.room.room))
    }
}

extension CodeRecord {
    fileprivate var isShort: Bool { if case .pending(let code) = self { code.short } else { false } }
}

// Tokens of rooms.
extension Transaction {
    public func token(_ purgeID: EntryID, expires: UInt64) throws -> TokenRecord? {
        try first(
            """
            SELECT room, slot, kind, generation, sealed, ref, is_long FROM token WHERE expires = $1 AND purge_id = $2
            """, .time(expires), .id(purgeID)
        ) { row in
            try TokenRecord(
                TokenContext(
                    generation: row.number(3), kind: row.code(2), slot: row.number(1), expiryMs: expires, purgeID: purgeID),
                ref: row.blob(5), room: row.digest(0), sealed: row.blob(4), isLong: row.bool(6))
        }
    }

    func holdsToken(_ purgeID: EntryID, expires: UInt64) throws -> Bool {
        try exists("SELECT 1 FROM token WHERE expires = $1 AND purge_id = $2", .time(expires), .id(purgeID))
    }

    /// Refuses an expired token. The clock may have stepped since the caller read it.
    func checkLife(expires: UInt64) throws(StoreError) {
        guard expires > moment else { throw .unavailable("a token expired before it was stored") }
    }

    /// - Precondition: `checkLife` did not throw.
    func insert(_ new: NewToken) throws {
        let token = new.record
        try queue(
            """
            INSERT INTO token (expires, purge_id, ref, is_long, room, slot, kind, generation, sealed)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
            """, .time(token.expires), .id(token.purgeID), .blob(token.ref), .bool(token.isLong), .digest(token.room),
            .number(token.context.slot), .code(token.context.kind), .number(token.context.generation), .blob(token.sealed))
        try database.record(.sealed(new.sealedID, expires: token.expires, isLong: token.isLong))
    }

    /// Deletes a token's row and records the purge. Returns false if the token is gone.
    @discardableResult
    func purge(_ purgeID: EntryID, expires: UInt64, cause: PurgeCause) throws -> Bool {
        let isLong = try first(
            "DELETE FROM token WHERE expires = $1 AND purge_id = $2 RETURNING is_long", .time(expires), .id(purgeID)
        ) { $0.bool(0) }
        guard let isLong else { return false }
        try database.record(.purged(purgeID, cause, expires: expires, isLong: isLong))
        return true
    }
}
