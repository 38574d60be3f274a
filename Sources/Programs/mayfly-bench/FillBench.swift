import Broker
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Storage
import Vocabulary

/// Fills a stopped broker's state folder with accepted rooms whose tokens expire when the sweep is measured.
///
/// Tokens are sealed with the folder's keys and recorded in its log. The rooms' codes are already forgotten.
struct FillBench {
    /// Each transaction touches pages all over the indexes. So it has many rooms, and the cache holds the whole indexes.
    private static let roomsPerTransaction = 20_000
    private static let cacheKiB = 262_144
    private static let destination = Destination.apns(AppID(bundleID: "com.example.app"), .production)

    private let keys: KeyRing
    private let first: UInt64
    private let over: UInt64
    private let rooms: Int

    static func run(_ flags: Flags) async throws {
        let state = try flags.required("state")
        guard let first = try flags.milliseconds("first") else { throw UsageError("--first is missing: see --help") }
        let bench = try FillBench(
            keys: KeyRing.load(path: state + "/keys/ratchet.key"), first: first, over: flags.milliseconds("over") ?? 0,
            rooms: flags.count("rooms", default: 500_000, most: 100_000_000))
        guard File.exists(state + "/mayfly.sqlite") else {
            throw BenchError("there is no database in \(ShownPath(state)): start a broker on this folder once, and stop it")
        }
        let lock = try OpenFile(state, .read)
        guard try lock.tryLock() else { throw BenchError("a broker runs on \(ShownPath(state)): stop it first") }
        try Arena.prepare(webPush: false)
        let start = Clock.monotonicNs
        try await bench.fill(state)
        withExtendedLifetime(lock) {}
        Standard.output("{\"tokens\":\(2 * bench.rooms),\"seconds\":\(Double(Clock.monotonicNs - start) / 1e9)}\n")
    }

    private func fill(_ state: String) async throws {
        let loop = try EventLoop(name: "ledger")
        try loop.start()
        defer { loop.stop() }
        let database = state + "/mayfly.sqlite"
        let store = try SQLiteStore(path: database, resolution: 60, timing: nil, now: { Clock.wallMs })
        let sequencer = Sequencer(
            loop: loop, store: store, folder: LedgerFolder(state + "/ledger"),
            key: try SigningKey.load(state + "/keys/ledger.key"), resolution: 60, time: BrokerTime(persisted: 0),
            metrics: Metrics(), log: Logger { Standard.error($1 + "\n") }, refusals: { [] })
        try await sequencer.flush()
        let rows = try RowLoop(path: database, cacheKiB: Self.cacheKiB)
        var made = 0
        while made < rooms {
            let next = min(made + Self.roomsPerTransaction, rooms)
            try rows.commit { transaction in
                for number in made..<next { try add(number, rows.timing, to: transaction) }
            }
            made = next
        }
        try await sequencer.flush()
        await store.shutDown()
    }

    private func add(_ number: Int, _ timing: LedgerTiming, to transaction: Transaction) throws {
        let expires = first + UInt64(number) * over / UInt64(rooms)
        let id = try RoomID.random(endMs: expires)
        let index = keys.roomIndex(id)
        let tokens = try [UInt8(1), 2].map { try token($0, in: id, index: index, expires: expires, timing) }
        let sides = try zip(["ann", "ben"], tokens).map { client, token in
            SideRecord(
                generation: keys.currentGeneration,
                client: try keys.clientIndex(
                    id, slot: token.record.context.slot, client: Array(client.utf8).span, expiryMs: expires,
                    generation: keys.currentGeneration),
                member: keys.memberHash(try MemberSecret.random()), token: token.record.purgeID)
        }
        let room = RoomRecord(room: index, expires: expires, creator: sides[0], joiner: sides[1])
        try transaction.insert(accepted: room, tokens: tokens)
    }

    private func token(
        _ slot: UInt8, in room: RoomID, index: Digest, expires: UInt64, _ timing: LedgerTiming
    ) throws -> NewToken {
        let ref = Ref.random()
        let until = timing.untilMs(expiryMs: expires)
        let now = Clock.wallMs
        let context = TokenContext(
            generation: keys.currentGeneration, kind: .alert, slot: slot, expiryMs: expires,
            purgeID: ref.purgeID(untilMs: until))
        let address = PushAddress(Self.destination, token: try Secret.random(32))
        let row = TokenRecord(
            context, ref: try keys.sealRef(ref, context: context, room: room), room: index,
            sealed: try keys.sealToken(
                address, ref: ref, sealedAtMs: now, context: context, room: room, size: .apnsOnly),
            isLong: expires > now + 86_400_000)
        return NewToken(row, sealedID: ref.sealedID(untilMs: until))
    }
}
