import EventLoop
import Linux
import Sealing
import Sodium
import Storage
import Testing
import Vocabulary

@testable import Broker
@testable import Ledger

/// A thief with database, key file and published log of a broker with accepted rooms finds no earlier entry of any token: neither its seal nor
/// an opening. Only the later purge has an id that is in the rows.
@Suite struct EarlierEntriesTests {
    // Promise: no-row-to-an-earlier-entry
    @Test func anImageDoesNotLeadToEarlierEntries() async throws {
        try await MachineClock.play("thief", wall: 1_800_000_000_000) { loop, machine in
            try await Theft(loop, machine).play()
        }
    }

    actor Theft: LoopActor {
        nonisolated let loop: EventLoop
        private nonisolated let broker: SimulatedBroker
        private nonisolated let facts = Facts()

        init(_ loop: EventLoop, _ machine: MachineClock) throws {
            self.loop = loop
            broker = try SimulatedBroker(loop: loop, machine: machine, resolution: 1)
        }

        func play() async throws {
            try await broker.start()
            let rooms = try await acceptedRooms(6)
            // Batches are published, pushes have their outcomes, and the write-ahead log was emptied.
            await broker.advance(150_000)
            let log = try await ids()
            let thief = try Image(broker.folder, rooms)
            #expect(thief.rows.count == 2 * rooms.count && log.sealed.count >= thief.rows.count)
            #expect(log.opened.count == rooms.count)

            #expect(thief.contains(log.purged) == 0 && log.purged.isDisjoint(with: thief.purgeIDs))
            #expect(thief.contains(log.sealed.union(log.opened)) == 0, "an id of an earlier entry stands in the image")
            #expect(thief.refs(leadingTo: log) == 0, "something in the image is a ref, or leads to an entry like one")
            let others =
                try thief.rows.map { RoomID(try $0.room.withBytes { bytes throws(SealingError) in try Secret(copying: bytes) }) }
                + [RoomID.random()]
            #expect(thief.refs(openedBy: others).isEmpty, "a ref opens without its room's id")

            // The thief lacks only the room's id.
            let refs = thief.refs(openedBy: rooms.map(\.id))
            #expect(refs.count == thief.rows.count)
            for ref in refs { #expect(log.untils.contains { log.sealed.contains(ref.sealedID(untilMs: $0)) }) }

            for room in rooms { _ = try await broker.run?.broker.rooms.close(room.id) }
            await broker.advance(3_000)
            #expect(try await thief.purgeIDs.isSubset(of: ids().purged), "the later purges are those of the rows")
            await broker.stop()
            await broker.runOut()
            try broker.remove()
        }

        /// Creates rooms with a token on each side. One side of each was knocked at.
        private func acceptedRooms(_ count: Int) async throws -> [Facts.Room] {
            guard let running = await broker.run?.broker else { throw StoreError.closed }
            for _ in 0..<count { try await broker.makeRoom(facts) }
            let rooms = facts.rooms
            for room in rooms {
                let accept = AcceptRoom(
                    joinid: room.code, client: Facts.joiner, address: try .test(Secret.random(32)))
                _ = try await running.rooms.accept(accept, from: .v4(0xc633_6401, port: 9))
                let joiner = Caller(room: room.id, client: Facts.joiner, member: nil)
                #expect(try await running.rooms.report(joiner, leaving: false) == .queued)
            }
            return rooms
        }

        private func ids() async throws -> Published {
            var published = Published()
            for entry in try await broker.entries() {
                switch entry.op {
                case .tokenSealed(let id, let until):
                    published.sealed.insert(id)
                    published.untils.insert(until)
                case .tokenOpened(let id, let job, _):
                    published.opened.insert(id)
                    published.jobs.insert(job)
                case .tokenPurged(let id, _): published.purged.insert(id)
                default: break
                }
            }
            return published
        }
    }

    /// The public log.
    struct Published {
        var sealed: Set<EntryID> = []
        var opened: Set<EntryID> = []
        var purged: Set<EntryID> = []
        var untils: Set<UInt64> = []
        var jobs: Set<JobID> = []
    }

    /// The thief's copy: every byte of database, write-ahead log and key file, and the rows.
    struct Image {
        /// All distinct runs of 16 bytes. Runs with few different bytes are empty pages.
        private let pieces: Set<[UInt8]>
        private let keys: KeyRing
        let rows: [TokenRecord]

        var purgeIDs: Set<EntryID> { Set(rows.map(\.purgeID)) }

        /// - Parameter rooms: tell the test, not the thief, which rows there are.
        init(_ folder: String, _ rooms: [Facts.Room]) throws {
            var bytes: [UInt8] = []
            for name in ["mayfly.sqlite", "mayfly.sqlite-wal", "ratchet.key"] where File.exists("\(folder)/\(name)") {
                bytes += try File.read("\(folder)/\(name)", limit: 1 << 28)
            }
            var pieces: Set<[UInt8]> = []
            for start in 0..<bytes.count - 15 {
                let piece = bytes[start..<start + 16]
                if Set(piece).count > 6 { pieces.insert(Array(piece)) }
            }
            self.pieces = pieces
            let store = try StoreSnapshot(.file(folder + "/mayfly.sqlite"))
            let keys = try KeyRing.load(path: folder + "/ratchet.key", longestLifeSeconds: 86_400)
            rows = try rooms.flatMap { room throws in
                let record = try #require(store.read { try $0.room(keys.roomIndex(room.id)) })
                return try [record.creator, record.joiner].compactMap { side in
                    try side?.token.flatMap { id in try store.read { try $0.token(id, expires: record.expires) } }
                }
            }
            self.keys = keys
        }

        func refs(openedBy rooms: [RoomID]) -> [Ref] {
            rows.flatMap { row in
                rooms.compactMap { room in
                    try? keys.openRef(row.ref.span, context: row.context, room: room)
                }
            }
        }

        /// Returns how many of these ids are in the image.
        func contains(_ ids: Set<EntryID>) -> Int {
            let pieces = pieces
            return ids.count { pieces.contains($0.bytes) }
        }

        /// Returns how many runs lead to an entry if they are used as a ref.
        func refs(leadingTo log: Published) -> Int {
            pieces.count { piece in
                guard let ref = Ref(bytes: piece.span) else { return false }
                return log.untils.contains {
                    log.sealed.contains(ref.sealedID(untilMs: $0))
                        || log.purged.contains(ref.purgeID(untilMs: $0))
                } || log.jobs.contains { log.opened.contains(ref.openedID($0)) }
            }
        }
    }
}
