import Broker
import Courier
import Linux
import Storage
import Synchronization

/// When each key's last provider token was made, kept across restarts so that Apple does not see more than one in twenty minutes. Only the
/// times are stored: a token itself would let a thief of the database push.
actor ProviderTokenMark {
    private static let name = "apns.issued"

    /// Nil: what is noted is forgotten with the process.
    private let store: SQLiteStore?
    /// Unix seconds, by team and key.
    private nonisolated let births: Mutex<[String: UInt64]>

    init(_ store: SQLiteStore) async throws {
        self.store = store
        births = Mutex(try await store.mark(Self.name).map { Self.decode($0) } ?? [:])
    }

    /// What a broker on this state folder has noted, if there is one. A command that pushes takes the same births, and so uses the same tokens.
    init(reading state: StateFolder) {
        store = nil
        guard File.exists(state.database), let snapshot = try? StoreSnapshot(path: state.database) else {
            births = Mutex([:])
            return
        }
        births = Mutex(((try? snapshot.mark(Self.name)) ?? nil).map { Self.decode($0) } ?? [:])
    }

    /// The token of a key, with what is known of its last one, and whose next ones are noted.
    nonisolated func token(_ key: APNsApp.TeamKey) throws(CourierError) -> ProviderToken {
        let name = key.teamID + "." + key.keyID
        let birth = births.withLock { $0[name] }
        return try ProviderToken(keyID: key.keyID, teamID: key.teamID, key: key.key, issuedAtS: birth) { [self] issuedAt in
            await note(name, issuedAt)
        }
    }

    /// All in one row, which is replaced whole; two notes reach the store in the order in which they were taken here.
    private func note(_ name: String, _ issuedAt: UInt64) async {
        let all = births.withLock { births in
            births[name] = issuedAt
            return births
        }
        try? await store?.setMark(Self.name, Self.encode(all))
    }

    /// `TEAM.KEY SECONDS` a line.
    static func encode(_ births: [String: UInt64]) -> [UInt8] {
        Array(births.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)\n" }.joined().utf8)
    }

    /// Lines that are something else say nothing: then another token is made.
    static func decode(_ bytes: [UInt8]) -> [String: UInt64] {
        var births: [String: UInt64] = [:]
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
            let words = line.split(separator: " ")
            if words.count == 2, let seconds = UInt64(words[1]) { births[String(words[0])] = seconds }
        }
        return births
    }
}
