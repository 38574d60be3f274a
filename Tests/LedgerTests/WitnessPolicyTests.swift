import Sodium
import Testing

@testable import Ledger

/// A witness's key, for tests.
struct TestWitness {
    let key: VerifierKey
    private let signer: Ed25519.PrivateKey

    init(_ seed: UInt8, name: String? = nil) {
        signer = try! Ed25519.PrivateKey(seed: [UInt8](repeating: seed, count: 32).span)
        key = VerifierKey(name: name ?? "witness.example/\(seed)", algorithm: .cosignature, publicKey: signer.publicKey)!
    }

    func cosign(_ text: String, at seconds: UInt64) -> SignedNote.Signature {
        let message = bytes("cosignature/v1\ntime \(seconds)\n\(text)")
        let time = (0..<8).map { UInt8(truncatingIfNeeded: seconds >> UInt64(56 - 8 * $0)) }
        return SignedNote.Signature(name: key.name, keyID: key.id, bytes: time + signer.sign(message.span))
    }
}

@Suite struct WitnessPolicyTests {
    static let log = try! signingKey("log.example/a").verifierKey
    static let witnesses = (0..<8).map { TestWitness(UInt8(100 + $0)) }
    static func key(_ number: Int) -> String { witnesses[number].key.description }

    /// `w0` to `w7`, one per line.
    static let definitions = (0..<8).map { "witness w\($0) \(key($0))\n" }.joined()

    static func policy(_ text: String) throws(WitnessPolicy.Malformed) -> WitnessPolicy { try WitnessPolicy(bytes(text)) }

    func reason(_ text: String) -> String? {
        do {
            _ = try Self.policy(text)
            return nil
        } catch { return error.description }
    }

    @Test func readsTheSpecificationsExample() throws {
        let text = """
            # A policy.
            log \(Self.log)
            \t witness  X1\t\(Self.key(0)) https://witness.example/x1 \t

            witness X2 \(Self.key(1))
            witness X3 \(Self.key(2))
            group X-witnesses 2 X1 X2 X3
              # The others.
            witness Y1 \(Self.key(3))
            witness Y2 \(Self.key(4))
            group Y-witnesses any Y1 Y2
            group X-and-Y all X-witnesses Y-witnesses
            quorum X-and-Y

            """
        let policy = try Self.policy(text)
        #expect(policy.logs == [.init(key: Self.log, url: nil)])
        #expect(policy.witnesses.map(\.name) == ["X1", "X2", "X3", "Y1", "Y2"])
        #expect(policy.witnesses.map(\.url) == ["https://witness.example/x1", nil, nil, nil, nil])
        #expect(policy.admits(Self.log))
        #expect(!policy.admits(try signingKey("log.example/b").verifierKey))
        #expect(!policy.admits(try signingKey("log.example/a", seed: 2).verifierKey))
        for (cosigners, good) in [
            ([0, 1, 3], true), ([0, 2, 4], true), ([0, 1, 2, 3, 4], true), ([0, 1], false), ([0, 3, 4], false), ([], false),
            ([3, 4], false),
        ] {
            #expect(policy.isSatisfied(by: Set(cosigners)) == good, "\(cosigners)")
        }
    }

    @Test func everyThreshold() throws {
        for (threshold, needed) in [("any", 1), ("1", 1), ("2", 2), ("3", 3), ("4", 4), ("all", 4)] {
            let policy = try Self.policy(Self.definitions + "group g \(threshold) w0 w2 w4 w6\nquorum g\n")
            for mask in 0..<256 {
                let cosigners = Set((0..<8).filter { mask >> $0 & 1 == 1 })
                let members = cosigners.count { $0 % 2 == 0 }
                #expect(policy.isSatisfied(by: cosigners) == (members >= needed), "\(threshold) of \(cosigners)")
            }
        }
    }

    @Test func simpleQuorums() throws {
        let none = try Self.policy("quorum none\n")
        #expect(none.isSatisfied(by: []))
        #expect(none.admits(Self.log), "a log that is known from elsewhere")
        let one = try Self.policy(Self.definitions + "quorum w3\n")
        #expect(one.isSatisfied(by: [3]))
        #expect(!one.isSatisfied(by: [0, 1, 2, 4, 5, 6, 7]))
        // A quorum may be a member of a group, and more groups and witnesses may follow it.
        let member = try Self.policy(Self.definitions + "group g any w0 w1\ngroup h all g w2\nquorum g\ngroup i any w3\n")
        #expect(member.isSatisfied(by: [1]))
    }

    @Test func namesAreOctets() throws {
        // An e with an accent, composed and decomposed. Swift's strings are equal, but these are two names.
        let text = "witness \u{e9} \(Self.key(0))\nwitness e\u{301} \(Self.key(1))\ngroup g all \u{e9} e\u{301}\nquorum g\n"
        #expect(try Self.policy(text).witnesses.count == 2)
        #expect(
            reason("witness \u{e9} \(Self.key(0))\nquorum e\u{301}\n") == "line 2: e\u{301} is not defined on an earlier line")
        let latin = bytes("witness ") + [0xff, 0xe9] + bytes(" \(Self.key(0))\nquorum ") + [0xff, 0xe9, 0x0a]
        #expect(try WitnessPolicy(latin).witnesses.count == 1)
        #expect(throws: WitnessPolicy.Malformed.self) { try WitnessPolicy(latin.dropLast(3) + [0xfe, 0xe9, 0x0a]) }
    }

    @Test func everyOctet() throws {
        for octet in UInt8.min...UInt8.max {
            let text = bytes("# a") + [octet] + bytes("b\nquorum none\n")
            let allowed = octet == 0x09 || octet == 0x0a || (0x20...0x7e).contains(octet) || octet >= 0x80
            if octet == 0x0a {
                #expect(throws: WitnessPolicy.Malformed.self, "b is no keyword") { try WitnessPolicy(text) }
            } else if allowed {
                #expect(try WitnessPolicy(text) == Self.policy("quorum none\n"), "\(octet)")
            } else {
                #expect(throws: WitnessPolicy.Malformed.self, "\(octet)") { try WitnessPolicy(text) }
            }
        }
    }

    static let bad: [(text: String, word: String)] = [
        ("", "line 1: the file has no quorum line"),
        ("# only this\n", "line 2: the file has no quorum line"),
        ("quorum none", "line 1: has no newline at its end"),
        (definitions + "quorum w1", "line 9: has no newline at its end"),
        ("quorum none\nquorum none\n", "line 2: is a second quorum line"),
        ("quorum\n", "line 1: must be `quorum NAME`"),
        ("quorum none none\n", "line 1: must be `quorum NAME`"),
        ("quorum w1\n" + definitions, "line 1: w1 is not defined"),
        ("quorums none\n", "line 1: must begin with"),
        ("Quorum none\n", "line 1: must begin with"),
        ("quorum none # so\n", "line 1: must be"),
        ("\u{feff}quorum none\n", "line 1: must begin with"),
        ("quorum none\r\n", "line 1: contains the control character 0x0d"),
        ("log\n", "line 1: must be `log VKEY"),
        ("log \(log) https://log.example extra\n", "line 1: must be `log VKEY"),
        ("log \(log)\nlog \(log)\n", "line 2: repeats a log's public key"),
        ("log \(log)\nlog \(VerifierKey(name: "other", publicKey: log.publicKey)!)\n", "line 2: repeats a log's public key"),
        ("log \(key(0))\n", "line 1: the key has type 0x04: a log's has 0x01"),
        ("log \(log)x\n", "line 1: the key is malformed"),
        ("log \(log)\u{a0}\n", "line 1: the key is malformed"),
        ("log log.example/a\n", "line 1: the key is malformed"),
        ("witness a\n", "line 1: must be `witness NAME VKEY"),
        ("witness a \(key(0)) https://a b\n", "line 1: must be `witness NAME VKEY"),
        ("witness a \(log)\n", "line 1: the key has type 0x01: a witness's has 0x04"),
        ("witness none \(key(0))\n", "line 1: the name none"),
        ("witness a \(key(0))\nwitness a \(key(1))\n", "line 2: the name a is defined"),
        ("witness a \(key(0))\nwitness b \(key(0))\n", "line 2: repeats a witness's public key"),
        ("witness a \(key(0))\nwitness b \(TestWitness(100, name: "other").key)\n", "line 2: repeats a witness's public key"),
        (definitions + "group\n", "line 9: must be `group NAME"),
        (definitions + "group g any\n", "line 9: must be `group NAME"),
        (definitions + "group g w0 w1\n", "line 9: w0 must be all"),
        (definitions + "group g most w0 w1\n", "line 9: most must be all"),
        (definitions + "group g All w0 w1\n", "line 9: All must be all"),
        (definitions + "group g 0 w0 w1\n", "line 9: 0 must be from 1 to 2"),
        (definitions + "group g 3 w0 w1\n", "line 9: 3 must be from 1 to 2"),
        (definitions + "group g 01 w0 w1\n", "line 9: 01 must be all"),
        (definitions + "group g +1 w0 w1\n", "line 9: +1 must be all"),
        (definitions + "group g -1 w0 w1\n", "line 9: -1 must be from"),
        (definitions + "group g 0x1 w0 w1\n", "line 9: 0x1 must be all"),
        (definitions + "group g 18446744073709551617 w0 w1\n", "line 9: 18446744073709551617 must be all"),
        (definitions + "group g any w0 w0\n", "line 9: w0 is already a member of a group"),
        (definitions + "group g any w0 w1\ngroup h any w1 w2\n", "line 10: w1 is already a member of a group"),
        (definitions + "group g any w0\ngroup h any g\ngroup i any g\n", "line 11: g is already a member of a group"),
        (definitions + "group g any w0 g\n", "line 9: g is not defined"),
        (definitions + "group g any h\ngroup h any w0\n", "line 9: h is not defined"),
        (definitions + "group g any none\n", "line 9: none is not defined"),
        (definitions + "group none any w0\n", "line 9: the name none"),
        (definitions + "group w0 any w1\n", "line 9: the name w0 is defined"),
        (definitions + "group g any w0\ngroup g any w1\n", "line 10: the name g is defined"),
    ]

    @Test(arguments: bad) func refuses(text: String, word: String) {
        let reason = reason(text)
        #expect(reason?.hasPrefix(word) == true, "\(reason ?? "read")")
    }

    @Test func reportsUnknownKeyTypes() {
        for (type, count, word) in [(UInt8(6), 1312, "0x06 (ML-DSA-44)"), (2, 91, "0x02"), (5, 32, "0x05"), (0xff, 40, "0xff")] {
            let key = [type] + [UInt8](repeating: 7, count: count)
            let text = "witness a pq.example/w+00000000+\(Base64.standard.encode(key.span))\nquorum a\n"
            #expect(
                reason(text) == "line 1: keys of type \(word) are not supported: a witness's must be Ed25519, type 0x04")
        }
    }

    @Test func limits() throws {
        let many = (0..<60).map { TestWitness(UInt8($0)) }
        let logs = (0..<60).map { "log \(try! signingKey("log.example/a", seed: UInt8($0)).verifierKey)\n" }.joined()
        let text = logs + many.enumerated().map { "witness w\($0) \($1.key)\n" }.joined()
        let groups = (0..<60).map { "group g\($0) any w\($0)\(($0 > 0 ? " g\($0 - 1)" : ""))\n" }.joined()
        let policy = try Self.policy(text + groups + "quorum g59\n")
        #expect(policy.isSatisfied(by: [0]), "sixty groups, one in the other")
        #expect(reason(text + "witness more \(TestWitness(200).key)\n") == "line 121: there are more than 60 witnesses")
        #expect(reason(text + groups + "group more any g59\n") == "line 181: there are more than 60 groups")
        #expect(
            reason(logs + "log \(try signingKey("log.example/a", seed: 99).verifierKey)\n")
                == "line 61: there are more than 60 logs")
        let long = bytes("#") + [UInt8](repeating: 0x61, count: WitnessPolicy.byteLimit)
        #expect(throws: WitnessPolicy.Malformed(line: 1, reason: "the file is larger than 262144 bytes")) {
            try WitnessPolicy(long)
        }
    }

    /// Random changes either work or throw an error.
    @Test func mutations() throws {
        let good = bytes("log \(Self.log) https://log.example\n" + Self.definitions + "group g 2 w0 w1 w2\nquorum g\n")
        var random = SeededGenerator(seed: 7)
        var read = 0
        for _ in 0..<4_000 {
            var text = good
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                let index = Int.random(in: 0..<text.count, using: &random)
                switch Int.random(in: 0..<4, using: &random) {
                case 0: text[index] = UInt8.random(in: 0...255, using: &random)
                case 1: text.remove(at: index)
                case 2: text.insert(text[index], at: index)
                default: text.removeSubrange(index..<min(index + 40, text.count))
                }
                if text.isEmpty { text = [0x0a] }
            }
            if (try? WitnessPolicy(text)) != nil { read += 1 }
        }
        #expect((1..<2_000).contains(read), "\(read) of 4000 were taken")
    }

    // MARK: Cosignatures

    static let note = try! signingKey("log.example/a").sign(size: 3, root: .emptyRoot)
    static let dates: ClosedRange<UInt64> = 1_000...2_000

    func cosigners(_ signatures: [SignedNote.Signature]) throws(WitnessPolicy.ForgedCosignature) -> Set<Int> {
        let policy = try! Self.policy(Self.definitions + "quorum none\n")
        return try policy.cosigners(
            of: SignedNote(text: Self.note.text, signatures: Self.note.signatures + signatures), dated: Self.dates)
    }

    func cosignature(_ number: Int, _ seconds: UInt64 = 1_500) -> SignedNote.Signature {
        Self.witnesses[number].cosign(Self.note.text, at: seconds)
    }

    @Test func countsEachWitnessOnce() throws {
        #expect(try cosigners([]) == [])
        #expect(try cosigners([cosignature(5), cosignature(1)]) == [1, 5])
        #expect(try cosigners([cosignature(1), cosignature(1, 1_600), cosignature(1)]) == [1])
        // Unknown keys, and a witness's name with another key.
        #expect(try cosigners([TestWitness(9).cosign(Self.note.text, at: 1_500)]) == [])
        let impostor = TestWitness(9, name: Self.witnesses[0].key.name)
        #expect(try cosigners([impostor.cosign(Self.note.text, at: 1_500)]) == [])
    }

    @Test func datesOutsideTheRangeDontCount() throws {
        #expect(try cosigners([cosignature(0, 1_000), cosignature(1, 2_000)]) == [0, 1])
        #expect(try cosigners([cosignature(0, 999), cosignature(1, 2_001), cosignature(2, 0)]) == [])
        #expect(try cosigners([cosignature(0, 999), cosignature(0, 1_000)]) == [0])
        #expect(WitnessPolicy.dates(lastEntry: 10_000, now: 10_100) == 9_400...10_700)
        #expect(WitnessPolicy.dates(lastEntry: 0, now: 10_100) == 0...10_700)
        #expect(WitnessPolicy.dates(lastEntry: 20_000, now: 100) == 19_400...19_400, "an auditor whose clock is wrong")
    }

    @Test func aForgeryInAWitnesssNameIsRefused() throws {
        let good = cosignature(3)
        let forgeries = [
            SignedNote.Signature(
                name: good.name, keyID: good.keyID, bytes: Array(good.bytes.dropLast()) + [good.bytes.last! ^ 1]),
            SignedNote.Signature(name: good.name, keyID: good.keyID, bytes: [1] + good.bytes.dropFirst()),
            SignedNote.Signature(name: good.name, keyID: good.keyID, bytes: Array(good.bytes.dropFirst(8))),
            SignedNote.Signature(name: good.name, keyID: good.keyID, bytes: good.bytes + [0]),
            Self.witnesses[3].cosign(Self.note.text + "more\n", at: 1_500),
            cosignature(3, 1 << 63), cosignature(3, .max),
        ]
        for forgery in forgeries {
            #expect(throws: WitnessPolicy.ForgedCosignature(witness: "w3")) { try cosigners([good, cosignature(1), forgery]) }
        }
        let last = UInt64(Int64.max)
        #expect(VerifierKey.cosignatureSeconds(cosignature(3, last).bytes) == last)
        #expect(VerifierKey.cosignatureSeconds(cosignature(3, last + 1).bytes) == nil)
    }
}
