import CLinux
import Glibc

/// A signal's number.
public struct Signal: Sendable, Hashable, CustomStringConvertible {
    public let number: Int32

    public init(number: Int32) { self.number = number }

    public static let hangup = Signal(number: SIGHUP)
    public static let interrupt = Signal(number: SIGINT)
    public static let terminate = Signal(number: SIGTERM)
    public static let kill = Signal(number: SIGKILL)
    public static let user1 = Signal(number: SIGUSR1)
    public static let user2 = Signal(number: SIGUSR2)
    public static let pipe = Signal(number: SIGPIPE)

    public var description: String { "signal \(number)" }

    /// Blocks signals for this thread and the threads that it starts later. Call it first in `main`.
    public static func block(_ signals: [Signal]) {
        var set = mask(signals)
        _ = unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Sends a signal to the calling thread alone.
    public static func raise(_ signal: Signal) { _ = Glibc.raise(signal.number) }

    public static func ignore(_ signal: Signal) { mayfly_ignore_signal(signal.number) }

    static func mask(_ signals: [Signal]) -> sigset_t {
        var set = sigset_t()
        unsafe sigemptyset(&set)
        for signal in signals { unsafe sigaddset(&set, signal.number) }
        return set
    }
}

/// A queue of blocked signals (signalfd). Readable when a signal has arrived.
public struct SignalQueue: ~Copyable, Sendable {
    public let descriptor: Descriptor

    /// Blocks `signals` for the calling thread; other threads must have them blocked too.
    public init(_ signals: [Signal]) throws(Errno) {
        Signal.block(signals)
        var set = Signal.mask(signals)
        let raw = unsafe signalfd(-1, &set, Int32(SFD_NONBLOCK | SFD_CLOEXEC))
        guard raw >= 0 else { throw .last("signalfd") }
        descriptor = Descriptor(owning: raw)
    }

    /// Returns nil if no signal waits.
    public func next() -> Signal? {
        var info = signalfd_siginfo()
        let size = MemoryLayout<signalfd_siginfo>.size
        let count = unsafe withUnsafeMutableBytes(of: &info) { bytes in
            let start = bytes.baseAddress
            return retrying { unsafe Glibc.read(descriptor.raw, start, size) }
        }
        return count == size ? Signal(number: Int32(info.ssi_signo)) : nil
    }
}
