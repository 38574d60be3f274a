import Ledger
import SQLite
import Vocabulary

// Tokens of audiences.
extension Tables {
    func registrations(_ lookup: RegistrationLookup, _ indexes: [Digest]) throws -> [RegistrationRecord] {
        try indexes.flatMap { index in try registrations(index).filter { $0.index(lookup) == index } }
    }

    /// What stands under an index. It leads to nothing for a moment when its registration was swept and it was not yet.
    private func registrations(_ index: Digest) throws -> [RegistrationRecord] {
        try rows(
            """
            SELECT expires, registration.purge_id, id, audience, owner, device, session, kind, environment, generation, topic, sealed,
            preferences, details, opens, stamp, waiting, ref, is_long
            FROM registration_index CROSS JOIN registration ON expires = ? AND registration.purge_id = registration_index.purge_id
            WHERE value = ?
            """, .time(index.indexExpiry), .digest(index), read: Self.registration)
    }

    func eachRegistration(_ body: (RegistrationRecord) -> Void) throws {
        try each(
            """
            SELECT expires, purge_id, id, audience, owner, device, session, kind, environment, generation, topic, sealed, preferences,
            details, opens, stamp, waiting, ref, is_long FROM registration
            """
        ) { body(try Self.registration($0)) }
    }

    func registrationPlaces() throws -> [RegistrationPlace] {
        try rows("SELECT DISTINCT kind, generation, expires FROM registration") {
            try RegistrationPlace(kind: $0.code(0), generation: UInt32(clamping: $0.int(1)), expires: $0.time(2))
        }
    }

    static func registration(_ row: Statement) throws(StoreError) -> RegistrationRecord {
        try RegistrationRecord(
            purgeID: row.id(1), ref: row.blob(17), id: row.id(2), audience: row.digest(3), owner: row.digest(4),
            device: row.digest(5),
            session: row.digestOrNil(6), kind: row.code(7), environment: row.code(8),
            generation: UInt32(clamping: row.int(9)), expires: row.time(0), topic: row.text(10), sealed: row.blob(11),
            isLong: row.int(18) != 0,
            preferences: UInt32(clamping: row.int(12)), details: row.blob(13), opens: row.time(14), stamp: row.time(15),
            waiting: row.blobOrNil(16))
    }

    func holds(_ row: RowName) throws -> Bool {
        try !rows("SELECT 1 FROM registration WHERE expires = ? AND purge_id = ?", .time(row.expires), .id(row.purgeID)) { _ in
            1
        }
        .isEmpty
    }

    func register(
        _ new: NewRegistration, replacing: [RegistrationRecord], devices: [Digest], owners: [Digest], limit: Int
    ) throws -> RegisterOutcome {
        let registration = new.record
        try refuseWhenLedgerIsBehind(.creation)
        try registration.checkIndexes()
        for old in replacing { guard try throttle(old.row)?.isSame(as: old) == true else { return .changed } }
        let replacing = replacing.map(\.row)
        for device in Set(devices + [registration.device]) {
            guard try names(device).allSatisfy({ replacing.contains($0.row) }) else { return .changed }
        }
        var count = 0
        for owner in owners {
            count += try names(owner).count { $0.kind == registration.kind && !replacing.contains($0.row) }
        }
        guard count < limit else { return .tooMany }
        for row in replacing { try purge(row, cause: .ended) }
        try insert(new)
        return .registered
    }

    /// The names and kinds of what stands under an index.
    private func names(_ index: Digest) throws -> [(row: RowName, kind: TokenKind)] {
        let expires = index.indexExpiry
        return try rows(
            """
            SELECT registration.purge_id, kind
            FROM registration_index CROSS JOIN registration ON expires = ? AND registration.purge_id = registration_index.purge_id
            WHERE value = ?
            """, .time(expires), .digest(index)
        ) { (RowName(expires: expires, purgeID: try $0.id(0)), try $0.code(1)) }
    }

    private func insert(_ new: NewRegistration) throws {
        let registration = new.record
        // The clock may have stepped since the caller read it.
        guard registration.expires > journal.moment else {
            throw StoreError.unavailable("a token expired before it was stored")
        }
        try run(
            """
            INSERT INTO registration (expires, purge_id, ref, is_long, id, audience, owner, device, session, kind, environment,
            generation, topic, sealed, preferences, details, opens, stamp, waiting)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            """, .time(registration.expires), .id(registration.purgeID), .blob(registration.ref), .bool(registration.isLong),
            .id(registration.id), .digest(registration.audience), .digest(registration.owner), .digest(registration.device),
            .digest(registration.session), .code(registration.kind), .code(registration.environment),
            .number(registration.generation), .text(registration.topic), .blob(registration.sealed),
            .number(registration.preferences), .blob(registration.details), .time(registration.opens),
            .time(registration.stamp), .blob(registration.waiting))
        for index in registration.indexes {
            try run("INSERT INTO registration_index (value, purge_id) VALUES (?, ?)", .digest(index), .id(registration.purgeID))
        }
        try waitSealed(new.sealedID, expires: registration.expires, isLong: registration.isLong)
    }

    func unregister(_ rows: [RowName], cause: PurgeCause) throws -> Int {
        try rows.count { try purge($0, cause: cause) }
    }

    /// Deletes a registration with its indexes and records it, once: what is gone already is not recorded again.
    @discardableResult
    func purge(_ row: RowName, cause: PurgeCause) throws -> Bool {
        let found = try rows(
            "SELECT audience, owner, device, session, is_long FROM registration WHERE expires = ? AND purge_id = ?",
            .time(row.expires),
            .id(row.purgeID)
        ) { ([try $0.digest(0), try $0.digest(1), try $0.digest(2), try $0.digestOrNil(3)], $0.int(4) != 0) }
        guard let (indexes, isLong) = found.first else { return false }
        for case let index? in indexes {
            try run("DELETE FROM registration_index WHERE value = ? AND purge_id = ?", .digest(index), .id(row.purgeID))
        }
        try run("DELETE FROM registration WHERE expires = ? AND purge_id = ?", .time(row.expires), .id(row.purgeID))
        try waitPurged(row.purgeID, cause, expires: row.expires, isLong: isLong)
        return true
    }

    func setPreferences(_ row: RowName, removing: UInt32, adding: UInt32) throws -> Bool {
        try run(
            "UPDATE registration SET preferences = (preferences & ~?) | ? WHERE expires = ? AND purge_id = ?", .number(removing),
            .number(adding), .time(row.expires), .id(row.purgeID)) == 1
    }
}

extension RegistrationRecord {
    func index(_ lookup: RegistrationLookup) -> Digest? {
        switch lookup {
        case .audience: audience
        case .owner: owner
        case .session: session
        }
    }

    fileprivate var indexes: [Digest] { [audience, owner, device, session].compactMap(\.self) }

    /// An index of another time would not be found, or not be swept.
    fileprivate func checkIndexes() throws {
        guard indexes.allSatisfy({ $0.indexExpiry == expires }) else {
            throw StoreError.unavailable("an index that does not begin with its row's expiry")
        }
    }
}
