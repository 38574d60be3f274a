import CLinux
import Glibc

/// The kernel's clocks.
public enum Clock {
    /// Unix time in ms. May step backwards.
    public static var wallMs: UInt64 { nanoseconds(CLOCK_REALTIME) / 1_000_000 }
    /// Never steps and stops while the machine sleeps. Use it for timeouts.
    public static var monotonicMs: UInt64 { nanoseconds(CLOCK_MONOTONIC) / 1_000_000 }
    public static var monotonicNs: UInt64 { nanoseconds(CLOCK_MONOTONIC) }
    /// Time since boot, sleep included. Steps of the wall clock are detected by comparison with it.
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

/// A day of the proleptic Gregorian calendar in UTC. Unlike glibc's conversions it needs no locks and no time zones.
public struct CalendarDate: Sendable, Hashable {
    public let year: UInt64
    /// 1 to 12, and 1 to 31.
    public let month: UInt64
    public let day: UInt64

    /// The caller passes a date that exists, in year 1 or later.
    public init(year: UInt64, month: UInt64, day: UInt64) { (self.year, self.month, self.day) = (year, month, day) }

    // Eras of 400 years that begin on 1 March, so that a leap day ends its year.
    public init(daysSince1970: UInt64) {
        let days = daysSince1970 + 719_468
        let (era, dayOfEra) = (days / 146_097, days % 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shifted = (5 * dayOfYear + 2) / 153
        month = shifted < 10 ? shifted + 3 : shifted - 9
        year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        day = dayOfYear - (153 * shifted + 2) / 5 + 1
    }

    /// The date must not be before 1970.
    public var daysSince1970: UInt64 {
        let shifted = month <= 2 ? year - 1 : year
        let (era, yearOfEra) = (shifted / 400, shifted % 400)
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }
}
