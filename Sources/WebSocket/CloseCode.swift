/// Why a WebSocket ends (RFC 6455 section 7.4).
public struct CloseCode: RawRepresentable, Sendable, Hashable {
    public let rawValue: UInt16
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    public static let normal = CloseCode(rawValue: 1000)
    public static let goingAway = CloseCode(rawValue: 1001)
    public static let protocolError = CloseCode(rawValue: 1002)
    public static let unsupportedData = CloseCode(rawValue: 1003)
    /// Never on the wire: the peer's close frame had no code.
    public static let none = CloseCode(rawValue: 1005)
    /// Never on the wire: the connection ended without a close frame.
    public static let abnormal = CloseCode(rawValue: 1006)
    public static let invalidText = CloseCode(rawValue: 1007)
    public static let policyViolation = CloseCode(rawValue: 1008)
    public static let messageTooBig = CloseCode(rawValue: 1009)
    public static let internalError = CloseCode(rawValue: 1011)
}
