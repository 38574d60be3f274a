public import Vocabulary

/// The paths of the log's files below its folder or URL (C2SP tlog-tiles).
public enum TilePath {
    /// The hashes in a full tile, and the entries in a full bundle.
    public static let fullWidth = 256
    public static let checkpoint = "checkpoint"
    /// Tiles in one folder.
    static let groupWidth: UInt64 = 1000

    /// The full tile of hashes of subtrees of `256^level` leaves.
    public static func hashes(level: Int, index: UInt64) -> String { "tile/\(level)/\(number(index))" }

    /// The full bundle of the entries behind level 0's tile of the same index.
    public static func entries(index: UInt64) -> String { "tile/entries/\(number(index))" }

    /// The folder of the partial files of a tile or bundle, beside the full file.
    static func partialFolder(_ full: String) -> String { full + ".p" }

    /// The path of a tile or bundle of `width`: `full` itself, or a partial file.
    public static func path(_ full: String, width: Int) -> String {
        width == fullWidth ? full : "\(partialFolder(full))/\(width)"
    }

    public static func policy(_ digest: Digest) -> String { "policies/\(digest.hex).json" }

    /// The number of hashes in the partial tile at the end of a level. 0 if there is none.
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

/// Reads and writes a bundle file: for each entry, its length as a big-endian u16, then its bytes.
struct EntryBundle: Sendable {
    static let entryLimit = 65_535

    private let bytes: [UInt8]
    private(set) var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var isAtEnd: Bool { position == bytes.count }

    /// Returns the range of the next entry, or nil if the bytes end before it does.
    mutating func next() -> Range<Int>? {
        guard position + 2 <= bytes.count else { return nil }
        let start = position + 2
        let end = start + (Int(bytes[position]) << 8 | Int(bytes[position + 1]))
        guard end <= bytes.count else { return nil }
        position = end
        return start..<end
    }

    /// Goes back to the entry in `range`, which `next` returned.
    mutating func goBack(to range: Range<Int>) { position = range.lowerBound - 2 }

    /// Returns the length in bytes of the first `entries` of a bundle, or of all if it has fewer.
    static func count(of entries: Int, in bytes: [UInt8]) -> Int {
        var bundle = EntryBundle(bytes)
        for _ in 0..<entries where bundle.next() == nil { return bytes.count }
        return bundle.position
    }

    static func append(_ entry: [UInt8], to bundle: inout [UInt8]) {
        precondition(entry.count <= entryLimit, "an entry of at most 65,535 bytes")
        bundle.append(bigEndian: UInt16(entry.count))
        bundle.append(contentsOf: entry)
    }
}
