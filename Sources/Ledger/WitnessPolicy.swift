/// Whose checkpoints are taken, and which witnesses must have cosigned them (C2SP tlog-policy). `init(_:)` reads its file.
public struct WitnessPolicy: Sendable, Equatable {
    public struct Log: Sendable, Equatable {
        public let key: VerifierKey
        public let url: String?
    }

    public struct Witness: Sendable, Equatable {
        /// The policy's own name for it, for people: two names may look alike here that are not the same octets.
        public let name: String
        /// Of type `cosignature`.
        public let key: VerifierKey
        /// Where it takes checkpoints: its submission prefix.
        public let url: String?
    }

    enum Member: Sendable, Equatable {
        case witness(Int)
        case group(Int)
    }

    struct Group: Sendable, Equatable {
        var threshold: Int
        /// Groups among them stand before this one in `groups`.
        var members: [Member]
    }

    /// Those whose checkpoints are taken; empty: the log is known from elsewhere.
    public internal(set) var logs: [Log] = []
    public internal(set) var witnesses: [Witness] = []
    var groups: [Group] = []
    /// Nil: no cosignature is needed.
    var quorum: Member?

    /// How far the clocks of a log, its witnesses and its verifiers may differ, in seconds.
    static let tolerance: UInt64 = 600

    /// A line under a note in the name and key id of a witness that the witness did not make: signed-note says to refuse the whole note.
    public struct ForgedCosignature: Error, Sendable, Equatable {
        public let witness: String
    }

    /// Whether a checkpoint of `key` is one that this policy speaks of.
    public func admits(_ key: VerifierKey) -> Bool { logs.isEmpty || logs.contains { $0.key == key } }

    /// Whether the witnesses at these places of `witnesses` are enough.
    public func isSatisfied(by cosigners: Set<Int>) -> Bool {
        var met: [Bool] = []
        func isMet(_ member: Member) -> Bool {
            switch member {
            case .witness(let index): cosigners.contains(index)
            case .group(let index): met[index]
            }
        }
        for group in groups { met.append(group.members.count(where: isMet) >= group.threshold) }
        return quorum.map(isMet) ?? true
    }

    /// The places in `witnesses` of those whose cosignature under `note` holds and is dated (unix seconds) within `dates`. Several lines of one
    /// witness count once.
    public func cosigners(of note: SignedNote, dated dates: ClosedRange<UInt64>) throws(ForgedCosignature) -> Set<Int> {
        var found: Set<Int> = []
        for (index, witness) in witnesses.enumerated() {
            for signature in note.signatures where witness.key.isNamed(by: signature) {
                guard witness.key.isValid(signature.bytes, text: note.text) else {
                    throw ForgedCosignature(witness: witness.name)
                }
                if let seconds = VerifierKey.cosignatureSeconds(signature.bytes), dates.contains(seconds) { found.insert(index) }
            }
        }
        return found
    }

    /// When a cosignature may be dated: not before the last entry that it covers (an entry dated later than its cosignature was dated falsely,
    /// or the cosignature was), and not ahead of now. Both with the clocks' tolerance; all in unix seconds.
    public static func dates(lastEntry: UInt64, now: UInt64) -> ClosedRange<UInt64> {
        let earliest = lastEntry - min(lastEntry, tolerance)
        return earliest...max(earliest, now + tolerance)
    }
}
