/// Where the broker's parts report to the operator. A line never contains data from a caller.
public struct Logger: Sendable {
    public enum Level: String, Sendable {
        /// Needs the operator: the counter `mayfly_alarms_total` grows too, or a start is refused.
        case error
        /// A setting or a condition that works, but is likely not wanted.
        case warning
        /// Starts, stops, reloads and the ends of faults.
        case info

        public func isAtLeast(_ other: Level) -> Bool { priority <= other.priority }

        /// The level of syslog and sd-daemon, whose errors have the lowest number.
        public var priority: Int {
            switch self {
            case .error: 3
            case .warning: 4
            case .info: 6
            }
        }
    }

    private let write: @Sendable (Level, String) -> Void

    public init(_ write: @escaping @Sendable (Level, String) -> Void) { self.write = write }

    public func error(_ text: String) { write(.error, text) }
    public func warning(_ text: String) { write(.warning, text) }
    public func info(_ text: String) { write(.info, text) }
}
