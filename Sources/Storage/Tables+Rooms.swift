import Ledger
import SQLite

extension Tables {
    func room(_ room: [UInt8]) throws -> RoomRecord? { try roomAndCode(room)?.room }

    /// The room's row, and the key of its code's row, which may have gone before it.
    private func roomAndCode(_ room: [UInt8]) throws -> (room: RoomRecord, code: (expires: UInt64, code: [UInt8])?)? {
        typealias Found = (room: RoomRecord, code: (expires: UInt64, code: [UInt8])?)
        return try rows(
            """
            SELECT expires, creator_generation, creator_client, creator_member, creator_proven, creator_ref, creator_knocked,
            joiner_generation, joiner_client, joiner_member, joiner_proven, joiner_ref, joiner_knocked, code_expires, code
            FROM room WHERE room = ?
            """, .blob(room)
        ) { row -> Found in
            let joiner = row.isNull(8) ? nil : Self.side(row, from: 7)
            let record = RoomRecord(
                room: room, expires: row.time(0), codeExpires: joiner == nil && !row.isNull(13) ? row.time(13) : nil,
                creator: Self.side(row, from: 1), joiner: joiner)
            return (record, row.isNull(14) ? nil : (row.time(13), row.blob(14)))
        }.first
    }

    private static func side(_ row: Statement, from column: Int32) -> SideRecord {
        SideRecord(
            generation: UInt32(clamping: row.int(column)), client: row.blob(column + 1), member: row.blob(column + 2),
            proven: row.int(column + 3) != 0, ref: row.blobOrNil(column + 4), knocked: row.time(column + 5))
    }

    func code(_ indexes: [[UInt8]], now: UInt64) throws -> CodeRecord? {
        for index in indexes {
            let found = try rows(
                """
                SELECT expires, room, room_expires, generation, pending, creator, short, retry_until FROM code WHERE code = ?
                """, .blob(index)
            ) { row in
                if !row.isNull(4) {
                    return CodeRecord.pending(
                        PendingCode(
                            code: index, expires: row.time(0), room: row.blob(1), roomExpires: row.time(2),
                            generation: UInt32(clamping: row.int(3)), pending: row.blob(4), creator: row.blob(5),
                            short: row.int(6) != 0))
                }
                return .used(
                    UsedCode(
                        code: index, expires: row.time(0), retry: nil, retryGeneration: UInt32(clamping: row.int(3)),
                        retryUntil: row.time(7)))
            }.first
            switch found {
            case nil: continue
            case .pending(let code): if code.expires > now { return .pending(code) }
            case .used(var code):
                guard code.expires > now else { continue }
                if code.retryUntil > now {
                    code.retry = try rows(
                        "SELECT sealed FROM retry WHERE expires = ? AND code = ?", .time(code.retryUntil), .blob(index)
                    ) { $0.blob(0) }.first
                }
                return .used(code)
            }
        }
        return nil
    }

    func token(_ ref: [UInt8], expires: UInt64) throws -> TokenRecord? {
        try rows(
            """
            SELECT room, slot, kind, environment, generation, topic, sealed FROM token WHERE expires = ? AND ref = ?
            """, .time(expires), .blob(ref)
        ) { row in
            TokenRecord(
                ref: ref, room: row.blob(0), slot: UInt8(clamping: row.int(1)), kind: UInt8(clamping: row.int(2)),
                environment: UInt8(clamping: row.int(3)), generation: UInt32(clamping: row.int(4)), expires: expires,
                topic: row.text(5), sealed: row.blob(6))
        }.first
    }

    func create(
        _ room: RoomRecord, code: PendingCode, otherIndexes: [[UInt8]], token: TokenRecord?, shortLimit: Int, now: UInt64
    ) throws -> CreateOutcome {
        try refuseWhenLedgerIsBehind()
        if let taken = try self.code([code.code] + otherIndexes, now: now) { return .taken(taken) }
        // What stands there under the same index has expired and was not swept yet.
        for index in [code.code] + otherIndexes { try purgeCode(index) }
        if code.short, try rows("SELECT count(*) FROM code WHERE short = 1", read: { Int($0.int(0)) })[0] >= shortLimit {
            return .tooManyShort
        }
        try insert(room, code: code, token: token)
        return .created
    }

    /// The rows of a new room and its ledger entry, without a look at what stands there.
    func insert(_ room: RoomRecord, code: PendingCode, token: TokenRecord?) throws {
        let creator = room.creator
        try run(
            """
            INSERT INTO room (expires, room, creator_generation, creator_client, creator_member, creator_proven, creator_ref,
            creator_knocked, code_expires, code) VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?)
            """, .time(room.expires), .blob(room.room), .number(creator.generation), .blob(creator.client),
            .blob(creator.member), .int(0), .blob(token?.ref), .time(code.expires), .blob(code.code))
        try run(
            """
            INSERT INTO code (expires, code, room, room_expires, generation, pending, creator, short)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """, .time(code.expires), .blob(code.code), .blob(code.room), .time(code.roomExpires), .number(code.generation),
            .blob(code.pending), .blob(code.creator), .int(code.short ? 1 : 0))
        if let token { try insert(token) }
    }

    func accept(
        _ code: PendingCode, joiner: SideRecord, token: TokenRecord?, used: UsedCode, now: UInt64
    ) throws -> AcceptOutcome {
        try refuseWhenLedgerIsBehind()
        guard code.expires > now,
            try run(
                "DELETE FROM code WHERE expires = ? AND code = ? AND room = ? AND pending IS NOT NULL", .time(code.expires),
                .blob(code.code), .blob(code.room)) == 1,
            try run(
                """
                UPDATE room SET joiner_generation = ?, joiner_client = ?, joiner_member = ?, joiner_proven = 0, joiner_ref = ?,
                joiner_knocked = 0, code_expires = ? WHERE expires = ? AND room = ? AND joiner_client IS NULL
                """, .number(joiner.generation), .blob(joiner.client), .blob(joiner.member), .blob(token?.ref),
                .time(used.expires), .time(code.roomExpires), .blob(code.room)) == 1
        else { return .changed }
        try run(
            """
            INSERT INTO code (expires, code, room, room_expires, generation, short, retry_until) VALUES (?, ?, ?, ?, ?, 0, ?)
            """, .time(used.expires), .blob(used.code), .blob(code.room), .time(code.roomExpires),
            .number(used.retryGeneration), .time(used.retryUntil))
        if let retry = used.retry {
            try run(
                "INSERT INTO retry (expires, code, generation, sealed) VALUES (?, ?, ?, ?)",
                .time(used.retryUntil), .blob(used.code), .number(used.retryGeneration), .blob(retry))
        }
        if let token { try insert(token) }
        return .accepted
    }

    func replaceToken(room index: [UInt8], slot: UInt8, token: TokenRecord) throws -> Bool {
        try refuseWhenLedgerIsBehind()
        guard let room = try room(index), room.expires == token.expires, let side = room[slot] else { return false }
        if let old = side.ref { try purge(old, expires: room.expires, cause: .replaced) }
        try insert(token)
        try setRef(token.ref, room: room, slot: slot)
        return true
    }

    func withdrawToken(room index: [UInt8], slot: UInt8) throws -> Int? {
        guard let room = try room(index), let side = room[slot] else { return nil }
        guard let ref = side.ref else { return 0 }
        try setRef(nil, room: room, slot: slot)
        return try purge(ref, expires: room.expires, cause: .deleted) ? 1 : 0
    }

    func markProven(room index: [UInt8], slot: UInt8) throws -> Bool {
        if slot == 1 { return try run("UPDATE room SET creator_proven = 1 WHERE room = ?", .blob(index)) == 1 }
        return try run("UPDATE room SET joiner_proven = 1 WHERE room = ? AND joiner_client IS NOT NULL", .blob(index)) == 1
    }

    func close(room index: [UInt8]) throws -> Int? {
        try roomAndCode(index).map { try delete($0.room, code: $0.code, cause: .roomClosed) }
    }

    // MARK: Parts

    private func insert(_ token: TokenRecord) throws {
        try run(
            """
            INSERT INTO token (expires, ref, room, slot, kind, environment, generation, topic, sealed)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
            """, .time(token.expires), .blob(token.ref), .blob(token.room), .number(token.slot), .number(token.kind),
            .number(token.environment), .number(token.generation), .text(token.topic), .blob(token.sealed))
        try record(.sealed(token))
    }

    func setRef(_ ref: [UInt8]?, room: RoomRecord, slot: UInt8) throws {
        if slot == 1 {
            try run(
                "UPDATE room SET creator_ref = ? WHERE expires = ? AND room = ?", .blob(ref), .time(room.expires),
                .blob(room.room))
        } else {
            try run(
                "UPDATE room SET joiner_ref = ? WHERE expires = ? AND room = ?", .blob(ref), .time(room.expires), .blob(room.room)
            )
        }
    }

    /// Deletes a token's row and records it, once: what is gone already is not recorded again.
    @discardableResult
    func purge(_ ref: [UInt8], expires: UInt64, cause: Entry.PurgeCause) throws -> Bool {
        guard try run("DELETE FROM token WHERE expires = ? AND ref = ?", .time(expires), .blob(ref)) == 1 else { return false }
        try record(.purged(ref, cause))
        return true
    }

    /// Deletes a room with its tokens and its code, pending or used.
    /// - Returns: how many tokens it had.
    func delete(_ room: RoomRecord, code: (expires: UInt64, code: [UInt8])?, cause: Entry.PurgeCause) throws -> Int {
        var purged = 0
        for side in [room.creator, room.joiner] {
            if let ref = side?.ref, try purge(ref, expires: room.expires, cause: cause) { purged += 1 }
        }
        try run("DELETE FROM room WHERE expires = ? AND room = ?", .time(room.expires), .blob(room.room))
        if let code {
            let retry =
                try rows("SELECT retry_until FROM code WHERE expires = ? AND code = ?", .time(code.expires), .blob(code.code)) {
                    $0.isNull(0) ? nil : $0.time(0)
                }.first ?? nil
            if let retry { try run("DELETE FROM retry WHERE expires = ? AND code = ?", .time(retry), .blob(code.code)) }
            try run("DELETE FROM code WHERE expires = ? AND code = ?", .time(code.expires), .blob(code.code))
        }
        return purged
    }

    /// Deletes a code. A room that still waits for it goes with it; one that was accepted forgets it.
    /// - Returns: rooms and tokens deleted, or nil when there is no such code.
    @discardableResult
    func purgeCode(_ index: [UInt8]) throws -> (rooms: Int, tokens: Int)? {
        typealias Found = (expires: UInt64, room: [UInt8], roomExpires: UInt64, isPending: Bool)
        let found = try rows("SELECT expires, room, room_expires, pending IS NOT NULL FROM code WHERE code = ?", .blob(index)) {
            row -> Found in (row.time(0), row.blob(1), row.time(2), row.int(3) != 0)
        }.first
        guard let found else { return nil }
        if found.isPending, let (room, code) = try roomAndCode(found.room) {
            return (1, try delete(room, code: code, cause: .expired))
        }
        try run(
            "UPDATE room SET code_expires = NULL, code = NULL WHERE expires = ? AND room = ?", .time(found.roomExpires),
            .blob(found.room))
        try run("DELETE FROM code WHERE expires = ? AND code = ?", .time(found.expires), .blob(index))
        return (0, 0)
    }
}
