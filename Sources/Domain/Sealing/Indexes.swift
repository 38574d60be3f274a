import Sodium
public import Vocabulary

// The indexes of rooms. Without the room id or the keys they reveal no room, code or client.
extension KeyRing {
    /// Returns `end u64be || D(0, "room", roomid)[0..<24]`: 32 bytes. Rooms that end together are adjacent.
    public func roomIndex(_ room: RoomID) -> Digest {
        var derivation = Derivation(.room)
        derivation.add(room.secret)
        return Digest(leading: room.endMs, derivation.digest())
    }

    /// `D(0, "member", member)`: identifies a side of a room.
    public func memberHash(_ member: MemberSecret) -> Digest {
        var derivation = Derivation(.member)
        derivation.add(member.secret)
        return derivation.digest()
    }

    /// `D(epochKey[epoch(expiry)], "client", roomid, slot, client)`.
    public func clientIndex(
        _ room: RoomID, slot: UInt8, client: Span<UInt8>, expiryMs: UInt64, generation: UInt32
    ) throws(SealingError) -> Digest {
        guard var derivation = try derivation(generation, expiryMs, .client) else { throw .outOfReach }
        derivation.add(room.secret)
        derivation.add(slot)
        derivation.add(client)
        return derivation.digest()
    }
}

/// The kinds of indexes of an audience's rows.
public enum AudienceLabel: Sendable, Hashable, CaseIterable {
    /// A registration by its audience. Fields: the audience's name.
    case audience
    /// A registration by its owner. Fields: the owner.
    case owner
    /// A registration by owner and token. Fields: the owner, the kind (one byte), the token. See `deviceIndex`.
    case device
    /// A session of an owner. Fields: the owner, the session.
    case session
    /// The active device of a session. Fields: the owner, the session, the device's id.
    case activeClient
    /// A mark against repeats. Fields: those that identify the event.
    case seen
    /// A request by its back end's own id. Fields: who may use the id, the id.
    case request

    var label: Label {
        switch self {
        case .audience: .audienceIndex
        case .owner: .ownerIndex
        case .device: .deviceIndex
        case .session: .sessionIndex
        case .activeClient: .activeClient
        case .seen: .seenIndex
        case .request: .requestIndex
        }
    }
}

extension KeyRing {
    /// Returns `expiry u64be || D(epochKey[epoch(expiry)], label, fields...)[0..<24]`: 32 bytes.
    ///
    /// The expiry comes first, so that rows that expire together are adjacent in every table.
    /// - Throws: `.outOfReach` if there is no key for the slot.
    public func index(_ label: AudienceLabel, _ slot: ExpirySlot, _ fields: [[UInt8]]) throws(SealingError) -> Digest {
        try index(label, slot, fields, nil)
    }

    /// Returns the index of one token of one owner. Another owner of the same token has another index.
    public func deviceIndex(
        _ slot: ExpirySlot, owner: [UInt8], kind: TokenKind, device: DeviceName
    ) throws(SealingError) -> Digest {
        try index(.device, slot, [owner, [kind.rawValue]], device)
    }

    private func index(
        _ label: AudienceLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], _ device: DeviceName?
    ) throws(SealingError) -> Digest {
        guard var derivation = try derivation(slot.generation, slot.expiryMs, label.label) else { throw .outOfReach }
        for field in fields { derivation.add(field.span) }
        if let device { device.withBytes { derivation.add($0) } }
        return Digest(leading: slot.expiryMs, derivation.digest())
    }
}

// Handles identify the chat of a push, but only for holders of the key.
extension KeyRing {
    /// Returns the first 16 bytes of `HMAC-SHA256(roomid, "mayfly/v1 handle" || kind || slot)`.
    /// - Parameters:
    ///   - kind: ASCII, such as "room".
    ///   - slot: the receiver's. With the same handle for both sides, Apple would see which two phones share a room.
    public func handle(_ room: RoomID, kind: String, slot: UInt8) -> Handle {
        handle(key: room.secret, kind: kind, slot: slot, id: Span())
    }

    /// Returns the first 16 bytes of `HMAC-SHA256(key, "mayfly/v1 handle" || kind || slot || id)`. Audiences have slot 0.
    public func handle(key: Secret, kind: String, slot: UInt8, id: Span<UInt8>) -> Handle {
        let prefix = Array("mayfly/v1 handle\(kind)".utf8)
        let code = key.withBytes { key in
            var code = HMACSHA256(key: key)
            code.update(prefix.span)
            code.update(slot)
            code.update(id)
            return code.finish()
        }
        return Handle(bytes: code.span.extracting(first: Handle.count))!
    }
}

/// The key of a registration's handles. Only its device receives it.
public struct HandleKey: Capability {
    public let secret: Secret

    public init(_ secret: Secret) {
        precondition(secret.count == Self.count)
        self.secret = secret
    }
}
