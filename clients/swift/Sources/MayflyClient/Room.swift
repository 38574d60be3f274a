import Foundation

/// One side's credentials of a room. With them the side comes back after any break, until ``expiresAt``.
///
/// Keep the value in the Keychain if it must survive the app's end; the library stores nothing by itself. Descriptions, mirrors and `dump` show no secret.
public struct Room: Hashable, Sendable, Codable {
    /// Who made the room and who accepted it. The raw value is the broker's number of the side.
    public enum Side: Int, Sendable, Codable {
        case creator = 1
        case joiner = 2
    }

    /// The members' shared capability, 43 characters of base64url.
    public let roomID: Secret
    /// The secret of this side alone, sent with every call.
    public let member: Secret
    /// The random id of this side.
    public let clientID: Secret
    public let side: Side
    /// Finds and proves the token's entries in the public log. Nil if the broker has no token of this side.
    public var ref: Secret?
    /// When an accepted room ends.
    public var expiresAt: Date
    /// When the join code expires, and with it a room that nobody accepted. Nil for the joiner.
    public let joinExpiresAt: Date?

    /// What pushes to this side call the room: `roomId` in the payload, 22 characters of base64url. Only a member can compute it.
    public var handle: String? {
        Data(base64URL: roomID.value).map { Handle.make(key: $0, kind: "room", slot: UInt8(side.rawValue), id: "") }
    }
}

/// What a member may know of its room.
public struct RoomStatus: Hashable, Sendable, Decodable {
    public let expiresAt: Date
    public let accepted: Bool
    public let creatorPresent: Bool
    public let joinerPresent: Bool
    public let creatorHasToken: Bool
    public let joinerHasToken: Bool
}

/// What became of a knock at the other side.
public enum Delivery: Hashable, Sendable, Decodable {
    /// A push is on its way.
    case queued
    /// The other side is present, or left less than 5 seconds ago.
    case peerPresent
    /// The other side is away and gave no token.
    case noToken
    /// A limit was reached. No error: the broker tries again while this side stays present.
    case throttled
    /// This side left, so nobody was knocked at.
    case none
    /// A value of a later broker.
    case unknown(String)

    init(_ text: String) {
        self =
            switch text {
            case "queued": .queued
            case "peer_present": .peerPresent
            case "no_token": .noToken
            case "throttled": .throttled
            case "none": .none
            default: .unknown(text)
            }
    }

    public init(from decoder: any Decoder) throws { self.init(try decoder.singleValueContainer().decode(String.self)) }
}
