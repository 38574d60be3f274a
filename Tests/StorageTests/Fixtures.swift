import Ledger
import Linux
import Synchronization

@testable import Storage

/// A clock that tests move.
final class TestClock: Sendable {
    private let time: Mutex<UInt64>

    init(_ start: UInt64 = 1_700_000_000_000) { time = Mutex(start) }

    var now: UInt64 { time.withLock { $0 } }
    func advance(_ ms: UInt64) { time.withLock { $0 += ms } }
}

/// A store on a fresh folder, and records to put into it.
struct Fixture {
    let folder: String
    let clock = TestClock()
    let store: SQLiteStore

    init(resolution: UInt64 = 1, waitingLimit: Int = 1_000_000, resumption: Entry.Op? = nil) throws {
        folder = try File.makeTemporaryFolder()
        let clock = clock
        store = try SQLiteStore(
            path: folder + "/mayfly.sqlite", resolution: resolution, waitingLimit: waitingLimit, resumption: resumption,
            now: { clock.now })
    }

    var path: String { folder + "/mayfly.sqlite" }

    func reopen(waitingLimit: Int = 1_000_000) throws -> SQLiteStore {
        let clock = clock
        return try SQLiteStore(path: path, resolution: 1, waitingLimit: waitingLimit, now: { clock.now })
    }

    func close() async throws {
        await store.shutDown()
        try File.removeTree(folder)
    }

    static func blob(_ byte: UInt8, _ count: Int = 32) -> [UInt8] { [UInt8](repeating: byte, count: count) }

    func room(_ id: UInt8, expires: UInt64) -> RoomRecord {
        RoomRecord(
            room: Self.blob(id), expires: expires,
            creator: SideRecord(generation: 1, client: Self.blob(id &+ 1), member: Self.blob(id &+ 2)))
    }

    func code(_ id: UInt8, room: RoomRecord, expires: UInt64, short: Bool = false) -> PendingCode {
        PendingCode(
            code: Self.blob(id &+ 100), expires: expires, room: room.room, roomExpires: room.expires, generation: 1,
            pending: Self.blob(7, 72), creator: Self.blob(8, 72), creatorUntil: expires, short: short)
    }

    func token(_ id: UInt8, room: RoomRecord, slot: UInt8 = 1) -> TokenRecord {
        TokenRecord(
            ref: Self.blob(id, 16), room: room.room, slot: slot, kind: 1, environment: 1, generation: 1,
            expires: room.expires, topic: "com.example.app", sealed: Self.blob(9, 168))
    }

    func job(_ id: UInt8, token: TokenRecord, deadline: UInt64) -> JobRecord {
        JobRecord(
            job: Self.blob(id, 16), deadline: deadline, notBefore: 0, ref: token.ref, room: token.room, slot: token.slot,
            kind: 1, environment: 1, topic: token.topic, template: "peer_waiting", generation: 1, expires: token.expires,
            sealed: Self.blob(5, 168))
    }

    /// An index as `KeyRing.index` makes them: what it is of, and of whom, in 24 bytes behind the expiry.
    static func index(_ label: UInt8, _ name: Int, expires: UInt64) -> [UInt8] {
        (0..<8).map { UInt8(truncatingIfNeeded: expires >> (56 - 8 * $0)) } + [label]
            + (0..<8).map { UInt8(truncatingIfNeeded: name >> (56 - 8 * $0)) } + blob(label, 15)
    }

    static func ref(_ number: Int) -> [UInt8] {
        let bytes = (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
        // The low bytes first, so that order says nothing.
        return bytes.reversed() + bytes
    }

    /// `device`: also its owner's token.
    func registration(
        _ number: Int, owner: Int = 1, device: Int? = nil, session: Int? = nil, kind: UInt8 = 1, life: UInt64 = 60_000
    ) -> RegistrationRecord {
        let expires = clock.now + life
        return RegistrationRecord(
            ref: Self.ref(number), id: Self.ref(number + 1_000_000), audience: Self.index(1, owner, expires: expires),
            owner: Self.index(2, owner, expires: expires), device: Self.index(3, device ?? number, expires: expires),
            session: session.map { Self.index(4, $0, expires: expires) }, kind: kind, environment: 1, generation: 1,
            expires: expires, topic: "com.example.app", sealed: Self.blob(9, 168), details: Self.blob(10, 104))
    }

    @discardableResult
    func register(
        _ record: RegistrationRecord, replacing: [RegistrationRecord] = [], devices: [[UInt8]]? = nil, limit: Int = 100
    ) async throws -> RegisterOutcome {
        try await store.register(
            record, replacing: replacing, devices: devices ?? [record.device], owners: [record.owner], limit: limit)
    }

    /// Registers one, which must go well.
    func registered(_ record: RegistrationRecord) async throws -> RegistrationRecord {
        let outcome = try await register(record)
        guard outcome == .registered else { throw StoreError.unavailable("fixture: \(outcome)") }
        return record
    }

    func job(_ number: Int, _ registration: RegistrationRecord, fields: [UInt8]? = nil) -> JobRecord {
        JobRecord(
            job: Self.ref(number + 2_000_000), deadline: clock.now + 20_000, notBefore: 0, ref: registration.ref, room: [],
            slot: 0,
            kind: registration.kind, environment: 1, topic: registration.topic, template: "task_complete", generation: 1,
            expires: registration.expires, sealed: Self.blob(5, 168), fields: fields)
    }

    func apply(_ change: AudienceChange) async throws -> ChangeOutcome { try await store.apply(change, now: clock.now) }

    /// Makes a room of a minute with a token for its creator.
    @discardableResult
    func create(
        _ id: UInt8, life: UInt64 = 60_000, codeLife: UInt64 = 30_000, answerLife: UInt64? = nil,
        in reopened: SQLiteStore? = nil
    ) async throws -> (RoomRecord, PendingCode, TokenRecord) {
        var room = room(id, expires: clock.now + life)
        var code = code(id, room: room, expires: clock.now + codeLife)
        code.creatorUntil = clock.now + (answerLife ?? codeLife)
        let token = token(id, room: room)
        room.creator.ref = token.ref
        let outcome = try await (reopened ?? store).create(
            room, code: code, otherIndexes: [], token: token, shortLimit: 10, now: clock.now)
        guard outcome == .created else { throw StoreError.unavailable("fixture: \(outcome)") }
        return (room, code, token)
    }

    func accept(_ code: PendingCode, token: TokenRecord? = nil) async throws -> AcceptOutcome {
        try await store.accept(
            code,
            joiner: SideRecord(generation: 1, client: Self.blob(201), member: Self.blob(202), ref: token?.ref), token: token,
            used: UsedCode(
                code: code.code, expires: clock.now + 600_000, retry: Self.blob(6, 104), retryGeneration: 1,
                retryUntil: clock.now + 120_000),
            now: clock.now)
    }

    /// All entries so far, as text, closing their windows.
    func entries() async throws -> [String] {
        clock.advance(1_000)
        return try await store.closedEntries(before: clock.now / 1_000, limit: .max).map {
            String(decoding: $0.bytes, as: UTF8.self)
        }
    }

    func ops() async throws -> [String] {
        try await entries().map { text in
            let start = text.range(of: "\"op\":\"")
            return String(text[start!.upperBound...].prefix { $0 != "\"" })
        }
    }
}

extension Store {
    /// A knock whose push leaves at once.
    func knock(_ job: JobRecord, throttle: UInt64, now: UInt64) async throws(StoreError) -> KnockOutcome {
        try await knock(job, throttle: throttle, now: now, knocked: now)
    }
}

extension String {
    /// The first place of `part`, without Foundation.
    func range(of part: String) -> Range<Index>? {
        indices.first { self[$0...].hasPrefix(part) }.map { $0..<index($0, offsetBy: part.count) }
    }
}
