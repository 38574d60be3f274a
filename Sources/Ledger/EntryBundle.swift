/// The entries of one bundle file: for each a big-endian u16 length and its bytes.
struct EntryBundle: Sendable {
    static let entryLimit = 65_535

    private let bytes: [UInt8]
    private(set) var position = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    var isAtEnd: Bool { position == bytes.count }

    /// The range of the next entry; nil when the bytes end before it does.
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

    /// How many bytes the first `entries` of a bundle take; all, if it has fewer.
    static func count(of entries: Int, in bytes: [UInt8]) -> Int {
        var bundle = EntryBundle(bytes)
        for _ in 0..<entries where bundle.next() == nil { return bytes.count }
        return bundle.position
    }

    static func append(_ entry: [UInt8], to bundle: inout [UInt8]) {
        precondition(entry.count <= entryLimit, "an entry of at most 65,535 bytes")
        bundle.append(UInt8(truncatingIfNeeded: entry.count >> 8))
        bundle.append(UInt8(truncatingIfNeeded: entry.count))
        bundle.append(contentsOf: entry)
    }
}
