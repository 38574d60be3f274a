/// A name inside an entry: 1 to 128 visible ASCII characters without `"` and `\`, so that JSON never escapes it.
public struct EntryText: Sendable, Hashable, CustomStringConvertible {
    public static let limit = 128

    public let description: String

    /// Nil when `text` is empty, too long or holds a character that an entry may not.
    public init?(_ text: String) {
        guard (1...Self.limit).contains(text.utf8.count), text.utf8.allSatisfy(Self.allows) else { return nil }
        description = text
    }

    @inline(__always)
    static func allows(_ byte: UInt8) -> Bool {
        byte > 0x20 && byte < 0x7f && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
    }
}
