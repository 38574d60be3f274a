import Dispatch
import Synchronization
import TestPostgres
import Testing
import Vocabulary

@testable import Storage

/// Operations of a PostgreSQL store that had to wait for a connection.
@Suite struct SharedTransactionTests {
    private let fixture: Fixture
    private let store: PostgresStore

    init() throws {
        fixture = try Fixture(.postgres)
        guard let store = fixture.store as? PostgresStore else { preconditionFailure("the engine is PostgreSQL") }
        self.store = store
    }

    /// Submits operations while all connections are busy. Then frees one of them until the operations are done.
    /// - Returns: how each ended, in the order of the answers.
    private func together(
        _ operations: [@Sendable (PostgresDatabase) throws -> Void]
    ) async throws -> [(number: Int, error: StoreError?)] {
        let (busy, free) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let answers = Mutex<[(Int, StoreError?)]>([])
        try await withThrowingTaskGroup { group in
            for _ in 0..<4 {
                group.addTask { [store] in
                    try await store.run { _ in
                        busy.signal()
                        free.wait()
                    }
                }
            }
            await withCheckedContinuation { continuation in
                DispatchQueue.global().async {
                    for _ in 0..<4 { busy.wait() }
                    continuation.resume()
                }
            }
            await withCheckedContinuation { continuation in
                for (number, operation) in operations.enumerated() {
                    let finish: @Sendable (StoreError?) -> Void = { error in
                        let isLast = answers.withLock { answers in
                            answers.append((number, error))
                            return answers.count == operations.count
                        }
                        if isLast { continuation.resume() }
                    }
                    let operation = Operation { transaction in
                        guard let database = transaction.database as? PostgresDatabase else { throw StoreError.closed }
                        try operation(database)
                        return { finish(nil) }
                    } fail: {
                        finish($0)
                    }
                    store.submit(operation, .write)
                }
                free.signal()
            }
            for _ in 0..<3 { free.signal() }
            try await group.waitForAll()
        }
        return answers.withLock { $0 }
    }

    private func mark(_ number: Int) -> @Sendable (PostgresDatabase) throws -> Void { { try $0.setMark("\(number)", [1]) } }

    /// The transactions that wrote the marks, and their marks.
    private func transactions() throws -> [String] {
        let table = "\(TestPostgres.name(fixture.folder)).node"
        return try TestPostgres.texts(
            "SELECT string_agg(name, ' ' ORDER BY name) FROM \(table) WHERE name ~ '^[0-9]+$' GROUP BY xmin::text::bigint ORDER BY 1"
        )
    }

    @Test func nothingIsKeptOfAnOperationThatIsOver() async throws {
        final class Content: Sendable {}
        weak var left: Content?
        func run() async throws {
            let content = Content()
            left = content
            try await store.run { _ in _ = content }
        }
        try await run()
        // The thread answers first.
        for _ in 0..<200 where left != nil { try await Task.sleep(for: .milliseconds(10)) }
        #expect(left == nil)
    }

    @Test func operationsThatWaitShareATransaction() async throws {
        let answers = try await together((0..<9).map(mark))
        #expect(answers.map(\.number) == Array(0..<9) && answers.allSatisfy { $0.error == nil })
        #expect(try transactions() == ["0 1 2 3 4 5 6 7", "8"])
        try await fixture.close()
    }

    /// The failed operation has written something, or the server refuses it at the commit.
    // Promise: group-commit
    @Test(arguments: [true, false]) func anOperationThatFailsAffectsNoOther(atCommit: Bool) async throws {
        let runs = Mutex([Int](repeating: 0, count: 12))
        let answers = try await together(
            (0..<12).map { number in
                { database in
                    runs.withLock { $0[number] += 1 }
                    try database.setMark("\(number)", [1])
                    if number != 1 { return }
                    if !atCommit { throw StoreError.full }
                    try database.queue("DELETE FROM token WHERE expires = $1", expecting: 1, [.int(1)])
                }
            })
        let errors = answers.sorted { $0.number < $1.number }.map(\.error)
        for (number, error) in errors.enumerated() {
            if number != 1 {
                #expect(error == nil)
            } else if atCommit {
                #expect(error?.description.contains("22012") == true)
            } else {
                #expect(error == .full)
            }
        }
        #expect(try transactions() == ["0", "10 11 8 9", "2", "3", "4", "5", "6", "7"])
        // The first eight began together. A wrong count may be due to another transaction, so that one is repeated alone.
        #expect(
            runs.withLock { $0 } == (atCommit ? [2, 5] + [Int](repeating: 2, count: 6) : [2, 2] + [Int](repeating: 1, count: 6))
                + [1, 1, 1, 1])
        try await fixture.close()
    }

    /// E.g. one that adds to the log while that is full.
    @Test func anOperationThatRefusesItselfStopsNoOther() async throws {
        let runs = Mutex(0)
        let answers = try await together(
            (0..<8).map { number in
                { database in
                    runs.withLock { $0 += 1 }
                    try database.lock([.owner(Fixture.blob(UInt8(number)))], for: #function)
                    if [3, 7].contains(number) { throw StoreError.ledgerBehind }
                    try database.setMark("\(number)", [1])
                }
            })
        #expect(answers.map(\.number) == Array(0..<8))
        #expect(answers.filter { $0.error == .ledgerBehind }.map(\.number) == [3, 7])
        #expect(try transactions() == ["0 1 2 4 5 6"] && runs.withLock { $0 } == 8)
        try await fixture.close()
    }

    /// The others have waited with it once, for as long as the server lets a statement wait.
    @Test func aLockThatStaysTakenStopsOnlyWhoNeedsIt() async throws {
        let key = LockKey.owner(Fixture.blob(9))
        let left = Mutex(7)
        let answers = try await whileHeld(key) { release in
            try await together(
                (0..<8).map { number in
                    { database in
                        if number == 0 {
                            try database.lock([key], for: #function)
                            _ = try database.window()
                        }
                        try database.setMark("\(number)", [1])
                        let isLast = left.withLock { left in
                            if number > 0 { left -= 1 }
                            return left == 0
                        }
                        if isLast { release() }
                    }
                })
        }
        #expect(answers.map(\.number) == [1, 2, 3, 4, 5, 6, 7, 0] && answers.allSatisfy { $0.error == nil })
        #expect(try transactions() == ["0", "1 2 3 4 5 6 7"])
        try await fixture.close()
    }

    /// Calls `body` while another transaction holds a lock, with a function that ends it.
    private func whileHeld<Value>(
        _ key: LockKey, _ body: (_ release: @escaping @Sendable () -> Void) async throws -> Value
    ) async throws -> Value {
        let (held, free) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        async let holder: Void = store.run(on: store.nodes) { database in
            try database.write {
                try database.lock([key], for: #function)
                _ = try database.window()
                held.signal()
                free.wait()
            }
        }
        await withCheckedContinuation { continuation in
            DispatchQueue.global().async {
                held.wait()
                continuation.resume()
            }
        }
        let value = try await body { free.signal() }
        try await holder
        return value
    }

    /// Two transactions that hold locks and wait for more could wait for each other.
    @Test func anOperationThatFindsALockTakenWaitsWithoutHoldingOthers() async throws {
        let key = LockKey.owner(Fixture.blob(9))
        let runs = Mutex(0)
        let schema = TestPostgres.name(fixture.folder)
        let answers = try await whileHeld(key) { release in
            try await together(
                (0..<12).map { number in
                    { database in
                        if number == 1 {
                            // Ends the other transaction once the first operation's is durable.
                            if try TestPostgres.texts("SELECT name FROM \(schema).node WHERE name = '0'") == ["0"] { release() }
                            runs.withLock { $0 += 1 }
                            try database.lock([key], for: #function)
                        }
                        try database.setMark("\(number)", [1])
                    }
                })
        }
        #expect(answers.map(\.number) == Array(0..<12) && answers.allSatisfy { $0.error == nil })
        #expect(runs.withLock { $0 } == 2)
        #expect(try transactions() == ["0", "1 2 3 4 5 6 7", "10 11 8 9"])
        try await fixture.close()
    }

    enum Order: CaseIterable { case onlyLocks, locksAndDeletes, deletesAndLocks }

    /// Otherwise a token could be deleted without its entry: the operation runs again and finds nothing.
    @Test(arguments: Order.allCases) func anOperationThatFindsALockTakenChangesNothing(order: Order) async throws {
        let key = LockKey.owner(Fixture.blob(9))
        let runs = Mutex([0, 0])
        let found = Mutex(false)
        try await store.setMark("x", [1])
        let answers = try await whileHeld(key) { release in
            try await together([
                { database in
                    runs.withLock { $0[0] += 1 }
                    try database.setMark("0", [1])
                },
                { database in
                    let run = runs.withLock { runs in
                        runs[1] += 1
                        return runs[1]
                    }
                    if run == 2 { release() }
                    if order != .deletesAndLocks { try database.lock([key], for: #function) }
                    if order != .onlyLocks {
                        let isThere = try database.exists("DELETE FROM node WHERE name = 'x' RETURNING 1")
                        found.withLock { $0 = isThere }
                    }
                    if order == .deletesAndLocks {
                        try database.lock([key], for: #function)
                        _ = try database.exists("SELECT 1 FROM node")
                    }
                },
            ])
        }
        #expect(answers.map(\.number) == [0, 1] && answers.allSatisfy { $0.error == nil })
        #expect(found.withLock { $0 } == (order != .onlyLocks))
        #expect(runs.withLock { $0 } == [order == .deletesAndLocks ? 2 : 1, 2])
        try await fixture.close()
    }

    /// The server may have committed it, so a repetition could send two pushes.
    @Test func aSharedCommitThatIsUnknownIsNotRepeated() async throws {
        let runs = Mutex(0)
        let forget = "DELETE FROM \(TestPostgres.name(fixture.folder)).incarnation RETURNING name::text"
        let answers = try await together(
            (0..<12).map { number in
                { database in
                    try database.setMark("\(number)", [1])
                    guard number < 8 else { return }
                    runs.withLock { $0 += 1 }
                    if number < 7 { return }
                    _ = try database.window()
                    _ = try TestPostgres.texts(forget)
                    try database.queue(text: "SELECT pg_terminate_backend(pg_backend_pid())")
                }
            })
        for (number, error) in answers {
            #expect((error?.description.contains("the answer to a commit was lost") ?? false) == (number < 8))
        }
        #expect(runs.withLock { $0 } == 8)
        try await fixture.close()
    }
}
