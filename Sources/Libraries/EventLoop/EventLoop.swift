public import Linux
import Synchronization

/// A thread that waits for descriptors, timers and jobs, and the serial executor of the actors that run on it.
///
/// A task that awaits another thread should use its loop as executor preference (`Task(executorPreference:)`). Swift then resumes the
/// continuation on the loop; otherwise it takes a detour through the global pool.
///
/// A turn: wait, call the ready sources, fire timers, run jobs, run the end-of-turn work. Everything submitted to the loop or called by it runs on
/// its thread, so actors of one loop call each other without a switch. Before `start` or `run` the loop belongs to the thread that created it.
public final class EventLoop: SerialExecutor, TaskExecutor, Sendable {
    public let name: String
    private let clock: @Sendable () -> UInt64
    private let waiting: (@Sendable (EventLoop, _ begins: Bool) -> Void)?
    private let wakeUp: WakeUp
    private let inbox = Mutex(Inbox())
    private let inboxFilled = Atomic<Bool>(false)
    private let stopping = Atomic<Bool>(false)
    /// The thread that may access `confined`; 0 while `start` hands the loop over.
    private let owner: Atomic<UInt>
    private let thread = Mutex<Thread?>(nil)
    private nonisolated(unsafe) let confined: Confined

    /// Work submitted by other threads.
    private struct Inbox {
        var jobs: [UnownedJob] = []
        var calls: [@Sendable () -> Void] = []
    }

    /// Accessed only by the owner thread.
    private final class Confined {
        let epoll: Epoll
        var sources = SourceTable()
        var timers = TimerQueue()
        var jobs: [UnownedJob] = []
        var running: [UnownedJob] = []
        let endOfEvents = WorkList()
        let endOfTurn = WorkList()
        /// The clock's time when the turn's events arrived.
        var now: UInt64

        init(now: UInt64) throws(Errno) {
            epoll = try Epoll()
            self.now = now
        }
    }

    /// Work for one point of a turn.
    private final class WorkList {
        private var waiting: [() -> Void] = []

        var isEmpty: Bool { waiting.isEmpty }

        func add(_ work: @escaping () -> Void) { waiting.append(work) }

        /// Work added meanwhile runs the next time.
        func run() {
            guard !waiting.isEmpty else { return }
            var taken: [() -> Void] = []
            swap(&taken, &waiting)
            for work in taken { work() }
            // Reuse the capacity.
            taken.removeAll(keepingCapacity: true)
            if waiting.isEmpty { swap(&taken, &waiting) }
        }

        func removeAll() { waiting = [] }
    }

    /// - Parameter clock: monotonic ms, CLOCK_MONOTONIC outside of tests. A test that advances its clock must wake the loop.
    public convenience init(name: String, clock: @escaping @Sendable () -> UInt64 = { Clock.monotonicMs }) throws(Errno) {
        try self.init(name: name, clock: clock, waiting: nil)
    }

    /// - Parameter waiting: for tests. Called on the loop's thread when a wait begins because nothing is left to do, and when it has ended. Such a loop
    ///   does not wait for its clock: whoever advances the clock wakes it.
    init(
        name: String, clock: @escaping @Sendable () -> UInt64, waiting: (@Sendable (EventLoop, _ begins: Bool) -> Void)?
    ) throws(Errno) {
        self.name = name
        self.clock = clock
        self.waiting = waiting
        let confined = try Confined(now: clock())
        wakeUp = try WakeUp()
        try confined.epoll.add(wakeUp.descriptor.raw, [.read, .onChange], tag: Self.wakeUpTag)
        unsafe self.confined = confined
        owner = Atomic(Thread.current)
    }

    // MARK: Life

    /// Runs the loop on a new thread.
    public func start() throws(Errno) {
        checkIsolated()
        owner.store(0, ordering: .releasing)
        let started = try Thread.spawn(name: name) { self.run() }
        thread.withLock { $0 = started }
    }

    /// Runs the loop on the calling thread until `stop`, then releases all sources, timers and jobs.
    public func run() {
        owner.store(Thread.current, ordering: .sequentiallyConsistent)
        while !stopping.load(ordering: .relaxed) { turn() }
        unsafe confined.sources.removeAll()
        unsafe confined.timers = TimerQueue()
        unsafe confined.endOfEvents.removeAll()
        unsafe confined.endOfTurn.removeAll()
    }

    /// Ends the loop after the current turn. Can be called from any thread. Tasks that wait on the loop are never resumed.
    public func stop() {
        stopping.store(true, ordering: .relaxed)
        wakeUp.signal()
    }

    /// Waits until the thread of `start` has ended.
    public func join() {
        thread.withLock { $0.take() }?.join()
    }

    // MARK: Executor

    /// True on the loop's own thread.
    public var isCurrent: Bool { owner.load(ordering: .relaxed) == Thread.current }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        if isCurrent {
            unsafe confined.jobs.append(job)
        } else {
            post { $0.jobs.append(job) }
        }
    }

    public func checkIsolated() {
        precondition(isCurrent, "called off the thread of the event loop it belongs to")
    }

    public func isIsolatingCurrentContext() -> Bool? { isCurrent }

    /// Runs `work` on the loop in its next turn. Can be called from any thread.
    public func submit(_ work: @escaping @Sendable () -> Void) {
        post { $0.calls.append(work) }
    }

    /// Runs `work` once after this turn's events, for a source that collects events and handles them together.
    public func atEndOfEvents(_ work: @escaping () -> Void) {
        checkIsolated()
        unsafe confined.endOfEvents.add(work)
    }

    /// Runs `work` once after this turn's events, timers and jobs, for output that is collected and flushed together.
    public func atEndOfTurn(_ work: @escaping () -> Void) {
        checkIsolated()
        unsafe confined.endOfTurn.add(work)
    }

    // MARK: Sources

    /// Watches an open descriptor. Remove it before it is closed.
    public func add(_ descriptor: Int32, _ interest: Events, _ source: any EventSource) throws(Errno) -> Registration {
        checkIsolated()
        let registration = unsafe confined.sources.insert(descriptor, interest, source)
        do throws(Errno) {
            try unsafe confined.epoll.add(descriptor, interest, tag: registration.tag)
        } catch {
            _ = unsafe confined.sources.remove(registration)
            throw error
        }
        return registration
    }

    public func modify(_ registration: Registration, _ interest: Events) {
        checkIsolated()
        guard unsafe confined.sources.change(registration, interest) else { return }
        do throws(Errno) {
            try unsafe confined.epoll.modify(registration.descriptor, interest, tag: registration.tag)
        } catch {
            fatalError("a watched descriptor was closed before it was removed: \(error)")
        }
    }

    /// Ends the watch at once. Events that have already arrived are dropped.
    public func remove(_ registration: Registration) {
        checkIsolated()
        guard unsafe confined.sources.remove(registration) else { return }
        unsafe confined.epoll.remove(registration.descriptor)
    }

    // MARK: Timers

    /// The clock's ms. On the loop's thread the time when the turn's events arrived.
    public var now: UInt64 { isCurrent ? unsafe confined.now : clock() }

    /// Calls `action` once, `ms` after this call or slightly later.
    @discardableResult
    public func after(_ ms: UInt64, _ action: @escaping () -> Void) -> TimerID {
        checkIsolated()
        return unsafe confined.timers.schedule(at: clock() &+ ms, action)
    }

    public func cancel(_ timer: TimerID) {
        checkIsolated()
        unsafe confined.timers.cancel(timer)
    }

    /// When the next timer is due. Tests advance their clock to it.
    var nextDeadline: UInt64? {
        checkIsolated()
        return unsafe confined.timers.nextDeadline()
    }

    /// True if another thread has submitted work that the loop has not taken yet. Can be called from any thread.
    var hasMail: Bool { inboxFilled.load(ordering: .acquiring) }

    /// Whether there is nothing to do until an event arrives or the clock advances. Call it at the end of a turn.
    var isQuiet: Bool {
        checkIsolated()
        return unsafe patience(confined) != 0
    }

    // MARK: The turn

    private static let wakeUpTag: UInt64 = 0xffff_ffff
    /// Jobs that enqueue jobs get this many rounds before the next wait.
    private static let roundsATurn = 16

    private func turn() {
        let confined = unsafe self.confined
        let count = wait(confined)
        confined.now = clock()
        for index in 0..<count {
            let (tag, events) = confined.epoll.event(index)
            guard tag != Self.wakeUpTag, let target = confined.sources.target(tag: tag, events) else { continue }
            target.source.ready(target.events)
        }
        confined.endOfEvents.run()
        let mark = confined.timers.mark
        while let action = confined.timers.nextDue(confined.now, before: mark) { action() }
        runJobs(confined)
        confined.endOfTurn.run()
    }

    private func wait(_ confined: Confined) -> Int {
        let patience = patience(confined)
        guard patience != 0, let waiting else { return confined.epoll.wait(timeoutMs: patience) }
        waiting(self, true)
        defer { waiting(self, false) }
        return confined.epoll.wait(timeoutMs: -1)
    }

    /// The timeout of the next wait: 0 if work is left, -1 for none.
    private func patience(_ confined: Confined) -> Int32 {
        if !confined.jobs.isEmpty || !confined.endOfEvents.isEmpty || !confined.endOfTurn.isEmpty
            || inboxFilled.load(ordering: .acquiring)
        {
            return 0
        }
        guard let deadline = confined.timers.nextDeadline() else { return -1 }
        let now = clock()
        return deadline <= now ? 0 : Int32(clamping: deadline - now)
    }

    private func runJobs(_ confined: Confined) {
        // A task that prefers this loop goes on without another turn only where both are named.
        let (serial, preferred) = unsafe (asUnownedSerialExecutor(), asUnownedTaskExecutor())
        for _ in 0..<Self.roundsATurn {
            takeInbox(confined)
            guard !confined.jobs.isEmpty else { return }
            swap(&confined.jobs, &confined.running)
            for job in confined.running { unsafe job.runSynchronously(isolatedTo: serial, taskExecutor: preferred) }
            confined.running.removeAll(keepingCapacity: true)
        }
    }

    private func takeInbox(_ confined: Confined) {
        guard inboxFilled.exchange(false, ordering: .acquiringAndReleasing) else { return }
        let calls = inbox.withLock { inbox in
            // Other threads reuse the empty array and its capacity.
            if confined.jobs.isEmpty {
                swap(&confined.jobs, &inbox.jobs)
            } else {
                confined.jobs.append(contentsOf: inbox.jobs)
                inbox.jobs.removeAll(keepingCapacity: true)
            }
            return inbox.calls.isEmpty ? [] : exchange(&inbox.calls, with: [])
        }
        for call in calls { call() }
    }

    private func post(_ put: (inout Inbox) -> Void) {
        inbox.withLock { put(&$0) }
        // One wake-up per batch: only the thread that sets the flag wakes the loop.
        if !inboxFilled.exchange(true, ordering: .acquiringAndReleasing) { wakeUp.signal() }
    }
}

/// An actor that runs on an event loop's thread.
///
/// A task that prefers the loop calls from one of its actors to the next without another turn. The loop's callbacks call them with
/// `assumeIsolated`. A closure created in such an actor and passed to `after` or `atEndOfTurn` may use the actor directly.
public protocol LoopActor: Actor {
    nonisolated var loop: EventLoop { get }
}

extension LoopActor {
    public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }
}
