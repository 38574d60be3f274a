import Linux
import Sealing
import Storage
import Vocabulary

/// Measures a bare SQLite loop that writes the rows of creates and accepts: as large, as many and as durable as the broker's, but unsealed.
enum RowsBench {
    static func run(_ flags: Flags) throws {
        let path = try flags.required("database")
        let pairs = try flags.count("pairs-per-transaction", default: 1)
        let seconds = try flags.count("seconds", default: 5)
        guard !File.exists(path) else { throw BenchError("\(ShownPath(path)) exists: name a new file") }

        let loop = try RowLoop(path: path)
        var random = FastRandom(state: UInt64(truncatingIfNeeded: Clock.monotonicNs))
        var made: [RoomRows] = []
        var accepted = 0
        var transactions = 0
        var (elapsed, spent): (UInt64, UInt64) = (0, 0)
        while elapsed < UInt64(seconds) * 1_000_000_000 {
            // Making rows isn't measured. Each transaction accepts the rooms of the previous one.
            let new = (0..<pairs).map { _ in rows(&random) }
            let (start, startCPU) = (Clock.monotonicNs, Clock.processNs)
            try loop.commit { transaction in
                for rows in new { try transaction.insert(rows.room, code: rows.code, token: rows.creatorToken) }
                for rows in made {
                    let outcome = try transaction.accept(
                        rows.code, joiner: rows.joiner, token: rows.joinerToken, used: rows.used, now: Clock.wallMs)
                    guard outcome == .accepted else { throw BenchError("a room that was just created can't be accepted") }
                }
            }
            elapsed += Clock.monotonicNs - start
            spent += Clock.processNs - startCPU
            accepted += made.count
            transactions += 1
            made = new
        }
        Standard.output(
            """
            {"pairs":\(accepted),"transactions":\(transactions),"seconds":\(Double(elapsed) / 1e9),"cpuSeconds":\(Double(spent) / 1e9)}

            """)
    }

    /// The rows of one room, from its creation to its acceptance.
    private struct RoomRows {
        let room: RoomRecord
        let code: PendingCode
        let creatorToken: NewToken
        let joiner: SideRecord
        let joinerToken: NewToken
        let used: UsedCode
    }

    private static func rows(_ random: inout FastRandom) -> RoomRows {
        let now = Clock.wallMs
        let expires = now + 600_000
        let (room, code) = (Digest(leading: expires, random.digest()), random.digest())
        func token(_ slot: UInt8) -> NewToken {
            let row = TokenRecord(
                TokenContext(generation: 1, kind: .alert, slot: slot, expiryMs: expires, purgeID: random.id()),
                ref: random.bytes(KeyRing.sealedRefCount), room: room, sealed: random.bytes(AddressSize.apnsOnly.sealedCount))
            return NewToken(row, sealedID: random.id())
        }
        let (creatorToken, joinerToken) = (token(1), token(2))
        let creator = SideRecord(
            generation: 1, client: random.digest(), member: random.digest(), token: creatorToken.record.purgeID)
        return RoomRows(
            room: RoomRecord(room: room, expires: expires, creator: creator),
            code: PendingCode(
                code: code, expires: expires, room: room, roomExpires: expires, generation: 1,
                pending: random.bytes(KeyRing.sealedSecretCount), creator: random.bytes(KeyRing.sealedSecretCount),
                creatorUntil: now + 120_000, short: false),
            creatorToken: creatorToken,
            joiner: SideRecord(
                generation: 1, client: random.digest(), member: random.digest(), token: joinerToken.record.purgeID),
            joinerToken: joinerToken,
            used: UsedCode(
                code: code, expires: expires, retry: random.bytes(KeyRing.sealedPairCount), retryGeneration: 1,
                retryUntil: now + 120_000))
    }
}
