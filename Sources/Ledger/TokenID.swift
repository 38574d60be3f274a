import Sodium

/// The ids of one token's entries. Computing them needs the token's ref.
public enum TokenID {
    public static func sealed(_ ref: OpaqueID, untilMs: UInt64) -> OpaqueID { derive(ref, "sealed", seconds(untilMs)) }

    public static func opened(_ ref: OpaqueID, job: OpaqueID) -> OpaqueID { derive(ref, "opened", job.bytes) }

    public static func purged(_ ref: OpaqueID, untilMs: UInt64) -> OpaqueID { derive(ref, "purged", seconds(untilMs)) }

    private static func seconds(_ ms: UInt64) -> [UInt8] {
        (0..<8).map { UInt8(truncatingIfNeeded: (ms / 1_000) >> (56 - 8 * $0)) }
    }

    /// The first 16 bytes of `D(ref, "ledger/" || label, field)`.
    private static func derive(_ ref: OpaqueID, _ label: String, _ field: [UInt8]) -> OpaqueID {
        var hash = GenericHash(key: ref.bytes.span)
        hash.update(Array("mayfly/v1 ledger/\(label)\0".utf8).span)
        hash.update(([0, 0, 0, UInt8(field.count)] + field).span)
        let digest = hash.finish()
        return OpaqueID(Array(digest.prefix(OpaqueID.count)).span)!
    }
}
