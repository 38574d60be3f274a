/// Who calls, as a JWT that was found good says it.
public struct Principal: Sendable, Equatable {
    /// The claim `sub`, 1 to 128 bytes: compared as bytes, never interpreted.
    public let user: [UInt8]
    /// Whether the caller is an app's own back end, which speaks for users: the scope `broker.notify`.
    public let isBackEnd: Bool
    /// When the JWT ends, unix ms.
    public let expiresMs: UInt64

    public static let userRange = 1...128

    public init(user: [UInt8], isBackEnd: Bool, expiresMs: UInt64) {
        precondition(Self.userRange.contains(user.count))
        self.user = user
        self.isBackEnd = isBackEnd
        self.expiresMs = expiresMs
    }
}
