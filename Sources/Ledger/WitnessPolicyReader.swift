import Sodium
import Vocabulary

extension WitnessPolicy {
    /// Why a file is no policy, and in which line, counted from 1.
    public struct Malformed: Error, Sendable, Equatable, CustomStringConvertible {
        public let line: Int
        public let reason: String

        public var description: String { "line \(line): \(reason)" }
    }

    /// The largest file that is read.
    public static let byteLimit = 256 << 10

    /// At most so many logs, witnesses and groups. A note holds 64 signatures.
    static let countLimit = 60

    /// Reads a policy file: lines of octets, each ended by a newline.
    public init(_ bytes: [UInt8]) throws(Malformed) {
        var reader = WitnessPolicyReader()
        self = try reader.read(bytes)
    }
}

/// Reads the lines of a tlog-policy file. Names are opaque octets: two that only look alike are two names.
struct WitnessPolicyReader {
    private typealias Malformed = WitnessPolicy.Malformed

    private var policy = WitnessPolicy()
    private var names: [[UInt8]: WitnessPolicy.Member] = [:]
    /// The names that are members of a group: each may be one once, so that no witness counts twice.
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
        // A file that was cut short could end in another name than it had.
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
        // Only what it writes back itself: no second spelling of a key.
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
