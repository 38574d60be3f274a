import Sodium
import Vocabulary

/// What a note tells; bound into its key.
public enum NoteLabel: Sendable, Hashable, CaseIterable {
    /// What a registration's row holds besides the token. Fields: its purge id.
    case details
    /// The newest update of a registration, which waits. Fields: its purge id.
    case update
    /// What a job's template is filled with. Fields: the job; the place's expiry is the deadline.
    case fields
    /// What a timer is about. Fields: its id.
    case timer

    var label: Label {
        switch self {
        case .details: .details
        case .update: .update
        case .fields: .fields
        case .timer: .timer
        }
    }

    /// Which slot its key takes while it is opened. An acknowledged push needs its fields.
    var purpose: Arena.Purpose { self == .fields ? .acknowledgedPush : .anything }
}

// Notes: bytes of any length that the broker alone can open, until the epoch of their place's expiry is over.
extension KeyRing {
    /// A sealed secret that leads a note, e.g. the key of an audience's handles.
    static let leadingCount = 32

    /// How long a note of so many bytes is when it is sealed.
    public static func sealedNoteCount(_ count: Int, block: Int) -> Int {
        paddedNoteCount(count, block) + SealedBox.overhead
    }

    /// Seals up to 65,535 bytes under `D(epochKey[epoch(expiry)], label, fields...)`: `length u16be || bytes`, padded to a multiple of
    /// `block`, so that the length tells little.
    public func sealNote(
        _ bytes: [UInt8], _ label: NoteLabel, _ place: Place, _ fields: [[UInt8]], block: Int
    ) throws(SealingError) -> [UInt8] {
        try sealNote(nil, bytes, label, place, fields, block)
    }

    /// The same, with 32 secret bytes before the others.
    public func sealNote(
        _ secret: Secret, _ bytes: [UInt8], _ label: NoteLabel, _ place: Place, _ fields: [[UInt8]], block: Int
    ) throws(SealingError) -> [UInt8] {
        precondition(secret.count == Self.leadingCount)
        return try sealNote(secret, bytes, label, place, fields, block)
    }

    /// - Throws: `doesNotOpen` if the note is invalid or its key is gone; `outOf`.
    public func openNote(
        _ sealed: Span<UInt8>, _ label: NoteLabel, _ place: Place, _ fields: [[UInt8]], block: Int
    ) throws(SealingError) -> [UInt8] {
        try openNote(sealed, label, place, fields, block) { bytes in bytes.copy() }
    }

    /// A note that was sealed with 32 secret bytes before the others.
    /// - Throws: `doesNotOpen` if the note is invalid or its key is gone; `outOf`.
    public func openSecretNote(
        _ sealed: Span<UInt8>, _ label: NoteLabel, _ place: Place, _ fields: [[UInt8]], block: Int
    ) throws(SealingError) -> (secret: Secret, bytes: [UInt8]) {
        try openNote(sealed, label, place, fields, block) { bytes throws(SealingError) in
            guard bytes.count >= Self.leadingCount else { throw .doesNotOpen }
            return (
                try Secret(copying: bytes.extracting(first: Self.leadingCount)),
                bytes.extracting(droppingFirst: Self.leadingCount).copy()
            )
        }
    }

    private func sealNote(
        _ secret: Secret?, _ bytes: [UInt8], _ label: NoteLabel, _ place: Place, _ fields: [[UInt8]], _ block: Int
    ) throws(SealingError) -> [UInt8] {
        let count = (secret?.count ?? 0) + bytes.count
        precondition(count <= UInt16.max, "a note of 65,535 bytes at most")
        guard let key = try noteKey(label, place, fields) else { throw .outOfReach }
        var plaintext = [UInt8](repeating: 0, count: Self.paddedNoteCount(count, block))
        var text = plaintext.mutableSpan
        text.write(bigEndian: UInt16(count), at: 0)
        secret?.withBytes { text.write($0, at: 2) }
        text.write(bytes.span, at: 2 + count - bytes.count)
        _ = Sodium.pad(&text, count: 2 + count, block: block)
        let data = Self.noteData(label, place, fields)
        let sealed = SealedBox.seal(plaintext.span, associatedData: data, nonce: nonce(), key: key)
        Sodium.wipe(&plaintext)
        return sealed
    }

    /// Lends the note's bytes.
    private func openNote<Result>(
        _ sealed: Span<UInt8>, _ label: NoteLabel, _ place: Place, _ fields: [[UInt8]], _ block: Int,
        _ body: (Span<UInt8>) throws(SealingError) -> Result
    ) throws(SealingError) -> Result {
        let count = sealed.count - SealedBox.overhead
        guard count > 0, count.isMultiple(of: block), let key = try noteKey(label, place, fields, label.purpose) else {
            throw .doesNotOpen
        }
        var plaintext = [UInt8](repeating: 0, count: count)
        defer { Sodium.wipe(&plaintext) }
        var text = plaintext.mutableSpan
        let data = Self.noteData(label, place, fields)
        guard SealedBox.open(sealed, into: &text, associatedData: data, key: key) else { throw .doesNotOpen }
        let bytes = plaintext.span
        guard let end = Sodium.unpaddedCount(bytes, block: block), end >= 2, end == 2 + Int(bytes[0]) << 8 + Int(bytes[1]) else {
            throw .doesNotOpen
        }
        return try body(bytes.extracting(2..<end))
    }

    private func noteKey(
        _ label: NoteLabel, _ place: Place, _ fields: [[UInt8]], _ purpose: Arena.Purpose = .anything
    ) throws(SealingError) -> Slot? {
        guard var derivation = derivation(place.generation, place.expiryMs, label.label) else { return nil }
        for field in fields { derivation.add(field.span) }
        return try derivation.secret(for: purpose)
    }

    /// `"MFN1" || g u32be || expiry u64be || (u16be length || text)...`, the texts being label and fields.
    private static func noteData(_ label: NoteLabel, _ place: Place, _ fields: [[UInt8]]) -> [UInt8] {
        var data = Array("MFN1".utf8)
        data.append(bigEndian: place.generation)
        data.append(bigEndian: place.expiryMs)
        data.append(counted: label.label.name)
        for field in fields { data.append(counted: field) }
        return data
    }

    private static func paddedNoteCount(_ count: Int, _ block: Int) -> Int { ((2 + count) / block + 1) * block }
}

extension Span where Element == UInt8 {
    func copy() -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(count)
        for index in indices { bytes.append(self[index]) }
        return bytes
    }
}
