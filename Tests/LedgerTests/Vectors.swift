import FoundationEssentials
import Sodium
import Vocabulary

@testable import Ledger

/// `Tests/Vectors/ledger.json`: a log of three leaves, its proofs, and signatures of its key and a witness.
struct Vectors: Decodable {
    struct Root: Decodable {
        var hex: String
        var base64: String
    }
    struct Witness: Decodable {
        var vkey: String
        var keyID: String
        var seed: String
        var time: UInt64
    }

    var seed: String
    var publicKey: String
    var keyID: String
    var vkey: String
    var leaves: [String]
    var roots: [Root]
    var inclusion: [[String]]
    var consistency: [String: [String]]
    var bundle: String
    var witness: Witness
    var emptyCheckpoint: String
    var checkpoint: String
    var proof: String
    var root70000: String

    static let all: Vectors = {
        let data = try! Data(contentsOf: URL(filePath: folder + "/ledger.json"))
        return try! JSONDecoder().decode(Vectors.self, from: data)
    }()

    static let folder = root + "/Tests/Vectors"
    /// The folder in the repository.
    static let root = #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" }
}

extension Digest {
    init(_ hex: String) { self.init(hex: Array(hex.utf8).span)! }
}

func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }
func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }
func leaf(_ number: Int) -> [UInt8] { bytes("leaf-\(number)") }

/// A seeded generator, so that random tests are reproducible.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
        return mixed ^ mixed >> 31
    }
}

// `#expect` can't take spans.
func entry(_ json: [UInt8]) throws(EntryError) -> Entry { try Entry(canonical: json.span) }
func sha256(_ bytes: [UInt8]) -> Digest { .sha256(bytes.span) }
func leafHash(_ bytes: [UInt8]) -> Digest { .leaf(bytes.span) }
func hex(_ bytes: [UInt8]) -> String { Hex.encode(bytes.span) }
func id(_ bytes: [UInt8]) -> EntryID? { EntryID(bytes: bytes.span) }
func id(hex: String) -> EntryID? { EntryID(hex: bytes(hex).span) }
func signingKey(_ origin: String, seed: UInt8 = 1) throws(SigningKey.Failure) -> SigningKey {
    try SigningKey(origin: origin, seed: [UInt8](repeating: seed, count: 32).span)
}

extension LogProof {
    func isValid(entry: [UInt8], key: VerifierKey) -> Bool { isValid(entry: entry.span, key: key) }
}
