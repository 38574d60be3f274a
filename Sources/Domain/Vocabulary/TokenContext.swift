/// The other columns of a sealed token's row. If one was changed or swapped, the token can't be opened.
public struct TokenContext: Sendable, Equatable {
    public var generation: UInt32
    public var kind: TokenKind
    /// 1 for the creator, 2 for the joiner, 0 for an audience.
    public var slot: UInt8
    /// Unix ms.
    public var expiryMs: UInt64
    public var purgeID: EntryID

    public init(generation: UInt32, kind: TokenKind, slot: UInt8, expiryMs: UInt64, purgeID: EntryID) {
        self.generation = generation
        self.kind = kind
        self.slot = slot
        self.expiryMs = expiryMs
        self.purgeID = purgeID
    }
}

/// Identifies the epoch key of an audience's rows: the generation that sealed them and their expiry.
///
/// These expiries lie on a grid that starts with the generation. So a look-up can try every slot in which a row may be, and the key of an index
/// can be destroyed when its rows expire.
public struct ExpirySlot: Sendable, Hashable {
    public let generation: UInt32
    /// Unix ms.
    public let expiryMs: UInt64

    public init(generation: UInt32, expiryMs: UInt64) {
        self.generation = generation
        self.expiryMs = expiryMs
    }
}
