import EventLoop
import Ledger
import Linux
import Synchronization
import Testing

/// "Honest logs always verify": random stories of an honest broker, see `HonestLog`.
///
/// `MAYFLY_TEST_LOGS`: the number of stories; `make check` plays 1,000. `MAYFLY_TEST_SEED`: plays the one story of that seed again.
@Suite struct HonestLogTests {
    // Promise: honest-logs-verify
    @Test func honestLogsVerify() async throws {
        let again = Self.number("MAYFLY_TEST_SEED")
        let count = again == nil ? Self.number("MAYFLY_TEST_LOGS") ?? 30 : 1
        let first = again ?? UInt64.random(in: 0..<1 << 40)
        print("honest logs: seeds \(first)..<\(first + count)")
        let seeds = Seeds(first..<first + count)
        await withTaskGroup { group in
            for _ in 0..<2 {
                group.addTask {
                    while let seed = seeds.next() {
                        do {
                            seeds.add(try await Self.play(seed))
                        } catch { Issue.record("MAYFLY_TEST_SEED=\(seed): \(error)") }
                    }
                }
            }
        }
        print("honest logs, together: \(seeds.total)")
    }

    /// What is left to play, and what came of the others.
    private final class Seeds: Sendable {
        private let state: Mutex<(left: Range<UInt64>, total: Report)>

        init(_ seeds: Range<UInt64>) { state = Mutex((seeds, Report())) }

        func next() -> UInt64? { state.withLock { $0.left.popFirst() } }
        func add(_ report: Report) { state.withLock { $0.total.add(report) } }
        var total: Report { state.withLock { $0.total } }
    }

    private static func number(_ name: String) -> UInt64? {
        Environment.all.first { $0.name == name }.flatMap { UInt64($0.value) }
    }

    private static func play(_ seed: UInt64) async throws -> Report {
        let machine = MachineClock(wall: 1_800_000_000_000 + seed % 1_000 * 86_400)
        let loop = try EventLoop(name: "honest") { machine.monotonic }
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        // On the loop alone: what waited in the pool of all threads could not be waited for.
        return try await Task(executorPreference: loop) {
            try await HonestLog(seed: seed, loop: loop, machine: machine).play()
        }.value
    }
}

extension Report {
    fileprivate mutating func add(_ other: Report) {
        size += other.size
        sealed += other.sealed
        purged += other.purged
        opened += other.opened
        delivered += other.delivered
        failed += other.failed
        compared += other.compared
    }
}
