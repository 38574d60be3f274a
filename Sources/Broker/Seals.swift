public import Sealing
public import Storage
import Vocabulary

extension RegistrationRecord {
    var expirySlot: ExpirySlot { ExpirySlot(generation: context.generation, expiryMs: expires) }
}

extension TokenContext {
    private static let longestShort: UInt64 = 86_400_000

    /// True for a long life. Seals and purges of long lives are published only at the end of a day. Times are unix ms.
    static func isLong(from sealed: UInt64, to expiry: UInt64) -> Bool { expiry > sealed + longestShort }
}

extension AddressSize {
    /// The mark of a deployment whose addresses have another size than 160 bytes: the size, u64be.
    private static let mark = "address.bytes"

    /// Returns the size with which this deployment seals addresses.
    /// - Throws: `.unavailable` if only another release can read that size; what the store throws.
    public static func recorded(in store: any Store) async throws(StoreError) -> AddressSize {
        guard let mark = try await store.mark(mark) else { return .apnsOnly }
        let bytes = mark.reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        guard let size = Int(exactly: bytes).flatMap(AddressSize.init) else {
            throw .unavailable("its addresses are sealed in a size that this release can't read. Run the release that set it")
        }
        return size
    }
}

/// Opens something sealed. Returns nil if it is invalid or its key is gone.
/// - Throws: `SealingError.outOf` after a shortage. Whether it opens is then unknown.
func ifItOpens<Value>(_ open: () throws -> Value) throws -> Value? {
    do {
        return try open()
    } catch SealingError.doesNotOpen, SealingError.outOfReach {
        return nil
    }
}
