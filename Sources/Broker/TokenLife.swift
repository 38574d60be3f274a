/// Classifies a token's life as short or long. Seals and purges of long lives are published at the end of a day only.
enum TokenLife {
    private static let longestShort: UInt64 = 86_400_000

    /// Times are unix ms.
    static func isLong(from sealed: UInt64, to expiry: UInt64) -> Bool { expiry > sealed + longestShort }
}
