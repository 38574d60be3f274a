/// An entry that the ledger has of one token.
public enum LedgerStep: Sendable, Hashable {
    /// `untilMs`: the end of the day of the token's expiry, in whole seconds of unix time.
    case sealed(untilMs: UInt64)
    case opened(JobID)
    case purged(untilMs: UInt64)
}

extension Ref {
    /// The id of one of the token's entries: the first 16 bytes of `D(ref, "ledger/" || label, field)`.
    public func ledgerID(_ step: LedgerStep) -> [UInt8] { Array(digest(step).bytes.prefix(Self.count)) }

    public func purgeID(untilMs: UInt64) -> PurgeID {
        digest(.purged(untilMs: untilMs)).withBytes { PurgeID(high: $0.bigEndian64(at: 0), low: $0.bigEndian64(at: 8)) }
    }

    private func digest(_ step: LedgerStep) -> Digest {
        let (label, field): (Label, [UInt8]) =
            switch step {
            case .sealed(let until): (.ledgerSealed, Self.seconds(until))
            case .opened(let job): (.ledgerOpened, job.bytes)
            case .purged(let until): (.ledgerPurged, Self.seconds(until))
            }
        var derivation = Derivation(bytes.span, label)
        derivation.add(field.span)
        return derivation.digest()
    }

    private static func seconds(_ ms: UInt64) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.append(bigEndian: ms / 1_000)
        return bytes
    }
}
