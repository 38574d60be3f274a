/// Witnesses that must have cosigned a checkpoint, and the auditor's own time, unix seconds, which no cosignature may be ahead of.
public struct WitnessDemand: Sendable {
    public var policy: WitnessPolicy
    public var now: UInt64

    public init(_ policy: WitnessPolicy, now: UInt64) { (self.policy, self.now) = (policy, now) }

    /// Returns how many witnesses have cosigned.
    /// - Parameters:
    ///   - key: of the log that the note is a checkpoint of.
    ///   - lastEntryMs: the date of the last entry under the checkpoint that is known, unix ms.
    /// - Throws: `cosignatures` when they are too few, or one is forged.
    public func check(_ note: [UInt8], of key: VerifierKey, lastEntryMs: UInt64) throws(VerificationFailure) -> Int {
        guard let note = SignedNote(note) else {
            throw VerificationFailure(.signature, "is not a signed note", file: TilePath.checkpoint)
        }
        return try check(note, of: key, lastEntryMs: lastEntryMs)
    }

    /// The same for a note that is read already.
    public func check(_ note: SignedNote, of key: VerifierKey, lastEntryMs: UInt64) throws(VerificationFailure) -> Int {
        guard policy.admits(key) else {
            throw VerificationFailure(.cosignatures, "is of a log that the policy does not list", file: TilePath.checkpoint)
        }
        let cosigners: Set<Int>
        do throws(WitnessPolicy.ForgedCosignature) {
            cosigners = try policy.cosigners(of: note, dated: WitnessPolicy.dates(lastEntry: lastEntryMs / 1000, now: now))
        } catch {
            throw VerificationFailure(
                .cosignatures, "contains a false cosignature of \(error.witness)",
                file: TilePath.checkpoint)
        }
        guard policy.isSatisfied(by: cosigners) else {
            let count = policy.witnesses.count
            throw VerificationFailure(
                .cosignatures,
                "the policy's quorum has not cosigned: \(cosigners.count) of its \(count) witness\(count == 1 ? "" : "es") did, dated "
                    + "between the last entry and now", file: TilePath.checkpoint)
        }
        return cosigners.count
    }
}
