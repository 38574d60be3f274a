/// That somebody calls somebody: the app's own names, 1 to 128 bytes each, and nothing that people are called.
public struct CallInvitation: Sendable, Equatable {
    /// What the caller wants to share.
    public enum Media: String, Sendable, CaseIterable {
        case audio, video
    }

    public var session: [UInt8]
    public var caller: [UInt8]
    public var receiver: [UInt8]
    public var media: Media

    public init(session: [UInt8], caller: [UInt8], receiver: [UInt8], media: Media) {
        self.session = session
        self.caller = caller
        self.receiver = receiver
        self.media = media
    }
}

/// What a call came to. When it is given, every push is durable.
public struct CallReceipt: Sendable, Equatable {
    /// Phones that ring.
    public var rang = 0
    /// Those whose token has had too many pushes.
    public var throttled = 0
    /// This call has rung before, and nothing was done.
    public var isRepeated = false

    public init(rang: Int = 0, throttled: Int = 0, isRepeated: Bool = false) {
        self.rang = rang
        self.throttled = throttled
        self.isRepeated = isRepeated
    }
}
