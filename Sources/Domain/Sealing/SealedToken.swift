public import Vocabulary

extension TokenContext {
    /// `"MFT2" || g u32be || kind u8 || slot u8 || expiry u64be || purge id`.
    var associatedData: [UInt8] {
        var data: [UInt8] = []
        data.reserveCapacity(34)
        data.append(contentsOf: "MFT2".utf8)
        data.append(bigEndian: generation)
        data.append(kind.rawValue)
        data.append(slot)
        data.append(bigEndian: expiryMs)
        data.append(purgeID)
        return data
    }

    /// `"MFI1" || g u32be || slot u8 || expiry u64be || purge id`.
    var associatedDataOfRef: [UInt8] {
        var data = Array("MFI1".utf8)
        data.append(bigEndian: generation)
        data.append(slot)
        data.append(bigEndian: expiryMs)
        data.append(purgeID)
        return data
    }
}

/// An opened token with its ref.
public struct OpenedToken: Sendable {
    public let address: PushAddress
    public let ref: Ref
    /// Unix ms.
    public let sealedAtMs: UInt64
}

extension KeyRing {
    /// Seals a token for a room. It can be opened only with the room id, until the epoch after its expiry's is over.
    /// - Parameter size: the deployment's.
    /// - Returns: `size.sealedCount` bytes, or fewer for a Live Activity.
    public func sealToken(
        _ address: PushAddress, ref: Ref, sealedAtMs: UInt64, context: TokenContext, room: RoomID, size: AddressSize
    ) throws(SealingError) -> [UInt8] {
        guard let key = try tokenKey(context, room) else { throw .outOfReach }
        return try sealToken(address, ref, sealedAtMs, context, size, key: key.secret())
    }

    /// - Throws: `.doesNotOpen` if the sealed bytes are invalid or their key is gone; `.outOf` if no slot is free.
    public func openToken(_ sealed: Span<UInt8>, context: TokenContext, room: RoomID) throws(SealingError) -> OpenedToken {
        guard let key = try tokenKey(context, room) else { throw .doesNotOpen }
        return try openToken(sealed, context, key: key.secret())
    }

    /// Seals a token for an audience. The broker alone can open it, until the epoch after its expiry's is over.
    /// - Parameter size: the deployment's.
    /// - Precondition: the context's slot is 0.
    public func sealToken(
        _ address: PushAddress, ref: Ref, sealedAtMs: UInt64, context: TokenContext, audience: Span<UInt8>, size: AddressSize
    ) throws(SealingError) -> [UInt8] {
        guard let key = try tokenKey(context, audience: audience) else { throw .outOfReach }
        return try sealToken(address, ref, sealedAtMs, context, size, key: key.secret())
    }

    /// - Throws: `.doesNotOpen` if the sealed bytes are invalid or their key is gone; `.outOf` if no slot is free.
    public func openToken(
        _ sealed: Span<UInt8>, context: TokenContext, audience: Span<UInt8>
    ) throws(SealingError) -> OpenedToken {
        guard let key = try tokenKey(context, audience: audience) else { throw .doesNotOpen }
        return try openToken(sealed, context, key: key.secret())
    }

    // MARK: The ref beside the token

    /// The length of every sealed ref.
    public static let sealedRefCount = Ref.count + SealedBox.overhead

    /// Seals a token's ref for a room. A repeated call can then be answered without opening the token.
    /// - Returns: 56 bytes.
    public func sealRef(_ ref: Ref, context: TokenContext, room: RoomID) throws(SealingError) -> [UInt8] {
        guard let key = try refKey(context, room) else { throw .outOfReach }
        return try sealRef(ref, context, key: key.secret())
    }

    /// - Throws: `.doesNotOpen` if the sealed bytes are invalid or their key is gone; `.outOf` if no slot is free.
    public func openRef(_ sealed: Span<UInt8>, context: TokenContext, room: RoomID) throws(SealingError) -> Ref {
        guard let key = try refKey(context, room) else { throw .doesNotOpen }
        return try openRef(sealed, context, key: key.secret())
    }

    /// Seals a token's ref for an audience.
    /// - Precondition: the context's slot is 0.
    /// - Returns: 56 bytes.
    public func sealRef(_ ref: Ref, context: TokenContext, audience: Span<UInt8>) throws(SealingError) -> [UInt8] {
        guard let key = try refKey(context, audience: audience) else { throw .outOfReach }
        return try sealRef(ref, context, key: key.secret())
    }

    /// - Throws: `.doesNotOpen` if the sealed bytes are invalid or their key is gone; `.outOf` if no slot is free.
    public func openRef(_ sealed: Span<UInt8>, context: TokenContext, audience: Span<UInt8>) throws(SealingError) -> Ref {
        guard let key = try refKey(context, audience: audience) else { throw .doesNotOpen }
        return try openRef(sealed, context, key: key.secret())
    }

    private func refKey(_ context: TokenContext, _ room: RoomID) throws(SealingError) -> Derivation? {
        guard var derivation = try derivation(context.generation, context.expiryMs, .ref) else { return nil }
        derivation.add(context.slot)
        derivation.add(room.secret)
        return derivation
    }

    private func refKey(_ context: TokenContext, audience: Span<UInt8>) throws(SealingError) -> Derivation? {
        precondition(context.slot == 0, "an audience has no slot")
        guard var derivation = try derivation(context.generation, context.expiryMs, .ref) else { return nil }
        derivation.add(context.slot)
        derivation.add(audience)
        return derivation
    }

    private func sealRef(_ ref: Ref, _ context: TokenContext, key: consuming Slot) throws(SealingError) -> [UInt8] {
        let nonce = nonce()
        return ref.withBytes { SealedBox.seal($0, associatedData: context.associatedDataOfRef, nonce: nonce, key: key) }
    }

    private func openRef(
        _ sealed: Span<UInt8>, _ context: TokenContext, key: consuming Slot
    ) throws(SealingError) -> Ref {
        let plaintext = try SealedBox.open(sealed, count: Ref.count, associatedData: context.associatedDataOfRef, key: key)
        return plaintext.withBytes(Ref.count) { Ref(high: $0.bigEndian64(at: 0), low: $0.bigEndian64(at: 8)) }
    }

    // MARK: The token

    private func tokenKey(_ context: TokenContext, _ room: RoomID) throws(SealingError) -> Derivation? {
        guard var derivation = try derivation(context.generation, context.expiryMs, .token) else { return nil }
        derivation.add(context.slot)
        derivation.add(room.secret)
        return derivation
    }

    private func tokenKey(_ context: TokenContext, audience: Span<UInt8>) throws(SealingError) -> Derivation? {
        guard var derivation = try derivation(context.generation, context.expiryMs, .audience) else { return nil }
        derivation.add(audience)
        return derivation
    }

    private func sealToken(
        _ address: PushAddress, _ ref: Ref, _ sealedAtMs: UInt64, _ context: TokenContext, _ size: AddressSize,
        key: consuming Slot
    ) throws(SealingError) -> [UInt8] {
        try sealAddress(
            address, sealedAtMs, ref, size.padding(context.kind), associatedData: context.associatedData, key: key)
    }

    private func openToken(
        _ sealed: Span<UInt8>, _ context: TokenContext, key: consuming Slot
    ) throws(SealingError) -> OpenedToken {
        let (address, sealedAtMs, ref): (PushAddress, UInt64, Ref) = try openAddress(
            sealed, associatedData: context.associatedData, key: key)
        return OpenedToken(address: address, ref: ref, sealedAtMs: sealedAtMs)
    }
}
