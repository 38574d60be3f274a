public import Vocabulary

// The rows of rooms as values. Blobs are keyed hashes, random ids and sealed bytes. Reading or recomputing them needs a key of
// `keys/ratchet.key` or a member's room id. Times are unix milliseconds.

/// The row of a sealed token.
public struct TokenRecord: Sendable, Equatable {
    /// Its purge id is derived from the ref, which is never stored in the clear.
    public var context: TokenContext
    /// The sealed ref: 56 bytes.
    public var ref: [UInt8]
    public var room: Digest
    /// Nonce, ciphertext and tag: 200 bytes, or 648 in a deployment that serves other push services, too.
    public var sealed: [UInt8]
    /// True if the token was sealed for more than 24 hours. The ledger publishes its entries only at midnight.
    public var isLong: Bool

    public init(
        _ context: TokenContext, ref: [UInt8], room: Digest, sealed: [UInt8], isLong: Bool = false
    ) {
        self.context = context
        self.ref = ref
        self.room = room
        self.sealed = sealed
        self.isLong = isLong
    }

    public var purgeID: EntryID { context.purgeID }
    public var expires: UInt64 { context.expiryMs }
}

/// A token to be stored.
public struct NewToken: Sendable, Equatable {
    public var record: TokenRecord
    /// The id of the sealing in the ledger. Not stored in the row.
    public var sealedID: EntryID

    public init(_ record: TokenRecord, sealedID: EntryID) { (self.record, self.sealedID) = (record, sealedID) }
}

/// One side of a room: its hashed identity and its token.
public struct SideRecord: Sendable, Equatable {
    /// The generation that `client` was computed in.
    public var generation: UInt32
    public var client: Digest
    /// Hash of the member secret.
    public var member: Digest
    /// True if the member secret was used. From then on the client id alone is not enough.
    public var proven: Bool
    /// The purge id of the side's token.
    public var token: EntryID?
    /// When the throttle began, in broker time: at the last knock at this side, or with send slots about when that push left. 0 if never.
    public var knocked: UInt64

    public init(
        generation: UInt32, client: Digest, member: Digest, proven: Bool = false, token: EntryID? = nil, knocked: UInt64 = 0
    ) {
        self.generation = generation
        self.client = client
        self.member = member
        self.proven = proven
        self.token = token
        self.knocked = knocked
    }
}

/// A room. It is pending while `joiner` is nil.
public struct RoomRecord: Sendable, Equatable {
    public var room: Digest
    public var expires: UInt64
    /// The expiry of a pending room's join code.
    public var codeExpires: UInt64?
    public var creator: SideRecord
    public var joiner: SideRecord?

    /// The room's expiry. A pending room expires with its code.
    public var ends: UInt64 { min(expires, codeExpires ?? .max) }

    public init(
        room: Digest, expires: UInt64, codeExpires: UInt64? = nil, creator: SideRecord, joiner: SideRecord? = nil
    ) {
        self.room = room
        self.expires = expires
        self.codeExpires = codeExpires
        self.creator = creator
        self.joiner = joiner
    }

    public subscript(slot: UInt8) -> SideRecord? { slot == 1 ? creator : joiner }
}

/// An unused join code.
public struct PendingCode: Sendable, Equatable {
    public var code: Digest
    public var expires: UInt64
    public var room: Digest
    public var roomExpires: UInt64
    public var generation: UInt32
    /// The room id, sealed to the join code.
    public var pending: [UInt8]
    /// The creator's member secret, sealed to the join code and the creator's client id. Nil after the creator has used the secret, and after
    /// `creatorUntil`.
    public var creator: [UInt8]?
    public var creatorUntil: UInt64
    /// True if the code counts towards the limit of short codes.
    public var short: Bool

    public init(
        code: Digest, expires: UInt64, room: Digest, roomExpires: UInt64, generation: UInt32, pending: [UInt8],
        creator: [UInt8]?, creatorUntil: UInt64, short: Bool
    ) {
        self.code = code
        self.expires = expires
        self.room = room
        self.roomExpires = roomExpires
        self.generation = generation
        self.pending = pending
        self.creator = creator
        self.creatorUntil = creatorUntil
        self.short = short
    }
}

/// A used join code. It prevents reuse until `expires`, and repeats the joiner's answer until `retryUntil`.
public struct UsedCode: Sendable, Equatable {
    public var code: Digest
    public var expires: UInt64
    /// The joiner's room id and member secret, sealed to the join code and the joiner's client id.
    public var retry: [UInt8]?
    public var retryGeneration: UInt32
    public var retryUntil: UInt64

    public init(code: Digest, expires: UInt64, retry: [UInt8]?, retryGeneration: UInt32, retryUntil: UInt64) {
        self.code = code
        self.expires = expires
        self.retry = retry
        self.retryGeneration = retryGeneration
        self.retryUntil = retryUntil
    }
}

public enum CodeRecord: Sendable, Equatable {
    case pending(PendingCode)
    case used(UsedCode)

    public var expires: UInt64 {
        switch self {
        case .pending(let code): code.expires
        case .used(let code): code.expires
        }
    }
}

/// A room with its join code.
public struct JoinableRoom: Sendable, Equatable {
    public var room: RoomRecord
    public var code: CodeRecord
}

/// A push to send. Its row exists from before the caller is answered until the outcome is recorded.
public struct JobRecord: Sendable, Equatable {
    public var context: JobContext
    /// The push is not sent earlier. During this grace the peer may come back.
    public var notBefore: UInt64
    /// Nil for a push of an audience.
    public var room: Digest?
    /// The address, the token's sealing time and the handle. As long as a token's.
    public var sealed: [UInt8]
    /// The template's fields as a sealed note.
    public var fields: [UInt8]?
    /// True if the token was purged when the push was stored, so its row can't be checked before sending.
    public var isLast: Bool

    public init(
        _ context: JobContext, notBefore: UInt64, room: Digest?, sealed: [UInt8], fields: [UInt8]? = nil, isLast: Bool = false
    ) {
        self.context = context
        self.notBefore = notBefore
        self.room = room
        self.sealed = sealed
        self.fields = fields
        self.isLast = isLast
    }

    public var job: JobID { context.job }
    public var purgeID: EntryID { context.purgeID }
    /// 0 for a push of an audience.
    public var slot: UInt8 { context.slot }
    public var deadline: UInt64 { context.deadlineMs }
    public var expires: UInt64 { context.expiryMs }
    public var row: RowName { RowName(expires: expires, purgeID: purgeID) }
}

/// A push to be stored.
public struct NewJob: Sendable, Equatable {
    public var record: JobRecord
    /// The id of the token's opening in the ledger. Not stored in the row.
    public var openedID: EntryID

    public init(_ record: JobRecord, openedID: EntryID) { (self.record, self.openedID) = (record, openedID) }
}
