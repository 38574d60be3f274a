import Dispatch
import Synchronization

@testable import Storage

/// The faults of a database, as each machine sees them. The database itself is a real one.
final class SimulatedDatabase: Sendable {
    enum Condition: Sendable, Equatable {
        case well
        /// Connections are refused or lost at once.
        case refuses
        /// Nothing is answered.
        case hangs
    }

    private struct State {
        var conditions: [Int: Condition] = [:]
        /// How far its clock is ahead of the true time.
        var lead: Int64 = 0
    }

    let time: SimulatedTime
    private let state = Mutex(State())

    init(_ time: SimulatedTime) { self.time = time }

    var clock: UInt64 {
        let now = time.now
        return state.withLock { UInt64(Int64(now) + $0.lead) }
    }
    /// How far its clock is wrong.
    var lead: Int64 { state.withLock(\.lead) }
    func step(_ ms: Int64) { state.withLock { $0.lead += ms } }
    func setRight() { state.withLock { $0.lead = 0 } }

    func condition(at machine: Int) -> Condition { state.withLock { $0.conditions[machine] ?? .well } }
    func set(_ condition: Condition, at machine: Int) { state.withLock { $0.conditions[machine] = condition } }
}

/// Where the jobs of one process's store pass: the database's faults, and the end of the process at any of its calls.
final class StoreGate: Sendable {
    private struct State {
        var isDead = false
        /// After how many calls the process ends, and whether that call is done.
        var callsToEnd: (left: Int, isDone: Bool)?
        var whenDead: (@Sendable () -> Void)?
        /// Threads that wait for the database.
        var waiting: [Waiting] = []
        var lanes: [JobInterceptor.Lane: Load] = [:]
        /// The jobs that must end before time passes.
        var busy: Int {
            // While all threads of a lane wait for the database, its queue waits, too.
            lanes.reduce(0) { $0 + $1.value.running + ($1.value.waiting < $1.key.threads ? $1.value.queued : 0) }
        }
    }

    /// The jobs of one lane.
    private struct Load {
        var queued = 0
        var running = 0
        var waiting = 0
    }

    private func count(_ lane: JobInterceptor.Lane, _ change: (inout Load) -> Void) {
        let jobs = state.withLock { state in
            let before = state.busy
            change(&state.lanes[lane, default: Load()])
            return state.busy - before
        }
        machine.time.addJobs(jobs)
    }

    private final class Waiting: Sendable {
        private let semaphore = DispatchSemaphore(value: 0)
        private let isOver = Mutex(false)
        /// Called before the thread goes on.
        private let goesOn: @Sendable () -> Void

        init(_ goesOn: @escaping @Sendable () -> Void) { self.goesOn = goesOn }

        func wait() { semaphore.wait() }

        /// Lets the thread go on, unless it does already.
        func end() {
            let wasOver = isOver.withLock { isOver in
                defer { isOver = true }
                return isOver
            }
            if wasOver { return }
            goesOn()
            semaphore.signal()
        }
    }

    private let machine: SimulatedMachine
    private let database: SimulatedDatabase
    private let state = Mutex(State())

    /// The store's longest wait for an answer.
    private static let longestAnswerMs: UInt64 = 10_000

    init(_ machine: SimulatedMachine, _ database: SimulatedDatabase) { (self.machine, self.database) = (machine, database) }

    var isDead: Bool { state.withLock(\.isDead) }

    /// Ends the process at one of its next calls.
    func end(after calls: Int, isDone: Bool) { state.withLock { $0.callsToEnd = (calls, isDone) } }

    /// Calls `action` when the process ends, at any moment and on any thread.
    func whenDead(_ action: @escaping @Sendable () -> Void) { state.withLock { $0.whenDead = action } }

    /// Ends the process: from now on no call is done or answered.
    func die() {
        let (waiting, action) = state.withLock { state in
            defer { (state.waiting, state.whenDead) = ([], nil) }
            state.isDead = true
            return (state.waiting, state.whenDead)
        }
        action?()
        for thread in waiting { thread.end() }
    }

    var interceptor: JobInterceptor {
        JobInterceptor(
            queued: { lane in self.count(lane) { $0.queued += 1 } },
            before: { (lane, jobs) throws(StoreError) in
                self.count(lane) { ($0.queued, $0.running) = ($0.queued - jobs, $0.running + 1) }
                if self.countDown(isDone: false) { self.die() }
                try self.pass("the server can't be reached", lane)
            },
            after: { lane throws(StoreError) in
                if self.countDown(isDone: true) { self.die() }
                try self.pass("the answer to a commit was lost, so it is unknown whether it is durable", lane)
            },
            answered: { lane in self.count(lane) { $0.running -= 1 } })
    }

    private func countDown(isDone: Bool) -> Bool {
        state.withLock { state in
            guard let end = state.callsToEnd, !state.isDead, end.isDone == isDone else { return false }
            state.callsToEnd = end.left == 0 ? nil : (end.left - 1, end.isDone)
            return end.left == 0
        }
    }

    private func pass(_ fault: String, _ lane: JobInterceptor.Lane) throws(StoreError) {
        if isDead { throw .closed }
        switch database.condition(at: machine.number) {
        case .well: return
        case .refuses: throw .unavailable(fault)
        case .hangs: break
        }
        var waited: UInt64 = 0
        while waited < Self.longestAnswerMs, database.condition(at: machine.number) == .hangs {
            if !wait(500, lane) { throw .closed }
            waited += 500
        }
        if database.condition(at: machine.number) != .well { throw .unavailable(fault) }
    }

    /// Holds a job up. It counts as answered meanwhile, so that time can pass.
    /// - Returns: false if the process has ended.
    private func wait(_ ms: UInt64, _ lane: JobInterceptor.Lane) -> Bool {
        let waiting = Waiting { [self] in count(lane) { ($0.waiting, $0.running) = ($0.waiting - 1, $0.running + 1) } }
        let isDead = state.withLock { state in
            if !state.isDead { state.waiting.append(waiting) }
            return state.isDead
        }
        if isDead { return false }
        machine.time.after(ms) { [machine] in machine.whenRunning { waiting.end() } }
        count(lane) { ($0.waiting, $0.running) = ($0.waiting + 1, $0.running - 1) }
        waiting.wait()
        return state.withLock { state in
            state.waiting.removeAll { $0 === waiting }
            return !state.isDead
        }
    }
}
