/// How much of a message is taken before it is refused. All counts are bytes but `headerCount`.
public struct MessageLimits: Sendable, Equatable {
    public var targetBytes: Int
    /// Names and values of all header lines, with four bytes a line for the colon, space and line end.
    public var headerBytes: Int
    public var headerCount: Int
    public var bodyBytes: Int

    public init(targetBytes: Int = 8192, headerBytes: Int = 16384, headerCount: Int = 100, bodyBytes: Int = 16384) {
        self.targetBytes = targetBytes
        self.headerBytes = headerBytes
        self.headerCount = headerCount
        self.bodyBytes = bodyBytes
    }

    /// Bytes of a head with nothing counted yet to its name (blank lines, spaces before a value): a bound on what llhttp skips silently.
    var rawHeadBytes: Int { targetBytes + headerBytes + 128 }
    /// Bytes of a body with its chunk headers, extensions and trailers: a chunk of one byte costs six.
    var rawBodyBytes: Int { bodyBytes * 8 + headerBytes }
}
