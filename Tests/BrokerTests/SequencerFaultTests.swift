import Broker
import EventLoop
import Linux
import Sealing
import Synchronization
import Testing

@testable import Ledger

/// Each write of a publication fails: it is not done, or done but reported as failed, or the broker is killed before or after it. Afterwards
/// the log verifies and contains all acknowledged operations.
@Suite struct SequencerFaultTests {
    /// The step of a publication that fails.
    enum FaultPoint: Sendable, CaseIterable, CustomStringConvertible {
        case refusals, closedEntries, commit, tiles, checkpoint, published

        /// The store's call, nil for the folder's.
        var call: FaultyStore.Call? {
            switch self {
            case .refusals: .record
            case .closedEntries: .closedEntries
            case .commit: .commit
            case .published: .published
            case .tiles, .checkpoint: nil
            }
        }

        /// The folder's last stage before the fault.
        func stage(_ isDone: Bool) -> LedgerFolder.Stage? {
            switch self {
            case .tiles: isDone ? .tiles : .begun
            case .checkpoint: isDone ? .checkpoint : .tiles
            default: nil
            }
        }

        var description: String { "\(self.call.map(\.rawValue) ?? (self == .tiles ? "tiles" : "checkpoint"))" }
    }

    struct Case: Sendable, CustomStringConvertible {
        var point: FaultPoint
        var fault: FaultyStore.Fault
        /// The number of faults in a row.
        var times: Int

        var description: String { "\(point) \(fault) \(times) times" }
        var isDone: Bool { fault == .doneAndFailed || fault == .doneAndKilled }
        var kills: Bool { fault == .killed || fault == .doneAndKilled }

        static let all = FaultPoint.allCases.flatMap { point in
            FaultyStore.Fault.allCases.filter { $0 != .none }.flatMap { fault in
                (fault == .failed || fault == .doneAndFailed ? [1, 2, 5] : [1]).map {
                    Case(point: point, fault: fault, times: $0)
                }
            }
        }
    }

    // Promise: publication-survives-faults
    @Test(arguments: Case.all) func aPublicationRecovers(story: Case) async throws {
        try await MachineClock.play("faults", wall: 1_800_000_000_000) { loop, machine in
            try await Story(story, loop, machine).play()
        }
    }

    /// Injects the faults of a case once it is armed.
    final class Fate: Sendable {
        private let story: Case
        private let left = Mutex(0)

        init(_ story: Case) { self.story = story }

        var isPending: Bool { left.withLock { $0 > 0 } }
        func arm() { left.withLock { $0 = story.times } }

        private func strikes() -> Bool {
            left.withLock { left in
                if left == 0 { return false }
                left -= 1
                return true
            }
        }

        func fault(at call: FaultyStore.Call) -> FaultyStore.Fault {
            call == story.point.call && strikes() ? story.fault : .none
        }

        func fault(at stage: LedgerFolder.Stage) throws(Errno) {
            if stage == story.point.stage(story.isDone), strikes() { throw Errno(code: 5, call: "a write") }
        }
    }

    actor Story: LoopActor {
        nonisolated let loop: EventLoop
        private nonisolated let story: Case
        private nonisolated let broker: SimulatedBroker
        private nonisolated let fate: Fate
        private nonisolated let facts = Facts()

        init(_ story: Case, _ loop: EventLoop, _ machine: MachineClock) throws {
            let fate = Fate(story)
            (self.story, self.loop, self.fate) = (story, loop, fate)
            broker = try SimulatedBroker(
                loop: loop, machine: machine, resolution: 1, fault: { fate.fault(at: $0) },
                folderFault: { (stage) throws(Errno) in try fate.fault(at: stage) })
        }

        func play() async throws {
            try await broker.start()
            try await makeRooms(3)
            await broker.advance(2_500)
            let before = try size()
            #expect(before >= 6)

            fate.arm()
            try await makeRooms(3)
            if story.kills, story.point.call == nil {
                // The folder fails, and then the broker is killed.
                while fate.isPending { await broker.advance(100) }
                await broker.kill()
            } else {
                // Each window needs new entries, because finished ones are not published again.
                for _ in 0..<12 where await !broker.isDead {
                    await broker.advance(1_000)
                    if fate.isPending, await !broker.isDead { try await makeRooms(1) }
                }
            }
            #expect(!fate.isPending, "the fault never came")
            if await broker.isDead { await broker.kill() }
            if await broker.run == nil {
                _ = try? await LogCheck(broker, facts).run(isOver: false)
                try await broker.start()
            } else {
                let told = broker.prints.all
                #expect(told.filter { $0.contains("can't publish") }.count == 1, "\(told)")
                #expect(told.last?.contains("publishing again") == true, "\(told)")
            }
            try await makeRooms(3)
            await broker.advance(2_500)
            #expect(try size() >= before + 6)
            await broker.stop()
            _ = try await LogCheck(broker, facts).run(isOver: false)
            // The next start finds a valid log.
            try await broker.start()
            await broker.stop()
            _ = try await LogCheck(broker, facts).run(isOver: false)
            await broker.runOut()
            try broker.remove()
        }

        /// Creates rooms, and a refusal.
        private func makeRooms(_ count: Int) async throws {
            await broker.run?.broker.recordRefusal(.notAMember)
            for _ in 0..<count { try await broker.makeRoom(facts) }
        }

        private func size() throws -> UInt64 {
            let note = try broker.ledger.checkpoint().flatMap { SignedNote($0) }
            return note?.checkpoint(signedBy: broker.key.verifierKey)?.size ?? 0
        }
    }
}
