import Ledger
import Shares
public import Vocabulary

/// The index for looking up registrations.
public enum RegistrationLookup: Sendable, CaseIterable {
    case audience, owner, session
}

/// The outcome of a registration.
public enum RegisterOutcome: Sendable, Equatable {
    case registered
    /// A row has changed since it was read, or the token is registered already. Read again.
    case changed
    /// The owner has reached the policy's limit for this kind.
    case tooMany
}

extension Transaction {
    /// Returns the registrations under any of the indexes.
    public func registrations(_ lookup: RegistrationLookup, _ indexes: [Digest]) throws -> [RegistrationRecord] {
        try indexes.flatMap { index in try registrations(index).filter { $0.index(lookup) == index } }
    }

    /// Returns the registrations under an index. A sweep may have deleted them and not yet the index.
    private func registrations(_ index: Digest) throws -> [RegistrationRecord] {
        try rows(
            """
            SELECT expires, purge_id, id, audience, owner, device, session, kind, generation, sealed, preferences, details, opens,
            stamp, waiting, ref, is_long FROM registration
            WHERE expires = $1 AND purge_id IN (SELECT purge_id FROM registration_index WHERE value = $2)
            """, .time(index.indexExpiry), .digest(index), read: Self.registration)
    }

    /// Calls `body` with each registration. There may be more than fit into memory.
    public func eachRegistration(_ body: (RegistrationRecord) -> Void) throws {
        try each(
            """
            SELECT expires, purge_id, id, audience, owner, device, session, kind, generation, sealed, preferences, details, opens,
            stamp, waiting, ref, is_long FROM registration
            """
        ) { body(try Self.registration($0)) }
    }

    /// Returns the distinct kinds, generations and expiries of all registrations. Reads the whole table.
    public func registrationSlots() throws -> [RegistrationSlot] {
        try rows("SELECT DISTINCT kind, generation, expires FROM registration") {
            try RegistrationSlot(kind: $0.code(0), generation: $0.number(1), expires: $0.time(2))
        }
    }

    /// Returns the registrations with a waiting update that is due.
    func dueUpdates(now: UInt64, limit: Int) throws -> [RegistrationRecord] {
        try rows(
            """
            SELECT expires, purge_id, id, audience, owner, device, session, kind, generation, sealed, preferences, details, opens,
            stamp, waiting, ref, is_long FROM registration
            WHERE waiting IS NOT NULL AND opens <= $1 ORDER BY opens LIMIT $2
            """, .time(now), .number(limit), read: Self.registration)
    }

    private static func registration(_ row: any Row) throws(StoreError) -> RegistrationRecord {
        try RegistrationRecord(
            TokenContext(
                generation: row.number(8), kind: row.code(7), slot: 0, expiryMs: row.time(0), purgeID: row.id(1)),
            ref: row.blob(15), id: row.id(2), audience: row.digest(3), owner: row.digest(4), device: row.digest(5),
            session: row.digestOrNil(6), sealed: row.blob(9), isLong: row.bool(16), preferences: row.number(10),
            details: row.blob(11), opens: row.time(12), stamp: row.time(13), waiting: row.blobOrNil(14))
    }

    /// Inserts a registration and purges those that it replaces.
    /// - Parameters:
    ///   - replacing: the replaced registrations. If one is gone or has changed since it was read, the outcome is `changed`.
    ///   - devices: all indexes of the token. A row under one of them that isn't replaced makes the outcome `changed`.
    ///   - owners: all indexes of the owner, to count the owner's registrations.
    ///   - limit: the most registrations of this kind for the owner.
    public func register(
        _ new: NewRegistration, replacing: [RegistrationRecord], devices: [Digest], owners: [Digest], limit: Int
    ) throws -> RegisterOutcome {
        let registration = new.record
        let devices = Set(devices + [registration.device])
        try lock(
            owners.map { .owner($0) } + devices.map { .device($0) } + replacing.map { .registration($0.row) })
        try database.admit(.creation)
        for index in registration.indexes { try index.check(expires: registration.expires) }
        try checkLife(expires: registration.expires)
        for old in replacing { guard try throttle(old.row)?.isSame(as: old) == true else { return .changed } }
        let replacing = replacing.map(\.row)
        for device in devices {
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

    /// - Returns: the number of purged registrations.
    public func unregister(_ rows: [RowName], cause: PurgeCause) throws -> Int {
        try lock(rows.map { .registration($0) })
        return try rows.count { try purge($0, cause: cause) }
    }

    /// Clears and sets bits in a registration's mask of wanted pushes.
    /// - Returns: false if the registration is gone.
    public func setPreferences(_ row: RowName, removing: UInt32, adding: UInt32) throws -> Bool {
        try lock([.registration(row)])
        return try change(
            "UPDATE registration SET preferences = (preferences & ~CAST($1 AS BIGINT)) | $2 WHERE expires = $3 AND purge_id = $4",
            .number(removing), .number(adding), .time(row.expires), .id(row.purgeID))
    }

    // MARK: Parts

    /// The parts of a registration that can change: the throttle, the waiting update and the preferences.
    struct Throttle {
        let opens: UInt64
        let waiting: [UInt8]?
        let preferences: UInt32

        func isSame(as registration: RegistrationRecord) -> Bool {
            opens == registration.opens && waiting == registration.waiting && preferences == registration.preferences
        }
    }

    /// Returns nil if the registration is gone.
    func throttle(_ row: RowName) throws -> Throttle? {
        try first(
            "SELECT opens, waiting, preferences FROM registration WHERE expires = $1 AND purge_id = $2", .time(row.expires),
            .id(row.purgeID)
        ) {
            Throttle(opens: $0.time(0), waiting: $0.blobOrNil(1), preferences: $0.number(2))
        }
    }

    /// Returns the keys and kinds of the registrations under an index.
    private func names(_ index: Digest) throws -> [(row: RowName, kind: TokenKind)] {
        let expires = index.indexExpiry
        return try rows(
            """
            SELECT purge_id, kind FROM registration
            WHERE expires = $1 AND purge_id IN (SELECT purge_id FROM registration_index WHERE value = $2)
            """, .time(expires), .digest(index)
        ) { (RowName(expires: expires, purgeID: try $0.id(0)), try $0.code(1)) }
    }

    private func insert(_ new: NewRegistration) throws {
        let registration = new.record
        try queue(
            """
            INSERT INTO registration (expires, purge_id, ref, is_long, id, audience, owner, device, session, kind, generation,
            sealed, preferences, details, opens, stamp, waiting)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
            """, .time(registration.expires), .id(registration.purgeID), .blob(registration.ref), .bool(registration.isLong),
            .id(registration.id), .digest(registration.audience), .digest(registration.owner), .digest(registration.device),
            .digest(registration.session), .code(registration.kind), .number(registration.context.generation),
            .blob(registration.sealed), .number(registration.preferences), .blob(registration.details),
            .time(registration.opens), .time(registration.stamp), .blob(registration.waiting))
        for index in registration.indexes {
            try queue(
                "INSERT INTO registration_index (value, purge_id) VALUES ($1, $2)", .digest(index), .id(registration.purgeID))
        }
        try database.record(.sealed(new.sealedID, expires: registration.expires, isLong: registration.isLong))
    }

    /// Deletes a registration with its indexes and records the purge. Returns false if the registration is gone.
    @discardableResult
    func purge(_ row: RowName, cause: PurgeCause) throws -> Bool {
        let found = try first(
            """
            DELETE FROM registration WHERE expires = $1 AND purge_id = $2
            RETURNING audience, owner, device, session, is_long
            """, .time(row.expires), .id(row.purgeID)
        ) { ([try $0.digest(0), try $0.digest(1), try $0.digest(2), try $0.digestOrNil(3)], $0.bool(4)) }
        guard let (indexes, isLong) = found else { return false }
        for case let index? in indexes {
            try queue("DELETE FROM registration_index WHERE value = $1 AND purge_id = $2", .digest(index), .id(row.purgeID))
        }
        try database.record(.purged(row.purgeID, cause, expires: row.expires, isLong: isLong))
        return true
    }
}

extension RegistrationRecord {
    fileprivate func index(_ lookup: RegistrationLookup) -> Digest? {
        switch lookup {
        case .audience: audience
        case .owner: owner
        case .session: session
        }
    }

    fileprivate var indexes: [Digest] { [audience, owner, device, session].compactMap(\.self) }
}
