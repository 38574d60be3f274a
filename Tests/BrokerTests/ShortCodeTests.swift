import EventLoop
import Linux
import Sealing
import Shares
import Storage
import Testing
import Vocabulary

@testable import Broker

/// The shares of pending rooms with short codes.
@Suite struct ShortCodeTests {
    private static let life = 86_400

    /// Creates rooms with six digits until the first refusal.
    private func fill(
        _ fixture: BrokerFixture, from address: SocketAddress = BrokerFixture.here, first: Int = 100_000
    ) async throws -> (rooms: [Membership], codes: [String], refusal: BrokerError) {
        var (rooms, codes): ([Membership], [String]) = ([], [])
        while true {
            let code = String(first + codes.count)
            do {
                let request = CreateRoom(
                    joinid: Array(code.utf8), lifeSeconds: Self.life, codeLifeSeconds: 3_600, client: Array("creator".utf8),
                    address: nil)
                rooms.append(try await fixture.broker.rooms.create(request, from: address))
                codes.append(code)
            } catch { return (rooms, codes, try #require(BrokerError(thrown: error))) }
        }
    }

    // Promise: short-codes-have-shares
    @Test func oneNetworkLeavesShortCodesToOthers() async throws {
        let fixture = try await BrokerFixture()
        let own = try await fill(fixture)
        #expect(own.rooms.count == 200)
        #expect(own.refusal == .tooManyRequests(retryAfterSeconds: 600))
        // A code that can't be guessed, and a repeat, are no matter of shares.
        _ = try await fixture.create("a long code")
        #expect(try await !fixture.create("100000", life: Self.life, codeLife: 3_600).isNew)
        let other = try await fill(fixture, from: .v4(7, port: 1), first: 200_000)
        #expect(other.rooms.count == 160)
        try await fixture.end()
    }

    /// A start forgets who has made the rooms that wait, but not how many there are.
    @Test func restartsLeaveShortCodesToOthers() async throws {
        let fixture = try await BrokerFixture()
        var counts: [Int] = []
        for run in 1...5 {
            counts.append(try await fill(fixture, first: run * 100_000).rooms.count)
            fixture.broker.shares.clear(.shortCodes)
            fixture.broker.shares.clear(.shortCreations)
        }
        #expect(counts == [200, 160, 128, 102, 82])
        #expect(try await fill(fixture, from: .v4(7, port: 1), first: 600_000).rooms.count == 65)
        try await fixture.end()
    }

    /// Returns a second node, whose messages go to the broker of `fixture`.
    private func node(_ fixture: BrokerFixture) -> Neighbors {
        let (broker, time) = (fixture.broker, fixture.broker.shared.time)
        let here = Neighbors(loop: fixture.loop, keys: fixture.keys, time: time, shares: Shares(.standard)) { _ in }
        return Neighbors(loop: fixture.loop, keys: fixture.keys, time: time, shares: Shares(.standard)) { text in
            here.receive(text, for: Neighbors.Receivers(broker.presence, broker.rooms))
        }
    }

    /// A room counts from its create until its accept, its end, or the expiry of its code.
    @Test func aRoomThatWaitsNoLongerCountsForNobody() async throws {
        let fixture = try await BrokerFixture()
        let (loop, rooms, shares) = (fixture.loop, fixture.broker.rooms, fixture.broker.shares)
        try await withTaskExecutorPreference(loop) {
            let own = try await fill(fixture)
            // The guesses of these creates are forgotten, and the rooms still wait.
            fixture.clock.advance(600_000)
            let before = try await fill(fixture, first: 200_000)
            #expect(before.rooms.isEmpty && before.refusal == .tooManyShortCodes)
            #expect(shares.used(.shortCodes) == 200 && shares.used(.shortCreations, now: fixture.clock.now) == 0)
            // A refused create, and a repeated one, change no count.
            await #expect(throws: BrokerError.tooManyShortCodes) { try await fixture.create("100001", client: "another") }
            _ = try await fixture.create("100001", life: Self.life, codeLife: 3_600)
            #expect(shares.used(.shortCodes) == 200)

            _ = try await fixture.accept(own.codes[0])
            #expect(shares.used(.shortCodes) == 199)
            let one = try await fill(fixture, first: 300_000)
            #expect(one.rooms.count == 1 && one.refusal == .tooManyShortCodes)
            _ = try await rooms.close(own.rooms[1].room)
            _ = try await rooms.close(own.rooms[0].room)
            #expect(shares.used(.shortCodes) == 199, "an accepted room's end refunds nothing more")
            // Another node reports what it did to rooms of this one. Its messages arrive after two milliseconds.
            let ended = own.rooms[2...3].map { fixture.keys.roomIndex($0.room) }
            let other = node(fixture)
            other.post(.accepted(room: ended[0]), always: true)
            for _ in 1...2 { other.post(.closed(room: ended[1]), always: true) }
            for _ in 0..<500 where shares.used(.shortCodes) > 197 { try await loop.sleep(10) }
            #expect(shares.used(.shortCodes) == 197)
            fixture.clock.advance(3_600_000)
            // Its timer is the last one that is due.
            try await fixture.loop.sleep(1)
            #expect(shares.used(.shortCodes) == 0)
        }
        try await fixture.end()
    }

    /// Only what is stored counts.
    @Test func aCreateThatFailsCountsForNobody() async throws {
        let fixture = try await BrokerFixture()
        let shares = fixture.broker.shares
        _ = try await fixture.create("123456")
        await #expect(throws: BrokerError.joinCodeInUse) { try await fixture.create("123456", client: "another") }
        #expect(shares.used(.shortCodes) == 1)
        // Its answer was a guess.
        #expect(shares.used(.shortCreations, now: fixture.clock.now) == 2)
        await fixture.store.shutDown()
        await #expect(throws: BrokerError.shuttingDown) { try await fixture.create("654321") }
        #expect(shares.used(.shortCodes) == 1 && shares.used(.shortCreations, now: fixture.clock.now) == 2)
        try await fixture.end()
    }

    /// A caller who learns that a code is taken pays for a guess, even if a shortage of slots follows.
    @Test func aShortageAfterTheLookUpIsAGuess() async throws {
        let fixture = try await BrokerFixture()
        try await Task(executorPreference: fixture.loop) {
            _ = try await fixture.create()
            let taken = try TakenSlots()
            var charged = 0
            for _ in 0..<64 {
                let before = fixture.broker.shares.used(.shortCreations, now: fixture.clock.now)
                do {
                    _ = try await fixture.create(client: "another")
                } catch SealingError.outOf {
                    charged += fixture.broker.shares.used(.shortCreations, now: fixture.clock.now) - before
                } catch { break }
                taken.giveBack(1)
            }
            taken.giveBackAll()
            #expect(charged > 0)
        }.value
        try await fixture.end()
    }
}
