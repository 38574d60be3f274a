import Dispatch
import Linux
import SQLite
import Synchronization

/// A thread that owns one connection and carries out what is queued for it.
///
/// The writer commits everything that waits in one transaction (group commit), and answers callers after the commit. The reader
/// answers at once from what is durable.
final class StoreThread: Sendable {
    struct Job: Sendable {
        private enum Work {
            case operation(any Operation)
            case keeping(run: @Sendable (SQLiteDatabase) throws -> Void, finish: @Sendable (StoreError?) -> Void)
        }

        private let work: Work
        let turn: Turn
        /// Whether its success shows that the store can write.
        let isSignOfLife: Bool

        init(_ operation: any Operation) { (work, turn, isSignOfLife) = (.operation(operation), .shared, true) }

        init(
            run: @escaping @Sendable (SQLiteDatabase) throws -> Void, finish: @escaping @Sendable (StoreError?) -> Void,
            turn: Turn = .shared, isSignOfLife: Bool = true
        ) {
            (work, self.turn, self.isSignOfLife) = (.keeping(run: run, finish: finish), turn, isSignOfLife)
        }

        fileprivate func run(_ database: SQLiteDatabase) throws {
            switch work {
            case .operation(let operation): try operation.run(database.transaction)
            case .keeping(let run, _): try run(database)
            }
        }

        func finish(_ error: StoreError?) {
            switch work {
            case .operation(let operation): operation.finish(error)
            case .keeping(_, let finish): finish(error)
            }
        }
    }

    /// When a job has its turn.
    enum Turn: Sendable {
        /// With what waits, in one transaction.
        case shared
        /// In a transaction of its own, once nothing shared waits: nobody's request has to wait for all of it.
        case apart
        /// Likewise and in no transaction, e.g. a checkpoint.
        case alone
    }

    private struct Queue {
        var jobs: [Job] = []
        var closed = false
        /// Jobs are left lying until `release`, to be taken up together.
        var held = false
    }

    private let queue = Mutex(Queue())
    private let work = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let writes: Bool
    private let committed: @Sendable (SQLiteDatabase, StoreThread) -> Void
    /// So many operations at most share one commit, which bounds how long the first of them waits.
    private static let batch = 1024

    /// Opens a connection on a new thread.
    /// - Parameter committed: called there after each commit.
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
        if closed { return job.finish(.closed) }
        if first { work.signal() }
    }

    /// Starts nothing new until `release`.
    func hold() { queue.withLock { $0.held = true } }

    func release() {
        let waiting = queue.withLock { queue in
            queue.held = false
            return !queue.jobs.isEmpty
        }
        if waiting { work.signal() }
    }

    /// Carries out what is queued, refuses what comes later, and returns when the connection is closed.
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

    /// On a busy processor more comes in while others have it, and shares the commit; on an idle one this is over at once.
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
        // One after each look at what is shared.
        var later: [Job] = []
        while true {
            if later.isEmpty { work.wait() }
            if writes { gather() }
            let (jobs, closed) = queue.withLock { queue in
                defer { queue.jobs = [] }
                return (queue.jobs, queue.closed)
            }
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

    /// Reads that came together share one transaction: one look at what is durable, one set of locks.
    private func read(_ jobs: ArraySlice<Job>, _ database: SQLiteDatabase) {
        let isOpen = jobs.count > 1 && (try? database.beginReading()) != nil
        answer(jobs, database)
        if isOpen { database.endReading() }
    }

    private func answer(_ jobs: ArraySlice<Job>, _ database: SQLiteDatabase) {
        for job in jobs {
            do {
                try job.run(database)
                job.finish(nil)
            } catch {
                job.finish(StoreError(any: error))
            }
        }
    }

    private func commit(_ jobs: ArraySlice<Job>, _ database: SQLiteDatabase) {
        var answers = [StoreError?](repeating: nil, count: jobs.count)
        do {
            // A savepoint for each operation costs a fifth of the writer's time, and hardly any operation fails after a write.
            if try !commit(jobs, &answers, database, withSavepoints: false) {
                _ = try commit(jobs, &answers, database, withSavepoints: true)
            }
        } catch {
            database.rollBack()
            let failure = StoreError(any: error)
            for job in jobs { job.finish(failure) }
            return
        }
        for (job, answer) in zip(jobs, answers) { job.finish(answer) }
        committed(database, self)
    }

    /// Runs the operations in one transaction. An operation that fails before its first write affects no other.
    /// - Parameter answers: each operation's error.
    /// - Returns: false if an operation failed after a write and had no savepoint. Nothing is kept then.
    /// - Throws: if the whole transaction failed.
    private func commit(
        _ jobs: ArraySlice<Job>, _ answers: inout [StoreError?], _ database: SQLiteDatabase, withSavepoints: Bool
    ) throws -> Bool {
        try database.begin()
        try database.recordOverdue()
        for (index, job) in jobs.enumerated() {
            database.beginOperation()
            do {
                if withSavepoints { try database.savepoint() }
                try job.run(database)
                if withSavepoints { try database.release() }
                answers[index] = nil
            } catch {
                // On a full disk SQLite has rolled back everything: then the whole batch failed.
                guard database.inTransaction else { throw error }
                if withSavepoints {
                    try database.rollBackToSavepoint()
                } else if database.hasChanged {
                    database.rollBack()
                    return false
                }
                database.forgetOperation()
                answers[index] = StoreError(any: error)
            }
        }
        try database.commit()
        let isWhole = answers.allSatisfy { $0 == nil }
        if isWhole, database.hasResumed || jobs.contains(where: \.isSignOfLife) { database.journal.noteAlive() }
        return true
    }
}
