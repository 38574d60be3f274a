public import Vocabulary

// What the store keeps of audiences, as values. An index is one of `KeyRing.index`: it begins with its row's expiry (u64, big-endian),
// so that what expires together lies together. Times are unix milliseconds.

/// Names a registration's row.
public struct RowName: Sendable, Hashable {
    public var expires: UInt64
    public var purgeID: EntryID

    public init(expires: UInt64, purgeID: EntryID) {
        self.expires = expires
        self.purgeID = purgeID
    }
}

/// Where registrations of one kind lie: under the keys of a generation for this expiry.
public struct RegistrationPlace: Sendable, Equatable {
    public let kind: TokenKind
    public let generation: UInt32
    /// Unix ms.
    public let expires: UInt64
}

/// A sealed token of an audience, and what its pushes need: its row.
public struct RegistrationRecord: Sendable, Equatable {
    /// The row's name here, and the id of the token's purge in the ledger. Another one whenever it is sealed anew.
    public var purgeID: EntryID
    /// The sealed ref: 56 bytes.
    public var ref: [UInt8]
    public var id: RegistrationID
    /// Indexes under this row's own place.
    public var audience: Digest
    public var owner: Digest
    public var device: Digest
    /// Of an activity.
    public var session: Digest?
    public var kind: TokenKind
    public var environment: PushEnvironment
    public var generation: UInt32
    public var expires: UInt64
    public var topic: String
    /// Nonce, ciphertext and tag: 168 bytes.
    public var sealed: [UInt8]
    /// Whether the token was sealed for more than 24 hours. The ledger publishes its entries at midnight only.
    public var isLong: Bool
    /// A mask of what it asks for.
    public var preferences: UInt32
    /// A sealed note.
    public var details: [UInt8]
    /// From when on the next update of an activity may leave; 0 for at once.
    public var opens: UInt64
    /// The last update's timestamp, unix seconds; 0 for none.
    public var stamp: UInt64
    /// The newest update, which waits for `opens`: a sealed note.
    public var waiting: [UInt8]?

    public init(
        purgeID: EntryID, ref: [UInt8], id: RegistrationID, audience: Digest, owner: Digest, device: Digest,
        session: Digest? = nil, kind: TokenKind, environment: PushEnvironment, generation: UInt32, expires: UInt64,
        topic: String,
        sealed: [UInt8], isLong: Bool = false, preferences: UInt32 = .max, details: [UInt8], opens: UInt64 = 0,
        stamp: UInt64 = 0, waiting: [UInt8]? = nil
    ) {
        self.purgeID = purgeID
        self.ref = ref
        self.id = id
        self.audience = audience
        self.owner = owner
        self.device = device
        self.session = session
        self.kind = kind
        self.environment = environment
        self.generation = generation
        self.expires = expires
        self.topic = topic
        self.sealed = sealed
        self.isLong = isLong
        self.preferences = preferences
        self.details = details
        self.opens = opens
        self.stamp = stamp
        self.waiting = waiting
    }

    public var row: RowName { RowName(expires: expires, purgeID: purgeID) }
}

/// A registration to be stored.
public struct NewRegistration: Sendable, Equatable {
    public var record: RegistrationRecord
    /// The ledger's id of its sealing. Not stored in the row.
    public var sealedID: EntryID

    public init(_ record: RegistrationRecord, sealedID: EntryID) {
        self.record = record
        self.sealedID = sealedID
    }
}

/// Something of an audience that begins, goes on and ends: a session, with the device that is the active one in it, or a printer's run.
public struct SessionRecord: Sendable, Equatable {
    /// Its index.
    public var session: Digest
    public var generation: UInt32
    public var expires: UInt64
    public var started: UInt64
    /// Another one after each change.
    public var version: UInt64
    /// Index of the active device's id.
    public var client: Digest?
    /// The id of the active device's registration.
    public var registration: RegistrationID?
    /// How far it is: the highest milestone that was reached; 0 for none.
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

/// Something that ends by an answer, or at a time.
public struct TimerRecord: Sendable, Equatable {
    public var id: RequestID
    /// When it ends unanswered.
    public var due: UInt64
    /// Until when its answer is kept.
    public var expires: UInt64
    public var generation: UInt32
    /// 0 while there is none.
    public var answer: UInt8
    /// What it is about: a sealed note.
    public var sealed: [UInt8]
    /// Indexes of its back end's own id: one for its user, one for the back end.
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

/// By what a request is found besides its id, one index for each who may use its own id.
public struct RequestNames: Sendable, Equatable {
    public var user: Digest
    public var creator: Digest

    public init(user: Digest, creator: Digest) {
        self.user = user
        self.creator = creator
    }
}

/// That something was done already.
public struct SeenRecord: Sendable, Equatable {
    /// Its index.
    public var key: Digest
    public var expires: UInt64
    /// Its indexes in the other places where it may stand.
    public var others: [Digest]

    public init(key: Digest, expires: UInt64, others: [Digest] = []) {
        self.key = key
        self.expires = expires
        self.others = others
    }
}

extension Digest {
    /// When what an index leads to expires.
    var indexExpiry: UInt64 { first }
}
