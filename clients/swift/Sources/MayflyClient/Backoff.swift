/// Waits that double, the upper half of each random, so that clients of a broker that restarts don't return together.
///
/// `package`: on Linux the code for Apple's systems is a module of its own.
package struct Backoff {
    private static let first: Duration = .milliseconds(500)
    private static let longest: Duration = .seconds(30)
    private var next = Self.first

    package init() {}

    /// Returns the next wait, never shorter than `atLeast`.
    package mutating func wait(atLeast: Duration? = nil) -> Duration {
        let wait = next * Double.random(in: 0.5...1)
        next = min(next * 2, Self.longest)
        return max(wait, atLeast ?? .zero)
    }

    package mutating func reset() { next = Self.first }
}
