import Dispatch
import Linux
import Policy
import Postgres
import Synchronization

/// The store on PostgreSQL 15 or later. Each thread has one connection. Lanes separate operations, long work, renewals and other work of nodes.
public final class PostgresStore: Store {
    /// One use of a connection. Either what `run` returned is called, or `fail`.
    struct Job: Sendable {
        typealias Finish = @Sendable () -> Void

        /// Operations that wait next to each other may share a transaction. An `alone` job never does.
        enum Turn { case operation, alone }

        var turn = Turn.alone
        let run: @Sendable (PostgresDatabase) throws -> Finish
        let fail: @Sendable (StoreError) -> Void
    }

    /// A queue, and the threads that take from it.
    final class Lane: Sendable {
        private struct State {
            var interceptor: (JobInterceptor, JobInterceptor.Lane)?
            var jobs: [Job] = []
            var isClosed = false
            /// How many threads sleep, or are about to.
            var sleeping = 0
            /// True while a thread wakes up. Until it has taken its jobs, no other is woken up, so that jobs share a transaction.
            var isWaking = false
            var threads: [Linux.Thread] = []

            /// Takes the next job, and with an operation up to `mostShared` that wait behind it. The queue keeps nothing of them. If there is none,
            /// the thread counts as sleeping.
            mutating func take() -> [Job] {
                let together = jobs.prefix(PostgresStore.mostShared).prefix { $0.turn == .operation }
                let taken = Array(jobs.prefix(max(1, together.count)))
                jobs.removeFirst(taken.count)
                if taken.isEmpty { sleeping += 1 }
                return taken
            }

            /// Decides whether to wake a thread for the next job, and notes it. The caller then signals `work`.
            mutating func wakes() -> Bool {
                guard !jobs.isEmpty, sleeping > 0, !isWaking else { return false }
                sleeping -= 1
                isWaking = true
                return true
            }
        }

        private let state = Mutex(State())
        private let work = DispatchSemaphore(value: 0)

        func start(_ names: [String], _ journal: PostgresJournal, sendsMessages: Bool = false) throws(Errno) {
            let lane = JobInterceptor.Lane(name: names[0], threads: names.count)
            state.withLock { $0.interceptor = journal.interceptor.map { ($0, lane) } }
            for name in names {
                let thread = try Linux.Thread.spawn(name: name) { [self] in
                    serve(PostgresDatabase(journal, sendsMessages: sendsMessages), lane, journal.interceptor)
                }
                state.withLock { $0.threads.append(thread) }
            }
        }

        private func serve(_ database: PostgresDatabase, _ lane: JobInterceptor.Lane, _ interceptor: JobInterceptor?) {
            var hasSlept = false
            while true {
                let (jobs, isClosed, wakes) = state.withLock { state in
                    if hasSlept { state.isWaking = false }
                    return (state.take(), state.isClosed, state.wakes())
                }
                if wakes { work.signal() }
                hasSlept = jobs.isEmpty
                if hasSlept {
                    if isClosed { return }
                    work.wait()
                    continue
                }
                do {
                    try interceptor?.before(lane, jobs.count)
                    run(jobs, database) { try interceptor?.after(lane) }
                } catch {
                    for job in jobs { job.fail(StoreError(any: error)) }
                }
                interceptor?.answered(lane)
            }
        }

        /// - Parameter ended: called after each transaction, before its answers. If it throws, all jobs of that transaction get its error.
        private func run(_ jobs: [Job], _ database: PostgresDatabase, ended: () throws -> Void) {
            var rest = jobs[...]
            // They run one by one after the others.
            var alone: [Job] = []
            func answer(_ outcomes: [Result<Job.Finish, any Error>]) {
                let result = Result { try ended() }
                for (job, outcome) in zip(rest, outcomes) {
                    do {
                        try result.get()
                        try outcome.get()()
                    } catch { job.fail(StoreError(any: error)) }
                }
                rest = rest.dropFirst(outcomes.count)
            }
            while rest.count > 1 {
                do {
                    answer(try database.write(together: rest.map(\.run)))
                } catch let error as PostgresError where !error.isRefusal {
                    answer(rest.map { _ in .failure(error) })
                } catch let timeout as PostgresDatabase.LockTimeout {
                    // Only the first has waited. The others must not wait for its lock again.
                    if let failure = timeout.failure { answer([.failure(failure)]) } else { alone.append(rest.removeFirst()) }
                } catch {
                    // The transaction was rolled back. So only those that can't run get an error.
                    alone += rest
                    rest = []
                }
            }
            rest += alone
            while let next = rest.first {
                answer([Result { next.turn == .alone ? try next.run(database) : try database.write { try next.run(database) } }])
            }
        }

        /// If the lane is closed, the job fails at once.
        func submit(_ job: Job) {
            let (isClosed, wakes) = state.withLock { state in
                if state.isClosed { return (true, false) }
                if let (interceptor, lane) = state.interceptor { interceptor.queued(lane) }
                state.jobs.append(job)
                return (false, state.wakes())
            }
            if isClosed { job.fail(.closed) }
            if wakes { work.signal() }
        }

        /// Finishes the queue.
        func close() {
            let threads = state.withLock { state in
                state.isClosed = true
                return state.threads
            }
            for _ in threads { work.signal() }
            for thread in threads { thread.join() }
        }
    }

    let journal: PostgresJournal
    private let operations = Lane()
    /// For what may take seconds: sweeps, publication, counts.
    private let keeping = Lane()
    /// For renewals, which must not wait behind anything.
    let renewals = Lane()
    /// For what else nodes do, which must not wait behind operations.
    let nodes = Lane()

    /// More would only compete for the server's processors.
    private static let connections = 4
    /// Each of a sweep, a publication and two counts may wait for seconds.
    private static let keepingConnections = 4
    /// How many operations may share a transaction. The first one's answer waits for the last one, and all locks are kept until then.
    private static let mostShared = 8

    /// Connects and checks the server, the schema and the role.
    /// - Parameter timing: as in `SQLiteStore`.
    /// - Throws: `.noSchema`; `.unavailable` if the server can't be reached or must not be used as it is.
    init(_ journal: PostgresJournal, timing: LedgerTiming?, connections: Int = connections) throws(StoreError) {
        self.journal = journal
        let first = PostgresDatabase(journal)
        do {
            try first.check()
            journal.note(try first.read { try first.backlog() })
            journal.timing = try first.read { try first.recordedTiming(expecting: timing) } ?? timing ?? .standard
        } catch { throw StoreError(any: error) }
        first.disconnect()
        do {
            try operations.start((0..<connections).map { "store-\($0)" }, journal)
            try keeping.start((0..<Self.keepingConnections).map { "store-keeping-\($0)" }, journal)
            try renewals.start(["store-lease"], journal)
            try nodes.start(["store-nodes"], journal)
        } catch {
            close()
            throw .unavailable(error.description)
        }
    }

    /// Creates the tables, unless they exist.
    /// - Returns: false if they exist.
    /// - Throws: `.unavailable` if the tables are of another version.
    @discardableResult
    public static func makeSchema(uri: String) throws(StoreError) -> Bool {
        do { return try PostgresDatabase(PostgresJournal(uri: uri)).makeSchema() } catch { throw StoreError(any: error) }
    }

    public func submit(_ operation: Operation, _ access: Access) {
        if access == .write {
            return operations.submit(Job(turn: .operation, run: { try operation.run($0.transaction) }, fail: operation.fail))
        }
        submit(access, operation.fail) { database in
            // A missing row may be one that this server has lost.
            if database.journal.fault == .lostCommits { throw StoreError.lostCommits }
            return try operation.run(database.transaction)
        }
    }

    public func submit(_ work: StoreTask, _ access: Access) {
        submit(access, isSignOfLife: work.isSignOfLife, work.fail) { try work.run($0) }
    }

    private func submit(
        _ access: Access, isSignOfLife: Bool = true, _ fail: @escaping @Sendable (StoreError) -> Void,
        _ run: @escaping @Sendable (PostgresDatabase) throws -> Job.Finish
    ) {
        let lane = access == .read ? operations : keeping
        lane.submit(
            Job(
                run: { database in
                    switch access {
                    case .read, .survey: try database.read { try run(database) }
                    case .write: try database.write(isSignOfLife: isSignOfLife) { try run(database) }
                    case .apart: try run(database)
                    }
                }, fail: fail))
    }

    /// - Parameter lane: nil for that of operations.
    func run<Value: Sendable>(
        on lane: Lane? = nil, _ body: @escaping @Sendable (PostgresDatabase) throws -> Value
    ) async throws(StoreError) -> Value {
        let result: Result<Value, StoreError> = await withCheckedContinuation { continuation in
            let job = Job(
                run: { database in
                    let value = try body(database)
                    return { continuation.resume(returning: .success(value)) }
                }, fail: { continuation.resume(returning: .failure($0)) })
            (lane ?? operations).submit(job)
        }
        return try result.get()
    }

    private func close() {
        operations.close()
        keeping.close()
        nodes.close()
        renewals.close()
    }

    /// Finishes queued operations and disconnects.
    public func shutDown() async { close() }

    /// Each scrub writes a new segment of the write-ahead log, 16 MiB.
    public var scrubDelayMs: UInt64 { 50_000 }

    public func scrub() async throws(StoreError) -> Bool {
        let now = journal.now()
        try await run(on: keeping) { try $0.scrub(now: now) }
        return true
    }

    public func takeAlarms() -> [String] { journal.takeAlarms() }

    /// Records a head that must not be lost. A smaller head later means lost commits.
    public func noteFolder(size: UInt64) { journal.note(head: size) }

    /// Why nothing new can be stored now, as the last transaction found: `.wrongClock` or `.lostCommits`.
    public var fault: StoreError? { journal.fault }
}
