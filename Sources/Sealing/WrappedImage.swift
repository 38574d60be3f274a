import Sodium
import Vocabulary

/// The content of `ratchet.key` sealed under a wrapping key. Numbers are big-endian.
///
/// ```
///  0  8  "mayflyrk"
///  8  4  version: 2
/// 12  4  n, the count of bytes inside: a file of version 1
/// 16 16  id of the wrapping key
/// 32 24  nonce
/// 56  n  the file of version 1, XChaCha20-Poly1305, associated data: bytes 0..<32
///    16  tag
/// ```
enum WrappedImage {
    static let version: UInt32 = 2
    static let headCount = 32
    static let overhead = headCount + XChaCha20Poly1305.nonceCount + XChaCha20Poly1305.tagCount

    static func seal(
        _ image: KeyImage, under wrapping: WrappingKey, nonce: InlineArray<24, UInt8> = .random
    ) -> [UInt8] {
        let count = KeyImage.count(image.generations)
        var wrapped = [UInt8](repeating: 0, count: count + overhead)
        var all = wrapped.mutableSpan
        all.write(Array("mayflyrk".utf8).span, at: 0)
        all.write(bigEndian: version, at: 8)
        all.write(bigEndian: UInt32(count), at: 12)
        all.write(wrapping.id.span, at: 16)
        let head = Array(wrapped[..<headCount])
        all = wrapped.mutableSpan
        all.write(nonce.span, at: headCount)
        var box = all._mutatingExtracting(headCount + XChaCha20Poly1305.nonceCount..<all.count)
        image.withBytes { plaintext in
            wrapping.key.withBytes { key in
                XChaCha20Poly1305.seal(plaintext, into: &box, associatedData: head.span, nonce: nonce.span, key: key)
            }
        }
        Sodium.wipeStack()
        return wrapped
    }

    /// Whether this is the beginning of a wrapped file.
    static func isOne(_ bytes: Span<UInt8>) -> Bool {
        bytes.count >= 16 && Sodium.equal(bytes.extracting(first: 8), Array("mayflyrk".utf8).span)
            && bytes.bigEndian32(at: 8) == version
    }

    static func open(_ bytes: Span<UInt8>, with wrapping: WrappingKey) throws(KeyFileError) -> KeyImage {
        guard bytes.count >= headCount else { throw .truncated }
        let count = Int(bytes.bigEndian32(at: 12))
        guard (1...KeyImage.largestCount).contains(count), bytes.count <= count + overhead else { throw .corrupt }
        guard bytes.count == count + overhead else { throw .truncated }
        guard Sodium.equal(bytes.extracting(16..<headCount), wrapping.id.span) else { throw .otherWrappingKey }
        let memory: LockedMemory
        do throws(LockedMemory.Unavailable) {
            memory = try LockedMemory(count: KeyImage.largestCount + 1)
        } catch {
            throw .cannotLock
        }
        let (nonce, box) = (
            headCount..<headCount + XChaCha20Poly1305.nonceCount, headCount + XChaCha20Poly1305.nonceCount..<bytes.count
        )
        let isGenuine = memory.withMutableBytes(0..<count) { plaintext in
            wrapping.key.withBytes { key in
                XChaCha20Poly1305.open(
                    bytes.extracting(box), into: &plaintext, associatedData: bytes.extracting(first: headCount),
                    nonce: bytes.extracting(nonce), key: key)
            }
        }
        Sodium.wipeStack()
        guard isGenuine else { throw .corrupt }
        return try KeyImage(checking: memory, count: count)
    }
}
