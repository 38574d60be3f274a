import Sodium
import Vocabulary

/// `nonce[24] || ciphertext || tag[16]`: XChaCha20-Poly1305 with a random nonce and a key of few uses.
enum SealedBox {
    static let overhead = XChaCha20Poly1305.nonceCount + XChaCha20Poly1305.tagCount

    /// Seals the first `count` bytes of `plaintext`.
    static func seal(
        _ plaintext: borrowing Slot, count: Int, associatedData: [UInt8], nonce: InlineArray<24, UInt8>, key: borrowing Slot
    ) -> [UInt8] {
        plaintext.withBytes(count) { seal($0, associatedData: associatedData, nonce: nonce, key: key) }
    }

    static func seal(
        _ plaintext: Span<UInt8>, associatedData: [UInt8], nonce: InlineArray<24, UInt8>, key: borrowing Slot
    ) -> [UInt8] {
        var sealed = [UInt8](repeating: 0, count: plaintext.count + overhead)
        var all = sealed.mutableSpan
        all.write(nonce.span, at: 0)
        var box = all._mutatingExtracting(XChaCha20Poly1305.nonceCount..<all.count)
        key.withBytes(XChaCha20Poly1305.keyCount) { key in
            XChaCha20Poly1305.seal(plaintext, into: &box, associatedData: associatedData.span, nonce: nonce.span, key: key)
        }
        Sodium.wipeStack()
        return sealed
    }

    /// Opens a box with exactly `count` bytes of plaintext into a slot.
    static func open(
        _ sealed: Span<UInt8>, count: Int, associatedData: [UInt8], key: borrowing Slot, in arena: Arena = .shared
    ) throws(SealingError) -> Slot {
        guard sealed.count == count + overhead else { throw .doesNotOpen }
        let plaintext = try arena.take()
        var isGenuine = false
        plaintext.withMutableBytes(count) { isGenuine = open(sealed, into: &$0, associatedData: associatedData, key: key) }
        guard isGenuine else { throw .doesNotOpen }
        return plaintext
    }

    /// Opens a box that is `overhead` longer than `plaintext`. Returns false if it is invalid.
    static func open(
        _ sealed: Span<UInt8>, into plaintext: inout MutableSpan<UInt8>, associatedData: [UInt8], key: borrowing Slot
    ) -> Bool {
        let nonce = sealed.extracting(first: XChaCha20Poly1305.nonceCount)
        let box = sealed.extracting(droppingFirst: XChaCha20Poly1305.nonceCount)
        defer { Sodium.wipeStack() }
        return key.withBytes(XChaCha20Poly1305.keyCount) { key in
            XChaCha20Poly1305.open(box, into: &plaintext, associatedData: associatedData.span, nonce: nonce, key: key)
        }
    }
}

extension Array where Element == UInt8 {
    /// Appends `u16be length || text`.
    /// - Precondition: the text has at most 65,535 bytes.
    mutating func append(counted text: String) {
        append(bigEndian: UInt16(text.utf8.count))
        append(contentsOf: text.utf8)
    }

    /// Appends `u16be length || bytes`.
    /// - Precondition: there are at most 65,535 bytes.
    mutating func append(counted bytes: [UInt8]) {
        append(bigEndian: UInt16(bytes.count))
        append(contentsOf: bytes)
    }
}

extension MutableSpan where Element == UInt8 {
    mutating func write(_ bytes: Span<UInt8>, at offset: Int) {
        for index in bytes.indices { self[offset + index] = bytes[index] }
    }
}
