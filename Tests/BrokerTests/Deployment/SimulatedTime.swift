import Synchronization

@testable import EventLoop

/// The time of a deployment. It stands still while any machine has something to do, and then leaps to the next timer or event.
///
/// Machines and stores have threads of their own. Only the order in which the threads of one machine's store end their jobs at one moment is up to them:
/// of machines whose timers are due at one moment, each runs after the one before has come to rest.
final class SimulatedTime: Sendable {
    /// Something that happens at a moment, on the thread that moves the time.
    private struct Event {
        let at: UInt64
        let number: UInt64
        let happen: @Sendable () -> Void
    }

    private struct State {
        var now: UInt64
        /// The latest first.
        var events: [Event] = []
        var eventCount: UInt64 = 0
        var machines: [SimulatedMachine] = []
        /// Jobs of stores that have no answer yet, without those that wait for a later moment.
        var jobs = 0
        var whenAtRest: CheckedContinuation<Void, Never>?
    }

    private let state: Mutex<State>

    /// - Parameter start: unix ms.
    init(_ start: UInt64) { state = Mutex(State(now: start)) }

    /// Unix ms, as a perfect clock would show it.
    var now: UInt64 { state.withLock(\.now) }

    func add(_ machine: SimulatedMachine) {
        state.withLock { state in
            state.machines.append(machine)
            state.machines.sort { $0.number < $1.number }
        }
    }

    /// Lets something happen after some time. Events of one moment happen in the order of these calls.
    func after(_ ms: UInt64, _ happen: @escaping @Sendable () -> Void) {
        state.withLock { state in
            state.eventCount += 1
            let event = Event(at: state.now + ms, number: state.eventCount, happen: happen)
            // Few events wait, and most of them are near.
            let place = state.events.lastIndex { $0.at > event.at } ?? -1
            state.events.insert(event, at: place + 1)
        }
    }

    // MARK: Rest

    /// Changes the number of jobs that must end before time passes.
    func addJobs(_ change: Int) {
        state.withLock { $0.jobs += change }
        if change < 0 { look() }
    }

    /// Calls a machine's loop back if all are at rest now. Called whenever a machine has nothing left to do.
    func look() {
        let waiting: CheckedContinuation<Void, Never>? = state.withLock { state in
            guard state.whenAtRest != nil, Self.isAtRest(state) else { return nil }
            return state.whenAtRest.take()
        }
        waiting?.resume()
    }

    private static func isAtRest(_ state: State) -> Bool { state.jobs == 0 && state.machines.allSatisfy(\.isAtRest) }

    /// Waits until no machine has anything to do at this moment.
    func rest() async {
        await withCheckedContinuation { continuation in
            let isAtRest = state.withLock { state in
                if Self.isAtRest(state) { return true }
                state.whenAtRest = continuation
                return false
            }
            if isAtRest { continuation.resume() }
        }
    }

    // MARK: Passing

    /// Lets time pass.
    /// - Parameter isOver: asked at each moment at which something has happened. If it returns true, no more time passes.
    func pass(_ ms: UInt64, unless isOver: () -> Bool = { false }) async {
        let end = now + ms
        while true {
            await rest()
            if isOver() { return }
            switch next(before: end) {
            case .event(let happen): happen()
            case .timer(let machine): machine.wake()
            case nil: return
            }
        }
    }

    private enum Next {
        case event(@Sendable () -> Void)
        case timer(SimulatedMachine)
    }

    /// Moves the time to what comes next, or to `end`.
    private func next(before end: UInt64) -> Next? {
        state.withLock { state in
            var (first, due): (SimulatedMachine?, UInt64) = (nil, .max)
            for machine in state.machines {
                guard let deadline = machine.deadline, deadline < due else { continue }
                (first, due) = (machine, deadline)
            }
            let event = state.events.last?.at ?? .max
            guard min(event, due) <= end else {
                state.now = max(state.now, end)
                return nil
            }
            state.now = max(state.now, min(event, due))
            if event <= due, let event = state.events.popLast() { return .event(event.happen) }
            return first.map { .timer($0) }
        }
    }
}

/// A machine with its clocks and the process on it, which has one event loop.
final class SimulatedMachine: Sendable {
    private struct State {
        /// How far the wall clock is ahead of the true time.
        var lead: Int64 = 0
        var booted: UInt64
        /// How long the machine slept since the boot.
        var slept: UInt64 = 0
        var loop: EventLoop?
        var isWaiting = false
        var deadline: UInt64?
        var isStopped = false
        var stops = 0
        /// Deliveries that wait until the stopped process resumes.
        var late: [@Sendable () -> Void] = []
        /// How far the clocks of a killed process have advanced ahead of the simulated time, so that its timers end.
        var extra: UInt64 = 0
    }

    let number: Int
    let time: SimulatedTime
    private let state: Mutex<State>

    init(_ number: Int, _ time: SimulatedTime) {
        (self.number, self.time) = (number, time)
        state = Mutex(State(booted: time.now - 1_000_000 * UInt64(number + 1)))
    }

    // MARK: Clocks, all in ms

    var wall: UInt64 {
        let now = time.now
        return state.withLock { UInt64(Int64(now + $0.extra) + $0.lead) }
    }
    var boot: UInt64 {
        let now = time.now
        return state.withLock { now + $0.extra - $0.booted }
    }
    var monotonic: UInt64 {
        let now = time.now
        return state.withLock { now + $0.extra - $0.booted - $0.slept }
    }

    /// How far the wall clock is wrong.
    var lead: Int64 { state.withLock(\.lead) }
    func step(_ ms: Int64) { state.withLock { $0.lead += ms } }
    func setRight() { state.withLock { $0.lead = 0 } }
    func reboot() {
        let now = time.now
        state.withLock { ($0.booted, $0.slept) = (now - 5_000, 0) }
    }

    // MARK: The process

    /// Starts a process: its loop.
    func begin(_ name: String) throws -> EventLoop {
        state.withLock { $0.extra = 0 }
        let loop = try EventLoop(name: name, clock: { self.monotonic }, waiting: { self.note($0, begins: $1) })
        state.withLock { ($0.loop, $0.isWaiting, $0.deadline, $0.isStopped) = (loop, false, nil, false) }
        try loop.start()
        return loop
    }

    /// The process has ended, and its loop with it.
    func end() { state.withLock { ($0.loop, $0.deadline, $0.late, $0.isStopped) = (nil, nil, [], false) } }

    private func note(_ loop: EventLoop, begins: Bool) {
        let deadline = begins ? loop.nextDeadline : nil
        state.withLock { state in
            guard state.loop === loop else { return }
            (state.isWaiting, state.deadline) = (begins, deadline)
        }
        if begins { time.look() }
    }

    /// True if the process has nothing to do, or there is none.
    var isAtRest: Bool {
        state.withLock { state in
            guard let loop = state.loop else { return true }
            // In this order: the loop takes its mail after its wait has ended.
            let hasMail = loop.hasMail
            return state.isWaiting && !hasMail
        }
    }

    /// When its next timer is due, in true time. Nil while it is stopped.
    var deadline: UInt64? {
        state.withLock { state in
            guard !state.isStopped, let deadline = state.deadline else { return nil }
            return deadline + state.booted + state.slept - min(state.extra, deadline + state.booted)
        }
    }

    func wake() { state.withLock(\.loop)?.submit {} }

    /// Lets the timers of a killed process fire, without others.
    /// - Returns: false if there is none.
    func skipToTimer() -> Bool {
        guard let deadline = state.withLock(\.deadline) else { return false }
        let ahead = deadline - min(deadline, monotonic)
        state.withLock { $0.extra += ahead }
        wake()
        return true
    }

    /// Does something in the process, e.g. with a message that has reached it. While it is stopped, that waits.
    func deliver(_ action: @escaping @Sendable () -> Void) {
        guard let loop = state.withLock(\.loop) else { return }
        whenRunning { loop.submit(action) }
    }

    /// Calls `action` once the process runs, on the thread that moves the time.
    func whenRunning(_ action: @escaping @Sendable () -> Void) {
        let waits = state.withLock { state in
            if state.isStopped { state.late.append(action) }
            return state.isStopped
        }
        if !waits { action() }
    }

    var isStopped: Bool { state.withLock(\.isStopped) }
    /// How often a process was stopped here.
    var stops: Int { state.withLock(\.stops) }

    /// Like SIGSTOP.
    func stop() { state.withLock { ($0.isStopped, $0.stops) = (true, $0.stops + 1) } }

    /// Like SIGCONT.
    /// - Parameter slept: true if the whole machine slept meanwhile, for this many ms.
    func resume(slept: UInt64 = 0) {
        let (late, loop) = state.withLock { state in
            defer { state.late = [] }
            state.isStopped = false
            state.slept += slept
            return (state.late, state.loop)
        }
        for action in late { action() }
        loop?.submit {}
    }
}
