import Sodium
public import Vocabulary

/// The head of a log: C2SP tlog-checkpoint without extension lines, `origin\nsize\nbase64(root)\n`.
public struct Checkpoint: Sendable, Hashable {
    /// The log's name: its URL without the scheme, and the name of its key.
    public var origin: String
    public var size: UInt64
    public var root: Digest

    public init(origin: String, size: UInt64, root: Digest) {
        (self.origin, self.size, self.root) = (origin, size, root)
    }

    /// As far as numbers of entries go in every language that reads logs; ranges of entries are counted in `Int`.
    private static let sizeLimit = UInt64(Int64.max)

    /// Reads the text that a note signs; nil for any other form.
    public init?(text: String) {
        let lines = text.utf8.split(separator: 0x0a, omittingEmptySubsequences: false).map { String(Substring($0)) }
        guard lines.count == 4, lines[3].isEmpty, VerifierKey.isName(lines[0]), let size = UInt64(lines[1]),
            String(size) == lines[1], size <= Self.sizeLimit,
            let bytes = Base64.standard.decode(lines[2]), let root = Digest(bytes: bytes.span)
        else { return nil }
        self.init(origin: lines[0], size: size, root: root)
    }

    public var text: String { "\(origin)\n\(size)\n\(root.base64)\n" }
}
