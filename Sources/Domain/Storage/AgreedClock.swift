public import Linux
import Synchronization

/// The wall clock at its last agreement with the database's, plus the time since boot that has passed. So one clock that is set wrong, here or at
/// the server, doesn't move broker time. Times are unix ms.
public final class AgreedClock: Sendable {
    /// The largest difference at which two clocks confirm each other, milliseconds.
    static let largestDifferenceMs: UInt64 = 60_000

    /// Up to this difference the database's clock is followed, milliseconds.
    private static let steadyMs: UInt64 = 5_000

    private struct Base {
        var wall: UInt64
        var boot: UInt64
        var isConfirmed = false
    }

    private let wall: @Sendable () -> UInt64
    private let boot: @Sendable () -> UInt64
    private let base: Mutex<Base>

    /// - Parameters:
    ///   - wall: returns the wall clock.
    ///   - boot: returns a clock that does not step, in milliseconds.
    public init(
        wall: @escaping @Sendable () -> UInt64 = { Clock.wallMs }, boot: @escaping @Sendable () -> UInt64 = { Clock.boottimeMs }
    ) {
        (self.wall, self.boot) = (wall, boot)
        base = Mutex(Base(wall: wall(), boot: boot()))
    }

    public var nowMs: UInt64 {
        let now = boot()
        return base.withLock { $0.wall + now - min(now, $0.boot) }
    }

    struct Comparison {
        /// The database's clock, or the agreed time if the database's clock differs from it.
        var clock: UInt64
        /// True if the wall clock confirms the database's.
        let isConfirmed: Bool
    }

    /// Compares the database's clock with this machine's.
    /// - Throws: `.wrongClock` if they have never agreed within a minute. Then nobody knows which of them is wrong.
    func compare(_ database: UInt64) throws(StoreError) -> Comparison {
        let (wall, boot) = (wall(), boot())
        let isConfirmed = Self.isClose(database, wall, Self.largestDifferenceMs)
        // A step of one clock by less than a minute moves nothing either, or a push could end minutes after its opening.
        if Self.isClose(database, wall, Self.steadyMs) || isConfirmed && !base.withLock(\.isConfirmed) {
            base.withLock { $0 = Base(wall: wall, boot: boot, isConfirmed: true) }
        }
        guard base.withLock(\.isConfirmed) else { throw .wrongClock }
        let own = nowMs
        return Comparison(clock: Self.isClose(database, own, Self.steadyMs) ? database : own, isConfirmed: isConfirmed)
    }

    private static func isClose(_ one: UInt64, _ other: UInt64, _ limit: UInt64) -> Bool {
        max(one, other) - min(one, other) <= limit
    }
}
