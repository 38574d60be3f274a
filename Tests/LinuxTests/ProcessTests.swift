import Linux
import Synchronization
import Testing

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
        #expect(ProcessControl.environment("PATH") != nil)
        #expect(ProcessControl.environment("MAYFLY_SURELY_UNSET") == nil)
    }
}
