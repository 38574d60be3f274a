@testable import Ledger

/// Formats that an auditor reads from an untrusted log. Each is accepted in its canonical encoding only. The first byte selects the format.
enum LedgerFuzz {
    static func run(_ input: [UInt8]) {
        guard let form = input.first else { return }
        let bytes = Array(input.dropFirst())
        let text = String(decoding: bytes, as: UTF8.self)
        switch form % 6 {
        case 0: if let note = SignedNote(bytes) { require(note.encoded == bytes, "a note") }
        case 1:
            if let checkpoint = Checkpoint(text: text) { require(checkpoint.text.utf8.elementsEqual(text.utf8), "a checkpoint") }
        case 2:
            if let proof = LogProof(bytes) { require(proof.encoded == bytes, "a proof") }
        case 3: if let entry = try? Entry(canonical: bytes.span) { require(entry.encoded == bytes, "an entry") }
        case 4: readBundle(bytes)
        default: if let key = VerifierKey(text) { require(VerifierKey(key.description) == key, "a verifier's key") }
        }
    }

    private static func readBundle(_ bytes: [UInt8]) {
        var bundle = EntryBundle(bytes)
        var again: [UInt8] = []
        while let range = bundle.next() { EntryBundle.append(Array(bytes[range]), to: &again) }
        require(bytes.starts(with: again) && bundle.isAtEnd == (again.count == bytes.count), "a bundle")
    }
}
