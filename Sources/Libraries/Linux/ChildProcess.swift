import CLinux
import Glibc

/// A process that this one started.
public struct ChildProcess: Sendable, Hashable {
    public let id: Int32

    public enum Output: Sendable {
        case inherit
        case discard
        /// Appended to a file of mode 0600.
        case file(String)
    }

    /// How a child ended.
    public enum Exit: Sendable, Equatable {
        case status(Int32)
        case killed(Signal)
    }

    /// Starts a program with default signal handling and no blocked signals. Its standard input is empty.
    ///
    /// All descriptors that this project opens are closed on exec. A child that must not outlive its parent calls `ProcessControl.dieWithParent`
    /// first. That call follows the thread that called `spawn`, so this thread must live on.
    /// - Parameter environment: variables added to those of this process. They replace variables with the same name.
    public static func spawn(
        _ path: String, arguments: [String], environment: [String: String] = [:], output: Output = .inherit,
        errors: Output = .inherit
    ) throws(Errno) -> ChildProcess {
        try spawn(path, arguments, environment, [.output(output), .output(errors)], ownGroup: false)
    }

    /// Where a child's output or errors go.
    private enum Target {
        case output(Output)
        case descriptor(Int32)
    }

    /// Starts a program in its own process group and discards its errors. Consumes `output`, because a copy that stays open here would keep the pipe
    /// from ending.
    static func spawn(_ path: String, _ arguments: [String], output: consuming Descriptor) throws(Errno) -> ChildProcess {
        try spawn(path, arguments, [:], [.descriptor(output.raw), .output(.discard)], ownGroup: true)
    }

    private static func spawn(
        _ path: String, _ arguments: [String], _ environment: [String: String], _ targets: [Target], ownGroup: Bool
    ) throws(Errno) -> ChildProcess {
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe _ = posix_spawn_file_actions_destroy(&actions) }
        unsafe posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        for (descriptor, target) in zip([1, 2] as [Int32], targets) {
            switch target {
            case .output(.inherit): break
            case .output(.discard): unsafe posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_WRONLY, 0)
            case .output(.file(let file)):
                unsafe posix_spawn_file_actions_addopen(&actions, descriptor, file, O_WRONLY | O_CREAT | O_APPEND, 0o600)
            case .descriptor(let source): unsafe posix_spawn_file_actions_adddup2(&actions, source, descriptor)
            }
        }
        var attributes = posix_spawnattr_t()
        unsafe posix_spawnattr_init(&attributes)
        defer { unsafe _ = posix_spawnattr_destroy(&attributes) }
        var none = Signal.mask([])
        var all = sigset_t()
        unsafe sigfillset(&all)
        unsafe posix_spawnattr_setsigmask(&attributes, &none)
        unsafe posix_spawnattr_setsigdefault(&attributes, &all)
        // Group 0 means a new group.
        let flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (ownGroup ? POSIX_SPAWN_SETPGROUP : 0)
        unsafe posix_spawnattr_setflags(&attributes, Int16(flags))

        var variables = Dictionary(Environment.all.map { ($0.name, $0.value) }) { $1 }
        variables.merge(environment) { $1 }
        let argv = CStrings([path] + arguments)
        let envp = CStrings(variables.map { "\($0)=\($1)" })
        var id: pid_t = 0
        let result = unsafe posix_spawn(&id, path, &actions, &attributes, argv.pointers, envp.pointers)
        guard result == 0 else { throw Errno(code: result, "posix_spawn", path: path) }
        return ChildProcess(id: id)
    }

    public func send(_ signal: Signal) throws(Errno) {
        guard kill(id, signal.number) == 0 else { throw .last("kill") }
    }

    /// Waits for the child to end. Call it once: afterwards the id may belong to another process.
    public func wait() throws(Errno) -> Exit {
        var status: Int32 = 0
        guard retrying({ unsafe waitpid(id, &status, 0) }) == id else { throw .last("waitpid") }
        return Exit(raw: status)
    }

    /// Returns nil while the child runs.
    public func poll() throws(Errno) -> Exit? {
        var status: Int32 = 0
        let result = retrying { unsafe waitpid(id, &status, WNOHANG) }
        guard result >= 0 else { throw .last("waitpid") }
        return result == 0 ? nil : Exit(raw: status)
    }
}

extension ChildProcess.Exit {
    init(raw status: Int32) {
        let signal = status & 0x7f
        self = signal == 0 ? .status(mayfly_exit_status(status)) : .killed(Signal(number: signal))
    }
}

/// A null-terminated array of C strings, the form that exec takes.
@safe private final class CStrings {
    let pointers: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    private let count: Int

    init(_ strings: [String]) {
        count = strings.count
        unsafe pointers = .allocate(capacity: strings.count + 1)
        for (index, string) in strings.enumerated() { unsafe pointers[index] = strdup(string) }
        unsafe pointers[strings.count] = nil
    }

    deinit {
        for index in 0..<count { unsafe free(pointers[index]) }
        unsafe pointers.deallocate()
    }
}

extension ChildProcess {
    /// How `read` ended.
    public enum Outcome: Sendable, Equatable {
        /// `count` bytes were read. If `count` equals the size of the buffer, output may be missing.
        case ended(Exit, count: Int)
        /// The deadline passed. The program and its process group were killed.
        case tooSlow
    }

    /// Runs a program to its end and reads its standard output into `output`, which may be locked memory. No other copy of the output exists in this
    /// process. Standard input is empty, standard error is discarded, and the environment is inherited. Blocks.
    /// - Parameter path: the program's path. No shell and no search path are used.
    public static func read(
        _ path: String, arguments: [String], into output: inout MutableSpan<UInt8>, deadlineMs: UInt64
    ) throws(Errno) -> Outcome {
        let deadline = Clock.monotonicMs + deadlineMs
        var ends: [Int32] = [-1, -1]
        let made = unsafe ends.withUnsafeMutableBufferPointer { unsafe pipe2($0.baseAddress!, O_CLOEXEC) }
        guard made == 0 else { throw .last("pipe") }
        let pipe = Descriptor(owning: ends[0])
        let child = try spawn(path, arguments, output: Descriptor(owning: ends[1]))
        var count: Int?
        do throws(Errno) {
            count = try fill(&output, from: pipe, until: deadline)
        } catch {
            _ = try? child.endGroup()
            throw error
        }
        guard let count else { return try child.endGroup() }
        while true {
            if let exit = try child.poll() { return .ended(exit, count: count) }
            guard Clock.monotonicMs < deadline else { return try child.endGroup() }
            _ = Glibc.poll(nil, 0, 5)
        }
    }

    /// Reads until the end of the stream or until `output` is full, then closes the pipe. A child that still writes ends by SIGPIPE.
    /// - Returns: the number of bytes read; nil if the deadline passed.
    private static func fill(
        _ output: inout MutableSpan<UInt8>, from pipe: consuming Descriptor, until deadline: UInt64
    ) throws(Errno) -> Int? {
        var count = 0
        while count < output.count {
            guard wait(for: pipe, until: deadline) else { return nil }
            let got = unsafe output.withUnsafeMutableBytes { bytes in
                let (start, size) = unsafe (bytes.baseAddress! + count, bytes.count - count)
                return retrying { unsafe Glibc.read(pipe.raw, start, size) }
            }
            guard got >= 0 else { throw .last("read from a program") }
            if got == 0 { break }
            count += got
        }
        return count
    }

    private static func wait(for pipe: borrowing Descriptor, until deadline: UInt64) -> Bool {
        while true {
            let now = Clock.monotonicMs
            guard now < deadline else { return false }
            var ready = pollfd(fd: pipe.raw, events: Int16(POLLIN), revents: 0)
            // The loop handles a signal and a timeout.
            if unsafe Glibc.poll(&ready, 1, Int32(clamping: deadline - now)) > 0 { return true }
        }
    }

    private func endGroup() throws(Errno) -> Outcome {
        _ = kill(-id, SIGKILL)
        _ = try wait()
        return .tooSlow
    }
}
