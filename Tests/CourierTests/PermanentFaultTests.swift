import APNsSimulator
import EventLoop
import Linux
import Sealing
import Testing
import Vocabulary

@testable import Courier

/// What other clients of APNs got wrong, as far as no other suite of this module shows it.
@Suite(.timeLimit(.minutes(1))) struct PermanentFaultTests {
    /// For a server whose clock is 20 minutes ahead, a token of 45 minutes is too old and a new one is not.
    @Test func anExpiredProviderTokenBlocksNoPush() async throws {
        let old = Clock.wallMs / 1000 - 45 * 60
        let setting = try SimulatedAPNs.setting { ($0.issuedAtS, $0.aheadMs) = (old, 20 * 60_000) }
        try await SimulatedAPNs.play(setting) { world in
            let outcomes = await world.send(1...100)
            #expect(outcomes.allSatisfy { $0 == .delivered }, "\(outcomes.filter { $0 != .delivered })")
            #expect(await world.accepted.count == 100)
            #expect(await world.connections == 2)
            #expect(Array(await world.simulator.counts.refused.keys) == ["ExpiredProviderToken"])
            #expect(world.issued.all.count == 2)
        }
    }

    /// One for each reaction; ReactionTests and CourierTests show the same of servers that refuse, reset or hang up forever. With backoffs
    /// from 10 to 100 ms, and half of each at least, attempts to connect begin after 0, 5, 15, 35, 75, 125, 175 and 225 ms.
    @Test(arguments: [
        Fault(.shutdown), Fault(.tooManyRequests), .with { ($0.goaway, $0.refuse) = (true, true) }, .with { $0.form.half = true },
    ])
    func noPermanentFaultCausesABusyLoop(fault: Fault) async throws {
        try await SimulatedAPNs.play { world in
            await world.plan(always: [fault])
            let outcome = await world.send { $0.deadlineMs = Clock.wallMs + 250 }
            #expect(outcome != .delivered)
            #expect(await world.refusals <= FaultyPeerTests.mostConnections)
            #expect(await world.connections <= FaultyPeerTests.mostConnections)
        }
    }

    /// Neither outcomes nor alarms, nor what either prints or dumps, hold a token, wherever in a request's life it fails.
    // Promise: no-secret-in-alarms
    @Test func outcomesAndAlarmsContainNoToken() async throws {
        try await SimulatedAPNs.play { world in
            var text = ""
            for (number, fault) in (AnswerRows.rows.map { Fault($0.0) } + ConnectionRows.worst.map(\.1)).enumerated() {
                await world.plan(always: [fault])
                dump(await world.send(number + 1) { $0.deadlineMs = Clock.wallMs + 150 }, to: &text)
            }
            await world.simulator.stop()
            dump(await world.send(999) { $0.deadlineMs = Clock.wallMs + 60 }, to: &text)
            dump(world.alarms.all, to: &text)
            text += "\(world.alarms.all)"
            #expect(text.contains("badTopic") && text.contains("can't be reached"))
            #expect(!text.lowercased().contains("deadbeef"))
            #expect(!text.contains("222, 173, 190, 239"))
            #expect(!text.contains("/3/device"))
            #expect(!text.contains("eyJ"))
        }
    }
}
