/// Five minutes of key time: `floor(unix seconds / 300)`.
public struct Epoch: Sendable, Hashable, Comparable, CustomStringConvertible {
    public static let lengthMs: UInt64 = 300_000
    /// Epochs in a day; days start with an epoch.
    public static let perDay: UInt64 = 288

    public let number: UInt64

    public init(_ number: UInt64) { self.number = number }

    /// The epoch that a time in unix ms lies in.
    public init(atMs time: UInt64) { number = time / Self.lengthMs }

    /// Its first ms.
    public var startMs: UInt64 { number * Self.lengthMs }
    /// The first ms after it.
    public var endMs: UInt64 { startMs + Self.lengthMs }

    public static func < (left: Epoch, right: Epoch) -> Bool { left.number < right.number }
    public var description: String { String(number) }
}
