import Sodium
public import Vocabulary

/// What an audience's row is found by.
public enum AudienceLabel: Sendable, Hashable, CaseIterable {
    /// Whom a registration's pushes are for. Fields: the audience's name.
    case audience
    /// Whose registration it is. Fields: the owner.
    case owner
    /// Which token of which owner. Fields: the owner, the kind (one byte), the token; see `deviceIndex`.
    case device
    /// Which session of its owner. Fields: the owner, the session.
    case session
    /// Which device is the active one of a session. Fields: the owner, the session, the device's id.
    case activeClient
    /// What was done already. Fields: what names it.
    case seen
    /// A request by its back end's own id. Fields: who may name it so, the id.
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
    /// `expiry u64be || D(epochKey[epoch(expiry)], label, fields...)[0..<24]`: 32 bytes.
    ///
    /// They begin with the expiry so that what expires together lies together in every table. It stands in the row besides.
    public func index(_ label: AudienceLabel, _ place: Place, _ fields: [[UInt8]]) throws(SealingError) -> Digest {
        try index(label, place, fields, nil)
    }

    /// The index by which one token of one owner is found: another owner of the same token has another.
    public func deviceIndex(
        _ place: Place, owner: [UInt8], kind: TokenKind, token: Secret
    ) throws(SealingError) -> Digest {
        try index(.device, place, [owner, [kind.rawValue]], token)
    }

    private func index(
        _ label: AudienceLabel, _ place: Place, _ fields: [[UInt8]], _ secret: Secret?
    ) throws(SealingError) -> Digest {
        guard var derivation = derivation(place.generation, place.expiryMs, label.label) else { throw .outOfReach }
        for field in fields { derivation.add(field.span) }
        if let secret { derivation.add(secret) }
        return Digest(leading: place.expiryMs, derivation.digest())
    }
}
