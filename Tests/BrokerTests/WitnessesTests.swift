import EventLoop
import Ledger
import Linux
import Storage
import Testing
import Vocabulary

@testable import Broker

@Suite struct WitnessesTests {
    /// Runs a test with a fixture, and removes the fixture.
    func with(
        _ count: Int, waitingLimit: Int = 1_000_000, _ body: (WitnessFixture) async throws -> Void
    ) async throws {
        let fixture = try WitnessFixture(count, waitingLimit: waitingLimit)
        do {
            try await body(fixture)
        } catch {
            try await fixture.end()
            throw error
        }
        try await fixture.end()
    }

    func quorumMissed(_ sequencer: Sequencer) async -> Bool {
        do {
            try await sequencer.flush()
            return false
        } catch Sequencer.Failure.quorumMissed {
            return true
        } catch {
            Issue.record("\(error)")
            return false
        }
    }

    func contradiction(_ body: () async throws -> Void) async -> String? {
        do {
            try await body()
            return nil
        } catch Sequencer.Failure.contradicted(let said) {
            return said
        } catch {
            Issue.record("\(error)")
            return nil
        }
    }

    static let all = "group all all w0 w1 w2\nquorum all\n"
    static let most = "group most 2 w0 w1 w2\nquorum most\n"

    @Test func headsAreCosigned() async throws {
        try await with(3) { fixture in
            let sequencer = try fixture.sequencer(Self.all, .closed)
            try await sequencer.recover()
            #expect(try fixture.published()! == (0, [0, 1, 2]))
            for (count, size) in [(3, 3), (1, 4), (300, 304)] as [(Int, UInt64)] {
                try await fixture.record(count)
                try await sequencer.flush()
                #expect(try fixture.published()! == (size, [0, 1, 2]))
            }
            #expect(fixture.fakes[0].asked == [0, 0, 3, 4], "each with a proof from the head it has")
            #expect(fixture.metrics.value(.cosignatures) == 12)
            #expect(fixture.metrics.value(.witnessFailures) == 0)
            #expect(fixture.lines.all == [])
            // A start asks again, from the sizes that the published cosignatures show.
            try await fixture.sequencer(Self.all, .closed).recover()
            #expect(fixture.fakes[0].asked == [0, 0, 3, 4, 304])
        }
    }

    @Test func closedModeWaitsForTheQuorum() async throws {
        try await with(1) { fixture in
            let sequencer = try fixture.sequencer("quorum w0\n", .closed)
            try await sequencer.recover()
            try await fixture.record(2)
            fixture.fakes[0].behaviour = .fails
            #expect(await quorumMissed(sequencer))
            try await fixture.record(5)
            #expect(await quorumMissed(sequencer))
            #expect(try fixture.published()!.size == 0)
            #expect(try await fixture.store.logHead()?.size == 2, "one head at a time waits")
            #expect(fixture.metrics.value(.quorumMissed) == 2)
            #expect(fixture.fakes[0].asked.count == 2, "in its pause it is not asked")
            // A start does not need the quorum: the broker serves, purges and waits.
            try await fixture.sequencer("quorum w0\n", .closed).recover()
            #expect(try fixture.published()!.size == 0)
            fixture.fakes[0].behaviour = .honest
            let next = try fixture.sequencer("quorum w0\n", .closed)
            try await next.recover()
            #expect(try fixture.published()! == (2, [0]))
            try await next.flush()
            #expect(try fixture.published()! == (7, [0]))
            #expect(fixture.fakes[0].asked.last == 2)
        }
    }

    /// The backlog fills while nothing is published. Purges continue, and everything works again once the witness is back.
    // Promise: purging-never-waits
    @Test func aFullBacklogRefusesEverythingExceptPurges() async throws {
        try await with(1, waitingLimit: 8) { fixture in
            let (store, now) = (fixture.store, fixture.clock.now)
            let sequencer = try fixture.sequencer("quorum w0\n", .closed)
            fixture.fakes[0].behaviour = .fails
            try await sequencer.recover()
            #expect(try await store.createRoom(1, expires: now + 60_000, now: now) == .created)
            // Entries that wait for their batch don't count.
            try await fixture.record(8)
            #expect(await quorumMissed(sequencer))
            await #expect(throws: StoreError.ledgerBehind) { try await store.createRoom(2, expires: now + 60_000, now: now) }
            #expect(try await store.sweep(now: now + 61_000, limit: 10, jobSlack: 0).tokens == 1)
            // The quorum is reached again, and the backlog is published.
            fixture.fakes[0].behaviour = .honest
            try await fixture.sequencer("quorum w0\n", .closed).flush()
            #expect(try fixture.published()! == (8, [0]))
            #expect(try await store.createRoom(2, expires: now + 60_000, now: now) == .created)
        }
    }

    @Test func openModePublishesWithoutTheQuorum() async throws {
        try await with(3) { fixture in
            let sequencer = try fixture.sequencer(Self.most, .open)
            for index in 1...2 { fixture.fakes[index].behaviour = .fails }
            try await sequencer.recover()
            for size in 1...3 as ClosedRange<UInt64> {
                try await fixture.record(1)
                try await sequencer.flush()
                #expect(try fixture.published()! == (size, [0]))
            }
            #expect(fixture.metrics.value(.quorumMissed) == 4)
            #expect(fixture.lines.count("without the witnesses' quorum") == 1)
            #expect(fixture.lines.count("witness w1: did not cosign") == 1)
            for index in 1...2 { fixture.fakes[index].behaviour = .honest }
            try await sequencer.flush()
            #expect(try fixture.published()! == (3, [0]), "in its pause no one is asked")
            // There are no new entries, so the published head itself is cosigned.
            fixture.steady.advance(1_000)
            try await sequencer.flush()
            #expect(try fixture.published()! == (3, [0, 1, 2]))
            #expect(fixture.lines.count("quorum is reached again") == 1)
            #expect(fixture.lines.count("cosigns again") == 2)
        }
    }

    @Test func aStallingWitnessCostsOneRound() async throws {
        try await with(2) { fixture in
            let sequencer = try fixture.sequencer("quorum w0\n", .closed, roundMs: 300)
            let gate = Gate()
            fixture.fakes[1].behaviour = .stalls(gate)
            try await sequencer.recover()
            #expect(try fixture.published()! == (0, [0]))
            #expect(fixture.metrics.value(.witnessFailures) == 1)
            fixture.steady.advance(100_000)
            for _ in 0..<5 {
                try await fixture.record(1)
                try await sequencer.flush()
            }
            #expect(try fixture.published()! == (5, [0]))
            #expect(fixture.fakes[1].asked.count == 1, "as long as the first request is under way there is no other")
            gate.open()
            fixture.fakes[1].behaviour = .honest
            while try fixture.published()!.cosigners != [0, 1] {
                try await fixture.record(1)
                try await sequencer.flush()
            }
            #expect(fixture.lines.count("witness w1: did not cosign: no answer in time") == 1)
            #expect(fixture.lines.count("witness w1: cosigns again") == 1)
        }
    }

    @Test func aLateCosignatureIsStillPublished() async throws {
        try await with(2) { fixture in
            let sequencer = try fixture.sequencer("quorum w0\n", .closed, roundMs: 300)
            let gate = Gate()
            fixture.fakes[1].behaviour = .stalls(gate)
            try await sequencer.recover()
            #expect(try fixture.published()! == (0, [0]))
            gate.open()
            while fixture.metrics.value(.cosignatures) < 2 { try await fixture.loop.sleep(1) }
            try await sequencer.flush()
            #expect(try fixture.published()! == (0, [0, 1]))
            #expect(fixture.fakes[1].asked.count == 1)
            // A late answer does not end the witness's pause, because it would delay every round.
            try await fixture.record(1)
            try await sequencer.flush()
            #expect(fixture.fakes[1].asked.count == 1)
        }
    }

    @Test func pausesGrowToAMinute() async throws {
        try await with(1) { fixture in
            let sequencer = try fixture.sequencer("quorum none\n", .closed)
            fixture.fakes[0].behaviour = .fails
            try await sequencer.recover()
            for (tries, pause) in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000].enumerated() {
                fixture.steady.advance(UInt64(pause) - 1)
                try await sequencer.flush()
                #expect(fixture.fakes[0].asked.count == tries + 1, "before \(pause) ms are over")
                fixture.steady.advance(1)
                try await sequencer.flush()
                #expect(fixture.fakes[0].asked.count == tries + 2, "after \(pause) ms")
            }
            #expect(fixture.lines.all.count == 1)
            fixture.fakes[0].behaviour = .honest
            fixture.steady.advance(60_000)
            try await sequencer.flush()
            fixture.fakes[0].behaviour = .fails
            try await fixture.record(1)
            try await sequencer.flush()
            fixture.steady.advance(1_000)
            let asked = fixture.fakes[0].asked.count
            try await sequencer.flush()
            #expect(fixture.fakes[0].asked.count == asked + 1, "a success forgives")
        }
    }

    @Test func aWitnesssSizeIsLearned() async throws {
        try await with(1) { fixture in
            let sequencer = try fixture.sequencer("quorum w0\n", .closed)
            try await sequencer.recover()
            try await fixture.record(5)
            try await sequencer.flush()
            let backup = fixture.fakes[0]
            try await fixture.record(5)
            try await sequencer.flush()
            fixture.fakes[0] = backup
            try await fixture.record(5)
            try await sequencer.flush()
            #expect(fixture.fakes[0].asked == backup.asked + [10, 5])
            fixture.fakes[0].behaviour = .loses
            try await fixture.record(5)
            #expect(await quorumMissed(sequencer))
            fixture.fakes[0].behaviour = .honest
            try await fixture.sequencer("quorum w0\n", .closed).flush()
            #expect(fixture.fakes[0].asked == backup.asked + [10, 5, 15, 0, 20])
            #expect(try fixture.published()! == (20, [0]))
        }
    }

    /// Store and folder were restored together. Only the witnesses know that.
    // Promise: witnesses-catch-an-old-copy
    @Test(arguments: [Sequencer.WitnessFailureMode.open, .closed]) func anOldCopyIsRefused(
        mode: Sequencer.WitnessFailureMode
    ) async throws {
        try await with(3) { fixture in
            let sequencer = try fixture.sequencer(Self.most, mode)
            try await sequencer.recover()
            for index in 0..<2 { fixture.fakes[index].size = 7 }
            let said = await contradiction { try await fixture.sequencer(Self.most, mode).recover() }
            #expect(said?.contains("w0: it reports 7 cosigned entries of this log, which has 0") == true)
            #expect(said?.contains("w1: ") == true)
            #expect(said?.contains("w2") == false)
            #expect(try fixture.published()!.size == 0)
            // One contradicting witness of three is outvoted, but its contradiction is logged.
            fixture.fakes[1].size = 0
            let alone = try fixture.sequencer(Self.most, mode)
            try await alone.recover()
            try await fixture.record(1)
            try await alone.flush()
            #expect(try fixture.published()! == (1, [1, 2]))
            #expect(fixture.metrics.value(.alarms) >= 3)
        }
    }

    @Test func openModeDoesNotIgnoreAContradiction() async throws {
        try await with(1) { fixture in
            let sequencer = try fixture.sequencer("quorum w0\n", .open)
            try await sequencer.recover()
            try await fixture.record(4)
            try await sequencer.flush()
            // The witness has another tree of the same size: history was rewritten here or there.
            fixture.fakes[0].root = .emptyRoot
            try await fixture.record(4)
            #expect(await contradiction { try await sequencer.flush() }?.contains("another log of 4 entries") == true)
            fixture.fakes[0].behaviour = .fails
            try await fixture.record(4)
            for _ in 0..<2 {
                #expect(await contradiction { try await sequencer.flush() } != nil, "a silence does not take it back")
            }
            #expect(try fixture.published()!.size == 4)
            #expect(fixture.lines.count("contradicts this log") == 1)
        }
    }

    @Test func aStartComparesTheHeadItself() async throws {
        try await with(1) { fixture in
            let sequencer = try fixture.sequencer("quorum w0\n", .open)
            try await sequencer.recover()
            try await fixture.record(4)
            try await sequencer.flush()
            fixture.fakes[0].root = .emptyRoot
            let said = await contradiction { try await fixture.sequencer("quorum w0\n", .open).recover() }
            #expect(said?.contains("another log of 4 entries") == true)
        }
    }

    @Test func withoutAQuorumThereIsNoVeto() async throws {
        try await with(1) { fixture in
            let sequencer = try fixture.sequencer("quorum none\n", .closed)
            fixture.fakes[0].size = 99
            try await sequencer.recover()
            try await fixture.record(1)
            try await sequencer.flush()
            #expect(try fixture.published()! == (1, []))
            #expect(fixture.lines.count("contradicts") == 1)
            #expect(fixture.metrics.value(.quorumMissed) == 0)
        }
    }

    /// Proofs are built from our own tiles. Damaged tiles are our fault, and no proof from them is sent to a witness.
    @Test func damagedTilesAreNotTheWitnesssFault() async throws {
        try await with(1) { fixture in
            let sequencer = try fixture.sequencer("quorum w0\n", .closed)
            try await sequencer.recover()
            try await fixture.record(300)
            try await sequencer.flush()
            let path = fixture.folder.path + "/tile/0/000"
            var tile = try File.read(path, limit: 1 << 20)
            tile[100] ^= 1
            try File.write(path, tile.span, mode: 0o644)
            fixture.fakes[0].size = 200
            try await fixture.record(1)
            #expect(await quorumMissed(sequencer))
            #expect(fixture.lines.count("contradicts") == 0)
            #expect(fixture.lines.count("the tiles don't connect 200 entries") == 1, "\(fixture.lines.all)")
            #expect(fixture.fakes[0].asked.last == 300, "nothing was sent")
        }
    }
}
