import Ledger
import Linux
import SQLite
import Testing
import Vocabulary

@testable import Storage

/// Operations on rooms through the protocol `Store`.
@Suite struct StoreContractTests {
    @Test(arguments: Engine.allCases) func aRoomIsFoundUnchanged(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, code, token) = try await fixture.create(1)
        var stored = room
        stored.codeExpires = code.expires
        #expect(try await fixture.store.read { try $0.room(room.room) } == stored)
        #expect(try await fixture.store.read { try $0.token(token.purgeID, expires: token.expires) } == token)
        #expect(try await fixture.store.read { try $0.joinable([code.code], now: fixture.clock.now)?.code } == .pending(code))
        #expect(try await fixture.store.read { try $0.room(Fixture.blob(99)) } == nil)
        #expect(try fixture.ops() == ["token.sealed"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aTakenCodeIsReturnedAndNothingIsStored(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, code, _) = try await fixture.create(1)
        let other = fixture.room(40, expires: fixture.clock.now + 60_000)
        var second = fixture.code(40, room: other, expires: fixture.clock.now + 30_000)
        second.code = Fixture.blob(77)
        // It is found under yesterday's index too.
        let outcome = try await fixture.store.write { [second] in
            try $0.create(
                other, code: second, otherIndexes: [code.code], token: fixture.token(40, room: other), shortLimit: 10,
                now: fixture.clock.now)
        }
        #expect(outcome == .taken(.pending(code)))
        #expect(try await fixture.store.read { try $0.room(other.room) } == nil)
        #expect(try await fixture.store.counts().tokens == 1)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anExpiredCodeCanBeReused(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (old, code, token) = try await fixture.create(1, codeLife: 10_000)
        fixture.clock.advance(10_000)
        #expect(try await fixture.store.read { try $0.joinable([code.code], now: fixture.clock.now)?.code } == nil)
        let room = fixture.room(50, expires: fixture.clock.now + 60_000)
        var next = fixture.code(50, room: room, expires: fixture.clock.now + 30_000)
        next.code = code.code
        let again = next
        #expect(
            try await fixture.store.write {
                try $0.create(room, code: again, otherIndexes: [], token: nil, shortLimit: 10, now: fixture.clock.now)
            }
                == .created)
        #expect(try await fixture.store.read { try $0.room(old.room) } == nil)
        #expect(try await fixture.store.read { try $0.token(token.purgeID, expires: token.expires) } == nil)
        #expect(try fixture.ops() == ["token.sealed", "token.purged"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func shortCodesAreLimited(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        for id: UInt8 in [1, 20] {
            let room = fixture.room(id, expires: fixture.clock.now + 60_000)
            let code = fixture.code(id, room: room, expires: fixture.clock.now + 30_000, short: true)
            let outcome = try await fixture.store.write {
                try $0.create(
                    room, code: code, otherIndexes: [], token: nil, shortLimit: 1, now: fixture.clock.now)
            }
            #expect(outcome == (id == 1 ? .created : .tooManyShort))
        }
        #expect(try await fixture.store.counts().rooms == 1)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func acceptHappensOnce(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, code, _) = try await fixture.create(1)
        let token = fixture.token(30, room: room, slot: 2)
        #expect(try await fixture.accept(code, token: token) == .accepted)
        #expect(try await fixture.accept(code, token: fixture.token(31, room: room, slot: 2)) == .changed)
        let joined = try await fixture.store.read { try $0.room(room.room) }
        #expect(joined?.joiner?.token == token.purgeID)
        #expect(try await fixture.store.counts().tokens == 2)
        guard case .used(let used) = try await fixture.store.read({ try $0.joinable([code.code], now: fixture.clock.now)?.code })
        else {
            Issue.record("the code is not used")
            return
        }
        #expect(used.retry == Fixture.blob(6, 104))
        fixture.clock.advance(120_000)
        guard case .used(let later) = try await fixture.store.read({ try $0.joinable([code.code], now: fixture.clock.now)?.code })
        else {
            Issue.record("the code is free too early")
            return
        }
        #expect(later.retry == nil)
        fixture.clock.advance(480_000)
        #expect(try await fixture.store.read { try $0.joinable([code.code], now: fixture.clock.now)?.code } == nil)
        try await fixture.close()
    }

    // Promise: room-id-sealed-under-the-code
    @Test func anAcceptedRoomForgetsItsCode() async throws {
        let fixture = try Fixture()
        let (room, code, _) = try await fixture.create(1, life: 3_600_000)
        #expect(try await fixture.accept(code) == .accepted)
        fixture.clock.advance(600_000)
        _ = try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0)
        #expect(try await fixture.store.read { try $0.room(room.room) } != nil)
        await fixture.store.shutDown()
        let tables = try SQLiteConnection(path: fixture.path, access: .readOnly)
        let left = try tables.prepare("SELECT count(*) FROM room WHERE code IS NOT NULL OR retry IS NOT NULL OR due IS NOT NULL")
        #expect(try left.step() && left.int(0) == 0)
        try fixture.remove()
    }

    @Test(arguments: Engine.allCases) func twoConcurrentAcceptsHaveOneWinner(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, code, _) = try await fixture.create(1)
        let outcomes = try await withThrowingTaskGroup(of: AcceptOutcome.self) { group in
            for _ in 0..<16 { group.addTask { try await fixture.accept(code) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(outcomes.count(where: { $0 == .accepted }) == 1)
        try await fixture.close()
    }

    /// A caller with only a client id may be too late.
    @Test(arguments: Engine.allCases) func aTokenIsReplacedOnlyWithTheSecretOnceItWasUsed(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, _, old) = try await fixture.create(1)
        let (first, second) = (fixture.token(60, room: room), fixture.token(61, room: room))
        #expect(try await fixture.store.write { try $0.replaceToken(room: room.room, slot: 1, proven: false, token: first) })
        #expect(try await fixture.store.write { try $0.markProven(room: room.room, slot: 1) })
        #expect(
            try await fixture.store.write { try $0.replaceToken(room: room.room, slot: 1, proven: false, token: second) } == false
        )
        #expect(try await fixture.store.write { try $0.withdrawToken(room: room.room, slot: 1, proven: false) } == nil)
        #expect(try await fixture.store.read { try $0.token(first.purgeID, expires: old.expires) } != nil)
        #expect(try await fixture.store.write { try $0.withdrawToken(room: room.room, slot: 1, proven: true) } == 1)
        try await fixture.close()
    }

    /// The creator's first use of the secret deletes the sealed copy. Code and room are unchanged.
    @Test(arguments: Engine.allCases) func theSealedSecretIsDeletedAfterItsFirstUse(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, code, _) = try await fixture.create(1)
        #expect(try await fixture.store.write { try $0.markProven(room: room.room, slot: 1) })
        try await expectNoAnswer(to: code, in: fixture)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == code.expires)
        #expect(try await fixture.accept(code) == .accepted)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anAnswerToACreateIsSweptOnTime(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, code, _) = try await fixture.create(1, answerLife: 5_000)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == fixture.clock.now + 5_000)
        fixture.clock.advance(5_000)
        // It isn't returned between its expiry and the sweep either.
        let early = try await fixture.store.read { try $0.joinable([code.code], now: fixture.clock.now)?.code }
        guard case .pending(let pending)? = early else { return #expect(Bool(false), "the code is gone") }
        #expect(pending.creator == nil)
        let again = fixture.room(40, expires: fixture.clock.now + 60_000)
        var second = fixture.code(40, room: again, expires: fixture.clock.now + 30_000)
        second.code = code.code
        let taken = try await fixture.store.write { [second] in
            try $0.create(
                again, code: second, otherIndexes: [], token: nil, shortLimit: 10, now: fixture.clock.now)
        }
        #expect(taken == .taken(.pending(pending)))

        let result = try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 0)
        #expect(result.retries == 1 && result.hasErased && result.rooms == 0 && result.codes == 0)
        try await expectNoAnswer(to: code, in: fixture)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == code.expires)
        #expect(try await fixture.store.read { try $0.room(room.room) } != nil)
        try await fixture.close()
    }

    /// Neither the row nor any file of an embedded database has the answer.
    private func expectNoAnswer(to code: PendingCode, in fixture: Fixture) async throws {
        let found = try await fixture.store.read { try $0.joinable([code.code], now: fixture.clock.now)?.code }
        guard case .pending(let pending)? = found else { return #expect(Bool(false), "the code is gone") }
        #expect(pending.creator == nil)
        #expect(try await fixture.store.scrub())
        for file in fixture.engine == .sqlite ? [fixture.path, fixture.path + "-wal"] : [] {
            let bytes = try File.read(file, limit: 1 << 24)
            #expect(bytes.firstRange(of: try #require(code.creator)) == nil, "\(file)")
        }
    }

    @Test(arguments: Engine.allCases) func replacingAndWithdrawingPurgeOnce(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, _, old) = try await fixture.create(1)
        let new = fixture.token(60, room: room)
        #expect(try await fixture.store.write { try $0.replaceToken(room: room.room, slot: 1, proven: true, token: new) })
        #expect(try await fixture.store.read { try $0.token(old.purgeID, expires: old.expires) } == nil)
        let late = try await fixture.store.write {
            try $0.replaceToken(room: room.room, slot: 1, proven: true, previous: old.purgeID, token: NewToken(old))
        }
        #expect(late == .changed, "the token was compared with the one before")
        #expect(try await fixture.store.write { try $0.withdrawToken(room: room.room, slot: 1, proven: true) } == 1)
        #expect(try await fixture.store.write { try $0.withdrawToken(room: room.room, slot: 1, proven: true) } == 0)
        #expect(try await fixture.store.write { try $0.withdrawToken(room: Fixture.blob(99), slot: 1, proven: true) } == nil)
        let second = fixture.token(61, room: room, slot: 2)
        #expect(
            try await fixture.store.write { try $0.replaceToken(room: room.room, slot: 2, proven: true, token: second) } == false)
        let text = try fixture.entries().joined()
        #expect(text.contains("\"cause\":\"ended\""))
        #expect(try fixture.ops().count(where: { $0 == "token.purged" }) == 2)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func closingDeletesEverything(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, code, _) = try await fixture.create(1)
        #expect(try await fixture.accept(code, token: fixture.token(30, room: room, slot: 2)) == .accepted)
        #expect(try await fixture.store.write { try $0.close(room: room.room) } == 2)
        #expect(try await fixture.store.write { try $0.close(room: room.room) } == nil)
        #expect(try await fixture.store.counts().rooms == 0)
        #expect(try await fixture.store.counts().tokens == 0)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func closingAPendingRoomFreesItsCode(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, code, _) = try await fixture.create(1)
        #expect(try await fixture.store.write { try $0.close(room: room.room) } == 1)
        #expect(try await fixture.store.read { try $0.joinable([code.code], now: fixture.clock.now)?.code } == nil)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aKnockIsThrottledPerSideAndNeedsItsToken(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, _, token) = try await fixture.create(1)
        let deadline = fixture.clock.now + 20_000
        #expect(
            try await fixture.store.write {
                try $0.knock(
                    fixture.job(1, token: token, deadline: deadline), throttle: 30_000, now: fixture.clock.now)
            } == .queued)
        fixture.clock.advance(29_999)
        #expect(
            try await fixture.store.write {
                try $0.knock(
                    fixture.job(2, token: token, deadline: deadline), throttle: 30_000, now: fixture.clock.now)
            }
                == .throttled(until: fixture.clock.now + 1))
        fixture.clock.advance(1)
        #expect(
            try await fixture.store.write {
                try $0.knock(
                    fixture.job(3, token: token, deadline: deadline), throttle: 30_000, now: fixture.clock.now)
            } == .queued)
        var stale = fixture.job(4, token: token, deadline: deadline)
        stale.context.purgeID = Fixture.id(250)
        let old = stale
        #expect(try await fixture.store.write { try $0.knock(old, throttle: 0, now: fixture.clock.now) } == .changed)
        #expect(try await fixture.store.read { try $0.jobs() }.map(\.job) == [Fixture.id(1), Fixture.id(3)])
        try await fixture.close()
    }

    /// A delayed push starts the throttle close to its own time.
    @Test(arguments: Engine.allCases) func aKnocksThrottleCanStartLater(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, _, token) = try await fixture.create(1, life: 600_000)
        let start = fixture.clock.now
        func knock(_ id: UInt8, after ms: UInt64, knocked: UInt64) async throws -> KnockOutcome {
            fixture.clock.advance(start + ms - fixture.clock.now)
            return try await fixture.store.write {
                try $0.knock(
                    fixture.job(id, token: token, deadline: start + 120_000), throttle: 10_000, now: fixture.clock.now,
                    knocked: start + knocked)
            }
        }
        #expect(try await knock(1, after: 0, knocked: 30_000) == .queued)
        #expect(try await knock(2, after: 11_000, knocked: 41_000) == .throttled(until: start + 40_000))
        #expect(try await knock(3, after: 39_999, knocked: 69_999) == .throttled(until: start + 40_000))
        #expect(try await knock(4, after: 40_000, knocked: 35_000) == .queued)
        #expect(try await knock(5, after: 44_999, knocked: 0) == .throttled(until: start + 45_000))
        #expect(try await knock(6, after: 45_000, knocked: 45_000) == .queued)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anOutcomeIsRecordedOnce(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, _, token) = try await fixture.create(1)
        let job = fixture.job(1, token: token, deadline: fixture.clock.now + 20_000)
        #expect(try await fixture.store.write { try $0.knock(job, throttle: 30_000, now: fixture.clock.now) } == .queued)
        let gone = JobOutcome(status: 410, reason: .unregistered, purge: true)
        try await fixture.store.write { try $0.finish(job, gone) }
        try await fixture.store.write { try $0.finish(job, gone) }
        #expect(try await fixture.store.read { try $0.room(room.room) }?.creator.token == nil)
        #expect(try await fixture.store.read { try $0.token(token.purgeID, expires: token.expires) } == nil)
        #expect(try fixture.ops() == ["token.opened", "push.failed", "token.sealed", "token.purged"])
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aPurgeOfAReplacedTokenKeepsTheNewOne(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, _, token) = try await fixture.create(1)
        let job = fixture.job(1, token: token, deadline: fixture.clock.now + 20_000)
        #expect(try await fixture.store.write { try $0.knock(job, throttle: 30_000, now: fixture.clock.now) } == .queued)
        let new = fixture.token(60, room: room)
        #expect(try await fixture.store.write { try $0.replaceToken(room: room.room, slot: 1, proven: true, token: new) })
        try await fixture.store.write { try $0.finish(job, JobOutcome(status: 410, reason: .unregistered, purge: true)) }
        #expect(try await fixture.store.read { try $0.room(room.room) }?.creator.token == new.purgeID)
        #expect(try await fixture.store.read { try $0.token(new.purgeID, expires: new.expires) } == new)
        try await fixture.close()
    }

    // Promise: sweep-on-time
    @Test(arguments: Engine.allCases) func theSweepDeletesExactlyWhatIsDue(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, code, _) = try await fixture.create(1, life: 10_000, codeLife: 10_000)
        #expect(try await fixture.accept(code) == .accepted)
        let (young, _, _) = try await fixture.create(20, life: 60_000, codeLife: 60_000)
        #expect(try await fixture.store.nextExpiry(jobSlack: 0) == fixture.clock.now + 10_000)
        fixture.clock.advance(9_999)
        var result = try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0)
        #expect(result == SweepResult())
        fixture.clock.advance(1)
        result = try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0)
        #expect(result.tokens == 1 && result.rooms == 1 && !result.more)
        #expect(try await fixture.store.read { try $0.room(young.room) }?.creator == young.creator)
        let counts = try await fixture.store.counts()
        #expect(counts.rooms == 1 && counts.tokens == 1)
        #expect(try fixture.entries().joined().contains("\"cause\":\"expired\""))
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func theSweepReportsDeletedAnswers(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, code, _) = try await fixture.create(1, life: 600_000, codeLife: 300_000)
        #expect(try await fixture.accept(code) == .accepted)
        fixture.clock.advance(120_000)
        let result = try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0)
        #expect(result.retries == 1 && result.hasErased && result.codes == 0)
        #expect(try await !fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0).hasErased)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func everythingIsPurgedInBatchesAndRecorded(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        var tokens: [TokenRecord] = []
        for id in [1, 20, 40] as [UInt8] { tokens.append(try await fixture.create(id).2) }
        _ = try await fixture.store.write { [tokens] in
            try $0.knock(
                fixture.job(1, token: tokens[0], deadline: fixture.clock.now + 60_000), throttle: 0, now: fixture.clock.now)
        }
        var batches = 0
        while try await fixture.store.forgetAll(limit: 2).more { batches += 1 }
        #expect(batches > 0)
        let counts = try await fixture.store.counts()
        #expect(counts.rooms + counts.tokens + counts.jobs + counts.codes == 0)
        let entries = try fixture.entries()
        #expect(
            entries.filter { $0.contains("\"cause\":\"ended\"") }.count == 3
                && entries.filter { $0.contains("push.failed") }.count == 1)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aPendingRoomEndsWithItsCode(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, _, _) = try await fixture.create(1, life: 60_000, codeLife: 10_000)
        fixture.clock.advance(10_000)
        let result = try await fixture.store.sweep(now: fixture.clock.now, limit: 100, jobSlack: 0)
        #expect(result.codes == 1 && result.rooms == 1 && result.tokens == 1)
        #expect(try await fixture.store.read { try $0.room(room.room) } == nil)
        try await fixture.close()
    }

    // Promise: sweeps-bounded
    @Test(arguments: Engine.allCases) func sweepsAreBounded(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        for id: UInt8 in [1, 10, 20, 30, 40] { try await fixture.create(id, life: 10_000, codeLife: 10_000) }
        fixture.clock.advance(10_000)
        var passes = 0
        while try await fixture.store.sweep(now: fixture.clock.now, limit: 2, jobSlack: 0).more { passes += 1 }
        #expect(passes >= 2)
        let counts = try await fixture.store.counts()
        #expect(counts.rooms == 0 && counts.tokens == 0 && counts.codes == 0)
        #expect(try fixture.ops().count(where: { $0 == "token.purged" }) == 5)
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func anOverdueJobEndsAsUnknown(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (_, _, token) = try await fixture.create(1)
        let job = fixture.job(1, token: token, deadline: fixture.clock.now + 20_000)
        #expect(try await fixture.store.write { try $0.knock(job, throttle: 30_000, now: fixture.clock.now) } == .queued)
        fixture.clock.advance(20_000)
        #expect(try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 5_000).jobs == 0)
        fixture.clock.advance(5_000)
        #expect(try await fixture.store.sweep(now: fixture.clock.now, limit: 10, jobSlack: 5_000).jobs == 1)
        #expect(try fixture.entries().joined().contains("\"reason\":\"unknown\""))
        try await fixture.close()
    }

    // Promise: answers-outlive-a-restart
    @Test(arguments: Engine.allCases) func committedRowsSurviveReopening(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let (room, _, _) = try await fixture.create(1)
        try await fixture.store.setMark("ratchet", [1, 2, 3])
        await fixture.store.shutDown()
        let again = try fixture.reopen()
        #expect(try await again.read { try $0.room(room.room) }?.creator == room.creator)
        #expect(try await again.mark("ratchet") == [1, 2, 3])
        #expect(try await again.mark("other") == nil)
        await again.shutDown()
        try fixture.remove()
    }

    @Test(arguments: Engine.allCases) func aMarkIsReplacedOnlyIfItIsAsItWas(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        let store = fixture.store
        #expect(try await !store.replaceMark("a", [9], by: [1]))
        #expect(try await store.mark("a") == nil)
        async let (one, other) = (store.replaceMark("a", [], by: [1]), store.replaceMark("a", [], by: [2]))
        let ends = try await (one, other)
        #expect(ends.0 != ends.1)
        #expect(try await store.mark("a") == (ends.0 ? [1] : [2]))
        try await fixture.close()
    }

    @Test(arguments: Engine.allCases) func aClosedStoreRefuses(engine: Engine) async throws {
        let fixture = try Fixture(engine)
        await fixture.store.shutDown()
        await #expect(throws: StoreError.closed) { try await fixture.store.setMark("a", []) }
        await #expect(throws: StoreError.closed) { try await fixture.store.mark("a") }
        try fixture.remove()
    }
}
