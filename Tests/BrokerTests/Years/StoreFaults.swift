import Linux
import Synchronization

@testable import Ledger

/// Faults of the store's calls and of the log's folder in a life, drawn from its seed.
final class StoreFaults: Sendable {
    private struct State {
        var callsToKill: UInt64?
        var fullUntil: UInt64 = 0
        var flakyUntil: UInt64 = 0
        var folderFailsUntil: UInt64 = 0
        var stepInStore: (after: UInt64, by: Int64)?
        /// When the last fault had an effect, on the monotonic clock.
        var lastAt: UInt64 = 0
    }

    private let chance: Chance
    private let machine: MachineClock
    private let state = Mutex(State())

    init(seed: UInt64, _ machine: MachineClock) { (chance, self.machine) = (Chance(seed: seed), machine) }

    func kill(after calls: UInt64) { state.withLock { $0.callsToKill = calls } }
    func endKilling() { state.withLock { $0.callsToKill = nil } }
    func fillDisk(forMs length: UInt64) { state.withLock { $0.fullUntil = machine.monotonic + length } }
    func beFlaky(forMs length: UInt64) { state.withLock { $0.flakyUntil = machine.monotonic + length } }
    func failFolder(forMs length: UInt64) { state.withLock { $0.folderFailsUntil = machine.monotonic + length } }
    func stepInStore(after readings: UInt64, by step: Int64) { state.withLock { $0.stepInStore = (readings, step) } }

    /// Ends all faults.
    func end() {
        state.withLock { state in
            (state.callsToKill, state.stepInStore) = (nil, nil)
            (state.fullUntil, state.flakyUntil, state.folderFailsUntil) = (0, 0, 0)
        }
    }

    /// When the last fault had an effect or may have one, on the monotonic clock.
    var lastAt: UInt64 {
        state.withLock { state in
            let now = machine.monotonic
            let isActive = state.callsToKill != nil || max(state.fullUntil, state.flakyUntil, state.folderFailsUntil) > now
            return isActive ? now : state.lastAt
        }
    }

    /// Called on the store's thread before it reads the clock.
    func storeAsksTheTime() {
        let step: Int64? = state.withLock { state in
            guard let step = state.stepInStore else { return nil }
            state.stepInStore = step.after == 0 ? nil : (step.after - 1, step.by)
            state.lastAt = machine.monotonic
            return step.after == 0 ? step.by : nil
        }
        if let step { machine.step(step) }
    }

    /// Called at each call of the store.
    func fault(at call: FaultyStore.Call) -> FaultyStore.Fault {
        state.withLock { state in
            let now = machine.monotonic
            if let calls = state.callsToKill {
                state.callsToKill = calls == 0 ? nil : calls - 1
                if calls == 0 {
                    state.lastAt = now
                    return chance.upTo(2) == 0 ? .killed : .doneAndKilled
                }
            }
            if now < state.fullUntil, call.writes {
                state.lastAt = now
                return chance.upTo(10) == 0 ? .doneAndFailed : .failed
            }
            guard now < state.flakyUntil, chance.upTo(4) == 0 else { return .none }
            state.lastAt = now
            return chance.upTo(2) == 0 ? .doneAndFailed : .failed
        }
    }

    /// Called at each stage of a publication.
    func atFolder(_ stage: LedgerFolder.Stage) throws(Errno) {
        let fails = state.withLock { state in
            guard machine.monotonic < state.folderFailsUntil, chance.upTo(3) == 0 else { return false }
            state.lastAt = machine.monotonic
            return true
        }
        if fails { throw Errno(code: 28, call: "a write") }
    }
}
