import Broker
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Storage

/// Fills a stopped broker's state folder with accepted rooms whose tokens expire when the sweep is to be measured: sealed under the
/// folder's keys, their seals in its log. They look as rooms do from ten minutes after their accept on, when the code is forgotten.
struct FillBench {
    /// Many, and all of the indexes in memory: each transaction touches pages all over them.
    private static let roomsPerTransaction = 20_000
    private static let cacheKiB = 262_144
    private static let topic = "com.example.app"

    private let keys: KeyRing
    private let first: UInt64
    private let over: UInt64
    private let rooms: Int

    static func run(_ options: [String: String]) async throws {
        let state = StateFolder(path: try BenchCommand.required(options, "state"))
        let bench = try FillBench(
            keys: KeyRing.load(path: state.ratchetKey),
            first: time(options, "first"), over: options["over"] == nil ? 0 : time(options, "over"),
            rooms: BenchCommand.count(options, "rooms", default: 500_000, most: 100_000_000))
        guard File.exists(state.database) else {
            throw CheckFailed(
                "mayfly: \(state.shown(state.database)) is missing: start a broker on this folder once, and stop it")
        }
        let lock = try FolderLock(state.path)
        try Arena.shared.prepare()
        let start = Clock.monotonicNs
        try await bench.fill(state)
        withExtendedLifetime(lock) {}
        Terminal.out("{\"tokens\":\(2 * bench.rooms),\"seconds\":\(Double(Clock.monotonicNs - start) / 1e9)}")
    }

    private static func time(_ options: [String: String], _ name: String) throws -> UInt64 {
        guard let value = UInt64(try BenchCommand.required(options, name)) else {
            throw UsageError("--\(name) must be whole milliseconds")
        }
        return value
    }

    private func fill(_ state: StateFolder) async throws {
        let loop = try EventLoop(name: "ledger")
        try loop.start()
        defer { loop.stop() }
        let store = try SQLiteStore(path: state.database, resolution: 60, timing: nil, now: { Clock.wallMs })
        let sequencer = Sequencer(
            loop: loop, store: store, folder: LedgerFolder(state.ledger), key: try SigningKey.load(state.ledgerKey),
            resolution: 60, time: BrokerTime(persisted: 0), metrics: Metrics(), log: { Terminal.log($0) }, refusals: { [] })
        try await sequencer.flush()
        let rows = try RowLoop(path: state.database, cacheKiB: Self.cacheKiB)
        var made = 0
        while made < rooms {
            let next = min(made + Self.roomsPerTransaction, rooms)
            try rows.commit(standing: try (made..<next).map { try room($0, rows.timing) })
            made = next
        }
        // All at once: a log's window is sorted.
        try await sequencer.flush()
        await store.shutDown()
    }

    private func room(_ number: Int, _ timing: LedgerTiming) throws -> StandingRoom {
        let id = try RoomID.random()
        let index = keys.roomIndex(id).bytes
        let expires = first + UInt64(number) * over / UInt64(rooms)
        let tokens = try [UInt8(1), 2].map { try token($0, in: id, index: index, expires: expires, timing) }
        let sides = try zip(["ann", "ben"], tokens).map { client, token in
            SideRecord(
                generation: keys.currentGeneration,
                client: try keys.clientIndex(
                    id, slot: token.record.slot, client: Array(client.utf8).span, expiryMs: expires,
                    generation: keys.currentGeneration
                ).bytes,
                member: keys.memberHash(try MemberSecret.random()).bytes, token: token.record.purgeID)
        }
        return StandingRoom(
            room: RoomRecord(room: index, expires: expires, creator: sides[0], joiner: sides[1]), tokens: tokens)
    }

    private func token(
        _ slot: UInt8, in room: RoomID, index: [UInt8], expires: UInt64, _ timing: LedgerTiming
    ) throws -> NewToken {
        let ref = Ref.random()
        let until = timing.untilMs(expiryMs: expires)
        let now = Clock.wallMs
        let context = TokenContext(
            generation: keys.currentGeneration, kind: .alert, environment: .production, slot: slot, expiryMs: expires,
            purgeID: ref.purgeID(untilMs: until), topic: Self.topic)
        let row = TokenRecord(
            purgeID: context.purgeID.bytes, ref: try keys.sealRef(ref, context: context, room: room), room: index, slot: slot,
            kind: context.kind.rawValue, environment: context.environment.rawValue,
            generation: context.generation, expires: expires, topic: context.topic,
            sealed: try keys.sealToken(try Secret.random(32), ref: ref, sealedAtMs: now, context: context, room: room),
            isLong: expires > now + 86_400_000)
        return NewToken(row, sealedID: ref.ledgerID(.sealed(untilMs: until)))
    }
}
