import Ledger
import Linux
import Policy
import Sealing
import Storage
import Synchronization
import Testing
import Vocabulary

@testable import Broker

@Suite struct RoomRulesTests {
    // Promise: create-repeated
    @Test func aRepeatedCreateReturnsTheSameRoom() async throws {
        let fixture = try await BrokerFixture()
        let first = try await fixture.create(token: try fixture.token())
        let again = try await fixture.create(token: try fixture.token(9))
        #expect(first.isNew && !again.isNew)
        #expect(first.room == again.room && first.member == again.member && first.ref == again.ref)
        #expect(first.expires == again.expires)
        await #expect(throws: BrokerError.joinCodeInUse) { try await fixture.create(client: "someone else") }
        #expect(try await fixture.store.counts().tokens == 1)
        try await fixture.end()
    }

    /// Others may know the code and a client id. These must not be enough for the creator's secret for long.
    // Promise: create-secrets-until-proof
    @Test func aRepeatedCreateHasNoSecretsAfterTheirFirstUse() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(token: try fixture.token())
        // A call without the secret is no proof.
        _ = try await fixture.broker.rooms.report(fixture.caller(made.room, "creator"), leaving: false)
        #expect(try await fixture.create().member == made.member)
        _ = try await fixture.broker.rooms.report(fixture.caller(made.room, "creator", made.member), leaving: false)
        let again = try await fixture.create(token: try fixture.token(9))
        #expect(again.member == nil && again.ref == nil && !again.isNew)
        #expect(again.room == made.room && again.expires == made.expires && again.joinExpires == made.joinExpires)
        await #expect(throws: BrokerError.joinCodeInUse) { try await fixture.create(client: "someone else") }
        #expect(try await fixture.accept().room == made.room)
        try await fixture.end()
    }

    // Promise: create-secrets-for-two-minutes
    @Test func aRepeatedCreateHasTheSecretsForTwoMinutes() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(token: try fixture.token())
        fixture.clock.advance(119_999)
        #expect(try await fixture.create().member == made.member)
        fixture.clock.advance(1)
        for _ in 0..<2 {
            let again = try await fixture.create()
            #expect(again.member == nil && again.ref == nil && again.room == made.room)
            _ = try await fixture.sweeper.sweep()
        }
        let live = try await fixture.broker.rooms.status(made.room)
        #expect(live.creatorHasToken && !live.accepted)
        try await fixture.end()
    }

    @Test func aCreateReturnsTheCodesExpiry() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(life: 600, codeLife: 300)
        #expect(made.joinExpires == fixture.clock.now + 300_000 && made.expires == fixture.clock.now + 600_000)
        #expect(try await fixture.accept().joinExpires == nil)
        try await fixture.end()
    }

    // Promise: accept-repeated
    @Test func aRepeatedAcceptReturnsTheSameForTwoMinutes() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(life: 3_600)
        let first = try await fixture.accept(token: try fixture.token())
        #expect(first.room == made.room && first.member != made.member)
        let again = try await fixture.accept()
        #expect(again.room == first.room && again.member == first.member && again.ref == first.ref)
        await #expect(throws: BrokerError.roomAlreadyAccepted) { try await fixture.accept(client: "third") }
        fixture.clock.advance(120_000)
        await #expect(throws: BrokerError.roomAlreadyAccepted) { try await fixture.accept() }
        await #expect(throws: BrokerError.joinCodeInUse) { try await fixture.create() }
        fixture.clock.advance(480_000)
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.accept() }
        #expect(try await fixture.create().isNew)
        try await fixture.end()
    }

    @Test func aUsedCodeEndsWithItsRoom() async throws {
        let fixture = try await BrokerFixture()
        _ = try await fixture.create(life: 60, codeLife: 60, token: try fixture.token())
        let made = try await fixture.accept(token: try fixture.token(9))
        #expect(try await fixture.broker.rooms.close(made.room) == 2)
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.accept() }
        _ = try await fixture.create(life: 60, codeLife: 60)
        _ = try await fixture.accept()
        fixture.clock.advance(60_000)
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.accept() }
        _ = try await fixture.sweeper.sweep()
        let isEmpty = try await fixture.store.isEmpty
        #expect(isEmpty)
        try await fixture.end()
    }

    // Promise: codes-end
    @Test func codesExpire() async throws {
        let fixture = try await BrokerFixture()
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.accept("000000") }
        let made = try await fixture.create(codeLife: 10)
        fixture.clock.advance(10_000)
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.accept() }
        _ = try await fixture.sweeper.sweep()
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.broker.rooms.status(made.room) }
        try await fixture.end()
    }

    @Test func aCodeIsFoundOverMidnight() async throws {
        let fixture = try await BrokerFixture()
        let day: UInt64 = 86_400_000
        fixture.clock.advance(day - fixture.clock.now % day - 60_000)
        _ = try fixture.keys.step(nowMs: fixture.clock.now)
        let made = try await fixture.create(life: 7_200, codeLife: 3_600)
        fixture.clock.advance(120_000)
        _ = try fixture.keys.step(nowMs: fixture.clock.now)
        #expect(try await fixture.accept().room == made.room)
        try await fixture.end()
    }

    // Promise: member-secret-required, third-client-refused
    @Test func sidesAreDistinguished() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create()
        await #expect(throws: BrokerError.notAMember) { try await fixture.accept(client: "creator") }
        let joined = try await fixture.accept()
        let broker = fixture.broker
        #expect(try await broker.rooms.authorize(fixture.caller(made.room, "creator"), charging: nil).slot == 1)
        #expect(try await broker.rooms.authorize(fixture.caller(made.room, "joiner"), charging: nil).slot == 2)
        await #expect(throws: BrokerError.notAMember) {
            try await broker.rooms.authorize(fixture.caller(made.room, "third"), charging: nil)
        }
        // Each side has its own member secret.
        await #expect(throws: BrokerError.notAMember) {
            try await broker.rooms.authorize(fixture.caller(made.room, "creator", joined.member), charging: nil)
        }
        // After its first use the member secret is required.
        #expect(try await broker.rooms.authorize(fixture.caller(made.room, "creator", made.member), charging: nil).slot == 1)
        await #expect(throws: BrokerError.memberRequired) {
            try await broker.rooms.authorize(fixture.caller(made.room, "creator"), charging: nil)
        }
        #expect(try await broker.rooms.authorize(fixture.caller(made.room, "joiner"), charging: nil).slot == 2)
        await #expect(throws: BrokerError.roomNotFound) {
            try await broker.rooms.authorize(fixture.caller(try RoomID.random(), "creator"), charging: nil)
        }
        try await fixture.end()
    }

    // Promise: room-ends-on-time
    @Test func aRoomEndsOnTimeWithoutASweep() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(life: 10, codeLife: 10, token: try fixture.token())
        fixture.clock.advance(9_999)
        #expect(try await fixture.broker.rooms.status(made.room).creatorHasToken)
        fixture.clock.advance(1)
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.broker.rooms.status(made.room) }
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.broker.rooms.close(made.room) }
        try await fixture.end()
    }

    // Promise: token-replaced-and-withdrawn, close-once
    @Test func tokensAreReplacedWithdrawnAndClosed() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(token: try fixture.token())
        let (ref, _) = try await fixture.broker.rooms.replaceToken(
            fixture.caller(made.room, "creator"), with: try .test(fixture.token(8), .sandbox))
        #expect(ref != made.ref)
        #expect(try await fixture.broker.rooms.withdrawToken(fixture.caller(made.room, "creator")) == 1)
        #expect(try await fixture.broker.rooms.withdrawToken(fixture.caller(made.room, "creator")) == 0)
        _ = try await fixture.accept(token: try fixture.token(9))
        #expect(try await fixture.broker.rooms.close(made.room) == 1)
        await #expect(throws: BrokerError.roomNotFound) { try await fixture.broker.rooms.close(made.room) }
        try await fixture.end()
    }

    @Test func guessingHasABudget() async throws {
        let fixture = try await BrokerFixture()
        let limit = fixture.broker.policies.rooms.wrongCodes.perAddress.count
        for guess in 0..<limit {
            await #expect(throws: BrokerError.roomNotFound) { try await fixture.accept("guess\(guess)") }
        }
        await #expect(throws: BrokerError.self) { try await fixture.accept("guess") }
        // A creation is a guess, too, because it reveals whether a code is in use.
        let error = await #expect(throws: BrokerError.self) { try await fixture.create("free-code") }
        #expect(error?.code == "too_many_requests" && (error?.retryAfter ?? 0) > 0)
        try await fixture.end()
    }

    @Test func guessersDoNotAffectLongCodes() async throws {
        let fixture = try await BrokerFixture()
        let overall = fixture.broker.policies.rooms.wrongCodes.overall.count
        for guess in 0..<overall {
            let address = SocketAddress.v4(0x0a00_0000 + UInt32(guess), port: 1)
            let request = AcceptRoom(joinid: Array("g\(guess)".utf8), client: [1], address: nil)
            await #expect(throws: BrokerError.roomNotFound) { try await fixture.broker.rooms.accept(request, from: address) }
        }
        let error = await #expect(throws: BrokerError.self) { try await fixture.accept("1234567") }
        #expect(error?.code == "too_many_requests")
        _ = try await fixture.create("a-long-code")
        #expect(try await fixture.accept("a-long-code").isNew)
        try await fixture.end()
    }

    @Test func aWithdrawnTokenGetsNoPush() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(token: try fixture.token())
        _ = try await fixture.accept()
        #expect(try await fixture.broker.rooms.report(fixture.caller(made.room, "joiner"), leaving: false) == .queued)
        #expect(try await fixture.store.read { try $0.jobs() }.count == 1)
        #expect(try await fixture.broker.rooms.withdrawToken(fixture.caller(made.room, "creator")) == 1)
        // Nothing listens at the push's destination, so the push was waiting for its next attempt.
        for _ in 0..<400 where try await !fixture.store.read({ try $0.jobs() }).isEmpty {
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(try await fixture.store.read { try $0.jobs() }.isEmpty)
        try await fixture.end()
    }

    @Test func aRoomThatEndsDuringAJoinKeepsNoSocket() async throws {
        let sockets = ClosingSockets()
        let fixture = try await BrokerFixture(sockets: sockets)
        let broker = fixture.broker
        sockets.broker.withLock { $0 = broker }
        for round in 0..<40 {
            let made = try await fixture.create("round-\(round)")
            let caller = fixture.caller(made.room, "creator", made.member)
            async let joining = try? broker.rooms.join(caller, socket: UInt64(round), isOpen: { true })
            async let closing = try? broker.rooms.close(made.room)
            _ = await (joining, closing)
        }
        #expect(await broker.presence.socketCount == 0)
        try await fixture.end()
    }

    @Test func shortLivedSocketsReplaceNoOther() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(token: try fixture.token())
        _ = try await fixture.accept()
        let creator = fixture.caller(made.room, "creator")
        _ = try await fixture.broker.rooms.join(creator, socket: 1, isOpen: { true })
        for socket: UInt64 in 2..<40 {
            async let joining = try? fixture.broker.rooms.join(creator, socket: socket, isOpen: { true })
            async let leaving: Void = fixture.broker.presence.leave(socket: socket, isDeliberate: true)
            _ = await (joining, leaving)
            await fixture.broker.presence.leave(socket: socket, isDeliberate: true)
            fixture.clock.advance(1_000)
        }
        #expect(try await fixture.broker.rooms.status(made.room).creatorPresent)
        #expect(await fixture.broker.presence.socketCount == 1)
        try await fixture.end()
    }

    // Promise: presence-delivery
    @Test func onlyAnAbsentPeerIsKnockedAt() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(token: try fixture.token())
        _ = try await fixture.accept()
        let (creator, joiner) = (fixture.caller(made.room, "creator"), fixture.caller(made.room, "joiner"))
        #expect(try await fixture.broker.rooms.report(creator, leaving: false) == .noToken)
        #expect(try await fixture.broker.rooms.report(joiner, leaving: false) == .peerPresent)
        // The report lapses, and then the grace ends.
        for wait: UInt64 in [45_000, 5_000] {
            fixture.clock.advance(wait)
            _ = try await fixture.broker.rooms.status(made.room)
        }
        #expect(try await fixture.broker.rooms.report(joiner, leaving: false) == .queued)
        #expect(try await fixture.broker.rooms.report(joiner, leaving: false) == .throttled)
        // Otherwise the throttled knock would be retried.
        #expect(try await fixture.broker.rooms.report(joiner, leaving: true) == .none)
        fixture.clock.advance(30_000)
        #expect(try await fixture.broker.rooms.report(joiner, leaving: false) == .queued)
        #expect(try await fixture.store.read { try $0.jobs() }.count == 2)
        try await fixture.end()
    }

    /// A knock that can't leave in time is refused before anything is opened or stored. A socket may join nevertheless.
    @Test func aFullQueueRefusesKnocks() async throws {
        let fixture = try await BrokerFixture()
        let made = try await fixture.create(token: try fixture.token())
        _ = try await fixture.accept(token: try fixture.token(8))
        await fixture.broker.outbox.fill(leaving: 0)
        await #expect(throws: BrokerError.tooManyPushes) {
            try await fixture.broker.rooms.report(fixture.caller(made.room, "joiner"), leaving: false)
        }
        let joined = try await fixture.broker.rooms.join(fixture.caller(made.room, "joiner"), socket: 1) { true }
        #expect(joined?.delivery == .throttled)
        #expect(try await fixture.store.read { try $0.jobs() }.isEmpty)
        #expect(BrokerError.tooManyPushes.status == 503 && BrokerError.tooManyPushes.retryAfter != nil)
        await fixture.broker.outbox.fill(leaving: 1)
        #expect(try await fixture.broker.rooms.report(fixture.caller(made.room, "joiner"), leaving: false) == .queued)
        try await fixture.end()
    }

    @Test func refusalsReachTheLedgerRoundedAndOnce() async throws {
        let fixture = try await BrokerFixture()
        for _ in 0..<123 { fixture.broker.recordRefusal(.notAMember) }
        fixture.broker.recordRefusal(.malformedJSON("line 1, column 1: a digit is expected here"))
        #expect(fixture.broker.takeRefusals() == [.requestRefused(cause: .forbidden, count: 120)])
        #expect(fixture.broker.takeRefusals().isEmpty)
        try await fixture.end()
    }
}

extension SQLiteStore {
    /// True if no row of any room is left.
    var isEmpty: Bool {
        get async throws {
            let counts = try await counts()
            let next = try await nextExpiry(jobSlack: 0)
            return counts.rooms + counts.tokens + counts.codes + counts.jobs == 0 && next == nil
        }
    }
}

/// Sockets that close when their room is closed.
private final class ClosingSockets: RoomSockets {
    let broker = Mutex<Broker?>(nil)

    func send(_ socket: UInt64, _ event: RoomEvent) async {
        if event == .roomClosed { await broker.withLock(\.self)?.presence.leave(socket: socket, isDeliberate: true) }
    }
    func ping(_ socket: UInt64, _ number: UInt64) async {}
    func close(_ socket: UInt64) async {}
}

extension Rooms {
    /// Makes every room look as if it was accepted a while ago.
    func forgetAccepts() { knockDelays.accepts = [:] }
}
