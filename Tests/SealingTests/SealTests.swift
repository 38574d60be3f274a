import Linux
import Sodium
import Testing
import Vocabulary

@testable import Sealing

@Suite struct SealTests {
    private let folder: KeyFolder
    private let ring: KeyRing
    private let room: RoomID
    private let start = KeyFolder.startMs
    private let expiry = KeyFolder.startMs + 3_600_000
    private let ref = Ref(high: 5, low: 6)

    init() throws {
        folder = try KeyFolder()
        ring = try folder.load()
        room = try .random()
    }

    private var context: TokenContext {
        TokenContext(generation: 1, kind: .alert, slot: 1, expiryMs: expiry, purgeID: EntryID(high: 1, low: 2))
    }

    private var jobContext: JobContext {
        JobContext(
            generation: 1, job: JobID(high: 3, low: 4), purgeID: EntryID(high: 1, low: 2), kind: .alert, slot: 1,
            template: "waiting", deadlineMs: start + 120_000, expiryMs: expiry)
    }

    private func seal(_ token: [UInt8]) throws -> [UInt8] {
        try ring.sealToken(.at(token), ref: ref, sealedAtMs: start, context: context, room: room, size: .apnsOnly)
    }

    // Promise: tokens-padded, ref-sealed-with-the-token
    @Test(arguments: [1, 32, 99, 100]) func tokensAreReopened(count: Int) throws {
        let token = Sodium.randomBytes(count)
        let sealed = try seal(token)
        #expect(sealed.count == 200)
        let opened = try ring.open(sealed, context, room)
        #expect(try opened.address == .at(token) && opened.ref == ref && opened.sealedAtMs == start)
        #expect(try seal(token) != sealed)
        // Another process with the same file can open it.
        #expect(try folder.load().open(sealed, context, room).address == .at(token))
    }

    /// A repeated call returns the ref without opening the token.
    // Promise: ref-in-its-own-box
    @Test func refsOpenOnlyInTheirRow() throws {
        let sealed = try ring.sealRef(ref, context: context, room: room)
        #expect(try sealed.count == 56 && sealed != ring.sealRef(ref, context: context, room: room))
        func open(_ sealed: [UInt8], _ context: TokenContext, _ room: RoomID) throws -> Ref {
            try ring.openRef(sealed.span, context: context, room: room)
        }
        #expect(try open(sealed, context, room) == ref)
        let edits: [(inout TokenContext) -> Void] = [
            { $0.generation = 2 }, { $0.slot = 2 }, { $0.expiryMs += 1 }, { $0.expiryMs += 300_000 },
            { $0.purgeID = EntryID(high: 1, low: 3) },
        ]
        for (number, edit) in edits.enumerated() {
            var changed = context
            edit(&changed)
            #expect(throws: SealingError.doesNotOpen, "edit \(number)") { try open(sealed, changed, room) }
        }
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 0x01
            #expect(throws: SealingError.doesNotOpen) { try open(changed, context, room) }
        }
        let other = try RoomID.random()
        #expect(throws: SealingError.doesNotOpen) { try open(sealed, context, other) }
        #expect(throws: SealingError.doesNotOpen) { try open(seal([1]), context, room) }
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, context, room) }

        var audience = context
        audience.slot = 0
        let user = "user-1".bytes
        let sealedForUser = try ring.sealRef(ref, context: audience, audience: user.span)
        #expect(try ring.openRef(sealedForUser.span, context: audience, audience: user.span) == ref)
        #expect(throws: SealingError.doesNotOpen) {
            try ring.openRef(sealedForUser.span, context: audience, audience: "user-2".bytes.span)
        }
        _ = try ring.step(nowMs: expiry + 600_000)
        #expect(throws: SealingError.doesNotOpen) { try open(sealed, context, room) }
    }

    @Test func paddingBytesInTokensAreKept() throws {
        for token in [[0x80], [0x80, 0], [0, 0, 0], [0x80, 0x80, 0]] as [[UInt8]] {
            #expect(try ring.open(seal(token), context, room).address == .at(token))
        }
    }

    @Test func changedBytesAreRefused() throws {
        let sealed = try seal([1, 2, 3])
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 0x01
            #expect(throws: SealingError.doesNotOpen) { try ring.open(changed, context, room) }
        }
        for count in [0, 1, 39, 40, 168, 199] {
            #expect(throws: SealingError.doesNotOpen) { try ring.open(Array(sealed.prefix(count)), context, room) }
        }
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed + [0], context, room) }
    }

    // Promise: row-bound-to-its-place
    @Test func aMovedOrEditedRowDoesNotOpen() throws {
        let sealed = try seal([1, 2, 3])
        let edits: [(inout TokenContext) -> Void] = [
            { $0.generation = 2 }, { $0.kind = .voip }, { $0.slot = 2 }, { $0.slot = 0 },
            { $0.expiryMs += 1 }, { $0.expiryMs += 300_000 }, { $0.expiryMs = .max }, { $0.expiryMs = 0 },
            { $0.purgeID = EntryID(high: 1, low: 3) }, { $0.purgeID = EntryID(high: 0, low: 2) },
        ]
        for (number, edit) in edits.enumerated() {
            var changed = context
            edit(&changed)
            #expect(throws: SealingError.doesNotOpen, "edit \(number)") { try ring.open(sealed, changed, room) }
        }
        let other = try RoomID.random()
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, context, other) }
        #expect(throws: SealingError.doesNotOpen) { try KeyFolder().load().open(sealed, context, room) }
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, context, audience: room.secret.plain) }
    }

    @Test func generationsHaveDifferentKeys() throws {
        let sealed = try seal([1, 2, 3])
        _ = try ring.step(nowMs: start + KeyFolder.dayMs)
        var later = context
        later.generation = 2
        later.expiryMs += KeyFolder.dayMs
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, later, room) }
        var old = later
        old.generation = 1
        let token = try PushAddress.at([9])
        let inOld = try ring.sealToken(token, ref: ref, sealedAtMs: start, context: old, room: room, size: .apnsOnly)
        #expect(try ring.open(inOld, old, room).address == token)
        #expect(throws: SealingError.doesNotOpen) { try ring.open(inOld, later, room) }
        later.generation = 3
        #expect(throws: SealingError.outOfReach) {
            try ring.sealToken(token, ref: ref, sealedAtMs: start, context: later, room: room, size: .apnsOnly)
        }
    }

    // Promise: nothing-after-the-expiry
    @Test func nothingOpensTenMinutesAfterItsExpiry() throws {
        let sealed = try seal([1, 2, 3])
        _ = try ring.step(nowMs: expiry)
        #expect(try ring.open(sealed, context, room).address == .at([1, 2, 3]))
        _ = try ring.step(nowMs: expiry + 600_000)
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, context, room) }
        #expect(throws: SealingError.doesNotOpen) { try folder.load().open(sealed, context, room) }
        #expect(throws: SealingError.outOfReach) { try seal([1]) }
    }

    // Promise: audience-key
    @Test func audiencesNeedNoRoom() throws {
        var context = context
        context.slot = 0
        let token = try PushAddress.at([5, 6])
        let sealed = try ring.sealToken(
            token, ref: ref, sealedAtMs: start, context: context, audience: "user-1".bytes.span, size: .apnsOnly)
        #expect(try ring.open(sealed, context, audience: "user-1".bytes).address == token)
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, context, audience: "user-2".bytes) }
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, context, room) }
    }

    // Promise: room-id-sealed-under-the-code
    @Test func pendingRoomsOpenOnlyWithTheirCode() throws {
        let code = try ring.codes("123456", nowMs: start)[0]
        let other = try ring.codes("123457", nowMs: start)[0]
        func open(_ sealed: [UInt8], _ joinID: String, _ expiry: UInt64, _ index: Digest) throws -> RoomID {
            try ring.openPending(sealed.span, joinID: joinID.bytes.span, expiryMs: expiry, generation: 1, codeIndex: index)
        }
        let sealed = try ring.sealPending(room, joinID: "123456".bytes.span, expiryMs: expiry, generation: 1, codeIndex: code)
        #expect(sealed.count == 72)
        #expect(try open(sealed, "123456", expiry, code) == room)
        #expect(throws: SealingError.doesNotOpen) { try open(sealed, "123457", expiry, code) }
        #expect(throws: SealingError.doesNotOpen) { try open(sealed, "123456", expiry + 1, code) }
        #expect(throws: SealingError.doesNotOpen) { try open(sealed, "123456", expiry, other) }
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 0x80
            #expect(throws: SealingError.doesNotOpen) { try open(changed, "123456", expiry, code) }
        }
        // A creator's secret has the same length but another label.
        #expect(throws: SealingError.doesNotOpen) {
            try ring.openCreator(
                sealed.span, joinID: "123456".bytes.span, client1: "a".bytes.span, untilMs: expiry, generation: 1,
                codeIndex: code)
        }
    }

    // Promise: lost-answer-sealed
    @Test func creatorsAndJoinersGetOnlyTheirOwnAnswer() throws {
        let code = try ring.codes("123456", nowMs: start)[0]
        let (joinID, member) = ("123456".bytes, try MemberSecret.random())
        let creator = try ring.sealCreator(
            member, joinID: joinID.span, client1: "alice".bytes.span, untilMs: expiry, generation: 1, codeIndex: code)
        func openCreator(_ client: String) throws -> MemberSecret {
            try ring.openCreator(
                creator.span, joinID: joinID.span, client1: client.bytes.span, untilMs: expiry, generation: 1, codeIndex: code)
        }
        #expect(creator.count == 72)
        #expect(try openCreator("alice") == member)
        for other in ["alicf", "", "alice\0"] {
            #expect(throws: SealingError.doesNotOpen) { try openCreator(other) }
        }

        let until = start + 120_000
        let retry = try ring.sealRetry(
            room, member, joinID: joinID.span, client2: "bob".bytes.span, untilMs: until, generation: 1, codeIndex: code)
        func openRetry(_ client: String, until: UInt64) throws -> (room: RoomID, member: MemberSecret) {
            try ring.openRetry(
                retry.span, joinID: joinID.span, client2: client.bytes.span, untilMs: until, generation: 1, codeIndex: code)
        }
        #expect(retry.count == 104)
        let opened = try openRetry("bob", until: until)
        #expect(opened.room == room && opened.member == member)
        #expect(throws: SealingError.doesNotOpen) { try openRetry("alice", until: until) }
        #expect(throws: SealingError.doesNotOpen) { try openRetry("bob", until: until + 1) }
        _ = try ring.step(nowMs: until + 600_000)
        #expect(throws: SealingError.doesNotOpen) { try openRetry("bob", until: until) }
    }

    // Promise: job-key
    @Test func jobsOpenOnlyUnchanged() throws {
        let address = try PushAddress.at(Sodium.randomBytes(100))
        let content = JobContent(address: address, sealedAtMs: start, handle: Handle(1))
        let sealed = try ring.sealJob(content, context: jobContext, size: .apnsOnly)
        #expect(sealed.count == 200)
        let opened = try ring.open(sealed, jobContext)
        #expect(opened.address == address && opened.sealedAtMs == start && opened.handle == content.handle)
        let edits: [(inout JobContext) -> Void] = [
            { $0.generation = 2 }, { $0.job = JobID(high: 3, low: 5) }, { $0.purgeID = EntryID(high: 0, low: 2) },
            { $0.kind = .liveActivity }, { $0.slot = 2 }, { $0.template = "waitinG" }, { $0.template = "" },
            { $0.deadlineMs += 1 }, { $0.expiryMs += 1 }, { $0.deadlineMs = 0 }, { $0.deadlineMs = .max },
        ]
        for (number, edit) in edits.enumerated() {
            var changed = jobContext
            edit(&changed)
            #expect(throws: SealingError.doesNotOpen, "edit \(number)") { try ring.open(sealed, changed) }
        }
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 0x10
            #expect(throws: SealingError.doesNotOpen) { try ring.open(changed, jobContext) }
        }
        _ = try ring.step(nowMs: jobContext.deadlineMs + 600_000)
        #expect(throws: SealingError.doesNotOpen) { try ring.open(sealed, jobContext) }
    }

    // Promise: same-apns-id
    @Test func apnsIDsAreUUIDsUntilTheEpochEnds() throws {
        let job = JobID.random()
        let id = try ring.apnsID(job, deadlineMs: start + 120_000, generation: 1)
        #expect(try folder.load().apnsID(job, deadlineMs: start + 120_000, generation: 1) == id)
        #expect(try ring.apnsID(JobID.random(), deadlineMs: start + 120_000, generation: 1) != id)
        let parts = id.split(separator: "-")
        #expect(parts.map(\.count) == [8, 4, 4, 4, 12])
        #expect(parts[2].first == "8" && "89ab".contains(parts[3].first!))
        #expect(id == id.lowercased())
        _ = try ring.step(nowMs: start + 720_000)
        #expect(throws: SealingError.outOfReach) { try ring.apnsID(job, deadlineMs: start + 120_000, generation: 1) }
    }

    @Test func indexesDependOnEachPart() throws {
        let all = [
            try ring.client(room, slot: 1, "a", expiryMs: expiry), try ring.client(room, slot: 2, "a", expiryMs: expiry),
            try ring.client(room, slot: 1, "b", expiryMs: expiry),
            try ring.client(room, slot: 1, "a", expiryMs: expiry + 300_000),
            try ring.client(RoomID.random(), slot: 1, "a", expiryMs: expiry), ring.roomIndex(room), ring.roomIndex(try .random()),
            ring.memberHash(MemberSecret(room.secret)),
        ]
        #expect(Set(all).count == all.count)
        #expect(ring.roomIndex(room) == ring.roomIndex(RoomID(try .copy(room.secret.plain))))
    }

    @Test func roomIDsAndIndexesBeginWithTheEnd() throws {
        for end: UInt64 in [0, 1, expiry, (1 << 48) - 1] {
            let (one, two) = (try RoomID.random(endMs: end), try RoomID.random(endMs: end))
            #expect(one.endMs == end && one != two)
            #expect(Array(one.secret.plain[..<6]) == Array([UInt8](bigEndian: end)[2...]))
            let index = ring.roomIndex(one)
            #expect(Array(index.bytes[..<8]) == [UInt8](bigEndian: end) && index != ring.roomIndex(two))
        }
        let ids = try (0..<64).map { _ in try RoomID.random(endMs: expiry).secret.plain }
        for place in 6..<32 { #expect(Set(ids.map { $0[place] }).count > 32, "byte \(place) is random") }
    }

    @Test func handlesDifferByRoomKindAndSlot() throws {
        let handles = [
            ring.handle(room, kind: "room", slot: 1), ring.handle(room, kind: "room", slot: 2),
            ring.handle(room, kind: "call", slot: 1),
            ring.handle(try .random(), kind: "room", slot: 1),
            ring.handle(key: room.secret, kind: "room", slot: 1, id: [1].span),
        ]
        #expect(Set(handles).count == handles.count)
    }
}
