import Broker
import Courier
import EventLoop
import Ledger
import Linux
import Sealing
import Testing

/// Single steps of the clock, and their effects on a broker and its log. `HonestLogTests` has random ones.
@Suite struct ClockTests {
    static let hour: Int64 = 3_600_000

    private func play(
        resolution: UInt64 = 1,
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none }, pushesTakeMs: UInt64 = 50,
        _ story: @escaping @Sendable (SimulatedBroker, Facts) async throws -> Void
    ) async throws {
        try await MachineClock.play("clocks") { loop, machine in
            let (broker, facts) = (
                try SimulatedBroker(
                    loop: loop, machine: machine, resolution: resolution, fault: fault,
                    script: { _ in (pushesTakeMs, .delivered) }),
                Facts()
            )
            try await story(broker, facts)
            await broker.stop()
            _ = try await LogCheck(broker, facts).run(isOver: false)
            await broker.runOut()
            try broker.remove()
        }
    }

    @Test func aClockCorrectedDuringARestartStopsNothing() async throws {
        try await play { broker, facts in
            try await broker.start()
            try await broker.makeRoom(facts)
            broker.machine.step(Self.hour)
            try await broker.makeRoom(facts)
            let later = try #require(await broker.run?.time.now)
            // Only the log has the later time. No ratchet step has recorded it.
            await broker.kill()
            broker.machine.step(-Self.hour)
            try await broker.start()
            #expect(try #require(await broker.run?.time.now) >= later / 1_000 * 1_000)
            try await broker.makeRoom(facts, lifeSeconds: 60)
            // A minute at half the pace.
            await broker.advance(125_000)
            #expect(try await entries(broker).filter { $0.hasPrefix("token.purged") }.count == 1)
        }
    }

    /// A step that is recorded but reported as failed must not be recorded again each second, which would delay the steps after it.
    @Test func aRatchetStepIsRecordedOnce() async throws {
        let fault: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { $0 == .record ? .doneAndFailed : .none }
        try await play(resolution: 60, fault: fault) { broker, facts in
            try await broker.start()
            await broker.advance(1_860_000)
            let told = try await entries(broker).filter { $0.hasPrefix("keys.ratcheted") }
            #expect(told.count >= 5 && Set(told).count == told.count, "\(told)")
        }
    }

    @Test func theRatchetFollowsAClockStepInAMinute() async throws {
        try await play { broker, facts in
            try await broker.start()
            try await broker.makeRoom(facts)
            await broker.advance(20_000)
            let keys = try #require(await broker.run?.keys)
            let before = keys.baseEpoch
            broker.machine.step(2 * Self.hour)
            await broker.advance(45_000)
            #expect(keys.baseEpoch == before, "held")
            // The clock is corrected too late: broker time does not go back.
            broker.machine.step(-2 * Self.hour)
            await broker.advance(29_000)
            #expect(keys.baseEpoch == before, "a quarter of a minute at half the pace")
            // The keeper then checks every second, because the ratchet must catch up within two minutes.
            await broker.advance(3_500)
            #expect(keys.baseEpoch.number == before.number + 24)
            #expect(broker.prints.all.filter { $0.hasPrefix("clock: the wall clock stepped") }.count == 2)
            try await broker.makeRoom(facts)
            await broker.advance(900_000)
        }
    }

    /// A clock is set forward by hours, and then several times by less than a minute, which no verifier takes for a gap. Meanwhile the sweeper still
    /// sleeps, and a push has no answer until its deadline.
    @Test(arguments: [1_000, 6_000, 11_000, 16_000, 21_000, 26_000])
    func manySmallStepsMakeNothingLate(phase: UInt64) async throws {
        try await play(pushesTakeMs: 119_000) { broker, facts in
            try await broker.start()
            try await broker.makeRoom(facts, lifeSeconds: 3_600)
            await broker.advance(60_000 + phase)
            broker.machine.step(10 * Self.hour)
            await broker.advance(2_000)
            let room = try await broker.makeRoom(facts, lifeSeconds: 3_600)
            let rooms = try #require(await broker.run?.broker.rooms)
            let joiner = AcceptRoom(joinid: room.code, client: Facts.joiner, address: nil)
            _ = try await rooms.accept(joiner, from: .v4(0xc633_6401, port: 9))
            let knock = try await rooms.report(Caller(room: room.id, client: Facts.joiner, member: nil), leaving: false)
            #expect(knock == .queued)
            for _ in 0..<14 {
                broker.machine.step(58_000)
                await broker.advance(1_000)
            }
            await broker.advance(180_000)
        }
    }

    @Test func theNextStartRecordsAMissingRatchetStep() async throws {
        let kills = Kills()
        try await play(fault: kills.fault(at:)) { broker, facts in
            try await broker.start()
            try await broker.makeRoom(facts)
            await broker.advance(2_000)
            #expect(try await entries(broker).contains("keys.generated 1"))
            kills.arm()
            await broker.advance(600_000)
            #expect(await broker.isDead, "the step of the next epoch was to be recorded")
            let epoch = try #require(await broker.run?.keys.baseEpoch.number) - 1
            await broker.kill()
            try await broker.start()
            await broker.advance(2_000)
            #expect(try await entries(broker).suffix(4).contains("keys.ratcheted \(epoch)"))
        }
    }

    /// Kills the broker at the next entry that belongs to no caller's operation.
    private final class Kills: Sendable {
        private let isArmed = Flag()

        func arm() { isArmed.set(true) }
        func fault(at call: FaultyStore.Call) -> FaultyStore.Fault {
            guard call == .record, isArmed.isSet else { return .none }
            isArmed.set(false)
            return .killed
        }
    }

    /// The published entries in words.
    private func entries(_ broker: SimulatedBroker) async throws -> [String] {
        try await broker.entries().map { entry in
            switch entry.op {
            case .keysRatcheted(let epoch, _): "keys.ratcheted \(epoch)"
            case .keysGenerated(let generation): "keys.generated \(generation)"
            case .tokenPurged(let id, _): "token.purged \(id)"
            case .brokerStarted: "broker.started"
            default: "other"
            }
        }
    }
}
