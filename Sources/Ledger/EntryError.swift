/// Why bytes are not an entry. Positions count bytes from the entry's start.
public enum EntryError: Error, Sendable, Equatable, CustomStringConvertible {
    /// Another shape of JSON, a space, an escape, text after the end.
    case syntax(position: Int)
    /// A key that is unknown, repeated or out of order.
    case key(position: Int)
    /// A value of the wrong kind, out of range, or in another spelling than the one allowed.
    case value(position: Int)
    /// An event that this format does not know.
    case unknownOp(position: Int)
    /// The event's keys are not exactly those that it has.
    case keys(op: String)

    public var description: String {
        switch self {
        case .syntax(let position): "not canonical JSON at byte \(position)"
        case .key(let position): "a key that is unknown, repeated or out of order at byte \(position)"
        case .value(let position): "a value that is invalid or not canonical at byte \(position)"
        case .unknownOp(let position): "an unknown op at byte \(position)"
        case .keys(let op): "\(op) with missing or extra keys"
        }
    }
}
