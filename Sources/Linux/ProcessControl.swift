import CLinux
import Glibc

/// This process: limits, hardening, figures.
public enum ProcessControl {
    public static var id: Int32 { getpid() }
    public static var parent: Int32 { getppid() }

    /// Keeps memory from getting out: no core dumps, no other process of the same user may read it, and a crash prints none of it. Where
    /// someone takes a core all the same, no mapping is part of it as far as the kernel and gdb are asked for one.
    public static func keepMemoryPrivate() throws(Errno) {
        // Swift's runtime would start a program that reads all memory and prints registers and what they point at.
        for signal in [SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV] { mayfly_default_signal(signal) }
        // While the file is ours: it is root's once the process can't be dumped. A kernel may have been built without it.
        try? File.write("/proc/self/coredump_filter", [UInt8(ascii: "0")].span, mode: 0o600)
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        guard unsafe setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none) == 0 else { throw .last("setrlimit") }
        guard mayfly_prctl(PR_SET_DUMPABLE, 0) == 0 else { throw .last("prctl") }
    }

    /// Lifts the limit on open descriptors to what the system allows, and returns it.
    @discardableResult
    public static func raiseDescriptorLimit() throws(Errno) -> Int {
        var limit = rlimit()
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { throw .last("getrlimit") }
        limit.rlim_cur = limit.rlim_max
        guard unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { throw .last("setrlimit") }
        return Int(clamping: limit.rlim_cur)
    }

    /// Called first in a child: it gets `signal` when the thread that started it ends.
    /// - Parameter parent: the starter's process id, if known: the child exits at once if that is already gone.
    public static func dieWithParent(_ signal: Signal = .terminate, parent: Int32? = nil) throws(Errno) {
        guard mayfly_prctl(PR_SET_PDEATHSIG, UInt(signal.number)) == 0 else { throw .last("prctl") }
        if let parent, getppid() != parent { exit(1) }
    }

    /// Memory in RAM, in bytes.
    public static var residentMemory: Int { statm(1) }

    private static func statm(_ field: Int) -> Int {
        guard let bytes = try? File.read("/proc/self/statm", limit: 4096) else { return 0 }
        let fields = String(decoding: bytes, as: UTF8.self).split(separator: " ")
        return fields.count > field ? (Int(fields[field]) ?? 0) * Int(sysconf(Int32(_SC_PAGESIZE))) : 0
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

    public static func environment(_ name: String) -> String? {
        guard let value = unsafe getenv(name) else { return nil }
        return unsafe String(cString: value)
    }

    /// Ends the process with a status.
    /// Ends the process at once. Nothing runs any more: what libraries tidy up at an exit, other threads may still be using.
    public static func exit(_ status: Int32) -> Never { _exit(status) }
}
