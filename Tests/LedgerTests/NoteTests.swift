import Linux
import Sodium
import Testing
import Vocabulary

@testable import Ledger

@Suite struct NoteTests {
    static let vectors = Vectors.all
    static let key: SigningKey = {
        let seed = Hex.decode(vectors.seed)!
        return try! SigningKey(origin: "audit.example/log1", seed: seed.span)
    }()
    static let checkpoint = vectors.checkpoint

    @Test func keysMatchTheVectors() throws {
        #expect(hex(Self.key.verifierKey.publicKey) == Self.vectors.publicKey)
        #expect(String(Self.key.verifierKey.id, radix: 16) == Self.vectors.keyID)
        #expect(Self.key.verifierKey.description == Self.vectors.vkey)
        #expect(VerifierKey(Self.vectors.vkey) == Self.key.verifierKey)
        #expect(VerifierKey(Self.vectors.vkey + "\n") == Self.key.verifierKey)
        let witness = try #require(VerifierKey(Self.vectors.witness.vkey))
        #expect(witness.algorithm == .cosignature)
        #expect(String(witness.id, radix: 16) == Self.vectors.witness.keyID)
    }

    static let badKeys: [String] = [
        "", "audit.example/log1", "audit.example/log1+640a250f",
        "audit.example/log1+640a250e+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4",
        "audit.example/log2+640a250f+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4",
        "audit.example/log1+640A250F+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4",
        "audit.example/log1+640a250f+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG5",
        "audit.example/log1+640a250f+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG",
        "audit.example/log1+640a250f+CQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4", "+640a250f+AQ==", "a b+640a250f+AQ==",
    ]

    @Test(arguments: badKeys) func refusesKeys(text: String) { #expect(VerifierKey(text) == nil) }

    @Test func signsTheVectorsCheckpoints() throws {
        #expect(text(Self.key.sign(size: 0, root: .emptyRoot).encoded) == Self.vectors.emptyCheckpoint)
        let note = Self.key.sign(size: 3, root: Digest(Self.vectors.roots[2].hex))
        #expect(Self.checkpoint.hasPrefix(text(note.encoded)))
    }

    @Test func readsTheVectorsCheckpoint() throws {
        let note = try #require(SignedNote(bytes(Self.checkpoint)))
        #expect(text(note.encoded) == Self.checkpoint)
        let head = try #require(note.checkpoint(signedBy: Self.key.verifierKey))
        #expect(head == Checkpoint(origin: "audit.example/log1", size: 3, root: Digest(Self.vectors.roots[2].hex)))
        let witness = try #require(VerifierKey(Self.vectors.witness.vkey))
        #expect(note.isSigned(by: witness))
        #expect(VerifierKey.cosignatureSeconds(note.signatures[1].bytes) == Self.vectors.witness.time)
        #expect(note.checkpoint(signedBy: witness) == nil, "a witness's name is not the log's")
    }

    @Test func sizesAboveTheLimitAreRefused() {
        let root = Digest.emptyRoot.base64
        #expect(Checkpoint(text: "log.example/a\n\(Int.max)\n\(root)\n") != nil)
        for size in [UInt64(Int.max) + 1, .max] { #expect(Checkpoint(text: "log.example/a\n\(size)\n\(root)\n") == nil) }
    }

    @Test func everyBitOfASignatureLineMatters() {
        let note = Array(bytes(Self.vectors.emptyCheckpoint))
        for index in note.indices {
            for bit in 0..<8 {
                var damaged = note
                damaged[index] ^= 1 << UInt8(bit)
                #expect(SignedNote(damaged)?.checkpoint(signedBy: Self.key.verifierKey) == nil, "byte \(index), bit \(bit)")
            }
        }
    }

    /// Two encodings of one letter are different names. A combining character belongs to its name.
    @Test func namesAreBytes() throws {
        let (composed, decomposed) = ("log.example/\u{e9}", "log.example/e\u{301}")
        let key = try signingKey(composed)
        let note = key.sign(size: 0, root: .emptyRoot)
        #expect(SignedNote(note.encoded)?.checkpoint(signedBy: key.verifierKey)?.origin.utf8.elementsEqual(composed.utf8) == true)
        let other = VerifierKey(name: decomposed, publicKey: key.verifierKey.publicKey)!
        #expect(other != key.verifierKey && VerifierKey(other.description) == other)
        var renamed = note.signatures[0]
        renamed = SignedNote.Signature(name: decomposed, keyID: renamed.keyID, bytes: renamed.bytes)
        #expect(renamed != note.signatures[0])
        #expect(SignedNote(text: note.text, signatures: [renamed]).checkpoint(signedBy: key.verifierKey) == nil)
        let text = note.text.replacing(composed, with: decomposed)
        let signed = key.sign(text)
        #expect(signed.isSigned(by: key.verifierKey) && signed.checkpoint(signedBy: key.verifierKey) == nil)
        let witness = TestWitness(7, name: "\u{301}witness")
        var cosigned = note
        cosigned.append(witness.cosign(note.text, at: 1_500))
        let read = try #require(SignedNote(cosigned.encoded))
        #expect(read.encoded == cosigned.encoded && read.isSigned(by: witness.key) && read.isSigned(by: key.verifierKey))
    }

    static let badNotes: [String] = [
        "", "\n", "\n\n", "a\n", "a\n\n", "a\nb\n", checkpoint.replacing("\n\n", with: "\n"), String(checkpoint.dropLast()),
        checkpoint + "\n", checkpoint + "x", checkpoint.replacing("\u{2014}", with: "-"),
        checkpoint.replacing("\u{2014} ", with: "\u{2014}"),
        checkpoint.replacing("\u{2014} ", with: "\u{2014}  "), checkpoint.replacing("Wtwk=", with: "Wtwk"),
        checkpoint.replacing("Wtwk=", with: "Wtwl="), checkpoint.replacing("log1 ZAol", with: "log1\tZAol"),
        checkpoint.replacing("\n", with: "\r\n"), checkpoint + "\u{2014} a AAAAAA==\n", checkpoint + "\u{2014} a+b AAAAAAA=\n",
        checkpoint + String(repeating: "\u{2014} a AAAAAAA=\n", count: 63),
    ]

    @Test(arguments: badNotes) func refusesNotes(text: String) { #expect(SignedNote(bytes(text)) == nil) }

    @Test func refusesNotesThatAreNotUTF8() {
        #expect(SignedNote([0xff] + bytes(Self.checkpoint)) == nil)
        #expect(SignedNote([0] + bytes(Self.checkpoint)) == nil)
    }

    @Test func ignoresOtherKeysButRefusesForgeries() throws {
        let key = Self.key.verifierKey
        let strangers = Self.vectors.emptyCheckpoint + String(repeating: "\u{2014} stranger AAAAAAA=\n", count: 20)
        #expect(SignedNote(bytes(strangers))?.checkpoint(signedBy: key) != nil)
        var note = Self.key.sign(size: 0, root: .emptyRoot)
        note.append(.init(name: key.name, keyID: key.id, bytes: Array(repeating: 0, count: 64)))
        #expect(!note.isSigned(by: key))
        let other = try signingKey(key.name, seed: 7)
        #expect(!Self.key.sign(size: 0, root: .emptyRoot).isSigned(by: other.verifierKey))
    }

    static let badCheckpoints: [String] = [
        "a\n1\n", "a\n01\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn8Zo=\n",
        "a\n+1\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn8Zo=\n",
        "a\n-1\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn8Zo=\n", "a\n1\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn8Z==\n",
        "a\n1\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn8Zo=\nextension\n", "\n1\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn8Zo=\n",
        "a\n18446744073709551616\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn8Zo=\n",
        "a\n1\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn\n",
        "a\n1\nz3Y6BByBzu8VeKYIP3XGG+8uABTyo+aDqX/Pylvn8Zo=",
    ]

    @Test(arguments: badCheckpoints) func refusesCheckpoints(text: String) { #expect(Checkpoint(text: text) == nil) }

    @Test func proofFilesMatchTheVectors() throws {
        let proof = try #require(LogProof(bytes(Self.vectors.proof)))
        #expect(text(proof.encoded) == Self.vectors.proof)
        #expect(proof.isValid(entry: leaf(1), key: Self.key.verifierKey))
        #expect(!proof.isValid(entry: leaf(0), key: Self.key.verifierKey))
        var moved = proof
        moved.index = 0
        #expect(!moved.isValid(entry: leaf(1), key: Self.key.verifierKey))
        let extra = Self.vectors.proof.replacing("@v1\n", with: "@v1\nextra AAAA\n")
        let longer = try #require(LogProof(bytes(extra)))
        #expect(longer.extra == [0, 0, 0] && longer.hashes == proof.hashes && text(longer.encoded) == extra)
    }

    static let badProofs: [String] = [
        "", vectors.proof.replacing("@v1", with: "@v2"), vectors.proof.replacing("index 1", with: "index 01"),
        vectors.proof.replacing("index 1\n", with: ""), vectors.proof.replacing("MF31", with: "MF3"),
        vectors.proof.replacing("\n\naudit", with: "\naudit"), vectors.proof.replacing("@v1\n", with: "@v1\nextra A\n"),
    ]

    @Test(arguments: badProofs) func refusesProofFiles(text: String) { #expect(LogProof(bytes(text)) == nil) }
}

@Suite struct SigningKeyTests {
    @Test func aKeyIsMadeOnceAndReadBack() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let path = folder + "/ledger.key"
        #expect(throws: SigningKey.Failure.missing(path: path)) { try SigningKey.load(path) }
        let key = try SigningKey.make(origin: "log.example/a", at: path)
        #expect(try File.status(path)?.mode == 0o600)
        #expect(try SigningKey.load(path).verifierKey == key.verifierKey)
        #expect(try SigningKey.load(path).sign(size: 0, root: .emptyRoot).isSigned(by: key.verifierKey))
        #expect(throws: SigningKey.Failure.exists(path: path)) { try SigningKey.make(origin: "log.example/a", at: path) }
        #expect(try SigningKey.load(path).verifierKey == key.verifierKey)
    }

    @Test func exposedAndDamagedFilesAreRefused() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let path = folder + "/ledger.key"
        _ = try SigningKey.make(origin: "log.example/a", at: path)
        let good = try File.read(path, limit: 4096)
        for mode: UInt32 in [0o640, 0o604, 0o620, 0o644] {
            try File.replaceDurably(path, good.span, mode: mode)
            let why = "has mode 0\(String(mode, radix: 8)), so others could \(mode == 0o620 ? "change" : "read") it"
            #expect(throws: SigningKey.Failure.looseMode(path: path, why: why)) { try SigningKey.load(path) }
        }
        #expect(throws: SigningKey.Failure.notAFile(path: folder)) { try SigningKey.load(folder) }
        let damages = [
            [], Array(good.dropLast()), good + [0x0a], Array(good.dropFirst()), Array(good.dropLast(3)) + [0x0a],
            bytes("mayfly ledger key v1\nlog.example/a\n\n"), bytes("mayfly ledger key v2\n") + good.dropFirst(21),
        ]
        for damage in damages {
            try File.replaceDurably(path, damage.span, mode: 0o600)
            #expect(throws: SigningKey.Failure.malformed(path: path)) { try SigningKey.load(path) }
        }
    }

    @Test func invalidOriginsAreRefused() throws {
        for origin in ["", "a b", "a+b", "a\nb", "a\u{a0}b"] {
            #expect(throws: SigningKey.Failure.badOrigin) { try signingKey(origin) }
        }
    }
}
