import Testing
import Vocabulary

@testable import Broker

/// The state machine with a clock of its own: events in, effects out.
@Suite struct PresenceTests {
    private static let timing = PresenceState.Timing(graceMs: 5_000, reportMs: 45_000, probeMs: 2_000)
    private static let room = Digest.sha256([1, 2, 3].span)
    private let one = RoomSide(room: room, slot: 1)
    private let two = RoomSide(room: room, slot: 2)

    /// Presence with its timers, which fire as the clock passes them.
    private struct Stage {
        var presence = PresenceState(PresenceTests.timing)
        var now: UInt64 = 1_000_000
        var timers: [RoomSide: UInt64] = [:]
        /// The effects since the last `take`, without timers.
        private var effects: [PresenceState.Effect] = []

        mutating func on(_ event: (inout PresenceState, UInt64) -> [PresenceState.Effect]) {
            for effect in event(&presence, now) {
                if case .arm(let place, let time) = effect { timers[place] = time } else { effects.append(effect) }
            }
        }

        mutating func join(_ socket: UInt64, _ place: RoomSide) { on { $0.join(socket, at: place, provenAt: $1, now: $1) } }
        mutating func end(_ socket: UInt64, _ isDeliberate: Bool) { on { $0.leave(socket, isDeliberate: isDeliberate, now: $1) } }
        mutating func report(_ place: RoomSide) { on { $0.report(place, now: $1) } }
        mutating func pong(_ socket: UInt64, _ number: UInt64) { on { $0.pong(socket, number: number, now: $1) } }

        mutating func check(_ place: RoomSide, isAwaited: Bool = true) -> PresenceState.Finding {
            let (finding, effects) = presence.check(place, isAwaited: isAwaited, now: now)
            on { _, _ in effects }
            return finding
        }

        mutating func pass(_ ms: UInt64) {
            let end = now + ms
            while let (place, time) = timers.min(by: { $0.value < $1.value }), time <= end {
                now = max(now, time)
                timers[place] = nil
                on { $0.fire(place, now: $1) }
            }
            now = end
        }

        mutating func take() -> [PresenceState.Effect] {
            defer { effects = [] }
            return effects
        }
    }

    @Test func anAnswerAtTheLastMomentCounts() {
        var stage = Stage()
        stage.join(1, one)
        stage.pass(60_000)
        stage.join(2, two)
        #expect(stage.check(one) == .probing)
        stage.pass(1_999)
        stage.pong(1, 1)
        #expect(stage.take().last == .answered(one))
        stage.pass(1_999)
        #expect(stage.check(one) == .present && stage.take().isEmpty)
        stage.pass(1)
        #expect(stage.check(one) == .probing)
    }

    @Test func aLatePongIsAnArrivalAndAnOldOneIsIgnored() {
        var stage = Stage()
        stage.join(1, one)
        stage.pass(60_000)
        stage.report(two)
        _ = stage.check(one)
        stage.pass(2_500)
        #expect(stage.take().last == .absent(one, knocks: true))
        stage.pong(1, 1)
        #expect(stage.take() == [.arrived(one)])
        #expect(stage.presence.isPresent(one))
        // A pong with the number of an earlier probe proves nothing.
        stage.pass(10_000)
        #expect(stage.check(one) == .probing)
        #expect(stage.take() == [.ping(one, [1], number: 2)])
        stage.pong(1, 1)
        #expect(stage.check(one) == .probing)
        stage.pass(2_000)
        #expect(stage.take() == [.absent(one, knocks: true)])
    }

    @Test func aLatePongKnocksAtAnAbsentPeer() {
        var stage = Stage()
        stage.join(1, one)
        stage.join(2, two)
        stage.pass(60_000)
        _ = stage.check(one)
        stage.pass(2_000)
        stage.end(2, false)
        stage.pass(5_000)
        _ = stage.take()
        stage.pong(1, 1)
        #expect(stage.take() == [.arrived(one), .knock(two)])
    }

    @Test func anArrivalWithinTheGraceOfALeaveKnocksWhenItEnds() {
        var stage = Stage()
        stage.join(1, one)
        stage.end(1, true)
        stage.pass(2_000)
        stage.report(two)
        #expect(stage.check(one) == .present)
        _ = stage.take()
        stage.pass(3_000)
        #expect(stage.take() == [.absent(one, knocks: true)])
        // Nobody waits, so there is no knock.
        stage.report(one)
        stage.on { $0.reportLeaving(one, now: $1) }
        stage.report(two)
        _ = stage.check(one)
        stage.on { $0.reportLeaving(two, now: $1) }
        _ = stage.take()
        stage.pass(60_000)
        #expect(!stage.take().contains { if case .absent(_, knocks: true) = $0 { true } else { false } })
    }

    @Test func aReportCountsUntilItLapses() {
        var stage = Stage()
        stage.report(one)
        stage.join(2, two)
        stage.pass(44_999)
        #expect(stage.check(one) == .present)
        _ = stage.take()
        stage.pass(1)
        #expect(stage.presence.isPresent(one))
        stage.pass(5_000)
        #expect(stage.take() == [.absent(one, knocks: true)])
    }

    @Test func aReportedLeaveCoversTheSidesSockets() {
        var stage = Stage()
        stage.join(1, one)
        stage.join(2, two)
        stage.pass(60_000)
        _ = stage.check(one)
        _ = stage.take()
        stage.on { $0.reportLeaving(one, now: $1) }
        #expect(stage.take() == [.answered(one), .left(one)])
        // The pong was sent before the side left.
        stage.pong(1, 1)
        stage.pass(5_000)
        #expect(stage.take() == [.absent(one, knocks: true)], "the joiner arrived before the creator left")
        stage.report(one)
        stage.pass(60_000)
        #expect(stage.presence.isPresent(one), "the socket counts again")
    }

    @Test func oneOfSeveralSocketsIsEnough() {
        var stage = Stage()
        for socket: UInt64 in [1, 2, 3] { stage.join(socket, one) }
        stage.end(3, true)
        stage.pass(60_000)
        stage.join(9, two)
        #expect(stage.check(one) == .probing)
        #expect(stage.take() == [.arrived(one), .arrived(two), .ping(one, [1, 2], number: 1)])
        stage.pong(2, 1)
        #expect(stage.take() == [.answered(one)])
        stage.end(2, false)
        // The other socket has not answered, but no second probe may run yet.
        #expect(stage.check(one) == .present)
        stage.pass(2_000)
        #expect(stage.take() == [.ping(one, [1], number: 2)])
        stage.pass(2_000)
        #expect(stage.take() == [.absent(one, knocks: true)])
    }

    @Test func aStaleSocketDoesNotCountAsPresent() {
        var stage = Stage()
        stage.join(1, one)
        stage.pass(60_000)
        stage.join(9, two)
        _ = stage.check(one)
        stage.pass(2_000)
        stage.join(2, one)
        stage.end(2, true)
        _ = stage.take()
        stage.pass(5_000)
        #expect(!stage.presence.isPresent(one))
        #expect(stage.take().isEmpty)
    }

    @Test func theNinthSocketClosesTheMostSilent() {
        var stage = Stage()
        for socket: UInt64 in 1...8 {
            stage.join(socket, one)
            stage.pass(3_000)
        }
        _ = stage.check(one)
        stage.pong(1, 1)
        _ = stage.take()
        stage.join(9, one)
        #expect(stage.take() == [.close(2)])
        #expect(stage.presence.sockets(at: one) == [1, 3, 4, 5, 6, 7, 8, 9])
        stage.end(2, false)
        #expect(stage.presence.socketCount == 8)
    }

    /// The push leaves when its probe fails. A second knock would be throttled and retried.
    @Test func aProbeForAPushKnocksAtNobody() {
        var stage = Stage()
        stage.join(1, one)
        stage.join(2, two)
        stage.pass(60_000)
        _ = stage.take()
        #expect(stage.check(one, isAwaited: false) == .probing)
        stage.pass(2_000)
        #expect(stage.take() == [.ping(one, [1], number: 1), .absent(one, knocks: false)])
        #expect(stage.check(one, isAwaited: false) == .absent)
    }

    @Test func aThrottledKnockIsRetriedWhileThePeerStays() {
        var stage = Stage()
        stage.join(2, two)
        _ = stage.take()
        stage.on { $0.checkAgain(one, at: $1 + 30_000, now: $1) }
        #expect(stage.presence.mayKnock(in: Self.room))
        stage.pass(29_999)
        #expect(stage.take().isEmpty)
        stage.pass(1)
        #expect(stage.take() == [.knock(one)])
        stage.on { $0.checkAgain(one, at: $1 + 30_000, now: $1) }
        stage.end(2, true)
        stage.pass(60_000)
        #expect(stage.take() == [.left(two)])
        // The side arrives before the throttle ends.
        stage.join(3, two)
        stage.on { $0.checkAgain(one, at: $1 + 30_000, now: $1) }
        stage.join(4, one)
        _ = stage.take()
        stage.pass(60_000)
        #expect(stage.take().isEmpty)
    }

    /// There is one timer for the side, no room id while its peer is absent, and no state afterwards.
    @Test func aFloodOfReportsLeavesOneTimer() {
        var stage = Stage()
        for number in 0..<30_000 {
            if number % 30 == 0 { stage.now += 1 }
            if number % 2 == 0 { stage.report(one) } else { stage.on { $0.reportLeaving(one, now: $1) } }
        }
        #expect(stage.timers.count == 1 && stage.presence.roomCount == 1)
        #expect(!stage.presence.mayKnock(in: Self.room))
        stage.pass(60_000)
        #expect(stage.timers.isEmpty && stage.presence.roomCount == 0)
    }

    @Test func theRoomIDIsNeededWhileAKnockMayFollow() {
        var stage = Stage()
        stage.report(one)
        #expect(!stage.presence.mayKnock(in: Self.room))
        stage.report(two)
        #expect(stage.presence.mayKnock(in: Self.room))
        stage.pass(60_000)
        #expect(!stage.presence.mayKnock(in: Self.room) && stage.presence.roomCount == 0)
        stage.join(1, one)
        #expect(stage.presence.mayKnock(in: Self.room))
        stage.on { presence, _ in presence.forget(Self.room).effects }
        #expect(stage.presence.roomCount == 0 && stage.presence.socketCount == 0)
    }

    /// After random events a side has at most one timer, a side that waits has one, and no state is left in the end.
    @Test func randomEventsLeaveNoState() {
        for seed in 0..<200 as Range<UInt64> {
            let chance = Chance(seed: seed)
            var stage = Stage()
            var open: [UInt64] = []
            for step in 0..<300 as Range<UInt64> {
                let place = chance.upTo(2) == 0 ? one : two
                switch chance.upTo(9) {
                case 0:
                    stage.join(step, place)
                    open.append(step)
                case 1: if let socket = open.popLast() { stage.end(socket, chance.upTo(2) == 0) }
                case 2: stage.report(place)
                case 3: stage.on { $0.reportLeaving(place, now: $1) }
                case 4: if let socket = open.first { stage.pong(socket, chance.upTo(5)) }
                case 5: _ = stage.check(place, isAwaited: chance.upTo(2) == 0)
                case 6: stage.on { $0.checkAgain(place, at: $1 + 3_000, now: $1) }
                default: stage.pass(chance.upTo(4_000))
                }
                #expect(stage.timers.count <= 2 && stage.presence.socketCount <= 16)
                #expect(stage.timers.values.allSatisfy { $0 >= stage.now })
                let waiting = stage.check(place, isAwaited: false) == .probing
                #expect(!waiting || stage.timers[place] != nil)
            }
            for socket in open { stage.end(socket, false) }
            stage.pass(120_000)
            #expect(stage.presence.roomCount == 0 && stage.presence.socketCount == 0 && stage.timers.isEmpty, "seed \(seed)")
        }
    }
}
