import Broker
import Ledger
import Policy
import Sealing
import Storage
import Synchronization
import Vocabulary

/// Random numbers of a story, the same for the same seed.
final class Chance: Sendable {
    private let state: Mutex<UInt64>

    init(seed: UInt64) { state = Mutex(seed &* 0x2545_f491_4f6c_dd1d &+ 1) }

    func next() -> UInt64 {
        state.withLock { state in
            state &+= 0x9e37_79b9_7f4a_7c15
            var mixed = state
            mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
            mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
            return mixed ^ mixed >> 31
        }
    }

    /// 0 and less than `end`.
    func upTo(_ end: UInt64) -> UInt64 { end == 0 ? 0 : next() % end }
    func pick<Element>(_ list: [Element]) -> Element { list[Int(upTo(UInt64(list.count)))] }

    /// The time between two events, ms.
    func pause() -> UInt64 {
        switch upTo(20) {
        case ..<11: upTo(2_000)
        case ..<19: upTo(20_000)
        default: upTo(200_000)
        }
    }

    /// How long no broker runs, ms.
    func absence() -> UInt64 {
        switch upTo(5) {
        case 0: upTo(5_000)
        case 1: upTo(120_000)
        case 2: 60_000 + upTo(300_000)
        case 3: 500_000 + upTo(200_000)
        default: upTo(18_000_000)
        }
    }

    /// A step of the clock, ms.
    func step() -> Int64 {
        let size = [upTo(5_000), upTo(60_000), 60_000 + upTo(400_000), upTo(18_000_000)][Int(upTo(4))]
        return upTo(2) == 0 ? Int64(size) : -Int64(size)
    }

    /// Batches and buckets that fit a story of minutes.
    func timing(_ resolution: UInt64) -> LedgerTiming {
        let (hours, days): ([UInt64], [UInt64]) = resolution == 1 ? ([1, 5, 60], [1, 2]) : ([60, 300, 600, 3_600], [1, 2, 4])
        let hour = pick(hours)
        return LedgerTiming(hourSeconds: hour, daySeconds: hour * pick(days), batchSeals: pick([1, 2, 4, 64]))
    }

    /// A room's life in seconds. It often ends near the boundary of an epoch.
    func life(from now: UInt64) -> Int {
        switch upTo(4) {
        case 0: return Int(10 + upTo(50))
        case 1: return Int(60 + upTo(600))
        case 2: return Int(600 + upTo(3_000))
        default:
            let toEpoch = 300 - now / 1_000 % 300 + 300 * upTo(3)
            return max(10, Int(toEpoch) - 1 + Int(upTo(3)))
        }
    }
}

/// Faults of the broker's calls of its store.
final class Trouble: Sendable {
    private struct State {
        var callsToKill: UInt64?
        var fullUntil: UInt64 = 0
        var laterStep: (at: UInt64, by: Int64)?
        var stepInStore: (after: UInt64, by: Int64)?
        var isOver = false
        var hasStruck = false
    }

    private let state = Mutex(State())

    func kill(after calls: UInt64) { state.withLock { $0.callsToKill = calls } }
    func endKilling() { state.withLock { $0.callsToKill = nil } }
    func fillDisk(until end: UInt64) { state.withLock { $0.fullUntil = end } }
    func stepLater(at time: UInt64, by step: Int64) { state.withLock { $0.laterStep = (time, step) } }

    func stepInStore(after readings: UInt64, by step: Int64) { state.withLock { $0.stepInStore = (readings, step) } }

    /// Ends all faults.
    func end() {
        state.withLock { state in
            (state.isOver, state.callsToKill, state.fullUntil) = (true, nil, 0)
            (state.laterStep, state.stepInStore) = (nil, nil)
        }
    }

    /// Called on the store's thread before it reads the clock.
    func stepNow(_ machine: MachineClock) {
        state.withLock { state in
            guard let step = state.stepInStore else { return }
            state.stepInStore = step.after == 0 ? nil : (step.after - 1, step.by)
            if step.after == 0 { machine.step(step.by) }
        }
    }

    /// True if a fault occurred since the last call.
    func hasStruck() -> Bool {
        state.withLock { state in
            defer { state.hasStruck = false }
            return state.hasStruck
        }
    }

    /// Called by the store at each call.
    func fault(at call: FaultyStore.Call, _ chance: Chance, _ machine: MachineClock) -> FaultyStore.Fault {
        state.withLock { state in
            if state.isOver { return .none }
            if let step = state.laterStep, machine.monotonic >= step.at {
                state.laterStep = nil
                machine.step(step.by)
            }
            if let calls = state.callsToKill {
                state.callsToKill = calls == 0 ? nil : calls - 1
                if calls == 0 {
                    state.hasStruck = true
                    return chance.upTo(2) == 0 ? .killed : .doneAndKilled
                }
            }
            let isFull = machine.monotonic < state.fullUntil
            guard (isFull && call.writes) || chance.upTo(400) == 0 else { return .none }
            state.hasStruck = true
            return chance.upTo(isFull ? 10 : 2) == 0 ? .doneAndFailed : .failed
        }
    }
}

/// The acknowledgements of callers, which the log must contain.
final class Facts: Sendable {
    struct Room: Sendable {
        var id: RoomID
        var code: [UInt8]
        var accepted = false
        var number = 0
    }

    private struct State {
        var rooms: [Room] = []
        var number = 0
        var refs: [Ref] = []
        var queued = 0
        var delivered = 0
        var messages = 0
    }

    static let (creator, joiner) = (Array("creator".utf8), Array("joiner".utf8))
    private let state = Mutex(State())

    var refs: [Ref] { state.withLock { $0.refs } }
    var pushes: Int { state.withLock { $0.queued } }
    var rooms: [Room] { state.withLock { $0.rooms } }

    func nextNumber() -> Int {
        state.withLock { state in
            state.number += 1
            return state.number
        }
    }

    /// Returns one of the latest rooms.
    func room(_ chance: Chance) -> Room? {
        state.withLock { state in
            state.rooms.isEmpty ? nil : state.rooms[state.rooms.count - 1 - Int(chance.upTo(UInt64(min(6, state.rooms.count))))]
        }
    }

    func made(_ room: Room, _ ref: Ref?) {
        state.withLock { state in
            state.number += 1
            var room = room
            room.number = state.number
            state.rooms.append(room)
            if let ref { state.refs.append(ref) }
        }
    }

    func accepted(_ room: Room) {
        state.withLock { state in
            if let place = state.rooms.firstIndex(where: { $0.number == room.number }) { state.rooms[place].accepted = true }
        }
    }

    func closed(_ room: Room) { state.withLock { $0.rooms.removeAll { $0.number == room.number } } }
    func sealed(_ ref: Ref?) { state.withLock { $0.refs += ref.map { [$0] } ?? [] } }
    /// A message that came to a Web Push service.
    func sentMessage() { state.withLock { $0.messages += 1 } }
    var messages: Int { state.withLock { $0.messages } }
    func queued() { state.withLock { $0.queued += 1 } }
    /// A push that is certainly in the log as delivered.
    func delivered() { state.withLock { $0.delivered += 1 } }
    var deliveries: Int { state.withLock { $0.delivered } }
}
