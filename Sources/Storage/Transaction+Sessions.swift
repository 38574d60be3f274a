public import Vocabulary

// Sessions and printers' runs, and what was done already.
extension Transaction {
    /// The session that stands under the first of the indexes that has one.
    public func session(_ indexes: [Digest]) throws -> SessionRecord? {
        for index in indexes {
            if let session = try session(index) { return session }
        }
        return nil
    }

    private func session(_ index: Digest) throws -> SessionRecord? {
        try first(
            "SELECT generation, started, version, client, registration, reached FROM session WHERE session = $1", .digest(index)
        ) { row in
            try SessionRecord(
                session: index, generation: UInt32(clamping: row.int(0)), expires: index.indexExpiry, started: row.time(1),
                version: row.time(2), client: row.digestOrNil(3), registration: row.idOrNil(4),
                reached: UInt8(clamping: row.int(5)))
        }
    }

    /// Where sessions and runs lie: what their indexes can be made by.
    public func sessionPlaces() throws -> [(generation: UInt32, expires: UInt64)] {
        // A place's sessions have the first eight bytes in common.
        try rows("SELECT DISTINCT generation, substr(session, 1, 8) FROM session") { row in
            var expires: UInt64 = 0
            row.withBlob(1) { expires = $0.bigEndian64(at: 0) }
            return (UInt32(clamping: row.int(0)), expires)
        }
    }

    /// Whether the version that the change goes by still stands, and nothing where it moves to.
    func isAsRead(_ change: SessionChange, now: UInt64) throws -> Bool {
        guard case .set(let session, let version, let replaced) = change else { return true }
        guard let replaced, replaced != session.session else { return try live(session.session, now)?.version == version }
        return try live(replaced, now)?.version == version && live(session.session, now) == nil
    }

    /// While the ratchet waits out a leap of the clock, one that has expired lies where its successor will: it is replaced.
    private func live(_ index: Digest, _ now: UInt64) throws -> SessionRecord? {
        try session(index).flatMap { $0.expires > now ? $0 : nil }
    }

    func make(_ change: SessionChange) throws {
        switch change {
        case .set(let session, _, let replaced):
            if let replaced, replaced != session.session { try delete(session: replaced) }
            try queue(
                """
                INSERT INTO session (session, generation, started, version, client, registration, reached)
                VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (session) DO UPDATE SET generation = excluded.generation,
                started = excluded.started, version = excluded.version, client = excluded.client,
                registration = excluded.registration, reached = excluded.reached
                """, .digest(session.session), .number(session.generation), .time(session.started), .time(session.version),
                .digest(session.client), .id(session.registration), .number(session.reached))
        case .delete(_, let session): try delete(session: session)
        case .restart(let session, let started):
            try queue(
                "UPDATE session SET started = $1, version = version + 1 WHERE session = $2", .time(started), .digest(session),
                expecting: nil)
        }
    }

    private func delete(session: Digest) throws {
        try queue("DELETE FROM session WHERE session = $1", .digest(session), expecting: nil)
    }

    func isSeen(_ seen: SeenRecord, now: UInt64) throws -> Bool {
        for key in [seen.key] + seen.others where key.indexExpiry > now {
            if try exists("SELECT 1 FROM seen WHERE key = $1", .digest(key)) { return true }
        }
        return false
    }

    func insert(_ seen: SeenRecord) throws {
        try queue("INSERT INTO seen (key) VALUES ($1) ON CONFLICT DO NOTHING", .digest(seen.key), expecting: nil)
    }
}
