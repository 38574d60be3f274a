public import Vocabulary

/// Where the log's files lie under its folder or URL (C2SP tlog-tiles).
public enum TilePath {
    /// Hashes in a full tile, entries in a full bundle.
    public static let fullWidth = 256
    public static let checkpoint = "checkpoint"
    /// Tiles in one folder.
    static let groupWidth: UInt64 = 1000

    /// The full tile of the hashes of subtrees of `256^level` leaves.
    public static func hashes(level: Int, index: UInt64) -> String { "tile/\(level)/\(number(index))" }

    /// The full bundle of the entries behind level 0's tile of the same index.
    public static func entries(index: UInt64) -> String { "tile/entries/\(number(index))" }

    /// The folder beside a full tile or bundle that holds its partial ones.
    static func partialFolder(_ full: String) -> String { full + ".p" }

    /// The tile or bundle of `width`: `full` itself, or the partial one.
    public static func path(_ full: String, width: Int) -> String {
        width == fullWidth ? full : "\(partialFolder(full))/\(width)"
    }

    public static func policy(_ digest: Digest) -> String { "policies/\(digest.hex).json" }

    /// How many hashes the last, partial tile of a level holds; 0 when there is none.
    static func partialWidth(level: Int, size: UInt64) -> Int { Int(size >> UInt64(8 * level) & 255) }

    /// `1234067` is `x001/x234/067`.
    private static func number(_ index: UInt64) -> String {
        var groups = [digits(index % groupWidth)]
        var rest = index / groupWidth
        while rest > 0 {
            groups.append("x" + digits(rest % groupWidth))
            rest /= groupWidth
        }
        return groups.reversed().joined(separator: "/")
    }

    private static func digits(_ number: UInt64) -> String {
        String(repeating: "0", count: number < 10 ? 2 : number < 100 ? 1 : 0) + String(number)
    }
}
