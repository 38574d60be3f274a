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
        try read(try await store.mark(mark))
    }

    /// The same of a store that isn't open.
    public static func recorded(in store: StoreSnapshot) throws(StoreError) -> AddressSize { try read(try store.mark(mark)) }

    private static func read(_ mark: [UInt8]?) throws(StoreError) -> AddressSize {
        guard let mark else { return .apnsOnly }
        let bytes = mark.reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        guard let size = Int(exactly: bytes).flatMap(AddressSize.init) else {
            throw .unavailable("its addresses are sealed in a size that this release can't read. Run the release that set it")
        }
        return size
    }

    /// Sets the size with which this deployment seals addresses from the next start of each node on.
    public func record(in store: any Store) async throws(StoreError) {
        try await store.setMark(Self.mark, [UInt8](bigEndian: UInt64(rawValue)))
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
