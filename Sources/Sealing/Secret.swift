import Sodium
import Vocabulary

/// Up to 128 secret bytes in the process's arena: prints as `<redacted>`, compares in constant time, wiped when the last holder
/// lets go.
public final class Secret: Sendable, Equatable, Redacted {
    public static let largestCount = Arena.slotCount

    public let count: Int
    private let slot: Slot

    /// `count` bytes (at most 128) that `fill` writes in place; they are zero before.
    public convenience init(count: Int, fill: (inout MutableSpan<UInt8>) -> Void) throws(SealingError) {
        try self.init(count: count, for: .anything, fill: fill)
    }

    init(count: Int, for purpose: Arena.Purpose, fill: (inout MutableSpan<UInt8>) -> Void) throws(SealingError) {
        precondition((0...Self.largestCount).contains(count))
        let slot = try Arena.shared.take(for: purpose)
        slot.withMutableBytes(count, fill)
        self.count = count
        self.slot = slot
    }

    /// Copies 1 to 128 bytes; the caller wipes the original.
    public convenience init(copying bytes: Span<UInt8>) throws(SealingError) {
        try self.init(copying: bytes, for: .anything)
    }

    convenience init(copying bytes: Span<UInt8>, for purpose: Arena.Purpose) throws(SealingError) {
        try self.init(count: bytes.count, for: purpose) { copy in
            for index in bytes.indices { copy[index] = bytes[index] }
        }
    }

    /// Random bytes.
    public static func random(_ count: Int) throws(SealingError) -> Secret {
        try Secret(count: count) { Sodium.fillRandom(&$0) }
    }

    /// A device's push token from its ASCII: an even number of hexadecimal digits, either case, for 1 to 100 bytes; nil for
    /// anything else.
    public convenience init?(hexToken text: Span<UInt8>) throws(SealingError) {
        guard (2...200).contains(text.count), text.count % 2 == 0 else { return nil }
        var isHex = false
        try self.init(count: text.count / 2) { isHex = Hex.decode(text, into: &$0) }
        guard isHex else { return nil }
    }

    /// `count` bytes from their base64url without padding; nil for anything else.
    public convenience init?(base64url text: Span<UInt8>, count: Int) throws(SealingError) {
        guard text.count == Base64.url.encodedCount(count) else { return nil }
        var decoded: Int?
        try self.init(count: count) { decoded = Base64.url.decode(text, into: &$0) }
        guard decoded == count else { return nil }
    }

    /// Lends the bytes; they must not be kept.
    public func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try slot.withBytes(count, body)
    }

    public static func == (left: Secret, right: Secret) -> Bool {
        left.withBytes { left in right.withBytes { right in Sodium.equal(left, right) } }
    }
}
