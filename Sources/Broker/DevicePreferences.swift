/// What a device wants to hear of its printer: the mask of its registration's row. At first all of it.
public struct DevicePreferences: OptionSet, Sendable {
    public let rawValue: UInt32

    public init(rawValue: UInt32) { self.rawValue = rawValue }

    /// Without it nothing is told, whatever else is set.
    public static let enabled = DevicePreferences(rawValue: 1 << 0)
    public static let start = DevicePreferences(rawValue: 1 << 1)
    public static let complete = DevicePreferences(rawValue: 1 << 2)
    public static let failed = DevicePreferences(rawValue: 1 << 3)
    public static let paused = DevicePreferences(rawValue: 1 << 4)
    public static let milestone = DevicePreferences(rawValue: 1 << 5)
}
