import Ledger
import Sealing
import Vocabulary

/// A message between the nodes of a deployment. Any message may be lost, so presence is repeated.
enum NodeMessage: Equatable, Sendable {
    /// The sender begins to listen, and needs to hear who is present where.
    case hello
    /// The sender is alive.
    case pulse
    /// A side is present at the sender. `isNew` is false in a repetition.
    case here(RoomSide, isNew: Bool)
    /// A side is no longer present at the sender.
    case gone(RoomSide, PresenceState.Departure)
    /// A side reported over HTTP that it leaves.
    case leaving(RoomSide)
    /// Find out whether this side still answers.
    case probe(RoomSide, number: UInt64)
    /// A side answered the probe that `node` sent.
    case alive(RoomSide, number: UInt64, node: UInt64)
    case accepted(room: Digest)
    case closed(room: Digest)
    /// The queued pushes to a token are withdrawn, or kept although its row is gone. See `WantedPushes`.
    case revoked(EntryID)
    case renewed(EntryID)
    /// Send news to the session sockets of a user or a back end.
    case news(CompanionReceiver, CompanionMessage)
}

/// The receiver of news of sessions: the user or the back end of that name.
public struct CompanionReceiver: Hashable, Sendable {
    public var name: [UInt8]
    public var isBackEnd: Bool

    init(name: [UInt8], isBackEnd: Bool) { (self.name, self.isBackEnd) = (name, isBackEnd) }

    public init(_ principal: Principal) { self.init(name: principal.user, isBackEnd: principal.isBackEnd) }
}

// One byte for the kind, then the fields. Numbers are big-endian.
extension NodeMessage {
    var encoded: [UInt8] {
        var bytes: [UInt8] = []
        switch self {
        case .hello: bytes = [0]
        case .pulse: bytes = [1]
        case .here(let side, let isNew): bytes = [2] + Self.encoded(side) + [isNew ? 1 : 0]
        case .gone(let side, let departure): bytes = [3] + Self.encoded(side) + [departure.rawValue]
        case .leaving(let side): bytes = [4] + Self.encoded(side)
        case .probe(let side, let number): bytes = [5] + Self.encoded(side) + [UInt8](bigEndian: number)
        case .alive(let side, let number, let node):
            bytes = [6] + Self.encoded(side) + [UInt8](bigEndian: number) + [UInt8](bigEndian: node)
        case .accepted(let room): bytes = [7] + room.bytes
        case .closed(let room): bytes = [8] + room.bytes
        case .revoked(let token): bytes = [9] + token.bytes
        case .renewed(let token): bytes = [10] + token.bytes
        case .news(let receiver, let message):
            bytes = [11, receiver.isBackEnd ? 1 : 0]
            bytes.append(name: receiver.name)
            bytes += message.encoded
        }
        return bytes
    }

    private static func encoded(_ side: RoomSide) -> [UInt8] { side.room.bytes + [side.slot] }

    /// Reads one message and removes it. Returns nil if it is malformed.
    init?(_ rest: inout ArraySlice<UInt8>) {
        guard let kind = rest.popFirst() else { return nil }
        switch kind {
        case 0: self = .hello
        case 1: self = .pulse
        case 2:
            guard let side = Self.side(&rest), let isNew = rest.popFirst() else { return nil }
            self = .here(side, isNew: isNew != 0)
        case 3:
            guard let side = Self.side(&rest), let departure = rest.popFirst() else { return nil }
            // A newer version may send more kinds. Knocking once too often costs less than not knocking. Versions before the first
            // release read each byte except 0 as deliberate.
            self = .gone(side, PresenceState.Departure(rawValue: departure) ?? .broken)
        case 4:
            guard let side = Self.side(&rest) else { return nil }
            self = .leaving(side)
        case 5:
            guard let side = Self.side(&rest), let number = rest.popNumber() else { return nil }
            self = .probe(side, number: number)
        case 6:
            guard let side = Self.side(&rest), let number = rest.popNumber(), let node = rest.popNumber() else { return nil }
            self = .alive(side, number: number, node: node)
        case 7, 8:
            guard let room = Self.room(&rest) else { return nil }
            self = kind == 7 ? .accepted(room: room) : .closed(room: room)
        case 9, 10:
            guard let token = rest.pop(16).flatMap({ EntryID(bytes: $0.span) }) else { return nil }
            self = kind == 9 ? .revoked(token) : .renewed(token)
        case 11:
            guard let isBackEnd = rest.popFirst(), let name = rest.popName(), let message = CompanionMessage(&rest) else {
                return nil
            }
            self = .news(CompanionReceiver(name: name, isBackEnd: isBackEnd != 0), message)
        default: return nil
        }
    }

    private static func room(_ rest: inout ArraySlice<UInt8>) -> Digest? { rest.pop(32).flatMap { Digest(bytes: $0.span) } }

    private static func side(_ rest: inout ArraySlice<UInt8>) -> RoomSide? {
        guard let room = room(&rest), let slot = rest.popFirst(), slot == 1 || slot == 2 else { return nil }
        return RoomSide(room: room, slot: slot)
    }
}

extension CompanionMessage {
    fileprivate var encoded: [UInt8] {
        var bytes: [UInt8]
        switch self {
        case .approvalResponse(let request, let session, let approved):
            bytes = [0] + request.bytes + [approved ? 1 : 0]
            bytes.append(name: session)
        case .approvalTimeout(let request, let session):
            bytes = [1] + request.bytes
            bytes.append(name: session)
        case .approvalWithdrawn(let request, let session):
            bytes = [5] + request.bytes
            bytes.append(name: session)
        case .approvalRequest(let request, let session, let expires):
            bytes = [2] + request.bytes + [UInt8](bigEndian: expires)
            bytes.append(name: session)
        case .progress(let progress, let session):
            bytes = [3]
            for number in [progress.elapsedSeconds, progress.completed, progress.total] {
                bytes.append(number == nil ? 0 : 1)
                if let number { bytes.append(bigEndian: Int64(number)) }
            }
            bytes.append(name: session)
        case .state(let word, let before, let session):
            bytes = [4]
            bytes.append(name: word.utf8)
            bytes.append(before == nil ? 0 : 1)
            if let before { bytes.append(name: before.utf8) }
            bytes.append(name: session)
        }
        return bytes
    }

    fileprivate init?(_ rest: inout ArraySlice<UInt8>) {
        func id() -> RequestID? { rest.pop(16).flatMap { RequestID(bytes: $0.span) } }
        func text() -> String? { rest.popName().flatMap { String(validating: $0, as: UTF8.self) } }
        switch rest.popFirst() {
        case 0:
            guard let request = id(), let approved = rest.popFirst(), let session = rest.popName() else { return nil }
            self = .approvalResponse(request: request, session: session, approved: approved != 0)
        case 1:
            guard let request = id(), let session = rest.popName() else { return nil }
            self = .approvalTimeout(request: request, session: session)
        case 2:
            guard let request = id(), let expires = rest.popNumber(), let session = rest.popName() else { return nil }
            self = .approvalRequest(request: request, session: session, expires: expires)
        case 3:
            var numbers: [Int?] = []
            for _ in 0..<3 {
                guard let isSet = rest.popFirst() else { return nil }
                if isSet == 0 {
                    numbers.append(nil)
                } else {
                    guard let number = rest.popNumber() else { return nil }
                    numbers.append(Int(Int64(bitPattern: number)))
                }
            }
            guard let session = rest.popName() else { return nil }
            self = .progress(
                SessionProgress(elapsedSeconds: numbers[0], completed: numbers[1], total: numbers[2]), session: session)
        case 4:
            guard let word = text(), let isSet = rest.popFirst() else { return nil }
            var before: String?
            if isSet != 0 {
                guard let word = text() else { return nil }
                before = word
            }
            guard let session = rest.popName() else { return nil }
            self = .state(word, before: before, session: session)
        case 5:
            guard let request = id(), let session = rest.popName() else { return nil }
            self = .approvalWithdrawn(request: request, session: session)
        default: return nil
        }
    }
}

extension ArraySlice<UInt8> {
    /// Removes a big-endian number of eight bytes.
    fileprivate mutating func popNumber() -> UInt64? { pop(8).map { $0.span.bigEndian64(at: 0) } }
}
