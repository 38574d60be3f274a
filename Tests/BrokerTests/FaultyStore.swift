import EventLoop
import Ledger
import Shares
import Synchronization
import Vocabulary

@testable import Storage

/// A real store behind a gate at which a test fails calls, or kills the broker.
///
/// Calls pass in their order. Reads and writes pass in turn, each kind together. So a story always runs the same way, although the store has
/// threads. All calls come from one loop.
final class FaultyStore: Store {
    enum Call: String, Sendable {
        // Operations, recognised by their first lock or query.
        case registrations, due, read
        case register, unregister, setPreferences, apply
        case create, accept, replaceToken, withdrawToken, markProven, close, knock, finish
        // Keeping.
        case nextExpiry, logHead, unpublished, latestWindow, mark, counts
        case sweep, forgetAll, start, record, commit, published, setMark, replaceMark, closeLog, beginLog
        case scrub, closedEntries

        fileprivate enum Kind { case read, write, alone }
        fileprivate var kind: Kind {
            switch self {
            case .registrations, .due, .read, .nextExpiry, .logHead, .unpublished, .latestWindow, .mark, .counts: .read
            case .scrub, .closedEntries: .alone
            default: .write
            }
        }
        var writes: Bool { kind == .write }
    }

    enum Fault: Sendable, CaseIterable {
        case none
        /// The call is reported as failed. It is not done, or done nevertheless.
        case failed, doneAndFailed
        /// The broker is killed before the call is done, or after, and gets no answer any more.
        case killed, doneAndKilled
    }

    private struct State {
        var queue: [(kind: Call.Kind, pass: @Sendable (_ passes: Bool) -> Void)] = []
        /// Calls that passed together and wait for each other.
        var passing = 0
        var done: [@Sendable () -> Void] = []
        var isDead = false
        /// Calls that were not answered yet.
        var open = 0
        var whenIdle: [@Sendable () -> Void] = []
    }

    private let inner: SQLiteStore
    fileprivate let loop: EventLoop
    /// Called at each call of the store.
    fileprivate let fault: @Sendable (Call) -> Fault
    private let state = Mutex(State())

    init(_ inner: SQLiteStore, loop: EventLoop, fault: @escaping @Sendable (Call) -> Fault) {
        self.inner = inner
        self.loop = loop
        self.fault = fault
    }

    var isDead: Bool { state.withLock { $0.isDead } }
    var isIdle: Bool { state.withLock { $0.open == 0 } }

    /// Calls `work` when all calls are answered, at once if none is open.
    func whenIdle(_ work: @escaping @Sendable () -> Void) {
        let isIdle = state.withLock { state in
            if state.open > 0 { state.whenIdle.append(work) }
            return state.open == 0
        }
        if isIdle { work() }
    }

    /// From now on the store answers no call.
    func kill() {
        let waiting = state.withLock { state in
            defer { state.queue = [] }
            state.isDead = true
            return state.queue
        }
        if loop.isCurrent {
            for call in waiting { call.pass(false) }
        } else if !waiting.isEmpty {
            loop.submit { for call in waiting { call.pass(false) } }
        }
    }

    func shutDown() async { await inner.shutDown() }

    func submit(_ operation: Operation, _ access: Access) {
        state.withLock { $0.open += 1 }
        enter(access == .write ? .write : .read) { [self] passes in
            guard passes else {
                operation.fail(.closed)
                return leave()
            }
            let faulty = FaultyOperation(operation, self)
            inner.submit(Operation(run: faulty.run, fail: { faulty.end(.failure($0)) }), access)
        }
    }

    func submit(_ work: StoreTask, _ access: Access) {
        let name = String(work.name.description.prefix { $0 != "(" })
        guard let call = Call(rawValue: name) else { return work.fail(.damaged("\(name) is no known call")) }
        state.withLock { $0.open += 1 }
        enter(call.kind) { [self] passes in
            guard passes else {
                work.fail(.closed)
                return leave()
            }
            let fault = fault(call)
            if fault == .killed { kill() }
            if isDead || fault == .failed { return end(.failure(isDead ? .closed : .full), work.fail) }
            let answer = { @Sendable [self] (outcome: FaultyOperation.Outcome) in
                if fault == .doneAndKilled { kill() }
                let isHidden = if case .success = outcome { fault == .doneAndFailed } else { false }
                loop.submit { self.end(isHidden ? .failure(.full) : outcome, work.fail) }
            }
            inner.submit(
                StoreTask(
                    name: work.name,
                    run: { engine in
                        let finish = try work.run(engine)
                        return { answer(.success(finish)) }
                    }, fail: { answer(.failure($0)) }, isSignOfLife: work.isSignOfLife), access)
        }
    }

    func scrub() async throws(StoreError) -> Bool {
        state.withLock { $0.open += 1 }
        defer { leave() }
        let passes = await withCheckedContinuation { gate in enter(.alone) { gate.resume(returning: $0) } }
        guard passes else { throw .closed }
        let fault = fault(.scrub)
        if fault == .killed { kill() }
        let result: Result<Bool, StoreError>
        if isDead {
            result = .failure(.closed)
        } else if fault == .failed {
            result = .failure(.full)
        } else {
            do throws(StoreError) { result = .success(try await inner.scrub()) } catch { result = .failure(error) }
        }
        if fault == .doneAndKilled { kill() }
        await withCheckedContinuation { continuation in meet { continuation.resume() } }
        if isDead { throw .closed }
        if fault == .doneAndFailed { throw .full }
        return try result.get()
    }

    /// On the loop, when the store has answered.
    fileprivate func end(_ outcome: FaultyOperation.Outcome, _ fail: @escaping @Sendable (StoreError) -> Void) {
        meet { [self] in
            switch isDead ? .failure(.closed) : outcome {
            case .success(let finish): finish()
            case .failure(let error): fail(error)
            }
            leave()
        }
    }

    /// Waits until the calls before are answered, or the broker is killed.
    private func enter(_ kind: Call.Kind, _ pass: @escaping @Sendable (Bool) -> Void) {
        let (isDead, isFirst) = state.withLock { state in
            if state.isDead { return (true, false) }
            state.queue.append((kind, pass))
            return (false, state.queue.count == 1 && state.passing == 0)
        }
        if isDead { pass(false) }
        if isFirst { loop.atEndOfTurn { self.letThrough() } }
    }

    private func letThrough() {
        let calls = state.withLock { state in
            guard state.passing == 0, let kind = state.queue.first?.kind else { return state.queue.prefix(0) }
            let calls = kind == .alone ? state.queue.prefix(1) : state.queue.prefix { $0.kind == kind }
            state.queue.removeFirst(calls.count)
            state.passing = calls.count
            return calls
        }
        guard !calls.isEmpty else { return }
        // Calls that pass together are committed together.
        inner.hold()
        for call in calls { call.pass(true) }
        loop.atEndOfTurn { self.inner.release() }
    }

    /// Answers calls together that passed together, in their order.
    private func meet(_ answer: @escaping @Sendable () -> Void) {
        let answers: [@Sendable () -> Void] = state.withLock { state in
            state.passing -= 1
            state.done.append(answer)
            guard state.passing == 0 else { return [] }
            defer { state.done = [] }
            return state.done
        }
        if answers.isEmpty { return }
        for answer in answers { answer() }
        loop.atEndOfTurn { self.letThrough() }
    }

    private func leave() {
        let idle = state.withLock { state -> [@Sendable () -> Void] in
            state.open -= 1
            guard state.open == 0 else { return [] }
            defer { state.whenIdle = [] }
            return state.whenIdle
        }
        for work in idle { work() }
    }
}

/// An operation that gets its fault at its first lock or query.
private final class FaultyOperation: Sendable {
    typealias Outcome = Result<@Sendable () -> Void, StoreError>

    private let operation: Operation
    private let store: FaultyStore
    /// Decided once, although a batch may be repeated.
    private let fate = Mutex<FaultyStore.Fault?>(nil)

    init(_ operation: Operation, _ store: FaultyStore) { (self.operation, self.store) = (operation, store) }

    func run(_ transaction: Transaction) throws -> @Sendable () -> Void {
        if store.isDead { throw StoreError.closed }
        let finish = try operation.run(Transaction(FaultyDatabase(transaction.database, self)))
        return { self.end(.success(finish)) }
    }

    /// - Throws: if the operation is not to be done.
    func meet(_ call: FaultyStore.Call) throws(StoreError) {
        let (fault, isNew) = fate.withLock { fate in
            if let fate { return (fate, false) }
            let fault = store.fault(call)
            fate = fault
            return (fault, true)
        }
        if fault == .killed {
            if isNew { store.kill() }
            throw .closed
        }
        if fault == .failed { throw .full }
    }

    func end(_ outcome: Outcome) {
        var answer = outcome
        switch fate.withLock({ $0 }) {
        case .doneAndKilled: store.kill()
        case .doneAndFailed: if case .success = outcome { answer = .failure(.full) }
        default: break
        }
        store.loop.submit { [store, operation, answer] in store.end(answer, operation.fail) }
    }
}

/// The database of one run of an operation.
private final class FaultyDatabase: Database {
    private let inner: any Database
    private let operation: FaultyOperation
    private var isKnown = false

    init(_ inner: any Database, _ operation: FaultyOperation) { (self.inner, self.operation) = (inner, operation) }

    var moment: UInt64 { inner.moment }
    func admit(_ urgency: Urgency) throws(StoreError) { try inner.admit(urgency) }

    func lock(_ keys: @autoclosure () -> [LockKey], for operation: StaticString) throws {
        let name = operation.description.prefix { $0 != "(" }
        guard let call = FaultyStore.Call(rawValue: String(name)) else {
            throw StoreError.damaged("\(name) is no known operation")
        }
        isKnown = true
        try self.operation.meet(call)
        try inner.lock(keys(), for: operation)
    }

    func query(_ sql: StaticString, _ values: [SQLValue], _ body: (any Row) throws -> Void) throws {
        if !isKnown {
            let text = sql.description
            try operation.meet(
                text.contains("FROM registration_index")
                    ? .registrations : text.contains("answer = 0 AND due <= $1") ? .due : .read)
            isKnown = true
        }
        try inner.query(sql, values, body)
    }

    func change(_ sql: StaticString, _ values: [SQLValue]) throws -> Int { try inner.change(sql, values) }
    func queue(_ sql: StaticString, expecting count: Int?, _ values: [SQLValue]) throws {
        try inner.queue(sql, expecting: count, values)
    }
    func record(_ entry: NewEntry) throws { try inner.record(entry) }
}
