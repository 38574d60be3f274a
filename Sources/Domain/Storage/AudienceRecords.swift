public import Vocabulary

// The rows of audiences as values. Indexes are made by `KeyRing.index` and start with their row's expiry (u64, big-endian). So rows that
// expire together are adjacent. Times are unix milliseconds.

/// The key of a registration's row.
public struct RowName: Sendable, Hashable {
    public var expires: UInt64
    public var purgeID: EntryID
}

/// The generation and expiry whose key made the indexes of some registrations.
public struct RegistrationSlot: Sendable, Equatable {
    public let kind: TokenKind
    public let generation: UInt32
    public let expires: UInt64
}

/// The row of an audience's sealed token.
public struct RegistrationRecord: Sendable, Equatable {
    /// Each sealing has a new purge id.
    public var context: TokenContext
    /// The sealed ref: 56 bytes.
    public var ref: [UInt8]
    public var id: RegistrationID
    /// The indexes, made with the key of this row's generation and expiry.
    public var audience: Digest
    public var owner: Digest
    public var device: Digest
    /// Only for a Live Activity.
    public var session: Digest?
    /// Nonce, ciphertext and tag. As long as a room's token, but 200 bytes for a Live Activity in any deployment.
    public var sealed: [UInt8]
    /// True if the token was sealed for more than 24 hours. The ledger publishes its entries only at midnight.
    public var isLong: Bool
    /// A bit mask of the wanted pushes.
    public var preferences: UInt32
    /// A sealed note.
    public var details: [UInt8]
    /// The earliest time of the next update of a Live Activity. 0 for at once.
    public var opens: UInt64
    /// The last update's timestamp, unix seconds. 0 if there was none.
    public var stamp: UInt64
    /// The newest update if it waits for `opens`, as a sealed note.
    public var waiting: [UInt8]?

    public init(
        _ context: TokenContext, ref: [UInt8], id: RegistrationID, audience: Digest, owner: Digest, device: Digest,
        session: Digest? = nil, sealed: [UInt8], isLong: Bool = false,
        preferences: UInt32 = .max, details: [UInt8], opens: UInt64 = 0, stamp: UInt64 = 0, waiting: [UInt8]? = nil
    ) {
        self.context = context
        self.ref = ref
        self.id = id
        self.audience = audience
        self.owner = owner
        self.device = device
        self.session = session
        self.sealed = sealed
        self.isLong = isLong
        self.preferences = preferences
        self.details = details
        self.opens = opens
        self.stamp = stamp
        self.waiting = waiting
    }

    public var kind: TokenKind { context.kind }
    public var purgeID: EntryID { context.purgeID }
    public var expires: UInt64 { context.expiryMs }
    public var row: RowName { RowName(expires: expires, purgeID: purgeID) }
}

/// A registration to be stored.
public struct NewRegistration: Sendable, Equatable {
    public var record: RegistrationRecord
    /// The id of the sealing in the ledger. Not stored in the row.
    public var sealedID: EntryID

    public init(_ record: RegistrationRecord, sealedID: EntryID) { (self.record, self.sealedID) = (record, sealedID) }
}

/// A session with its active device, or a printer's run.
public struct SessionRecord: Sendable, Equatable {
    /// The session's index.
    public var session: Digest
    public var generation: UInt32
    public var expires: UInt64
    public var started: UInt64
    /// Changes with each update.
    public var version: UInt64
    /// Index of the active device's id.
    public var client: Digest?
    /// The id of the active device's registration.
    public var registration: RegistrationID?
    /// The highest milestone of a run that was reached. 0 if none. Of a companion's session: a code for what was reported while approvals waited.
    public var reached: UInt8

    public init(
        session: Digest, generation: UInt32, expires: UInt64, started: UInt64, version: UInt64, client: Digest? = nil,
        registration: RegistrationID? = nil, reached: UInt8 = 0
    ) {
        self.session = session
        self.generation = generation
        self.expires = expires
        self.started = started
        self.version = version
        self.client = client
        self.registration = registration
        self.reached = reached
    }
}

/// A request that waits for an answer until its deadline.
public struct TimerRecord: Sendable, Equatable {
    public var id: RequestID
    /// The deadline for the answer.
    public var due: UInt64
    /// The answer is kept until then.
    public var expires: UInt64
    public var generation: UInt32
    /// 0 until there is an answer.
    public var answer: UInt8
    /// The request as a sealed note.
    public var sealed: [UInt8]
    /// Indexes of the back end's own id, if it has one.
    public var names: RequestNames?

    public init(
        id: RequestID, due: UInt64, expires: UInt64, generation: UInt32, answer: UInt8 = 0, sealed: [UInt8],
        names: RequestNames? = nil
    ) {
        self.id = id
        self.due = due
        self.expires = expires
        self.generation = generation
        self.answer = answer
        self.sealed = sealed
        self.names = names
    }
}

/// The indexes of a request by its back end's own id: one for the user's look-ups, one for the back end's.
public struct RequestNames: Sendable, Equatable {
    public var user: Digest
    public var creator: Digest

    public init(user: Digest, creator: Digest) { (self.user, self.creator) = (user, creator) }
}

/// A mark that something was done, to detect repeats.
public struct SeenRecord: Sendable, Equatable {
    /// The mark's index.
    public var key: Digest
    public var expires: UInt64
    /// The indexes under which an earlier mark may be stored.
    public var others: [Digest]

    public init(key: Digest, expires: UInt64, others: [Digest] = []) {
        (self.key, self.expires, self.others) = (key, expires, others)
    }
}

extension Digest {
    /// The expiry of the index's row, unix ms.
    var indexExpiry: UInt64 { first }

    /// Refuses an index without its row's expiry, which would never be found or swept.
    func check(expires: UInt64) throws(StoreError) {
        guard indexExpiry == expires else { throw .unavailable("an index that does not begin with its row's expiry") }
    }
}
