import CLinux
import Glibc

/// The kernel's clocks.
public enum Clock {
    /// Unix time in ms. May step backwards.
    public static var wallMs: UInt64 { nanoseconds(CLOCK_REALTIME) / 1_000_000 }
    /// Never steps and stands still while the machine sleeps: for time-outs.
    public static var monotonicMs: UInt64 { nanoseconds(CLOCK_MONOTONIC) / 1_000_000 }
    public static var monotonicNs: UInt64 { nanoseconds(CLOCK_MONOTONIC) }
    /// Since boot, counting sleep: what a step of the wall clock is measured against.
    public static var boottimeMs: UInt64 { nanoseconds(CLOCK_BOOTTIME) / 1_000_000 }
    /// CPU time of the whole process in ns.
    public static var processNs: UInt64 { nanoseconds(CLOCK_PROCESS_CPUTIME_ID) }

    private static func nanoseconds(_ clock: clockid_t) -> UInt64 {
        var time = timespec()
        let result = unsafe clock_gettime(clock, &time)
        precondition(result == 0, "the kernel lacks a clock that every Linux has")
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
