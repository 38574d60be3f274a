import Policy
import Sealing
import Storage
import Testing

@testable import Broker

/// Two people and their phones. An absent peer is always rung, a present one never.
@Suite struct MeetingTests {
    // Promise: suspended-phone-is-rung
    @Test func aSuspendedPhoneIsRung() async throws {
        try await MeetingStage.play { stage in
            #expect(try await stage.join(1, 1, answers: false) == .queued)
            await stage.pass(60_000)
            let arrival = stage.machine.monotonic
            #expect(try await stage.join(2, 2) == .peerPresent)
            await stage.pass(600_000)
            let pushes = await stage.pushes(1)
            #expect(pushes.map { $0 - arrival } == [2_000])
            #expect(stage.sockets.heard(2) == [.peerLeft(.queued)])
            // Its connection is closed at last.
            try await stage.end(1, isDeliberate: false)
            await stage.pass(600_000)
            #expect(await stage.pushes(1).count == 1)
            #expect(stage.sockets.heard(2) == [.peerLeft(.queued)])
        }
    }

    @Test func aReportWaitsForTheProbe() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1, answers: false)
            await stage.pass(60_000)
            let reports = [try await stage.reporting(2), try await stage.reporting(2)]
            await stage.pass(2_000)
            #expect(try await reports[0].value == .queued)
            #expect(try await reports[1].value == .queued, "one knock answers both")
            #expect(stage.sockets.pings(1) == [1])
            await stage.pass(20_000)
            #expect(await stage.pushes(1).count == 1)
        }
    }

    // Promise: whoever-answers-is-not-rung
    @Test func anAnsweringPhoneIsNotRung() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1)
            await stage.pass(60_000)
            #expect(try await stage.report(2) == .peerPresent)
            #expect(try await stage.join(2, 2) == .peerPresent)
            await stage.pass(60_000)
            #expect(await stage.pushes(1).isEmpty)
            #expect(stage.sockets.pings(1) == [1, 2], "the second arrival is checked when a probe is allowed")
        }
    }

    @Test func closingARoomAnswersWaitingReports() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1, answers: false)
            await stage.pass(60_000)
            let report = try await stage.reporting(2)
            await stage.pass(500)
            _ = try await stage.broker.rooms.close(try stage.caller(1).room)
            await #expect(throws: BrokerError.roomNotFound) { try await report.value }
            let state = try await stage.broker.presence.counts
            #expect(state == Presence.Counts())
        }
    }

    // Promise: lost-connection-is-rung
    @Test func aBrokenConnectionRingsAfterTheGrace() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1)
            _ = try await stage.join(2, 2)
            await stage.pass(60_000)
            let end = stage.machine.monotonic
            try await stage.end(1, isDeliberate: false)
            await stage.pass(60_000)
            #expect(await stage.pushes(1).map { $0 - end } == [5_000])
            #expect(stage.sockets.heard(2) == [.peerLeft(.queued)])
        }
    }

    // Promise: grace-of-five-seconds
    @Test func aReconnectWithinTheGracePreventsTheRing() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1)
            _ = try await stage.join(2, 2)
            await stage.pass(60_000)
            try await stage.end(1, isDeliberate: false)
            await stage.pass(4_000)
            #expect(try await stage.join(1, 3) == .peerPresent)
            await stage.pass(60_000)
            #expect(await stage.pushes(1).isEmpty)
            #expect(stage.sockets.heard(2).isEmpty)
        }
    }

    // Promise: deliberate-leave-is-not-rung
    @Test func aDeliberateLeaveRingsOnlyForALaterArrival() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1)
            _ = try await stage.join(2, 2)
            await stage.pass(60_000)
            try await stage.end(1, isDeliberate: true)
            #expect(try await stage.report(1, leaving: true) == .none)
            await stage.pass(600_000)
            #expect(await stage.pushes(1).isEmpty)
            #expect(stage.sockets.heard(2) == [.peerLeft(nil)])
            #expect(try await stage.report(2) == .queued)
        }
    }

    @Test func aLapsedReportIsFollowedByAKnock() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.report(1)
            _ = try await stage.join(2, 2)
            await stage.pass(120_000)
            #expect(await stage.pushes(1).count == 1)
            #expect(stage.sockets.heard(2) == [.peerLeft(.queued)])
        }
    }

    /// Both arrive within 40 ms, 0 to 400 ms after the accept, over sockets or HTTP: no phone rings.
    // Promise: arriving-together-rings-nobody
    @Test func arrivingTogetherRingsNobody() async throws {
        try await MeetingStage.play { stage in
            let chance = Chance(seed: 7)
            var arrivals: [UInt64] = []
            for round in 0..<200 as Range<UInt64> {
                try await stage.makeRoom()
                await stage.pass(chance.upTo(400))
                arrivals.append(stage.machine.monotonic)
                let first = UInt8(1 + chance.upTo(2))
                if chance.upTo(2) == 0 {
                    _ = try await stage.join(first, 10 * round + 11)
                } else {
                    _ = try await stage.report(first)
                }
                await stage.pass(chance.upTo(40))
                #expect(try await stage.join(first == 1 ? 2 : 1, 10 * round + 12) == .peerPresent)
            }
            await stage.pass(20_000)
            for (room, arrival) in arrivals.enumerated() {
                // Later knocks follow from lapsed reports.
                let pushes = await stage.pushes(1, room: room + 1) + stage.pushes(2, room: room + 1)
                #expect(pushes.allSatisfy { $0 > arrival + 45_000 })
            }
        }
    }

    /// An absent creator is rung a quarter of a second later.
    @Test func aPushJustAfterAnAcceptIsHeld() async throws {
        try await MeetingStage.play { stage in
            try await stage.makeRoom()
            let arrival = stage.machine.monotonic
            #expect(try await stage.join(2, 2) == .queued)
            await stage.pass(10_000)
            #expect(await stage.pushes(1).map { $0 - arrival } == [250])
        }
    }

    @Test func aThrottledKnockIsRetried() async throws {
        try await MeetingStage.play { stage in
            let start = stage.machine.monotonic
            let deliveries = [try await stage.report(2), try await stage.join(2, 2)]
            #expect(deliveries == [.queued, .throttled])
            await stage.pass(120_000)
            #expect(await stage.pushes(1).map { ($0 - start) / 1_000 } == [0, 30])
        }
    }

    /// The store fails for a while. The push leaves when the store works again.
    @Test func aKnockThatCanNotBeStoredIsRetried() async throws {
        let isFull = Flag()
        let fault: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { $0 == .knock && isFull.isSet ? .failed : .none }
        try await MeetingStage.play(fault: fault) { stage in
            _ = try await stage.join(1, 1, answers: false)
            await stage.pass(60_000)
            isFull.set(true)
            let report = try await stage.reporting(2)
            _ = try await stage.join(2, 2)
            await stage.pass(12_000)
            await #expect(throws: BrokerError.storageUnavailable) { try await report.value }
            #expect(stage.sockets.heard(2) == [.peerLeft(.throttled)])
            isFull.set(false)
            await stage.pass(10_000)
            #expect(await stage.pushes(1).count == 1)
        }
    }

    /// The creator arrives while the push waits for its slot, and may be suspended again before the push leaves.
    @Test func aPushAboutToLeaveChecksItsSide() async throws {
        let timed = try Policy.rooms(#""sendSlotSeconds": 30,"#)
        for answers in [true, false] {
            try await MeetingStage.play(timed) { stage in
                #expect(try await stage.join(2, 2) == .queued)
                await stage.pass(2_000)
                _ = try await stage.join(1, 1, answers: answers)
                await stage.pass(100_000)
                #expect(await stage.pushes(1).count == (answers ? 0 : 1))
                #expect(stage.sockets.heard(2) == (answers ? [.peerJoined] : [.peerJoined, .peerLeft(nil)]))
                // The cancelled push releases the throttle.
                if answers {
                    try await stage.end(1, isDeliberate: true)
                    await stage.pass(6_000)
                    #expect(try await stage.report(2) == .queued)
                }
            }
        }
    }

    // Promise: start-grace
    @Test func aKnockAfterARestartWaitsForThePeer() async throws {
        for returns in [true, false] {
            try await MeetingStage.play { stage in
                _ = try await stage.join(1, 1)
                try await stage.restart()
                let start = stage.machine.monotonic
                #expect(try await stage.report(2) == .queued)
                await stage.pass(5_000)
                if returns { _ = try await stage.join(1, 3) }
                await stage.pass(60_000)
                #expect(await stage.pushes(1).map { ($0 - start) / 1_000 } == (returns ? [] : [15]))
            }
        }
    }

    /// 6,000 reports and joins in a second: five changes a second at most, eight sockets, two timers, one room id.
    @Test func aFloodOfReportsStaysWithinItsShare() async throws {
        try await MeetingStage.play { stage in
            let broker = try await stage.broker
            _ = try await stage.join(1, 1)
            try await stage.end(1, isDeliberate: true)
            let used = Arena.shared.used
            var taken = 0
            for number in 0..<6_000 {
                do {
                    if number % 3 == 0 {
                        _ = try await stage.join(2, UInt64(1_000 + number))
                    } else {
                        _ = try await stage.report(2, leaving: number % 3 == 1)
                    }
                    taken += 1
                } catch {
                    guard case .tooManyRequests(retryAfterSeconds: 4...5) = BrokerError(thrown: error) else { throw error }
                }
                if number % 6 == 0 { await stage.pass(1) }
                if number % 100 == 0 {
                    let state = await broker.presence.counts
                    #expect(state.timers <= 2 && state.knockers <= 1 && state.sockets <= 8 && state.ends <= 1)
                    #expect(Arena.shared.used - min(used, Arena.shared.used) < 64)
                }
            }
            #expect(taken == 5)
            #expect(await broker.presence.counts.sockets <= 8)
        }
    }

    @Test func theNinthSocketReplacesTheMostSilent() async throws {
        try await MeetingStage.play { stage in
            for socket: UInt64 in 1...20 {
                _ = try await stage.join(1, socket)
                await stage.pass(1_000)
            }
            #expect(stage.sockets.closed == Array(1...12))
            #expect(try await stage.broker.presence.counts.sockets == 8)
        }
    }
}

extension Presence {
    struct Counts: Equatable {
        var timers = 0
        var knockers = 0
        var sockets = 0
        var ends = 0
        var reports = 0
    }

    var counts: Counts {
        Counts(
            timers: timers.count, knockers: knockers.count, sockets: socketCount, ends: roomEnds.count,
            reports: waitingReports.count)
    }
}
