import Policy
import Sealing
import Testing

@testable import Broker

/// The creator's app is suspended, and the joiner arrives. The phone rings within five seconds, whenever the app has last answered.
@Suite struct SuspendedPhoneTests {
    /// The app's last sign of life.
    enum Sign: CaseIterable { case join, pong, report }

    // Promise: suspended-phone-is-rung-in-five-seconds
    @Test(arguments: Sign.allCases, [true, false])
    func aPhoneIsRungAtAnyOffset(sign: Sign, joins: Bool) async throws {
        try await MeetingStage.play { stage in
            for (number, offset) in stride(from: 0, through: 5_000 as UInt64, by: 100).enumerated() {
                try await stage.makeRoom()
                await stage.pass(10_000)
                let creator = UInt64(10 * number + 11)
                try await stage.live(creator, until: sign)
                await stage.pass(offset)
                let arrival = stage.machine.monotonic
                let waiting = creator + 2
                let report = joins ? nil : try await stage.reporting(2)
                if joins { #expect(try await stage.join(2, waiting) == .peerPresent) }
                await stage.pass(40_000)
                let waits = await stage.pushes(1).map { $0 - arrival }
                #expect(waits.count == 1 && waits[0] <= 5_000, "\(sign), \(offset) ms: \(waits)")
                if let report {
                    #expect(try await report.value == (offset < 2_000 ? .peerPresent : .queued), "\(sign), \(offset) ms")
                } else {
                    #expect(stage.sockets.heard(waiting) == [.peerLeft(.queued)], "\(sign), \(offset) ms")
                    try await stage.end(waiting, isDeliberate: true)
                }
                try await stage.end(creator, isDeliberate: false)
            }
        }
    }

    /// The push of an earlier knock is withdrawn because the creator has just come, and its app is suspended then.
    @Test func aWithdrawnPushIsFollowedByACheck() async throws {
        let timed = try Policy.rooms(#""sendSlotSeconds": 30,"#)
        try await MeetingStage.play(timed) { stage in
            // The push leaves at a multiple of 30 s.
            await stage.pass(30_000 - stage.machine.wall % 30_000)
            #expect(try await stage.join(2, 2) == .queued)
            await stage.pass(29_000)
            let arrival = stage.machine.monotonic
            _ = try await stage.join(1, 1, answers: false)
            await stage.pass(5_000)
            #expect(stage.sockets.heard(2) == [.peerJoined, .peerLeft(.queued)])
            await stage.pass(100_000)
            #expect(await stage.pushes(1).map { ($0 - arrival) / 1_000 } == [31])
        }
    }

    /// A side that has just come leaves deliberately before it could be checked.
    @Test func aDeliberateLeaveEndsTheCheck() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1, answers: false)
            _ = try await stage.join(2, 2)
            await stage.pass(1_000)
            try await stage.end(1, isDeliberate: true)
            await stage.pass(600_000)
            #expect(await stage.pushes(1).isEmpty)
            #expect(stage.sockets.heard(2) == [.peerLeft(nil)])
        }
    }

    /// The joiner comes, goes and comes again within the limit. There are one room id and one timer for the side.
    @Test func arrivalsWithinTheLimitShareOneCheck() async throws {
        try await MeetingStage.play { stage in
            _ = try await stage.join(1, 1)
            await stage.pass(60_000)
            let used = Arena.shared.used
            _ = try await stage.join(2, 2)
            await stage.pass(0)
            stage.sockets.open(1, answers: false)
            for socket: UInt64 in 3...5 {
                await stage.pass(300)
                try await stage.end(socket - 1, isDeliberate: true)
                #expect(try await stage.join(2, socket) == .peerPresent)
                let counts = try await stage.broker.presence.counts
                #expect(counts.timers == 1 && counts.knockers == 1 && Arena.shared.used <= used)
            }
            await stage.pass(4_100)
            #expect(stage.sockets.pings(1) == [1, 2])
            #expect(await stage.pushes(1).count == 1)
            #expect(stage.sockets.heard(5) == [.peerLeft(.queued)])
        }
    }
}

extension MeetingStage {
    /// Opens a socket of the creator, whose app is suspended just after this sign of life.
    func live(_ socket: UInt64, until sign: SuspendedPhoneTests.Sign) async throws {
        _ = try await join(1, socket)
        if sign != .join { await pass(60_000) }
        switch sign {
        case .join: break
        case .report: _ = try await report(1)
        case .pong:
            _ = try await join(2, socket + 1)
            // The ping and its answer.
            await pass(0)
            try await end(socket + 1, isDeliberate: true)
        }
        sockets.open(socket, answers: false)
    }
}
