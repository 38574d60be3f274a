import Dispatch
import Linux
import SQLite
import Synchronization

/// A thread that owns one connection and runs the jobs in its queue.
///
/// The writer runs all waiting jobs in one transaction (group commit) and finishes them after the commit. Readers see durable data only.
final class StoreThread: Sendable {
    /// Like `Operation`.
    struct Job: Sendable {
        let run: @Sendable (SQLiteDatabase) throws -> @Sendable () -> Void
        let fail: @Sendable (StoreError) -> Void
        var turn = Turn.shared
        /// True if the job's success shows that the store can write.
        var isSignOfLife = true
    }

    /// A job's result: what to call once it is durable, or its error.
    private typealias Outcome = Result<@Sendable () -> Void, StoreError>

    /// When a job runs.
    enum Turn: Sendable {
        /// In one transaction with other waiting jobs.
        case shared
        /// In its own transaction, when no shared job waits. Requests never wait for several of these.
        case apart
        /// Like `apart` but in no transaction, e.g. a checkpoint.
        case alone
    }

    private struct Queue {
        var jobs: [Job] = []
        var closed = false
        /// Jobs wait until `release`, to run together.
        var held = false
    }

    private let queue = Mutex(Queue())
    private let work = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let writes: Bool
    private let committed: @Sendable (SQLiteDatabase, StoreThread) -> Void
    /// The most operations in one commit. This bounds the wait of the first one.
    private static let batch = 1024

    /// Opens a connection on a new thread.
    /// - Parameter committed: called on the thread after each commit.
    init(
        name: String, writes: Bool, open: @escaping @Sendable () throws -> SQLiteDatabase,
        committed: @escaping @Sendable (SQLiteDatabase, StoreThread) -> Void = { _, _ in }
    ) throws(StoreError) {
        self.writes = writes
        self.committed = committed
        let opened = DispatchSemaphore(value: 0)
        let failure = Mutex<StoreError?>(nil)
        do {
            _ = try Linux.Thread.spawn(name: name) { [self] in
                do {
                    let database = try open()
                    opened.signal()
                    serve(database)
                } catch {
                    failure.withLock { $0 = StoreError(any: error) }
                    opened.signal()
                }
                ended.signal()
            }
        } catch {
            throw .unavailable(error.description)
        }
        opened.wait()
        if let error = failure.withLock({ $0 }) { throw error }
    }

    func submit(_ job: Job) {
        let (first, closed) = queue.withLock { queue in
            if queue.closed { return (false, true) }
            queue.jobs.append(job)
            return (queue.jobs.count == 1 && !queue.held, false)
        }
        if closed { return job.fail(.closed) }
        if first { work.signal() }
    }

    /// Starts no new jobs until `release`.
    func hold() { queue.withLock { $0.held = true } }

    func release() {
        let waiting = queue.withLock { queue in
            queue.held = false
            return !queue.jobs.isEmpty
        }
        if waiting { work.signal() }
    }

    /// Runs the queued jobs, refuses later ones, and returns when the connection is closed.
    func close() {
        let first = queue.withLock { queue in
            defer { queue.closed = true }
            return !queue.closed
        }
        guard first else { return }
        work.signal()
        ended.wait()
        ended.signal()
    }

    /// Yields to other threads while they add jobs, so that these share the commit. On an idle processor this returns at once.
    private func gather() {
        var before = 0
        for _ in 0..<3 {
            let waiting = queue.withLock { $0.jobs.count }
            if waiting == before { return }
            before = waiting
            Linux.Thread.yield()
        }
    }

    private func serve(_ database: SQLiteDatabase) {
        // Jobs that aren't shared. One runs after each round of shared jobs.
        var later: [Job] = []
        while true {
            if later.isEmpty { work.wait() }
            if writes { gather() }
            let (jobs, closed) = queue.withLock { ($0.jobs.takeAll(), $0.closed) }
            later += jobs.filter { $0.turn != .shared }
            var rest = jobs.filter { $0.turn == .shared }[...]
            while !rest.isEmpty {
                let batch = rest.prefix(Self.batch)
                rest = rest.dropFirst(Self.batch)
                if writes { commit(batch, database) } else { read(batch, database) }
            }
            if !later.isEmpty {
                let next = later.removeFirst()
                if next.turn == .apart { commit([next], database) } else { answer([next], database) }
            }
            if closed, later.isEmpty { return }
        }
    }

    /// Runs reads in one transaction, so that SQLite locks the file only once.
    private func read(_ jobs: ArraySlice<Job>, _ database: SQLiteDatabase) {
        let isOpen = jobs.count > 1 && (try? database.beginReading()) != nil
        answer(jobs, database)
        if isOpen { database.endReading() }
    }

    private func answer(_ jobs: ArraySlice<Job>, _ database: SQLiteDatabase) {
        for job in jobs {
            do {
                let finish = try job.run(database)
                finish()
            } catch {
                job.fail(StoreError(any: error))
            }
        }
    }

    private func commit(_ jobs: ArraySlice<Job>, _ database: SQLiteDatabase) {
        do {
            // Savepoints cost a fifth of the writer's time, and operations rarely fail after a write. So run without them first.
            guard
                let outcomes = try commit(jobs, database, withSavepoints: false)
                    ?? commit(jobs, database, withSavepoints: true)
            else { preconditionFailure("a batch with savepoints was rolled back") }
            for (job, outcome) in zip(jobs, outcomes) {
                switch outcome {
                case .success(let finish): finish()
                case .failure(let error): job.fail(error)
                }
            }
        } catch {
            database.rollBack()
            let failure = StoreError(any: error)
            for job in jobs { job.fail(failure) }
            return
        }
        committed(database, self)
    }

    /// Runs the operations in one transaction. An operation that fails before its first write affects no other.
    /// - Returns: nil if an operation without a savepoint failed after a write. Everything is rolled back then.
    /// - Throws: if the whole transaction failed.
    private func commit(
        _ jobs: ArraySlice<Job>, _ database: SQLiteDatabase, withSavepoints: Bool
    ) throws -> [Outcome]? {
        var outcomes: [Outcome] = []
        outcomes.reserveCapacity(jobs.count)
        try database.begin()
        try database.recordOverdue()
        for job in jobs {
            database.beginOperation()
            do {
                if withSavepoints { try database.savepoint() }
                let finish = try job.run(database)
                if withSavepoints { try database.release() }
                outcomes.append(.success(finish))
            } catch {
                // On a full disk SQLite rolls back the whole transaction.
                guard database.inTransaction else { throw error }
                if withSavepoints {
                    try database.rollBackToSavepoint()
                } else if database.hasChanged {
                    database.rollBack()
                    return nil
                }
                database.forgetOperation()
                outcomes.append(.failure(StoreError(any: error)))
            }
        }
        try database.commit()
        let isWhole = outcomes.allSatisfy { if case .success = $0 { true } else { false } }
        if isWhole, database.hasResumed || jobs.contains(where: \.isSignOfLife) { database.journal.noteAlive() }
        return outcomes
    }
}

extension Array {
    /// Returns the elements and removes them.
    mutating func takeAll() -> Self {
        defer { self = [] }
        return self
    }
}
