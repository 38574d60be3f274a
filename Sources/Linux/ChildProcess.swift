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

    /// Starts a program with default signal handling and none blocked; its standard input is empty.
    ///
    /// Every descriptor of this project is closed on exec. A child that must not outlive its parent calls
    /// `ProcessControl.dieWithParent` first; that follows the thread that calls `spawn`, which therefore must live on.
    /// - Parameter environment: `NAME=value` added to this process's own; a name given here wins.
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

    /// Starts a program in a process group of its own, whose errors go nowhere. It alone holds `output` then: what was open here
    /// would keep a pipe from ever ending.
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
        // Group 0 is one of the child's own.
        let flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (ownGroup ? POSIX_SPAWN_SETPGROUP : 0)
        unsafe posix_spawnattr_setflags(&attributes, Int16(flags))

        var variables = inherited()
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

    /// Waits for its end. Once only: afterwards the id may belong to another process.
    public func wait() throws(Errno) -> Exit {
        var status: Int32 = 0
        guard retrying({ unsafe waitpid(id, &status, 0) }) == id else { throw .last("waitpid") }
        return Exit(raw: status)
    }

    /// How it ended, or nil while it runs.
    public func poll() throws(Errno) -> Exit? {
        var status: Int32 = 0
        let result = retrying { unsafe waitpid(id, &status, WNOHANG) }
        guard result >= 0 else { throw .last("waitpid") }
        return result == 0 ? nil : Exit(raw: status)
    }

    private static func inherited() -> [String: String] {
        var variables: [String: String] = [:]
        guard var next = unsafe mayfly_environment() else { return variables }
        while let entry = unsafe next.pointee {
            let text = unsafe String(cString: entry)
            if let equals = text.firstIndex(of: "=") {
                variables[String(text[..<equals])] = String(text[text.index(after: equals)...])
            }
            unsafe next += 1
        }
        return variables
    }
}

extension ChildProcess.Exit {
    init(raw status: Int32) {
        let signal = status & 0x7f
        self = signal == 0 ? .status(mayfly_exit_status(status)) : .killed(Signal(number: signal))
    }
}

/// A null-terminated array of C strings, as exec wants it.
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
