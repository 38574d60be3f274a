import Sodium
public import Vocabulary

// The ids of one token's entries: the first 16 bytes of `D(ref, "ledger/" || label, field)`.
extension Ref {
    /// - Parameter untilMs: the end of the day of the token's expiry.
    public func sealedID(untilMs: UInt64) -> EntryID { derive(Self.sealed, [UInt8](bigEndian: untilMs / 1_000)) }

    public func openedID(_ job: JobID) -> EntryID { derive(Self.opened, job.bytes) }

    /// - Parameter untilMs: as above.
    public func purgeID(untilMs: UInt64) -> EntryID { derive(Self.purged, [UInt8](bigEndian: untilMs / 1_000)) }

    private static let sealed = prefix("sealed")
    private static let opened = prefix("opened")
    private static let purged = prefix("purged")

    private static func prefix(_ label: String) -> [UInt8] { Array("mayfly/v1 ledger/\(label)\0".utf8) }

    private func derive(_ prefix: [UInt8], _ field: [UInt8]) -> EntryID {
        var hash = withBytes { GenericHash(key: $0) }
        hash.update(prefix.span)
        hash.update([UInt8](bigEndian: UInt32(field.count)).span)
        hash.update(field.span)
        var digest = InlineArray<32, UInt8>(repeating: 0)
        var span = digest.mutableSpan
        hash.finish(into: &span)
        return EntryID(bytes: digest.span.extracting(first: EntryID.count))!
    }
}
