import CLinux
import Glibc

/// Limits, hardening and figures of this process.
public enum ProcessControl {
    /// Whether this process runs as root, whom no mode of a file keeps out.
    public static var isRoot: Bool { geteuid() == 0 }

    /// Protects memory from disclosure: no core dumps, no access for other processes of the same user, no memory in crash reports. If root takes a
    /// core anyway, the filter excludes every mapping.
    public static func keepMemoryPrivate() throws(Errno) {
        // Swift's runtime would start a backtracer that reads all memory and prints registers and their targets.
        for signal in [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV] { mayfly_default_signal(signal) }
        // Write the file first: it belongs to root once the process is not dumpable. Some kernels lack it.
        try? File.write("/proc/self/coredump_filter", [UInt8(ascii: "0")].span, mode: 0o600)
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        guard unsafe setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none) == 0 else { throw .last("setrlimit") }
        guard mayfly_prctl(PR_SET_DUMPABLE, 0) == 0 else { throw .last("prctl") }
    }

    /// Raises the limit on open descriptors to the system's maximum, and returns it.
    @discardableResult
    public static func raiseDescriptorLimit() throws(Errno) -> Int {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { throw .last("getrlimit") }
        limit.rlim_cur = limit.rlim_max
        guard unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { throw .last("setrlimit") }
        return Int(clamping: limit.rlim_cur)
    }

    /// The limit on locked memory in bytes, or nil if there is none for this process.
    public static func lockedMemoryLimit() throws(Errno) -> UInt64? {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(__RLIMIT_MEMLOCK.rawValue), &limit) == 0 else { throw .last("getrlimit") }
        return limit.rlim_cur == rlim_t.max || mayLockAnyMemory ? nil : UInt64(limit.rlim_cur)
    }

    /// True if the process has CAP_IPC_LOCK. Root in a container lacks it.
    private static var mayLockAnyMemory: Bool {
        guard let status = try? File.read("/proc/self/status", limit: 65_536) else { return false }
        let line = String(decoding: status, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("CapEff:") }
        let capabilities = line?.split(separator: "\t").last.flatMap { UInt64($0, radix: 16) } ?? 0
        return capabilities >> 14 & 1 == 1
    }

    /// Call it first in a child, on its main thread: the child gets `signal` when the thread that started it ends. The kernel keeps this for the calling
    /// thread only.
    /// - Parameter parent: the starter's process id. The child exits at once if that process is already gone.
    public static func dieWithParent(_ signal: Signal, parent: Int32) throws(Errno) {
        guard mayfly_prctl(PR_SET_PDEATHSIG, UInt(signal.number)) == 0 else { throw .last("prctl") }
        if getppid() != parent { exit(1) }
    }

    /// The id of this process.
    public static var id: Int32 { getpid() }

    /// Memory in RAM, in bytes.
    public static var residentMemory: Int {
        guard let bytes = try? File.read("/proc/self/statm", limit: 4096) else { return 0 }
        // The second field counts pages in RAM.
        let fields = String(decoding: bytes, as: UTF8.self).split(separator: " ")
        return fields.count > 1 ? (Int(fields[1]) ?? 0) * Int(sysconf(Int32(_SC_PAGESIZE))) : 0
    }

    /// The path of the running executable.
    public static func executable() throws(Errno) -> String {
        let size = Int(PATH_MAX)
        var count = 0
        let path = unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: size) { buffer in
            count = unsafe readlink("/proc/self/exe", buffer.baseAddress!, size)
            return unsafe String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }
        guard count >= 0 else { throw .last("readlink /proc/self/exe") }
        return path
    }

    /// Exits at once without atexit handlers: other threads may still use what those would free.
    public static func exit(_ status: Int32) -> Never { _exit(status) }
}

/// The process's environment.
public enum Environment {
    /// All variables, in the system's order. Invalid UTF-8 is repaired.
    public static var all: [(name: String, value: String)] {
        var variables: [(name: String, value: String)] = []
        var next = unsafe mayfly_environment()
        while let entry = unsafe next?.pointee {
            let text = unsafe String(cString: entry)
            if let sign = text.firstIndex(of: "=") {
                variables.append((String(text[..<sign]), String(text[text.index(after: sign)...])))
            }
            unsafe next = unsafe next?.advanced(by: 1)
        }
        return variables
    }

    /// Whether the variable is set and not empty.
    public static func has(_ name: String) -> Bool { unsafe getenv(name).map { unsafe $0.pointee != 0 } ?? false }

    /// Call it before other threads read the environment.
    public static func set(_ name: String, to value: String) { _ = unsafe setenv(name, value, 1) }

    /// Returns a variable's value and removes it from the environment, so that programs started later don't inherit it. Nil if it is unset.
    /// Call it before other threads read the environment.
    static func takeText(_ name: String) -> String? {
        guard let value = unsafe getenv(name) else { return nil }
        let text = unsafe String(cString: value)
        _ = unsafe unsetenv(name)
        return text
    }

    /// Lends a variable's value to `use`, then overwrites it and removes it from the environment. `/proc/PID/environ` and programs started later
    /// don't have it any more. Call it before other threads read the environment.
    /// - Returns: nil if the variable is unset or empty.
    public static func take<Value, Failure: Error>(
        _ name: String, _ use: (Span<UInt8>) throws(Failure) -> Value
    ) throws(Failure) -> Value? {
        guard let value = unsafe getenv(name) else { return nil }
        let count = unsafe strlen(value)
        defer {
            unsafe explicit_bzero(value, count)
            _ = unsafe unsetenv(name)
        }
        guard count > 0 else { return nil }
        let bytes = unsafe UnsafeRawBufferPointer(start: value, count: count)
        return try use(unsafe bytes.bindMemory(to: UInt8.self).span)
    }
}

/// The standard streams, unbuffered. A reader that has gone is no error.
public enum Standard {
    public static func output(_ text: String) { write(text, to: 1) }
    public static func error(_ text: String) { write(text, to: 2) }

    public static var errorIsTerminal: Bool { isatty(2) == 1 }

    public static let outputIsJournal = isJournal(1)
    public static let errorIsJournal = isJournal(2)

    /// True if the journal reads the descriptor. `JOURNAL_STREAM` alone doesn't say so: a child inherits it, wherever it writes to.
    private static func isJournal(_ raw: Int32) -> Bool {
        guard let stream = unsafe getenv("JOURNAL_STREAM") else { return false }
        var status = stat()
        return unsafe fstat(raw, &status) == 0 && String(cString: stream) == "\(status.st_dev):\(status.st_ino)"
    }

    public struct LineTooLong: Error, Sendable, CustomStringConvertible {
        let limit: Int
        public var description: String { "the first line of standard input has more than \(limit) bytes" }
    }

    /// Returns the next line of standard input without its newline, or nil at the end. Unbuffered, so that no other copy stays in memory.
    /// - Throws: `LineTooLong` if the line has more than `limit` bytes.
    public static func inputLine(limit: Int) throws(LineTooLong) -> [UInt8]? {
        var line: [UInt8] = []
        line.reserveCapacity(limit)
        var byte: UInt8 = 0
        while true {
            let count = unsafe Glibc.read(0, &byte, 1)
            if count < 0 && errno == EINTR { continue }
            guard count == 1 else { return line.isEmpty ? nil : line }
            if byte == UInt8(ascii: "\n") { return line }
            guard line.count < limit else {
                wipe(&line)
                throw LineTooLong(limit: limit)
            }
            line.append(byte)
        }
    }

    private static func write(_ text: String, to descriptor: Int32) {
        var text = text
        text.withUTF8 { bytes in
            var start = 0
            while start < bytes.count {
                let written = unsafe Glibc.write(descriptor, bytes.baseAddress! + start, bytes.count - start)
                if written < 0 && errno == EINTR { continue }
                guard written > 0 else { return }
                start += written
            }
        }
    }
}
