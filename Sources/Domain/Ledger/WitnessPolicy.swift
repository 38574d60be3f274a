import Sodium
import Vocabulary

/// The accepted logs, and the witnesses that must cosign their checkpoints (C2SP tlog-policy).
public struct WitnessPolicy: Sendable, Equatable {
    public struct Log: Sendable, Equatable {
        public let key: VerifierKey
        public let url: String?
    }

    public struct Witness: Sendable, Equatable {
        /// The policy's name for the witness. Different names may look alike.
        public let name: String
        /// Has the algorithm `cosignature`.
        public let key: VerifierKey
        /// The submission prefix.
        public let url: String?
    }

    fileprivate enum Member: Sendable, Equatable {
        case witness(Int)
        case group(Int)
    }

    fileprivate struct Group: Sendable, Equatable {
        var threshold: Int
        /// Groups among them precede this one in `groups`.
        var members: [Member]
    }

    /// The accepted logs. Empty if any log is accepted.
    public fileprivate(set) var logs: [Log] = []
    public fileprivate(set) var witnesses: [Witness] = []
    fileprivate var groups: [Group] = []
    /// Nil if no cosignature is required.
    fileprivate var quorum: Member?

    /// The tolerance between the clocks of log, witnesses and verifiers, in seconds.
    private static let tolerance: UInt64 = 600

    /// A note has an invalid signature with a witness's name and key id. The signed-note specification requires refusing such a note.
    public struct ForgedCosignature: Error, Sendable, Equatable {
        public let witness: String
    }

    /// Returns true if the policy accepts checkpoints of `key`.
    public func admits(_ key: VerifierKey) -> Bool { logs.isEmpty || logs.contains { $0.key == key } }

    /// Returns true if the witnesses with these indices form a quorum.
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

    /// Returns the indices of the witnesses with a valid cosignature dated within `dates` (unix seconds). Each witness counts once.
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

    /// Returns the accepted dates of a cosignature: from the last entry that it covers until now, plus the tolerance. In unix seconds.
    public static func dates(lastEntry: UInt64, now: UInt64) -> ClosedRange<UInt64> {
        let earliest = lastEntry - min(lastEntry, tolerance)
        return earliest...max(earliest, now + tolerance)
    }
}

/// The cosignatures that an auditor requires. None may be dated after `now`, the auditor's time in unix seconds.
public struct WitnessDemand: Sendable {
    public var policy: WitnessPolicy
    public var now: UInt64

    public init(_ policy: WitnessPolicy, now: UInt64) { (self.policy, self.now) = (policy, now) }

    /// False if the policy accepts a log that nobody has cosigned.
    public var requiresWitnesses: Bool { !policy.isSatisfied(by: []) }

    /// Returns the number of witnesses that have cosigned.
    /// - Parameters:
    ///   - key: the log's key.
    ///   - lastEntryMs: the date of the last known entry, unix ms.
    /// - Throws: `.cosignatures` if they are too few or one is forged; `.signature` if the note is malformed.
    public func check(_ note: [UInt8], of key: VerifierKey, lastEntryMs: UInt64) throws(VerificationFailure) -> Int {
        guard let note = SignedNote(note) else {
            throw VerificationFailure(.signature, "is not a signed note", file: TilePath.checkpoint)
        }
        return try check(note, of: key, lastEntryMs: lastEntryMs)
    }

    /// Returns the number of witnesses that have cosigned a parsed note.
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

extension WitnessPolicy {
    /// Why a policy file is invalid, and in which line (from 1).
    public struct Malformed: Error, Sendable, Equatable, CustomStringConvertible {
        public let line: Int
        public let reason: String

        public var description: String { "line \(line): \(reason)" }
    }

    /// The largest policy file in bytes.
    public static let byteLimit = 256 << 10

    /// The most logs, witnesses and groups. A note has at most 64 signatures.
    fileprivate static let countLimit = 60

    /// Reads a policy file. Each line ends with a newline.
    public init(_ bytes: [UInt8]) throws(Malformed) {
        var reader = WitnessPolicyReader()
        self = try reader.read(bytes)
    }
}

/// Reads the lines of a tlog-policy file. Names are compared byte by byte.
private struct WitnessPolicyReader {
    private typealias Malformed = WitnessPolicy.Malformed

    private var policy = WitnessPolicy()
    private var names: [[UInt8]: WitnessPolicy.Member] = [:]
    /// The names that are members of a group. Each may be in one group only, or its witnesses would count twice.
    private var taken: Set<[UInt8]> = []
    private var hasQuorum = false
    private var line = 0

    mutating func read(_ bytes: [UInt8]) throws(WitnessPolicy.Malformed) -> WitnessPolicy {
        line = 1
        guard bytes.count <= WitnessPolicy.byteLimit else {
            throw failure("the file is larger than \(WitnessPolicy.byteLimit) bytes")
        }
        for content in bytes.split(separator: 0x0a, omittingEmptySubsequences: false).dropLast() {
            try read(line: content)
            line += 1
        }
        // A truncated file could end with a truncated name.
        guard bytes.isEmpty || bytes.last == 0x0a else { throw failure("has no newline at its end: the file may be truncated") }
        guard hasQuorum else { throw failure("the file has no quorum line. Add `quorum NAME` or `quorum none`") }
        return policy
    }

    private mutating func read(line content: ArraySlice<UInt8>) throws(WitnessPolicy.Malformed) {
        for byte in content where byte != 0x09 && (byte < 0x20 || byte == 0x7f) {
            throw failure(
                "contains the control character 0x\(Hex.encode([byte].span)). Only tab, newline and printable characters are allowed"
            )
        }
        let words = content.split { $0 == 0x09 || $0 == 0x20 }.map { Array($0) }
        guard let keyword = words.first, keyword[0] != UInt8(ascii: "#") else { return }
        switch Self.text(keyword) {
        case "log": try readLog(words)
        case "witness": try readWitness(words)
        case "group": try readGroup(words)
        case "quorum": try readQuorum(words)
        default: throw failure("must begin with log, witness, group or quorum")
        }
    }

    private mutating func readLog(_ words: [[UInt8]]) throws(WitnessPolicy.Malformed) {
        guard (2...3).contains(words.count) else { throw failure("must be `log VKEY [URL]`") }
        let key = try key(words[1], .ed25519, "a log's")
        guard !policy.logs.contains(where: { $0.key.publicKey == key.publicKey }) else {
            throw failure("repeats a log's public key from an earlier line")
        }
        guard policy.logs.count < WitnessPolicy.countLimit else { throw tooMany("logs") }
        policy.logs.append(WitnessPolicy.Log(key: key, url: words.count == 3 ? Self.text(words[2]) : nil))
    }

    private mutating func readWitness(_ words: [[UInt8]]) throws(WitnessPolicy.Malformed) {
        guard (3...4).contains(words.count) else { throw failure("must be `witness NAME VKEY [URL]`") }
        let key = try key(words[2], .cosignature, "a witness's")
        guard !policy.witnesses.contains(where: { $0.key.publicKey == key.publicKey }) else {
            throw failure("repeats a witness's public key from an earlier line, which would count twice")
        }
        guard policy.witnesses.count < WitnessPolicy.countLimit else { throw tooMany("witnesses") }
        try define(words[1], .witness(policy.witnesses.count))
        policy.witnesses.append(
            WitnessPolicy.Witness(name: Self.text(words[1]), key: key, url: words.count == 4 ? Self.text(words[3]) : nil))
    }

    private mutating func readGroup(_ words: [[UInt8]]) throws(WitnessPolicy.Malformed) {
        guard words.count >= 4 else { throw failure("must be `group NAME all|any|K NAME...`") }
        let names = words[3...]
        let threshold: Int
        switch Self.text(words[2]) {
        case "all": threshold = names.count
        case "any": threshold = 1
        case let digits:
            guard let number = Int(digits), String(number) == digits else {
                throw failure("\(digits) must be all, any or a decimal number")
            }
            guard (1...names.count).contains(number) else {
                throw failure("\(digits) must be from 1 to \(names.count), the number of members")
            }
            threshold = number
        }
        var members: [WitnessPolicy.Member] = []
        for name in names {
            members.append(try member(name))
            guard taken.insert(name).inserted else {
                throw failure("\(Self.text(name)) is already a member of a group, and would count twice")
            }
        }
        guard policy.groups.count < WitnessPolicy.countLimit else { throw tooMany("groups") }
        try define(words[1], .group(policy.groups.count))
        policy.groups.append(WitnessPolicy.Group(threshold: threshold, members: members))
    }

    private mutating func readQuorum(_ words: [[UInt8]]) throws(WitnessPolicy.Malformed) {
        guard words.count == 2 else { throw failure("must be `quorum NAME` or `quorum none`") }
        guard !hasQuorum else { throw failure("is a second quorum line") }
        hasQuorum = true
        if Self.text(words[1]) != "none" { policy.quorum = try member(words[1]) }
    }

    private mutating func define(_ name: [UInt8], _ member: WitnessPolicy.Member) throws(WitnessPolicy.Malformed) {
        guard Self.text(name) != "none" else { throw failure("the name none is reserved, since it means no quorum") }
        guard names.updateValue(member, forKey: name) == nil else {
            throw failure("the name \(Self.text(name)) is defined on an earlier line")
        }
    }

    private func member(_ name: [UInt8]) throws(WitnessPolicy.Malformed) -> WitnessPolicy.Member {
        guard let member = names[name] else { throw failure("\(Self.text(name)) is not defined on an earlier line") }
        return member
    }

    private func key(
        _ word: [UInt8], _ algorithm: VerifierKey.Algorithm, _ whose: String
    ) throws(WitnessPolicy.Malformed) -> VerifierKey {
        guard let text = String(validating: word, as: UTF8.self) else { throw failure("the key is not UTF-8") }
        // Accept only the canonical spelling of a key.
        if let key = VerifierKey(text), key.description.utf8.elementsEqual(word) {
            guard key.algorithm == algorithm else {
                throw failure("the key has type 0x0\(key.algorithm.rawValue): \(whose) has 0x0\(algorithm.rawValue)")
            }
            return key
        }
        let parts = text.split(separator: "+", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3, let type = Base64.standard.decode(String(parts[2]))?.first,
            VerifierKey.Algorithm(rawValue: type) == nil
        else { throw failure("the key is malformed, or its id is not its own: expected NAME+ID+BASE64") }
        let kind = type == 0x06 ? " (ML-DSA-44)" : ""
        throw failure(
            "keys of type 0x\(Hex.encode([type].span))\(kind) are not supported: \(whose) must be Ed25519, type 0x0\(algorithm.rawValue)"
        )
    }

    private func tooMany(_ what: String) -> WitnessPolicy.Malformed {
        failure("there are more than \(WitnessPolicy.countLimit) \(what)")
    }

    private func failure(_ reason: String) -> WitnessPolicy.Malformed { WitnessPolicy.Malformed(line: line, reason: reason) }

    private static func text(_ octets: [UInt8]) -> String { String(decoding: octets, as: UTF8.self) }
}
