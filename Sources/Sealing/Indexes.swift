import Sodium
public import Vocabulary

// By what rows are found: none tells a room, code or client without the room id or the keys.
extension KeyRing {
    /// `D(0, "room", roomid)`.
    public func roomIndex(_ room: RoomID) -> Digest {
        var derivation = Derivation(.room)
        derivation.add(room.secret)
        return derivation.digest()
    }

    /// `D(0, "member", member)`: what is stored to recognise a side by.
    public func memberHash(_ member: MemberSecret) -> Digest {
        var derivation = Derivation(.member)
        derivation.add(member.secret)
        return derivation.digest()
    }

    /// `D(dayKey[d], "join", joinid)` for today and each earlier day of which a code may stand, today's first: store under the
    /// first, look up all. `standsMs`: how long a code stands at most, used or not; two days, if that is less.
    public func codeIndexes(
        _ joinID: Span<UInt8>, nowMs: UInt64, standsMs: UInt64 = .max
    ) throws(SealingError) -> [Digest] {
        try dayIndexes(joinID, nowMs: nowMs, standsMs: standsMs)
    }

    /// `D(epochKey[epoch(expiry)], "client", roomid, slot, client)`.
    public func clientIndex(
        _ room: RoomID, slot: UInt8, client: Span<UInt8>, expiryMs: UInt64, generation: UInt32
    ) throws(SealingError) -> Digest {
        guard var derivation = derivation(generation, expiryMs, .client) else { throw .outOfReach }
        derivation.add(room.secret)
        derivation.add(slot)
        derivation.add(client)
        return derivation.digest()
    }
}
