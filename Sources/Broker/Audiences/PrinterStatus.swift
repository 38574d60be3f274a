/// A printer's state, as its server names it. Servers use different words. Case matters.
public enum PrinterStatus: String, Sendable, CaseIterable {
    case running, complete, failed, paused
    case finish, pause
    case idle, `init`, prepare, slicing, offline, unknown, unavailable, cancelled, error

    /// One word for one thing.
    private var plain: PrinterStatus {
        switch self {
        case .finish: .complete
        case .pause: .paused
        default: self
        }
    }

    var isPaused: Bool { plain == .paused }

    /// The news of a change. Nil if nobody waits for it.
    func news(after old: PrinterStatus) -> PrinterNews? {
        switch (old.plain == .running, plain) {
        case (false, .running): .started
        case (true, .complete): .complete
        case (true, .failed): .failed
        case (true, .paused): .paused
        default: nil
        }
    }
}

/// What a printer's server reports. File names and other details are dropped before.
public enum PrinterEvent: Sendable, Equatable {
    case status(from: PrinterStatus, to: PrinterStatus)
    /// Whole percent, 0 to 100.
    case progress(Int)
}

/// A printer's news for devices.
public enum PrinterNews: Sendable, Equatable {
    case started, complete, failed, paused
    /// The percentage that was reached.
    case milestone(Int)

    static let milestones = [25, 50, 75]

    /// The name of the policy's template, and of the news in answers to callers.
    public var template: String {
        switch self {
        case .started: "print_started"
        case .complete: "print_complete"
        case .failed: "print_failed"
        case .paused: "print_paused"
        case .milestone: "progress_milestone"
        }
    }

    /// The preferences that a device needs to get this news.
    var preferences: DevicePreferences {
        switch self {
        case .started: [.enabled, .start]
        case .complete: [.enabled, .complete]
        case .failed: [.enabled, .failed]
        case .paused: [.enabled, .paused]
        case .milestone: [.enabled, .milestone]
        }
    }
}

/// The news that a device gets of its printer. It is stored as a mask in the registration's row. At first a device gets all news.
public struct DevicePreferences: OptionSet, Sendable {
    public let rawValue: UInt32

    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Without this a device gets no news at all.
    public static let enabled = DevicePreferences(rawValue: 1 << 0)
    public static let start = DevicePreferences(rawValue: 1 << 1)
    public static let complete = DevicePreferences(rawValue: 1 << 2)
    public static let failed = DevicePreferences(rawValue: 1 << 3)
    public static let paused = DevicePreferences(rawValue: 1 << 4)
    public static let milestone = DevicePreferences(rawValue: 1 << 5)
}
