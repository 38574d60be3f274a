import Sodium
import Vocabulary

/// 32 secret random bytes that go over the wire as 43 characters of base64url.
public protocol Capability: Sendable, Equatable, Redacted {
    var secret: Secret { get }
    /// `secret` must hold 32 bytes.
    init(_ secret: Secret)
}

extension Capability {
    public static var count: Int { 32 }

    public static func random() throws(SealingError) -> Self { Self(try Secret.random(count)) }

    /// From the 43 characters; nil for anything else.
    public init?(base64url text: Span<UInt8>) throws(SealingError) {
        guard let secret = try Secret(base64url: text, count: Self.count) else { return nil }
        self.init(secret)
    }
}

/// The capability of a room's two members. Never at rest, never in a URL, never in a push.
public struct RoomID: Capability {
    public let secret: Secret

    public init(_ secret: Secret) {
        precondition(secret.count == Self.count)
        self.secret = secret
    }
}

/// What tells one side of a room from the other.
public struct MemberSecret: Capability {
    public let secret: Secret

    public init(_ secret: Secret) {
        precondition(secret.count == Self.count)
        self.secret = secret
    }
}
