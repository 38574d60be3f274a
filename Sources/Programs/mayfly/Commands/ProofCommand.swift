import JSON
import Ledger
import Linux
import Vocabulary

/// `mayfly audit prove` and `mayfly audit verify --proof`: proofs of one entry, which can be checked with the log's key alone.
enum ProofCommand {
    /// The entry to prove.
    enum Subject {
        case index(UInt64)
        case ref(Ref)

        /// - Throws: `UsageError` if the word is neither.
        init(_ word: String) throws {
            if let ref = try? AuditCommand.ref(word) {
                self = .ref(ref)
            } else if let index = UInt64(word), word == "\(index)" {
                self = .index(index)
            } else {
                throw UsageError("give a ref (32 digits 0-9 a-f) or the number of an entry to prove")
            }
        }
    }

    /// - Parameter out: the file to write, `-` for standard output. Nil for `<index>.tlog-proof` in the working directory.
    static func prove(_ source: any LogSource, _ key: VerifierKey, _ subject: Subject, out: String?) async throws {
        let proof =
            switch subject {
            case .index(let index): try await LogProof.make(from: source, key: key, index: index)
            case .ref(let ref): try await LogProof.make(from: source, key: key, ref: ref)
            }
        let (entry, head) = try proof.entry(signedBy: key)
        let bytes = proof.encoded
        let summary = "entry \(proof.index) of \(head.size): \(entry.sentence)"
        if out == "-" {
            Standard.output(String(decoding: bytes, as: UTF8.self))
            return Terminal.error(summary)
        }
        // The name never contains the ref, because file names get logged.
        let path = out ?? "\(proof.index).tlog-proof"
        if out == nil, File.exists(path) { throw CheckFailed("\(ShownPath(path)) exists. Name another file with --out") }
        do {
            try File.replaceDurably(path, bytes.span, mode: 0o644)
        } catch { throw CheckFailed("\(ShownPath(path)) can't be written: \(error.reason)") }
        Terminal.out("wrote \(ShownPath(path))\n\(summary)")
    }

    /// - Parameters:
    ///   - ref: if not nil, the ref of the token that the entry must be about.
    ///   - demand: if not nil, the witnesses that must have cosigned the proof's checkpoint.
    static func verify(_ path: String, _ key: VerifierKey, ref: Ref?, demand: WitnessDemand?, json: Bool) throws {
        do throws(VerificationFailure) {
            let proof = try read(path)
            let (entry, head) = try proof.entry(signedBy: key)
            _ = try demand?.check(proof.checkpoint, of: key, lastEntryMs: entry.atMs)
            if let ref, !entry.isAbout(ref) {
                throw VerificationFailure(.entry, "the entry isn't about the token with this ref", index: proof.index)
            }
            let text = String(decoding: entry.encoded, as: UTF8.self)
            Terminal.out(
                json
                    ? Terminal.json { json in
                        json.add("good", true)
                        json.add("origin", head.origin)
                        json.add("size", head.size)
                        json.add("index", proof.index)
                        json.add("entry", encoded: entry.encoded)
                        json.add("proves", entry.sentence)
                    }
                    : "good: entry \(proof.index) of \(head.origin), which had \(head.size) entries when this was signed\n"
                        + "\(text)\n\(entry.sentence)")
        } catch {
            var failure = error
            failure.file = ShownPath(path).description
            if json { Terminal.out(AuditCommand.json(failure)) }
            throw failure
        }
    }

    private static func read(_ path: String) throws(VerificationFailure) -> LogProof {
        let bytes: [UInt8]
        do {
            bytes = try File.read(path, limit: LogProof.byteLimit)
        } catch { throw VerificationFailure(.unreadable, "can't be read: \(error.reason)") }
        guard let proof = LogProof(bytes) else {
            throw VerificationFailure(
                .damaged,
                "is not a proof file (C2SP tlog-proof). Lines must end with one newline; mail programs and editors change that")
        }
        return proof
    }
}
