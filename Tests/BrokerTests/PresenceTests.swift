import Testing
import Vocabulary

@testable import Broker

/// The state machine with a clock of its own: events in, effects out.
@Suite struct PresenceTests {
    private static let room = Digest.sha256([1, 2, 3].span)
    private let one = RoomSide(room: room, slot: 1)
    private let two = RoomSide(room: room, slot: 2)

    @Test func anAnswerAtTheLastMomentCounts() {
        var stage = PresenceStage()
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
        var stage = PresenceStage()
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
        var stage = PresenceStage()
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
        var stage = PresenceStage()
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
        var stage = PresenceStage()
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
        var stage = PresenceStage()
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
        var stage = PresenceStage()
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

    /// An app that gave a sign of life a moment ago may be suspended now.
    @Test func aCheckTooEarlyIsMadeWhenAProbeIsAllowed() {
        var stage = PresenceStage()
        stage.join(1, one)
        stage.pass(1_000)
        stage.join(2, two)
        #expect(stage.check(one) == .present)
        #expect(stage.take() == [.arrived(one), .arrived(two)])
        stage.pass(999)
        #expect(stage.take().isEmpty && stage.timers.count == 1)
        stage.pass(1)
        #expect(stage.take() == [.ping(one, [1], number: 1)])
        stage.pass(2_000)
        #expect(stage.take() == [.absent(one, knocks: true)])
    }

    /// It is made although the side arrives again, two seconds later. Then there is none until its peer arrives again.
    @Test func anArrivalPutsACheckOff() {
        var stage = PresenceStage()
        stage.join(1, one)
        stage.join(2, two)
        _ = stage.check(one)
        stage.pass(1_500)
        stage.join(3, one)
        _ = stage.take()
        stage.pass(1_999)
        #expect(stage.take().isEmpty)
        stage.pass(1)
        #expect(stage.take() == [.ping(one, [1, 3], number: 1)])
        stage.pong(3, 1)
        stage.pass(600_000)
        #expect(stage.take() == [.answered(one)] && stage.timers.isEmpty)
    }

    @Test func aCheckThatWasPutOffEndsWithTheWait() {
        var stage = PresenceStage()
        stage.join(1, one)
        stage.join(2, two)
        _ = stage.check(one)
        stage.end(2, true)
        _ = stage.take()
        stage.pass(60_000)
        #expect(stage.take().isEmpty)
        // Its peer comes back within the limit.
        stage.report(one)
        stage.join(3, two)
        _ = stage.check(one)
        stage.end(3, false)
        stage.pass(1_000)
        stage.join(4, two)
        _ = stage.check(one)
        _ = stage.take()
        stage.pass(3_000)
        #expect(stage.take() == [.ping(one, [1], number: 1), .absent(one, knocks: true)])
        // The side itself leaves deliberately.
        stage.join(5, one)
        _ = stage.check(one)
        stage.end(5, true)
        stage.pass(60_000)
        #expect(!stage.take().contains(.absent(one, knocks: true)))
    }

    /// Whoever waits was told of a presence that only the socket that ended has proven.
    @Test func theEndOfTheAnsweringSocketChecksTheOthers() {
        for isDeliberate in [true, false] {
            var stage = PresenceStage()
            stage.join(1, one)
            stage.join(2, one)
            stage.pass(60_000)
            stage.join(9, two)
            _ = stage.check(one)
            stage.pong(2, 1)
            stage.pass(60_000)
            _ = stage.take()
            stage.end(2, isDeliberate)
            #expect(stage.take() == [.ping(one, [1], number: 2)])
            stage.pass(2_000)
            #expect(stage.take() == [.absent(one, knocks: true)])
            // Nobody waits.
            stage.end(9, true)
            stage.pong(1, 2)
            stage.join(3, one)
            stage.pass(10_000)
            _ = stage.take()
            stage.end(3, isDeliberate)
            #expect(stage.take().isEmpty)
        }
    }

    /// Another node's probe needs no grace: its sockets are silent there.
    @Test func aSideFoundSilentAtAnotherNodeIsAbsentAtOnce() {
        for isDoubtful in [true, false] {
            var stage = PresenceStage()
            let elsewhere = PresenceState.remoteSocket(1)
            stage.join(elsewhere, one)
            stage.join(2, two)
            stage.pass(60_000)
            if isDoubtful { _ = stage.check(one) }
            _ = stage.take()
            stage.on { $0.leave(elsewhere, .unanswered, now: $1) }
            #expect(stage.take() == [.absent(one, knocks: true)])
            #expect(stage.timers.isEmpty)
        }
    }

    @Test func aStaleSocketDoesNotCountAsPresent() {
        var stage = PresenceStage()
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
        var stage = PresenceStage()
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
        var stage = PresenceStage()
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
        var stage = PresenceStage()
        stage.join(2, two)
        _ = stage.take()
        stage.on { $0.checkAgain(one, at: $1 + 30_000, now: $1) }
        #expect(stage.presence.mayKnock(in: Self.room, isAlone: true))
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
        var stage = PresenceStage()
        for number in 0..<30_000 {
            if number % 30 == 0 { stage.now += 1 }
            if number % 2 == 0 { stage.report(one) } else { stage.on { $0.reportLeaving(one, now: $1) } }
        }
        #expect(stage.timers.count == 1 && stage.presence.roomCount == 1)
        #expect(!stage.presence.mayKnock(in: Self.room, isAlone: true))
        stage.pass(60_000)
        #expect(stage.timers.isEmpty && stage.presence.roomCount == 0)
    }

    @Test func theRoomIDIsNeededWhileAKnockMayFollow() {
        var stage = PresenceStage()
        stage.report(one)
        #expect(!stage.presence.mayKnock(in: Self.room, isAlone: true))
        #expect(stage.presence.mayKnock(in: Self.room, isAlone: false), "the peer may arrive at another node")
        stage.report(two)
        #expect(stage.presence.mayKnock(in: Self.room, isAlone: true))
        stage.pass(60_000)
        #expect(!stage.presence.mayKnock(in: Self.room, isAlone: true) && stage.presence.roomCount == 0)
        stage.join(1, one)
        #expect(stage.presence.mayKnock(in: Self.room, isAlone: true))
        stage.on { presence, _ in presence.forget(Self.room).effects }
        #expect(stage.presence.roomCount == 0 && stage.presence.socketCount == 0)
    }

    /// A report that lapsed while the side had a socket needs no room id after a deliberate leave. The peer's node has it.
    @Test func aLapsedReportKeepsNoRoomID() {
        var stage = PresenceStage()
        stage.join(1, one)
        stage.report(one)
        stage.join(PresenceState.remoteSocket(2), two)
        stage.pass(46_000)
        #expect(stage.presence.mayKnock(in: Self.room, isAlone: false))
        stage.end(1, true)
        stage.pass(6_000)
        #expect(!stage.presence.isPresent(one) && stage.presence.isPresent(two))
        #expect(!stage.presence.mayKnock(in: Self.room, isAlone: false))
    }

    /// After random events a side has at most one timer, a side that waits has one, and no state is left in the end.
    @Test func randomEventsLeaveNoState() {
        for seed in 0..<200 as Range<UInt64> {
            let chance = Chance(seed: seed)
            var stage = PresenceStage()
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
