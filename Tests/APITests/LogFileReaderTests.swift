import Broker
import Dispatch
import EventLoop
import Linux
import Shares
import Synchronization
import Testing

@testable import API

/// Reads of the log's files from a disk that answers when the test lets it.
@Suite struct LogFileReaderTests {
    private final class Disk: Sendable {
        private let gate = DispatchSemaphore(value: 0)
        private let begun = Mutex<[String]>([])
        let time = Atomic<UInt64>(1_000)

        var reads: [String] { begun.withLock(\.self) }

        func read(_ path: String) throws -> [UInt8]? {
            begun.withLock { $0.append(path) }
            gate.wait()
            if path == "bad" { throw Errno(code: 5, call: "read") }
            return path == "none" ? nil : Array(path.utf8)
        }

        func answer(_ count: Int = 1) { for _ in 0..<count { gate.signal() } }
    }

    /// Runs `body` on the loop of a reader, which owns the shares.
    private func with(
        _ quotas: [Resource: Quota] = [:], _ body: @Sendable (isolated LogFileReader, Disk, Shares) async throws -> Void
    ) async throws {
        let disk = Disk()
        let loop = try EventLoop(name: "test") { disk.time.load(ordering: .relaxed) }
        try loop.start()
        var table = ShareTable.standard
        for (resource, quota) in quotas { table[resource] = quota }
        let shares = Shares(table)
        let reader = LogFileReader(loop: loop, shares: shares) { try disk.read($0) }
        try await body(reader, disk, shares)
        disk.answer(1_000)
        try await waitUntilUnused(reader, shares)
        loop.stop()
        loop.join()
    }

    private func waitUntilUnused(_ reader: isolated LogFileReader, _ shares: Shares) async throws {
        try await eventually { shares.used(.logReads) == 0 && shares.used(.logRequests) == 0 }
    }

    private func eventually(_ isTrue: () async throws -> Bool) async throws {
        for _ in 0..<10_000 {
            if try await isTrue() { return }
            try await Task.sleep(for: .milliseconds(1))
        }
        Issue.record("never true")
    }

    private func network(_ number: UInt32, _ shares: Shares, connection: UInt64? = nil) -> Owners {
        Owners(shares.network(.v4(number, port: 1)), connection: connection.map { shares.connection($0) })
    }

    @Test func aFileIsReadOrMissingOrUnreadable() async throws {
        try await with { reader, disk, shares in
            disk.answer(3)
            let owners = network(1, shares)
            let (tile, none) = (try await reader.read("tile", for: owners), try await reader.read("none", for: owners))
            #expect(tile == Array("tile".utf8) && none == nil)
            await #expect(throws: Errno(code: 5, call: "read")) { try await reader.read("bad", for: owners) }
        }
    }

    // Promise: slow-disk-stops-readers-only
    @Test func aFewThreadsReadAndTheLoopRunsOn() async throws {
        try await with { reader, disk, shares in
            let tasks = (0..<20).map { number in
                Task { try await reader.read("\(number)", for: network(UInt32(number), shares)) }
            }
            try await eventually { disk.reads.count == LogFileReader.mostThreads && shares.used(.logReads) == 20 }
            #expect(disk.reads.count == LogFileReader.mostThreads)
            disk.answer(20)
            for (number, task) in tasks.enumerated() { #expect(try await task.value == Array("\(number)".utf8)) }
            #expect(disk.reads.count == 20)
        }
    }

    @Test func aConnectionAndANetworkHaveShares() async throws {
        try await with { reader, disk, shares in
            let one = (0..<60).map { number in
                Task { try await reader.read("a\(number)", for: network(1, shares, connection: 1)) }
            }
            try await eventually { shares.used(.logRequests) == 60 }
            #expect(shares.used(.logReads) == 4)
            // Behind a proxy no connection counts. With 12 more, 48 are free, and a quarter of these is 12.
            let two = (0..<60).map { number in Task { try await reader.read("b\(number)", for: network(2, shares)) } }
            try await eventually { shares.used(.logRequests) == 120 }
            #expect(shares.used(.logReads) == 4 + 12)
            // Others get reads of their own at once.
            let other = Task { try await reader.read("c", for: network(3, shares)) }
            try await eventually { shares.used(.logReads) == 4 + 12 + 1 }
            #expect(shares.refusals(.logReads).overShare == 0, "a request that waits is not refused")
            disk.answer(121)
            for (number, task) in one.enumerated() { #expect(try await task.value == Array("a\(number)".utf8)) }
            for (number, task) in two.enumerated() { #expect(try await task.value == Array("b\(number)".utf8)) }
            #expect(try await other.value == Array("c".utf8))
        }
    }

    @Test func tooManyRequestsAreRefused() async throws {
        try await with([.logRequests: Quota(6, network: Share(4))]) { reader, disk, shares in
            let own = (0..<4).map { number in Task { try await reader.read("\(number)", for: network(1, shares)) } }
            try await eventually { shares.used(.logRequests) == 4 }
            await #expect(throws: Shortage.overShare(.logRequests, retryAfterSeconds: 5)) {
                try await reader.read("5", for: network(1, shares))
            }
            let others = (2..<4).map { number in Task { try await reader.read("o", for: network(UInt32(number), shares)) } }
            try await eventually { shares.used(.logRequests) == 6 }
            await #expect(throws: Shortage.exhausted(.logRequests, retryAfterSeconds: 5)) {
                try await reader.read("6", for: network(4, shares))
            }
            disk.answer(6)
            for task in own + others { _ = try await task.value }
        }
    }

    /// A read that hangs keeps its thread and its share. Its caller, and those who wait in line, get an error in time.
    @Test func aReadThatHangsFailsItsCaller() async throws {
        try await with { reader, disk, shares in
            let tasks = (0..<30).map { number in Task { try await reader.read("\(number)", for: network(1, shares)) } }
            try await eventually { shares.used(.logRequests) == 30 && disk.reads.count == 4 }
            let held = shares.used(.logReads)
            disk.time.store(1_000 + LogFileReader.longestMs - 1, ordering: .relaxed)
            reader.loop.submit {}
            try await Task.sleep(for: .milliseconds(20))
            #expect(shares.used(.logRequests) == 30)
            disk.time.add(1, ordering: .relaxed)
            reader.loop.submit {}
            for task in tasks { await #expect(throws: LogFileReader.TooSlow()) { try await task.value } }
            #expect(shares.used(.logRequests) == 0 && shares.used(.logReads) == held && disk.reads.count == 4)
            // The disk answers again.
            disk.answer(held)
            try await eventually { shares.used(.logReads) == 0 }
            disk.answer()
            let again = try await reader.read("again", for: network(1, shares))
            #expect(again == Array("again".utf8))
            #expect(disk.reads.count == held + 1, "nobody wants the others any more")
        }
    }

    /// While no read ends, a line without requests would keep its network in memory.
    @Test func linesEndWithTheirRequests() async throws {
        try await with([.logReads: Quota(1)]) { reader, disk, shares in
            let held = Task { try await reader.read("held", for: network(0, shares)) }
            try await eventually { disk.reads.count == 1 }
            let tasks = (0..<60).map { number in
                Task { try await reader.read("\(number)", for: network(1 + UInt32(number) / 3, shares)) }
            }
            try await eventually { shares.used(.logRequests) == 61 }
            #expect(reader.lineCount == 20)
            disk.time.add(LogFileReader.longestMs, ordering: .relaxed)
            reader.loop.submit {}
            for task in tasks + [held] { await #expect(throws: LogFileReader.TooSlow()) { try await task.value } }
            #expect(reader.lineCount == 0)
        }
    }

    /// Asks for `count` files of each network in turn, in this order, while one network reads.
    private func ask(
        _ count: Int, networks: ClosedRange<UInt32>, _ reader: isolated LogFileReader, _ shares: Shares
    ) async throws -> [Task<[UInt8]?, any Error>] {
        var tasks: [Task<[UInt8]?, any Error>] = []
        for number in networks {
            for name in 0..<count {
                tasks.append(Task { try await reader.read("\(number)/\(name)", for: network(number, shares)) })
                try await eventually { shares.used(.logRequests) == tasks.count }
            }
        }
        return tasks
    }

    @Test func networksThatWaitTakeTurns() async throws {
        try await with([.logReads: Quota(1)]) { reader, disk, shares in
            let tasks = try await ask(4, networks: 1...3, reader, shares)
            disk.answer(tasks.count)
            for task in tasks { _ = try await task.value }
            #expect(
                disk.reads == ["1/0", "1/1", "2/0", "3/0", "1/2", "2/1", "3/1", "1/3", "2/2", "3/2", "2/3", "3/3"])
        }
    }

    /// A disk that comes back ends thousands of reads at once, on the loop of all other requests.
    @Test(arguments: [Quota(4), Quota(8, network: Share(1)), Quota(64, network: Share(freeDividedBy: 4))])
    func theEndOfAReadTriesFewOfThoseWhoWait(_ quota: Quota) async throws {
        try await with([.logReads: quota]) { reader, disk, shares in
            let tasks = try await ask(3, networks: 1...100, reader, shares)
            disk.answer(tasks.count)
            for task in tasks { _ = try await task.value }
            #expect(disk.reads.count == tasks.count)
            let tries = reader.tries
            #expect(tries <= 3 * tasks.count, "\(tries) tries")
        }
    }

    /// A request that has timed out loses its turn to the next one.
    @Test func aTurnOfAnAnsweredRequestIsSkipped() async throws {
        try await with([.logReads: Quota(1)]) { reader, disk, shares in
            let early = try await ask(2, networks: 1...3, reader, shares)
            disk.time.add(LogFileReader.longestMs - 1, ordering: .relaxed)
            reader.loop.submit {}
            let late = (1...3).map { number in
                Task { try await reader.read("late", for: network(UInt32(number), shares)) }
            }
            try await eventually { shares.used(.logRequests) == 9 }
            disk.time.add(1, ordering: .relaxed)
            reader.loop.submit {}
            for task in early { await #expect(throws: LogFileReader.TooSlow()) { try await task.value } }
            #expect(reader.lineCount == 3)
            disk.answer(4)
            for task in late { #expect(try await task.value == Array("late".utf8)) }
            #expect(disk.reads == ["1/0", "late", "late", "late"])
            #expect(reader.lineCount == 0)
        }
    }
}
