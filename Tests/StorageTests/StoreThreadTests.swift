import Ledger
import Linux
import Policy
import SQLite
import Synchronization
import Testing

@testable import Storage

/// Failures within a batch of the writer.
@Suite struct StoreThreadTests {
    /// Runs the operations in one batch.
    /// - Returns: the result of each operation, and the marks at the end.
    private func batch(
        _ operations: [@Sendable (SQLiteDatabase) throws -> Void], turns: [StoreThread.Turn] = []
    ) async throws -> (
        answers: [StoreError?], marks: [String]
    ) {
        let folder = try File.makeTemporaryFolder()
        let journal = Journal(resolution: 1, timing: .standard, limit: 1_000, now: { 1_700_000_000_000 })
        let thread = try StoreThread(name: "test", writes: true) {
            try SQLiteDatabase(path: folder + "/mayfly.sqlite", access: .readWrite, journal: journal)
        }
        thread.hold()
        let answers = Mutex([StoreError?](repeating: nil, count: operations.count))
        await withCheckedContinuation { continuation in
            let left = Mutex(operations.count)
            for (index, operation) in operations.enumerated() {
                let finish: @Sendable (StoreError?) -> Void = { error in
                    answers.withLock { $0[index] = error }
                    let isLast = left.withLock { left in
                        left -= 1
                        return left == 0
                    }
                    if isLast { continuation.resume() }
                }
                thread.submit(
                    StoreThread.Job(
                        run: { database in
                            try operation(database)
                            return { finish(nil) }
                        }, fail: finish, turn: index < turns.count ? turns[index] : .shared))
            }
            thread.release()
        }
        thread.close()
        let tables = try SQLiteDatabase(path: folder + "/mayfly.sqlite", access: .readOnly, journal: journal)
        let marks = try tables.rows("SELECT name FROM node ORDER BY name") { $0.text(0) }
        try File.removeTree(folder)
        return (answers.withLock { $0 }, marks)
    }

    /// The batch is repeated with savepoints, so operations run twice.
    // Promise: group-commit
    @Test func anOperationFailingAfterAWriteAffectsNoOther() async throws {
        let runs = Mutex(0)
        let (answers, marks) = try await batch([
            { tables in
                runs.withLock { $0 += 1 }
                try tables.setMark("a", [1])
            },
            { tables in
                try tables.setMark("b", [2])
                throw StoreError.damaged("half done")
            },
            { try $0.setMark("c", [3]) },
        ])
        #expect(answers == [nil, .damaged("half done"), nil])
        #expect(marks == ["a", "c"])
        #expect(runs.withLock { $0 } == 2)
    }

    /// Books that an operation changed without writing a row are restored too.
    @Test func anOperationFailingBeforeItsFirstWriteRestoresTheBooks() async throws {
        let recorded = Mutex<[Int]>([])
        let (answers, _) = try await batch([
            { tables in
                tables.journal.books.inWindows += 7
                throw StoreError.ledgerBehind
            },
            { tables in recorded.withLock { $0.append(tables.journal.books.inWindows) } },
        ])
        #expect(answers == [.ledgerBehind, nil])
        #expect(recorded.withLock { $0 } == [0])
    }

    @Test func aRefusedOperationAffectsNoOther() async throws {
        let runs = Mutex(0)
        let (answers, marks) = try await batch([
            { tables in
                runs.withLock { $0 += 1 }
                try tables.setMark("a", [1])
            },
            { _ in throw StoreError.ledgerBehind },
        ])
        #expect(answers == [nil, .ledgerBehind])
        #expect(marks == ["a"])
        // Nothing was repeated.
        #expect(runs.withLock { $0 } == 1)
    }

    /// Sweeps and publications have their own transactions, so that requests don't wait for several of them.
    @Test func separateJobsRunAfterSharedOnes() async throws {
        let seen = Mutex<[String]>([])
        func step(_ name: String) -> @Sendable (SQLiteDatabase) throws -> Void {
            { tables in
                let savepoints = try tables.rows("SELECT name FROM node ORDER BY name") { $0.text(0) }
                seen.withLock { $0.append("\(name) \(tables.inTransaction) \(savepoints.joined())") }
                if tables.inTransaction { try tables.setMark(name, [1]) }
                if name == "b" {
                    // Rolls back the whole transaction, like a full disk.
                    tables.rollBack()
                    throw StoreError.full
                }
            }
        }
        let (answers, marks) = try await batch(
            [step("a"), step("b"), step("c"), step("d")], turns: [.apart, .apart, .alone, .shared])
        #expect(seen.withLock { $0 } == ["d true ", "a true d", "b true ad", "c false ad"])
        #expect(answers == [nil, .full, nil, nil])
        #expect(marks == ["a", "d"])
    }

    @Test func aLongLogIsCheckpointedWhileOthersWrite() async throws {
        let fixture = try Fixture()
        let large = [UInt8](repeating: 1, count: 1_000_000)
        for _ in 0..<100 { try await fixture.store.setMark("large", large) }
        // At 64 MiB the writer waits for the background thread, however slow.
        let length = try #require(try File.status(fixture.path + "-wal")?.size)
        #expect(length < 70_000_000)
        #expect(try await fixture.store.scrub())
        #expect(try File.status(fixture.path + "-wal")?.size == 0)
        try await fixture.close()
    }
}
