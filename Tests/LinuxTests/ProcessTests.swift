import Synchronization
import Testing

@testable import Linux

@Suite struct ProcessTests {
    @Test func clocksAgreeWithEachOther() {
        #expect(Clock.wallMs > 1_700_000_000_000)
        #expect(Clock.boottimeMs >= Clock.monotonicMs - 1)
        let before = Clock.monotonicNs
        #expect(Clock.monotonicNs >= before)
    }

    @Test func aThreadRunsOnceAndCanBeJoined() throws {
        let count = Mutex(0)
        let here = Thread.current
        let thread = try Thread.spawn(name: "a name longer than the kernel's") {
            count.withLock { $0 += Thread.current == here ? 100 : 1 }
        }
        thread.join()
        #expect(count.withLock { $0 } == 1)
    }

    @Test func aChildsStatusOutputAndEnvironment() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let child = try ChildProcess.spawn(
            "/bin/sh", arguments: ["-c", "echo $GREETING; exit 7"], environment: ["GREETING": "hello"],
            output: .file("\(folder)/out"))
        #expect(try child.wait() == .status(7))
        #expect(try File.read("\(folder)/out", limit: 100) == Array("hello\n".utf8))
        #expect(try File.status("\(folder)/out")?.mode == 0o600)
    }

    @Test func aChildCanBeKilledAndStartsWithSignalsUnblocked() throws {
        let thread = Mutex<ChildProcess.Exit?>(nil)
        try Thread.spawn(name: "blocked") {
            Signal.block([.terminate])
            guard let child = try? ChildProcess.spawn("/bin/sleep", arguments: ["60"]) else { return }
            guard (try? child.poll()) == .some(nil) else { return }
            try? child.send(.terminate)
            let exit = try? child.wait()
            thread.withLock { $0 = exit }
        }.join()
        #expect(thread.withLock { $0 } == .killed(.terminate))
    }

    @Test func aMissingProgramIsAnError() {
        #expect(throws: Errno.self) { try ChildProcess.spawn("/nonexistent/program", arguments: []) }
    }

    @Test func blockedSignalsAreQueued() throws {
        let seen = Mutex<[Signal?]>([])
        try Thread.spawn(name: "signals") {
            guard let queue = try? SignalQueue([.user1, .user2]) else { return }
            let before = queue.next()
            Signal.raise(.user2)
            let after = queue.next()
            seen.withLock { $0 = [before, after, queue.next()] }
        }.join()
        #expect(seen.withLock { $0 } == [nil, .user2, nil])
    }

    @Test func figuresOfThisProcess() throws {
        #expect(ProcessControl.residentMemory > 1 << 20)
        #expect(try ProcessControl.raiseDescriptorLimit() >= 256)
        #expect(try File.exists(ProcessControl.executable()))
    }
}

/// Programs that are run for their output.
@Suite struct ChildOutputTests {
    private func run(
        _ script: String, room: Int = 64, deadlineMs: UInt64 = 10_000
    ) throws -> (outcome: ChildProcess.Outcome, text: String) {
        var bytes = [UInt8](repeating: 0, count: room)
        var span = bytes.mutableSpan
        let outcome = try ChildProcess.read("/bin/sh", arguments: ["-c", script], into: &span, deadlineMs: deadlineMs)
        guard case .ended(_, let count) = outcome else { return (outcome, "") }
        return (outcome, String(decoding: bytes[..<count], as: UTF8.self))
    }

    @Test func readsOutputButNotErrors() throws {
        let (outcome, text) = try run("printf one; echo no >&2; sleep 0.05; printf two; exit 3")
        #expect(outcome == .ended(.status(3), count: 6) && text == "onetwo")
        #expect(try run("exit 0").outcome == .ended(.status(0), count: 0))
    }

    @Test func aChildHasEmptyInputAndItsOwnGroup() throws {
        #expect(try run("cat; echo $$; ps -o pgid= -p $$ | tr -d ' '").text.split(separator: "\n").count == 2)
        let lines = try run("cat; echo $$; ps -o pgid= -p $$ | tr -d ' '").text.split(separator: "\n")
        #expect(lines[0] == lines[1])
    }

    @Test func excessOutputIsCutAndEndsTheChild() throws {
        let begin = Clock.monotonicMs
        let (outcome, text) = try run("exec cat /dev/zero", room: 10)
        guard case .ended(.killed(.pipe), count: 10) = outcome else {
            Issue.record("\(outcome) \(text.count)")
            return
        }
        #expect(Clock.monotonicMs - begin < 5_000)
    }

    @Test(arguments: ["sleep 60", "exec >&-; sleep 60", "sleep 60 & exit 0"])
    func aChildAndItsDescendantsAreKilledAtTheDeadline(script: String) throws {
        let begin = Clock.monotonicMs
        #expect(try run(script, deadlineMs: 200).outcome == .tooSlow)
        #expect((200..<5_000).contains(Clock.monotonicMs - begin))
    }

    /// The caller returns at the deadline in any case, so only a descendant's work shows that it lives.
    @Test func noDescendantOutlivesTheDeadline() async throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        #expect(try run("(sleep 1; echo alive >\(folder)/file) & exit 0", deadlineMs: 100).outcome == .tooSlow)
        try await Task.sleep(for: .milliseconds(1_200))
        #expect(!File.exists(folder + "/file"))
    }

    @Test func aMissingProgramIsAnError() {
        var bytes: [UInt8] = [0]
        #expect(throws: Errno.self) {
            var span = bytes.mutableSpan
            _ = try ChildProcess.read("/nonexistent/program", arguments: [], into: &span, deadlineMs: 1)
        }
    }
}

@Suite struct CalendarDateTests {
    @Test func daysAndDatesAreInverse() {
        for days: UInt64 in stride(from: 0, to: 3_000_000, by: 97) {
            let date = CalendarDate(daysSince1970: days)
            #expect(date.daysSince1970 == days)
            #expect((1...12).contains(date.month) && (1...31).contains(date.day))
        }
    }
}
