/// Which batches of the log a token's seal and purge come out in.
enum TokenLife {
    private static let longestShort: UInt64 = 86_400_000

    /// Whether the log publishes them at the end of a day only. Unix ms.
    static func isLong(from sealed: UInt64, to expiry: UInt64) -> Bool { expiry > sealed + longestShort }
}
