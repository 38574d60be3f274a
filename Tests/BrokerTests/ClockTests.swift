import Broker
import EventLoop
import Ledger
import Sealing
import Testing

/// What leaps of the clock do to a broker and its log, one at a time. Random ones: `HonestLogTests`.
@Suite struct ClockTests {
    static let hour: Int64 = 3_600_000

    private func play(
        resolution: UInt64 = 1,
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none },
        _ story: @escaping @Sendable (SimulatedBroker, Facts) async throws -> Void
    ) async throws {
        let machine = MachineClock(wall: 1_800_000_010_000)
        let loop = try EventLoop(name: "clocks") { machine.monotonic }
        try loop.start()
        try await Task(executorPreference: loop) {
            let (broker, facts) = (
                try SimulatedBroker(loop: loop, machine: machine, resolution: resolution, fault: fault), Facts()
            )
            try await story(broker, facts)
            await broker.stop()
            _ = try await LogCheck(broker, facts).run(isOver: false)
            await broker.runOut()
            try broker.remove()
        }.value
        loop.stop()
        loop.join()
    }

    @Test func aClockPutRightOverARestartStopsNothing() async throws {
        try await play { broker, facts in
            try await broker.start()
            try await broker.makeRoom(facts)
            broker.machine.step(Self.hour)
            try await broker.makeRoom(facts)
            let later = try #require(await broker.run?.time.now)
            // Not a single ratchet step tells the next run of the later time, only the log.
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

    /// A step that was recorded and reported failed would be told each second, and hold up those after it.
    @Test func aStepIsToldOnce() async throws {
        let fault: @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { $0 == .record ? .doneAndFailed : .none }
        try await play(resolution: 60, fault: fault) { broker, facts in
            try await broker.start()
            await broker.advance(1_860_000)
            let told = try await entries(broker).filter { $0.hasPrefix("keys.ratcheted") }
            #expect(told.count >= 5 && Set(told).count == told.count, "\(told)")
        }
    }

    @Test func theRatchetFollowsALeapInAMinute() async throws {
        try await play { broker, facts in
            try await broker.start()
            try await broker.makeRoom(facts)
            await broker.advance(20_000)
            let keys = try #require(await broker.run?.keys)
            let before = keys.baseEpoch
            broker.machine.step(2 * Self.hour)
            await broker.advance(45_000)
            #expect(keys.baseEpoch == before, "held")
            // Put right, and too late: broker time does not go back.
            broker.machine.step(-2 * Self.hour)
            await broker.advance(29_000)
            #expect(keys.baseEpoch == before, "a quarter of a minute at half the pace")
            // The keeper looks every second then: there are two minutes for all this.
            await broker.advance(3_500)
            #expect(keys.baseEpoch.number == before.number + 24)
            #expect(broker.prints.all.filter { $0.hasPrefix("clock: the wall clock stepped") }.count == 2)
            try await broker.makeRoom(facts)
            await broker.advance(900_000)
        }
    }

    @Test func aStepThatTheLogWasNotToldOfIsToldByTheNextStart() async throws {
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

    /// Kills at the next entry that belongs to no caller's operation.
    private final class Kills: Sendable {
        private let isArmed = Flag()

        func arm() { isArmed.set(true) }
        func fault(at call: FaultyStore.Call) -> FaultyStore.Fault {
            guard call == .record, isArmed.isSet else { return .none }
            isArmed.set(false)
            return .killed
        }
    }

    /// What is published, as the op and what it is about.
    private func entries(_ broker: SimulatedBroker) async throws -> [String] {
        guard let bytes = try broker.ledger.checkpoint(), let note = SignedNote(bytes),
            let head = note.checkpoint(signedBy: broker.key.verifierKey)
        else { return [] }
        let reader = TileReader(FolderSource(broker.ledger.path), size: head.size)
        var lines: [String] = []
        for bundle in 0..<(head.size + 255) / 256 {
            for bytes in try await reader.entries(bundle: bundle) {
                switch try Entry(canonical: bytes.span).op {
                case .keysRatcheted(let epoch, _): lines.append("keys.ratcheted \(epoch)")
                case .keysGenerated(let generation): lines.append("keys.generated \(generation)")
                case .tokenPurged(let id, _): lines.append("token.purged \(id)")
                case .brokerStarted: lines.append("broker.started")
                default: lines.append("other")
                }
            }
        }
        return lines
    }
}
