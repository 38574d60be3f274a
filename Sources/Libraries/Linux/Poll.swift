import Glibc

/// Waits on one descriptor, for threads without an event loop.
public enum Poll {
    /// Doesn't wait.
    public static func isReady(_ descriptor: Int32, _ events: Events) -> Bool {
        var ready = pollfd(fd: descriptor, events: Int16(truncatingIfNeeded: events.rawValue), revents: 0)
        return unsafe Glibc.poll(&ready, 1, 0) > 0
    }

    /// - Parameter deadline: on the monotonic clock, in milliseconds.
    /// - Returns: false if the deadline passed.
    public static func wait(_ descriptor: Int32, _ events: Events, until deadline: UInt64) -> Bool {
        while true {
            let now = Clock.monotonicMs
            guard now < deadline else { return false }
            var ready = pollfd(fd: descriptor, events: Int16(truncatingIfNeeded: events.rawValue), revents: 0)
            // A signal ends it early.
            if unsafe Glibc.poll(&ready, 1, Int32(clamping: deadline - now)) > 0 { return true }
        }
    }
}
