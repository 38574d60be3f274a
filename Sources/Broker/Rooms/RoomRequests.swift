public import Sealing
public import Vocabulary

// Requests of rooms and their results. The edge has checked that all values are in range.

/// `POST /api/rooms`.
public struct CreateRoom: Sendable {
    public var joinid: [UInt8]
    public var lifeSeconds: Int
    public var codeLifeSeconds: Int
    public var client: [UInt8]
    public var address: PushAddress?

    public init(joinid: [UInt8], lifeSeconds: Int, codeLifeSeconds: Int, client: [UInt8], address: PushAddress?) {
        self.joinid = joinid
        self.lifeSeconds = lifeSeconds
        self.codeLifeSeconds = codeLifeSeconds
        self.client = client
        self.address = address
    }
}

/// `POST /api/rooms/accept`.
public struct AcceptRoom: Sendable {
    public var joinid: [UInt8]
    public var client: [UInt8]
    public var address: PushAddress?

    public init(joinid: [UInt8], client: [UInt8], address: PushAddress?) {
        self.joinid = joinid
        self.client = client
        self.address = address
    }
}

/// The result of a create or an accept.
public struct Membership: Sendable {
    public var room: RoomID
    /// The caller's member secret. Nil if a create is repeated too late.
    public var member: MemberSecret?
    /// Unix milliseconds.
    public var expires: UInt64
    /// When the join code expires, and the room with it if nobody has accepted. Nil for an accept.
    public var joinExpires: UInt64?
    public var ref: Ref?
    /// False if an earlier call had the same effect.
    public var isNew: Bool
}

/// The credentials of one side of a room. A side that has used its member secret once must always send it.
public struct Caller: Sendable {
    public var room: RoomID
    public var client: [UInt8]
    public var member: MemberSecret?

    public init(room: RoomID, client: [UInt8], member: MemberSecret?) {
        self.room = room
        self.client = client
        self.member = member
    }
}

/// `GET /api/room`.
public struct RoomStatus: Sendable, Equatable {
    public var expires: UInt64
    public var accepted: Bool
    public var creatorPresent: Bool
    public var joinerPresent: Bool
    public var creatorHasToken: Bool
    public var joinerHasToken: Bool
}

/// The result of a knock.
public enum Delivery: String, Sendable {
    case queued
    case peerPresent = "peer_present"
    case noToken = "no_token"
    case throttled
    /// The caller is leaving, so nobody is knocked at.
    case none
}

/// A message to a room's socket.
public enum RoomEvent: Sendable, Equatable {
    case peerJoined
    /// Has the result of the knock if a probe found the peer absent.
    case peerLeft(Delivery?)
    case peerAccepted
    case roomClosed

    public var name: String {
        switch self {
        case .peerJoined: "peer_joined"
        case .peerLeft: "peer_left"
        case .peerAccepted: "peer_accepted"
        case .roomClosed: "room_closed"
        }
    }
}

/// Reaches the sockets of rooms, which belong to the edge.
public protocol RoomSockets: Sendable {
    /// Sends a message. `roomClosed` also closes the socket.
    func send(_ socket: UInt64, _ event: RoomEvent) async
    /// Sends a ping. Its pong is reported to `Presence.pong`.
    func ping(_ socket: UInt64, _ number: UInt64) async
    func close(_ socket: UInt64) async
}
