/// The process that a node runs in, and the clocks of its machine. A program has one; a test has one for each node.
public struct NodeProcess: Sendable {
    /// Returns the wall clock, unix ms. It may step.
    let wallMs: @Sendable () -> UInt64
    /// Returns the ms since the boot, sleep included: terms run out while the machine sleeps. It never steps.
    let bootMs: @Sendable () -> UInt64
    let log: Logger
    /// Ends the process. Locked memory ends with it, so the node forgets its keys.
    let end: @Sendable () -> Void

    /// - Parameters:
    ///   - wallMs: returns the wall clock, unix ms.
    ///   - bootMs: returns the ms since the boot, sleep included.
    ///   - end: ends the process, or whatever stands for it. What the node does after that has no effect.
    public init(
        wallMs: @escaping @Sendable () -> UInt64, bootMs: @escaping @Sendable () -> UInt64, log: Logger,
        end: @escaping @Sendable () -> Void
    ) {
        (self.wallMs, self.bootMs, self.log, self.end) = (wallMs, bootMs, log, end)
    }
}
