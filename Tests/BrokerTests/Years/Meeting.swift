import Broker
import Sealing
import Vocabulary

/// A room of a life, as its two phones know it. Times without a note are on the monotonic clock.
struct Meeting {
    struct Socket {
        let number: UInt64
        /// True if its join was acknowledged.
        var isJoined = false
        /// True while its app answers pings.
        var isLiving = true
        /// True once its side has reported that it leaves. The end of the socket is no news then.
        var hasLeft = false
        /// Since when its app has answered all pings. Nil before the join is acknowledged, and once the app was suspended.
        var since: UInt64?
    }

    struct Side {
        var client: [UInt8] = []
        var member: MemberSecret?
        /// True if the app always sends its member secret.
        var sendsMember = false
        /// The number of its token.
        var token: Int?
        /// False if a change of the token may or may not have happened.
        var isTokenSure = true
        var sockets: [Socket] = []
        /// Until when a report counts that it is present. 0 without one.
        var reportedUntil: UInt64 = 0
        /// When the last of its sockets was suspended.
        var suspendedAt: UInt64 = 0
        /// When it was last knocked at for certain.
        var knockedAt: UInt64?

        /// Since when it is certainly present. Nil if it may be absent.
        var presentSince: UInt64? { sockets.compactMap { $0.isLiving ? $0.since : nil }.min() }
        /// True if nothing of it answers.
        var isSilent: Bool { !sockets.contains(where: \.isLiving) }
    }

    let number: Int
    let id: RoomID
    let code: [UInt8]
    /// Broker time, unix ms.
    let expires: UInt64
    let codeExpires: UInt64
    /// When its accept was acknowledged.
    var acceptedAt: UInt64?
    /// False if it may be gone: a close or an accept had no answer.
    var isSure = true
    /// True while a call that changes it is under way.
    var isBusy = false
    /// The run of the broker in which it was made.
    let run: Int
    var creator = Side()
    var joiner = Side()

    subscript(slot: UInt8) -> Side {
        get { slot == 1 ? creator : joiner }
        _modify { if slot == 1 { yield &creator } else { yield &joiner } }
    }

    var isAccepted: Bool { acceptedAt != nil }

    /// Broker time at which it ends.
    var ends: UInt64 { isAccepted ? expires : min(expires, codeExpires) }

    func caller(_ slot: UInt8) -> Caller {
        Caller(room: id, client: self[slot].client, member: self[slot].sendsMember ? self[slot].member : nil)
    }
}

/// A token of a life.
struct Token {
    enum Holder: Hashable {
        case side(room: Int, slot: UInt8)
        case device(Int)
    }

    let number: Int
    let holder: Holder
    var ref: Ref?
    /// Broker time, unix ms. Nil until its seal is acknowledged.
    var expires: UInt64?
    /// Broker time of its last seal's answer, and which log had begun by then.
    var sealedAt: UInt64?
    var log = 0
    /// The app that was configured when it was sealed. Nil if it may be any.
    var app: Int?
    /// When its destruction was acknowledged, on the monotonic clock.
    var goneAt: UInt64?
    /// True if one more push may follow its destruction.
    var hasLastPush = false
    /// The `apns-id`s of its pushes, and when each came first, on the monotonic clock.
    var pushes: [(apnsID: String, at: UInt64)] = []
}

/// A push that must come, because a caller was told so or because somebody waits.
struct Due {
    let what: String
    /// On the monotonic clock.
    let deadline: UInt64
    /// True if a restart of the broker doesn't end it.
    let isDurable: Bool
}

/// A device or a Live Activity of an app with accounts.
struct Device {
    enum Kind: CaseIterable { case companion, activity, monitor, phone }

    let kind: Kind
    let user: Int
    let token: Int
    var id: RegistrationID
    /// Broker time, unix ms.
    var expires: UInt64
    /// False if it may be gone.
    var isSure = true
}

/// An approval of a life.
struct ApprovalStory {
    let user: Int
    /// Broker time, unix ms.
    let due: UInt64
    /// Nil while nobody has answered.
    var answer: Bool?
    /// False if an answer or a withdrawal may have happened.
    var isSure = true
    /// True if the user's sockets were told of the end.
    var isTold = false
    let askedAt: UInt64
}
