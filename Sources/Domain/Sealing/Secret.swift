import Sodium
import Vocabulary

/// Up to 608 secret bytes in locked memory. It prints as `<redacted>`, compares in constant time and is wiped when the last reference ends.
public final class Secret: Sendable, Equatable, Redacted {
    public static let largestCount = AddressSize.largest

    public let count: Int
    private let slot: Slot

    /// Creates a secret of `count` (at most 608) zero bytes, which `fill` overwrites in place.
    public convenience init(count: Int, fill: (inout MutableSpan<UInt8>) -> Void) throws(SealingError) {
        try self.init(count: count, for: .anything, fill: fill)
    }

    init(count: Int, for purpose: Arena.Purpose, fill: (inout MutableSpan<UInt8>) -> Void) throws(SealingError) {
        precondition((0...Self.largestCount).contains(count))
        let arena: Arena = count <= Arena.slotBytes ? .shared : purpose == .acknowledgedPush ? .pushedAddresses : .addresses
        let slot = try arena.take(for: purpose)
        slot.withMutableBytes(count, fill)
        self.count = count
        self.slot = slot
    }

    /// Copies up to 608 bytes. The caller wipes the original.
    public convenience init(copying bytes: Span<UInt8>) throws(SealingError) {
        try self.init(copying: bytes, for: .anything)
    }

    convenience init(copying bytes: Span<UInt8>, for purpose: Arena.Purpose) throws(SealingError) {
        try self.init(count: bytes.count, for: purpose) { $0.write(bytes, at: 0) }
    }

    public static func random(_ count: Int) throws(SealingError) -> Secret {
        try Secret(count: count) { Sodium.fillRandom(&$0) }
    }

    /// Reads a push token from ASCII: an even number of hexadecimal digits of either case, for 1 to 100 bytes. Returns nil for anything else.
    public convenience init?(hexToken text: Span<UInt8>) throws(SealingError) {
        guard (2...200).contains(text.count), text.count % 2 == 0 else { return nil }
        var isHex = false
        try self.init(count: text.count / 2) { isHex = Hex.decode(text, into: &$0) }
        guard isHex else { return nil }
    }

    /// Reads `count` bytes from base64url without padding. Returns nil for anything else.
    public convenience init?(base64url text: Span<UInt8>, count: Int) throws(SealingError) {
        guard text.count == Base64.url.encodedCount(count) else { return nil }
        var decoded: Int?
        try self.init(count: count) { decoded = Base64.url.decode(text, into: &$0) }
        guard decoded == count else { return nil }
    }

    /// Lends the bytes. Don't copy them.
    public func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try slot.withBytes(count, body)
    }

    public static func == (left: Secret, right: Secret) -> Bool {
        left.withBytes { left in right.withBytes { right in Sodium.equal(left, right) } }
    }
}

/// 32 secret bytes, most of them random, transmitted as 43 characters of base64url.
public protocol Capability: Sendable, Equatable, Redacted {
    var secret: Secret { get }
    /// - Precondition: `secret` has 32 bytes.
    init(_ secret: Secret)
}

extension Capability {
    public static var count: Int { 32 }

    public static func random() throws(SealingError) -> Self { Self(try Secret.random(count)) }

    /// Reads the 43 characters. Returns nil for anything else.
    public init?(base64url text: Span<UInt8>) throws(SealingError) {
        guard let secret = try Secret(base64url: text, count: Self.count) else { return nil }
        self.init(secret)
    }
}

/// The capability of a room's two members: the end of the room (48 bits, unix ms) and 26 random bytes. It is never stored, and never part of a
/// URL or push.
public struct RoomID: Capability {
    public let secret: Secret

    public init(_ secret: Secret) {
        precondition(secret.count == Self.count)
        self.secret = secret
    }

    /// Returns the id of a new room.
    /// - Parameter endMs: the room's expiry, as its row has it.
    public static func random(endMs: UInt64) throws(SealingError) -> RoomID {
        RoomID(
            try Secret(count: count) { bytes in
                Sodium.fillRandom(&bytes)
                let random = UInt64(bytes[6]) << 8 | UInt64(bytes[7])
                bytes.write(bigEndian: endMs << 16 | random, at: 0)
            })
    }

    /// The end of the room, unix ms. In a caller's id it is any number.
    public var endMs: UInt64 { secret.withBytes { $0.bigEndian64(at: 0) >> 16 } }
}

/// Identifies one side of a room.
public struct MemberSecret: Capability {
    public let secret: Secret

    public init(_ secret: Secret) {
        precondition(secret.count == Self.count)
        self.secret = secret
    }
}

/// A value that isn't shown in text, debugger dumps or mirrors.
public protocol Redacted: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {}

extension Redacted {
    public var description: String { "<redacted>" }
    public var debugDescription: String { "<redacted>" }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// Why something could not be sealed, opened or stored. It never reveals which byte, key or row was wrong.
public enum SealingError: Error, Equatable, CustomStringConvertible {
    /// No slot is free. The same call may succeed later.
    case outOf(SlotShortage)
    /// The key is gone, the context differs, or the bytes were changed. One case for all of these.
    case doesNotOpen
    /// There is no key: the generation is unknown or over, or the expiry is further ahead than the longest life.
    case outOfReach

    public var description: String {
        switch self {
        case .outOf(let shortage): "\(shortage)"
        case .doesNotOpen: "the sealed bytes can't be opened"
        case .outOfReach: "there is no key for that generation and time"
        }
    }
}

/// Why a secret can't be handled now. Refuse the request: the same one may succeed later.
public enum SlotShortage: Error, Equatable, CustomStringConvertible {
    /// All slots are in use.
    case exhausted
    /// The system refuses to lock memory.
    case cannotLock
    /// Another node seals with keys that this node has not got yet.
    case behind

    public var description: String {
        switch self {
        case .exhausted: "no slot for another secret is free: too many requests, sockets or pushes are in flight"
        case .behind: "this node lacks the latest keys of the other nodes, and fetches them"
        case .cannotLock: "the system can't lock memory for secrets. Raise the limit (ulimit -l, LimitMEMLOCK=)"
        }
    }
}

/// Opens something sealed. Returns nil if it is invalid or its key is gone.
public func opened<Value>(_ open: () throws(SealingError) -> Value) throws(SlotShortage) -> Value? {
    do throws(SealingError) {
        return try open()
    } catch {
        if case .outOf(let shortage) = error { throw shortage }
        return nil
    }
}
