import Vocabulary

extension LockKey {
    /// The number of the advisory lock. Equal numbers of different keys only cost time.
    func number(salt: Int64) -> Int64 {
        let (kind, name): (UInt64, UInt64) =
            switch self {
            case .room(let index): (1, index.lastWord)
            case .code(let index): (2, index.lastWord)
            case .shortCodes: (3, 0)
            case .owner(let index): (4, index.lastWord)
            case .device(let index): (5, index.lastWord)
            case .registration(let row): (6, row.purgeID.low)
            case .session(let index): (7, index.lastWord)
            case .timer(let id): (8, id.low)
            case .seen(let index): (9, index.lastWord)
            case .partitions: (10, 0)
            case .schedule: (11, 0)
            case .sweep: (12, 0)
            }
        return Int64(bitPattern: name ^ kind << 56) ^ salt
    }
}

extension PostgresDatabase {
    /// Returns a message if a session that is no broker's holds one of these advisory locks or a writer's lock: who that is, and what to do. Returns nil
    /// if there is no such session, or if it can't be found.
    func foreignHolder(of numbers: [Int64] = []) -> String? {
        let holder = try? read {
            try first(
                """
                SELECT pid::bigint, coalesce(usename::text, '') FROM pg_locks JOIN pg_stat_activity USING (pid)
                WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND (usename IS DISTINCT FROM current_user OR application_name IS DISTINCT FROM current_setting('application_name'))
                AND (objsubid = 2 AND classid::bigint = $1
                OR objsubid = 1 AND (classid::bigint << 32 | objid::bigint)::text = ANY (string_to_array($2, chr(10))))
                ORDER BY pid LIMIT 1
                """, .int(salt), .text(numbers.map(String.init).joined(separator: "\n"))
            ) { (process: $0.int(0), role: $0.text(1)) }
        }
        guard let (process, role) = holder ?? nil else { return nil }
        // Whoever may make roles chooses their names.
        let name = String(role.map { $0.isLetter || $0.isNumber || "_-. ".contains($0) ? $0 : "?" })
        return "the role \"\(name)\" (process \(process)) holds a lock that this broker waits for. End it with SELECT "
            + "pg_terminate_backend(\(process)), and let only the broker's role connect: REVOKE CONNECT ON DATABASE ... FROM PUBLIC"
    }
}

extension Digest {
    /// The last word of an index is random. Its first word is an expiry that many rows share.
    fileprivate var lastWord: UInt64 {
        var word: UInt64 = 0
        withBytes { word = $0.bigEndian64(at: 24) }
        return word
    }
}
