import Sodium
import Vocabulary

/// The kinds of notes. The kind is part of a note's key.
public enum NoteLabel: Sendable, Hashable, CaseIterable {
    /// A registration's other data. Fields: its purge id.
    case details
    /// A registration's waiting update. Fields: its purge id.
    case update
    /// The template's fields of a job. Fields: the job. The slot's expiry is the deadline.
    case fields
    /// A timer's request. Fields: its id.
    case timer
    /// Messages between nodes. No fields.
    case nodes

    var label: Label {
        switch self {
        case .details: .details
        case .update: .update
        case .fields: .fields
        case .timer: .timer
        case .nodes: .nodes
        }
    }

    /// The slot for the key during opening. An acknowledged push needs its fields.
    var purpose: Arena.Purpose { self == .fields ? .acknowledgedPush : .anything }
}

// Notes are bytes of any length. The broker alone can open them, until the epoch of their slot's expiry is over.
extension KeyRing {
    /// The length of a secret at the start of a note, e.g. the key of a registration's handles.
    static let leadingCount = 32

    /// Seals up to 65,535 bytes under `D(epochKey[epoch(expiry)], label, fields...)`. The plaintext is `length u16be || bytes`, padded to a
    /// multiple of `block`, so that the length reveals little.
    public func sealNote(
        _ bytes: [UInt8], _ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], block: Int
    ) throws(SealingError) -> [UInt8] {
        try sealNote(nil, bytes, label, slot, fields, block)
    }

    /// Seals a note that starts with 32 secret bytes.
    public func sealNote(
        _ secret: Secret, _ bytes: [UInt8], _ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], block: Int
    ) throws(SealingError) -> [UInt8] {
        precondition(secret.count == Self.leadingCount)
        return try sealNote(secret, bytes, label, slot, fields, block)
    }

    /// - Throws: `.doesNotOpen` if the note is invalid or its key is gone; `.outOf` if no slot is free.
    public func openNote(
        _ sealed: Span<UInt8>, _ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], block: Int
    ) throws(SealingError) -> [UInt8] {
        try openNote(sealed, label, slot, fields, block) { bytes in bytes.copy() }
    }

    /// Opens a note that starts with 32 secret bytes.
    /// - Throws: `.doesNotOpen` if the note is invalid or its key is gone; `.outOf` if no slot is free.
    public func openSecretNote(
        _ sealed: Span<UInt8>, _ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], block: Int
    ) throws(SealingError) -> (secret: Secret, bytes: [UInt8]) {
        try openNote(sealed, label, slot, fields, block) { bytes throws(SealingError) in
            guard bytes.count >= Self.leadingCount else { throw .doesNotOpen }
            return (
                try Secret(copying: bytes.extracting(first: Self.leadingCount)),
                bytes.extracting(droppingFirst: Self.leadingCount).copy()
            )
        }
    }

    private func sealNote(
        _ secret: Secret?, _ bytes: [UInt8], _ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], _ block: Int
    ) throws(SealingError) -> [UInt8] {
        let count = (secret?.count ?? 0) + bytes.count
        precondition(count <= UInt16.max, "a note of 65,535 bytes at most")
        guard let key = try noteKey(label, slot, fields) else { throw .outOfReach }
        var plaintext = [UInt8](repeating: 0, count: ((2 + count) / block + 1) * block)
        var text = plaintext.mutableSpan
        text.write(bigEndian: UInt16(count), at: 0)
        secret?.withBytes { text.write($0, at: 2) }
        text.write(bytes.span, at: 2 + count - bytes.count)
        _ = Sodium.pad(&text, count: 2 + count, block: block)
        let data = Self.noteData(label, slot, fields)
        let sealed = SealedBox.seal(plaintext.span, associatedData: data, nonce: nonce(), key: key)
        Sodium.wipe(&plaintext)
        return sealed
    }

    /// Lends the note's bytes.
    private func openNote<Result>(
        _ sealed: Span<UInt8>, _ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], _ block: Int,
        _ body: (Span<UInt8>) throws(SealingError) -> Result
    ) throws(SealingError) -> Result {
        let count = sealed.count - SealedBox.overhead
        guard count > 0, count.isMultiple(of: block), let key = try noteKey(label, slot, fields, label.purpose) else {
            throw .doesNotOpen
        }
        var plaintext = [UInt8](repeating: 0, count: count)
        defer { Sodium.wipe(&plaintext) }
        var text = plaintext.mutableSpan
        let data = Self.noteData(label, slot, fields)
        guard SealedBox.open(sealed, into: &text, associatedData: data, key: key) else { throw .doesNotOpen }
        let bytes = plaintext.span
        guard let end = Sodium.unpaddedCount(bytes, block: block), end >= 2, end == 2 + Int(bytes[0]) << 8 + Int(bytes[1]) else {
            throw .doesNotOpen
        }
        return try body(bytes.extracting(2..<end))
    }

    private func noteKey(
        _ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]], _ purpose: Arena.Purpose = .anything
    ) throws(SealingError) -> Slot? {
        guard var derivation = try derivation(slot.generation, slot.expiryMs, label.label) else { return nil }
        for field in fields { derivation.add(field.span) }
        return try derivation.secret(for: purpose)
    }

    /// `"MFN1" || g u32be || expiry u64be || (u16be length || text)...`. The texts are the label and the fields.
    private static func noteData(_ label: NoteLabel, _ slot: ExpirySlot, _ fields: [[UInt8]]) -> [UInt8] {
        var data = Array("MFN1".utf8)
        data.append(bigEndian: slot.generation)
        data.append(bigEndian: slot.expiryMs)
        data.append(counted: label.label.name)
        for field in fields { data.append(counted: field) }
        return data
    }
}

extension Span where Element == UInt8 {
    func copy() -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(count)
        for index in indices { bytes.append(self[index]) }
        return bytes
    }
}
