import Sodium
public import Vocabulary

// The room id and member secrets for repeating lost answers. Each key needs a value that only the caller knows.
extension KeyRing {
    /// The length of a sealed room id (pending) or member secret (creator).
    public static let sealedSecretCount = 72
    /// The length of a sealed pair (retry).
    public static let sealedPairCount = 104

    /// Seals the room id of a pending join code under `D(epochKey[epoch(expiry)], "pending", joinid)`.
    /// - Parameters:
    ///   - expiryMs: the code's expiry.
    ///   - codeIndex: the code's index in the row.
    /// - Returns: 72 bytes.
    public func sealPending(
        _ room: RoomID, joinID: Span<UInt8>, expiryMs: UInt64, generation: UInt32, codeIndex: Digest
    ) throws(SealingError) -> [UInt8] {
        guard let key = try codeKey(.pending, joinID, nil, expiryMs, generation) else { throw .outOfReach }
        return try seal(room.secret, nil, Self.data("MFP1", generation, expiryMs, codeIndex), key: key.secret())
    }

    /// - Throws: `.doesNotOpen` if the sealed bytes are invalid or their key is gone; `.outOf` if no slot is free.
    public func openPending(
        _ sealed: Span<UInt8>, joinID: Span<UInt8>, expiryMs: UInt64, generation: UInt32, codeIndex: Digest
    ) throws(SealingError) -> RoomID {
        guard let key = try codeKey(.pending, joinID, nil, expiryMs, generation) else { throw .doesNotOpen }
        return RoomID(try openSecret(sealed, Self.data("MFP1", generation, expiryMs, codeIndex), key: key.secret()))
    }

    /// Seals the creator's member secret under `D(epochKey[epoch(until)], "creator", joinid, client1)`, to repeat the answer to a create.
    /// - Returns: 72 bytes.
    public func sealCreator(
        _ member: MemberSecret, joinID: Span<UInt8>, client1: Span<UInt8>, untilMs: UInt64, generation: UInt32, codeIndex: Digest
    ) throws(SealingError) -> [UInt8] {
        guard let key = try codeKey(.creator, joinID, client1, untilMs, generation) else { throw .outOfReach }
        return try seal(member.secret, nil, Self.data("MFC1", generation, untilMs, codeIndex), key: key.secret())
    }

    /// - Throws: `.doesNotOpen`, also for another client; `.outOf` if no slot is free.
    public func openCreator(
        _ sealed: Span<UInt8>, joinID: Span<UInt8>, client1: Span<UInt8>, untilMs: UInt64, generation: UInt32, codeIndex: Digest
    ) throws(SealingError) -> MemberSecret {
        guard let key = try codeKey(.creator, joinID, client1, untilMs, generation) else { throw .doesNotOpen }
        return MemberSecret(try openSecret(sealed, Self.data("MFC1", generation, untilMs, codeIndex), key: key.secret()))
    }

    /// Seals the answer to an accept under `D(epochKey[epoch(until)], "retry", joinid, client2)`.
    /// - Parameter untilMs: the current time + 120 s.
    /// - Returns: 104 bytes.
    public func sealRetry(
        _ room: RoomID, _ member: MemberSecret, joinID: Span<UInt8>, client2: Span<UInt8>, untilMs: UInt64, generation: UInt32,
        codeIndex: Digest
    ) throws(SealingError) -> [UInt8] {
        guard let key = try codeKey(.retry, joinID, client2, untilMs, generation) else { throw .outOfReach }
        return try seal(room.secret, member.secret, Self.data("MFR1", generation, untilMs, codeIndex), key: key.secret())
    }

    /// - Throws: `.doesNotOpen`, also for another client; `.outOf` if no slot is free.
    public func openRetry(
        _ sealed: Span<UInt8>, joinID: Span<UInt8>, client2: Span<UInt8>, untilMs: UInt64, generation: UInt32, codeIndex: Digest
    ) throws(SealingError) -> (room: RoomID, member: MemberSecret) {
        guard let key = try codeKey(.retry, joinID, client2, untilMs, generation) else { throw .doesNotOpen }
        let plaintext = try SealedBox.open(
            sealed, count: 64, associatedData: Self.data("MFR1", generation, untilMs, codeIndex), key: key.secret())
        return try plaintext.withBytes(64) { bytes throws(SealingError) in
            (
                RoomID(try Secret(copying: bytes.extracting(first: 32))),
                MemberSecret(try Secret(copying: bytes.extracting(droppingFirst: 32)))
            )
        }
    }

    private func codeKey(
        _ label: Label, _ joinID: Span<UInt8>, _ client: Span<UInt8>?, _ timeMs: UInt64, _ generation: UInt32
    ) throws(SealingError) -> Derivation? {
        guard var derivation = try derivation(generation, timeMs, label) else { return nil }
        derivation.add(joinID)
        if let client { derivation.add(client) }
        return derivation
    }

    /// `purpose || g u32be || time u64be || code index`.
    private static func data(_ purpose: String, _ generation: UInt32, _ timeMs: UInt64, _ codeIndex: Digest) -> [UInt8] {
        var data = Array(purpose.utf8)
        data.reserveCapacity(48)
        data.append(bigEndian: generation)
        data.append(bigEndian: timeMs)
        data.append(codeIndex)
        return data
    }

    private func seal(
        _ first: Secret, _ second: Secret?, _ data: [UInt8], key: consuming Slot
    ) throws(SealingError) -> [UInt8] {
        let plaintext = try Arena.shared.take()
        let count = 32 + (second == nil ? 0 : 32)
        plaintext.withMutableBytes(count) { plaintext in
            first.withBytes { plaintext.write($0, at: 0) }
            second?.withBytes { plaintext.write($0, at: 32) }
        }
        return SealedBox.seal(plaintext, count: count, associatedData: data, nonce: nonce(), key: key)
    }

    private func openSecret(_ sealed: Span<UInt8>, _ data: [UInt8], key: consuming Slot) throws(SealingError) -> Secret {
        let plaintext = try SealedBox.open(sealed, count: 32, associatedData: data, key: key)
        return try plaintext.withBytes(32) { bytes throws(SealingError) in try Secret(copying: bytes) }
    }
}
