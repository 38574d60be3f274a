import Ledger
import Linux
import Policy
import SQLite
import Synchronization
import TestPostgres
import Vocabulary

@testable import Storage

/// A clock that tests advance.
final class TestClock: Sendable {
    private let time: Mutex<UInt64>

    init(_ start: UInt64 = 1_700_000_000_000) { time = Mutex(start) }

    var now: UInt64 { time.withLock { $0 } }
    func advance(_ ms: UInt64) { time.withLock { $0 += ms } }
    func step(_ ms: Int64) { time.withLock { $0 = UInt64(Int64($0) + ms) } }

    /// This clock as all clocks of a node and the database.
    var clocks: PostgresClocks {
        PostgresClocks(
            agreed: AgreedClock(wall: { self.now }, boot: { self.now }), monotonic: { self.now }, database: { self.now })
    }
}

/// The engines that the contract holds for.
enum Engine: CaseIterable, Sendable { case sqlite, postgres }

/// A store in a temporary folder, or in a schema of its own, with records for it.
struct Fixture {
    let engine: Engine
    let folder: String
    let clock: TestClock
    let store: any Store

    /// - Parameter now: where the clock starts, unix seconds.
    init(
        _ engine: Engine = .sqlite, resolution: UInt64 = 1, timing: LedgerTiming = .standard, waitingLimit: Int = 1_000_000,
        resumption: Entry.Op? = nil, now: UInt64? = nil
    ) throws {
        self.engine = engine
        // Uses memory if possible, since there are thousands of commits.
        folder = try File.makeTemporaryFolder(prefix: File.exists("/dev/shm") ? "../dev/shm/mayfly" : "mayfly")
        clock = now.map { TestClock($0 * 1_000) } ?? TestClock()
        if engine == .postgres { try PostgresStore.makeSchema(uri: TestPostgres.schema(named: folder)) }
        store = try Self.open(
            engine, folder, clock, resolution: resolution, timing: timing, waitingLimit: waitingLimit, resumption: resumption)
    }

    var path: String { folder + "/mayfly.sqlite" }

    func reopen(
        waitingLimit: Int = 1_000_000, resolution: UInt64 = 1, timing: LedgerTiming? = nil, resumption: Entry.Op? = nil,
        clock other: TestClock? = nil
    ) throws -> any Store {
        try Self.open(
            engine, folder, other ?? clock, resolution: resolution, timing: timing, waitingLimit: waitingLimit,
            resumption: resumption)
    }

    private static func open(
        _ engine: Engine, _ folder: String, _ clock: TestClock, resolution: UInt64, timing: LedgerTiming?, waitingLimit: Int,
        resumption: Entry.Op?
    ) throws -> any Store {
        let resumption = resumption.map { [$0] } ?? []
        switch engine {
        case .sqlite:
            return try SQLiteStore(
                path: folder + "/mayfly.sqlite", resolution: resolution, timing: timing, waitingLimit: waitingLimit,
                resumption: resumption, now: { clock.now })
        case .postgres:
            let journal = PostgresJournal(
                uri: try TestPostgres.schema(named: folder), resolution: resolution, limit: waitingLimit,
                resumption: resumption, now: { clock.now }, clocks: clock.clocks)
            return try PostgresStore(journal, timing: timing, connections: 4)
        }
    }

    func close() async throws {
        await store.shutDown()
        try remove()
    }

    /// Deletes everything.
    func remove() throws {
        try File.removeTree(folder)
        if engine == .postgres { try TestPostgres.dropSchema(named: folder) }
    }

    static func blob(_ byte: UInt8, _ count: Int) -> [UInt8] { [UInt8](repeating: byte, count: count) }

    static func blob(_ byte: UInt8) -> Digest { Digest(bytes: blob(byte, 32).span)! }

    /// An id that repeats one byte.
    static func id<ID: OpaqueID>(_ byte: UInt8) -> ID { ID(UInt128(byte) * (.max / 255)) }

    func room(_ id: UInt8, expires: UInt64) -> RoomRecord {
        RoomRecord(
            room: Digest(leading: expires, Self.blob(id)), expires: expires,
            creator: SideRecord(generation: 1, client: Self.blob(id &+ 1), member: Self.blob(id &+ 2)))
    }

    func code(_ id: UInt8, room: RoomRecord, expires: UInt64, short: Bool = false) -> PendingCode {
        PendingCode(
            code: Self.blob(id &+ 100), expires: expires, room: room.room, roomExpires: room.expires, generation: 1,
            pending: Self.blob(7, 72), creator: Self.blob(8, 72), creatorUntil: expires, short: short)
    }

    func token(_ id: UInt8, room: RoomRecord, slot: UInt8 = 1) -> TokenRecord {
        TokenRecord(
            TokenContext(generation: 1, kind: .alert, slot: slot, expiryMs: room.expires, purgeID: Self.id(id)),
            ref: Self.blob(id, 56), room: room.room, sealed: Self.blob(9, 200))
    }

    func job(_ id: UInt8, token: TokenRecord, deadline: UInt64) -> JobRecord {
        JobRecord(
            JobContext(
                generation: 1, job: Self.id(id), purgeID: token.purgeID, kind: .alert, slot: token.context.slot,
                template: "peer_waiting", deadlineMs: deadline, expiryMs: token.expires),
            notBefore: 0, room: token.room, sealed: Self.blob(5, 200))
    }

    /// An index like those of `KeyRing.index`: the expiry, then 24 bytes with label and name.
    static func index(_ label: UInt8, _ name: Int, expires: UInt64) -> Digest {
        Digest(bytes: ([UInt8](bigEndian: expires) + [label] + [UInt8](bigEndian: name) + blob(label, 15)).span)!
    }

    static func ref<ID: OpaqueID>(_ number: Int) -> ID {
        // Byte-swapped, so that the order of ids differs from that of numbers.
        ID(high: UInt64(number).byteSwapped, low: UInt64(number))
    }

    /// - Parameter device: identifies the token too.
    func registration(
        _ number: Int, owner: Int = 1, device: Int? = nil, session: Int? = nil, kind: TokenKind = .alert, life: UInt64 = 60_000,
        from now: UInt64? = nil
    ) -> RegistrationRecord {
        let expires = (now ?? clock.now) + life
        return RegistrationRecord(
            TokenContext(generation: 1, kind: kind, slot: 0, expiryMs: expires, purgeID: Self.ref(number)),
            ref: Self.blob(11, 56), id: Self.ref(number + 1_000_000),
            audience: Self.index(1, owner, expires: expires),
            owner: Self.index(2, owner, expires: expires), device: Self.index(3, device ?? number, expires: expires),
            session: session.map { Self.index(4, $0, expires: expires) },
            sealed: Self.blob(9, 200), details: Self.blob(10, 104))
    }

    @discardableResult
    func register(
        _ record: RegistrationRecord, replacing: [RegistrationRecord] = [], devices: [Digest]? = nil, limit: Int = 100
    ) async throws -> RegisterOutcome {
        try await store.write {
            try $0.register(
                NewRegistration(record), replacing: replacing, devices: devices ?? [record.device], owners: [record.owner],
                limit: limit)
        }
    }

    /// Stores a registration and expects success.
    func registered(_ record: RegistrationRecord) async throws -> RegistrationRecord {
        let outcome = try await register(record)
        guard outcome == .registered else { throw StoreError.unavailable("fixture: \(outcome)") }
        return record
    }

    func job(_ number: Int, _ registration: RegistrationRecord, fields: [UInt8]? = nil) -> JobRecord {
        JobRecord(
            JobContext(
                generation: 1, job: Self.ref(number + 2_000_000), purgeID: registration.purgeID, kind: registration.kind, slot: 0,
                template: "task_complete", deadlineMs: clock.now + 20_000, expiryMs: registration.expires),
            notBefore: 0, room: nil, sealed: Self.blob(5, 200), fields: fields)
    }

    func apply(_ change: AudienceChange) async throws -> ChangeOutcome {
        try await store.write { try $0.apply(change, now: clock.now) }
    }

    /// Creates a room of one minute with a token for its creator.
    @discardableResult
    func create(
        _ id: UInt8, life: UInt64 = 60_000, codeLife: UInt64 = 30_000, answerLife: UInt64? = nil,
        in reopened: (any Store)? = nil
    ) async throws -> (RoomRecord, PendingCode, TokenRecord) {
        var room = room(id, expires: clock.now + life)
        var code = code(id, room: room, expires: clock.now + codeLife)
        code.creatorUntil = clock.now + (answerLife ?? codeLife)
        let token = token(id, room: room)
        room.creator.token = token.purgeID
        let outcome = try await (reopened ?? store).write { [code, room] in
            try $0.create(
                room, code: code, otherIndexes: [], token: token, shortLimit: 10, now: clock.now)
        }
        guard outcome == .created else { throw StoreError.unavailable("fixture: \(outcome)") }
        return (room, code, token)
    }

    func accept(_ code: PendingCode, token: TokenRecord? = nil) async throws -> AcceptOutcome {
        try await store.write {
            try $0.accept(
                code,
                joiner: SideRecord(generation: 1, client: Self.blob(201), member: Self.blob(202), token: token?.purgeID),
                token: token.map { NewToken($0) },
                used: UsedCode(
                    code: code.code, expires: clock.now + 600_000, retry: Self.blob(6, 104), retryGeneration: 1,
                    retryUntil: clock.now + 120_000),
                now: clock.now)
        }
    }

    /// The id of a token's seal or a job's opening in the ledger.
    static func otherID(_ id: some OpaqueID) -> EntryID { EntryID(high: ~id.high, low: ~id.low) }

    /// All waiting entries as text: first of windows, then of batches, each in the log's order.
    func entries() throws -> [String] {
        let windows = try tables().rows("SELECT bytes FROM entry ORDER BY window_start, rank, key") {
            String(decoding: $0.blob(0), as: UTF8.self)
        }
        let batches = try waiting().map { row in
            let op: Entry.Op =
                if let cause = row.entry.cause {
                    .tokenPurged(id: row.entry.id, cause: cause)
                } else {
                    .tokenSealed(id: row.entry.id, untilMs: row.entry.until * 1_000)
                }
            return String(decoding: Entry(atMs: 0, op).encoded, as: UTF8.self)
        }
        return windows + batches
    }

    typealias Waiting = (batch: Int64, rank: UInt8, entry: WaitingEntry)

    /// The entries of batches that are not in the log, by batch, rank and id.
    func waiting() throws -> [Waiting] {
        let tables = try tables()
        if let tables = tables as? SQLiteDatabase { return try tables.allWaiting() }
        return try tables.rows("SELECT batch, rank, id, until, cause FROM unsequenced ORDER BY batch, rank, id") { row in
            let cause = row.isNull(4) ? nil : PurgeCause(column: row.int(4), until: row.time(3))
            return (
                row.int(0), UInt8(row.int(1)), WaitingEntry(id: try row.id(2), until: row.time(3), cause: cause)
            )
        }
    }

    /// The database, besides the store.
    func tables() throws -> any StoreEngine {
        switch engine {
        case .sqlite:
            return try SQLiteDatabase(
                path: path, access: .readOnly, journal: Journal(resolution: 1, timing: .standard, limit: 0, now: { 0 }))
        case .postgres:
            let database = PostgresDatabase(PostgresJournal(uri: try TestPostgres.schema(named: folder)))
            try database.connect()
            return database
        }
    }

    /// Marks all entries before `window` (default: the current one) as published.
    @discardableResult
    func publish(
        _ reopened: (any Store)? = nil, before window: UInt64? = nil, limit: Int = .max
    ) async throws -> [ClosedEntry] {
        let store = reopened ?? store
        var all: [ClosedEntry] = []
        while true {
            let entries = try await store.closedEntries(before: window ?? clock.now / 1_000, limit: limit)
            guard let last = entries.last else { return all }
            let size = try await store.logHead()?.size ?? 0
            let head = LogHead(size: size + UInt64(entries.count), checkpoint: "signed", window: last.window)
            guard try await store.commit(head, after: size, entries: entries) else {
                throw StoreError.unavailable("fixture: another head")
            }
            try await store.published(upTo: head.size)
            all += entries
        }
    }

    func ops() throws -> [String] {
        try entries().map { text in
            let start = text.range(of: "\"op\":\"")
            return String(text[start!.upperBound...].prefix { $0 != "\"" })
        }
    }
}

extension SQLiteDatabase {
    func allWaiting() throws -> [Fixture.Waiting] {
        let batches = try rows("SELECT number, rank, id FROM batch ORDER BY number") { row in
            (number: row.int(0), rank: row.int(1), id: try row.idOrNil(2) as EntryID?)
        }
        var found: [Fixture.Waiting] = []
        for batch in batches {
            for rank in [3, 4] as [UInt8] where rank >= batch.rank {
                var merge = try merge([batch.number], rank: rank, after: rank == batch.rank ? batch.id : nil)
                while let entry = try merge.next()?.entry { found.append((batch.number, rank, entry)) }
            }
        }
        return found
    }
}

extension Transaction {
    func holds(_ row: RowName) throws -> Bool {
        try exists("SELECT 1 FROM registration WHERE expires = $1 AND purge_id = $2", .time(row.expires), .id(row.purgeID))
    }

    /// A knock whose push is sent at once.
    func knock(_ job: JobRecord, throttle: UInt64, now: UInt64) throws -> KnockOutcome {
        try knock(job, throttle: throttle, now: now, knocked: now)
    }

    func knock(_ job: JobRecord, throttle: UInt64, now: UInt64, knocked: UInt64) throws -> KnockOutcome {
        try knock(NewJob(job), throttle: throttle, now: now, knocked: knocked)
    }

    func create(
        _ room: RoomRecord, code: PendingCode, otherIndexes: [Digest], token: TokenRecord, shortLimit: Int, now: UInt64
    ) throws -> CreateOutcome {
        try create(room, code: code, otherIndexes: otherIndexes, token: NewToken(token), shortLimit: shortLimit, now: now)
    }

    /// Returns whether the token was replaced, whatever the token before.
    func replaceToken(room index: Digest, slot: UInt8, proven: Bool, token: TokenRecord) throws -> Bool {
        let previous = try room(index)?[slot]?.token
        return try replaceToken(room: index, slot: slot, proven: proven, previous: previous, token: NewToken(token)) == .replaced
    }

    /// For a token that is registered only under its own index.
    func register(
        _ registration: NewRegistration, replacing: [RegistrationRecord], owners: [Digest], limit: Int
    ) throws -> RegisterOutcome {
        try register(
            registration, replacing: replacing, devices: [registration.record.device], owners: owners, limit: limit)
    }
}

extension NewToken {
    init(_ record: TokenRecord) { self.init(record, sealedID: Fixture.otherID(record.purgeID)) }
}

extension NewRegistration {
    init(_ record: RegistrationRecord) { self.init(record, sealedID: Fixture.otherID(record.purgeID)) }
}

extension NewJob {
    init(_ record: JobRecord) { self.init(record, openedID: Fixture.otherID(record.job)) }
}

extension AudienceJob {
    init(_ job: JobRecord, update: ActivityUpdate? = nil, purge: PurgeCause? = nil) {
        self.init(NewJob(job), update: update, purge: purge)
    }
}

extension String {
    /// The first occurrence of `part`, without Foundation.
    func range(of part: String) -> Range<Index>? {
        utf8.firstRange(of: part.utf8)
    }
}
