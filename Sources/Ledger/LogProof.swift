import Sodium

/// A file that proves alone that an entry is in the log (C2SP tlog-proof): the inclusion proof and the checkpoint that it leads to.
public struct LogProof: Sendable, Hashable {
    static let header = "c2sp.org/tlog-proof@v1"

    public var index: UInt64
    public var hashes: [Digest]
    /// The checkpoint's note, with all its signatures.
    public var checkpoint: SignedNote

    public init(index: UInt64, hashes: [Digest], checkpoint: SignedNote) {
        (self.index, self.hashes, self.checkpoint) = (index, hashes, checkpoint)
    }

    /// Reads a proof file; nil if it is malformed. `extra` data is passed over: this log puts none in.
    public init?(_ bytes: [UInt8]) {
        guard bytes.count <= 2 * SignedNote.byteLimit, let text = String(validating: bytes, as: UTF8.self),
            let split = bytes.indices.dropLast().first(where: { bytes[$0] == 0x0a && bytes[$0 + 1] == 0x0a }),
            let note = SignedNote(Array(bytes[(split + 2)...]))
        else { return nil }
        var lines = text.utf8.prefix(split).split(separator: 0x0a, omittingEmptySubsequences: false).map {
            String(Substring($0))
        }[...]
        guard lines.popFirst() == Self.header else { return nil }
        if let extra = lines.first, extra.hasPrefix("extra ") {
            guard Base64.standard.decode(String(extra.dropFirst(6))) != nil else { return nil }
            lines.removeFirst()
        }
        guard let number = lines.popFirst(), number.hasPrefix("index "), let index = UInt64(number.dropFirst(6)),
            number == "index \(index)", lines.count <= 64
        else { return nil }
        var hashes: [Digest] = []
        for line in lines {
            guard let bytes = Base64.standard.decode(line), let hash = Digest(bytes.span) else { return nil }
            hashes.append(hash)
        }
        self.init(index: index, hashes: hashes, checkpoint: note)
    }

    /// The proof's file.
    public var encoded: [UInt8] {
        let lines = [Self.header, "index \(index)"] + hashes.map(\.base64)
        return Array((lines.joined(separator: "\n") + "\n\n").utf8) + checkpoint.encoded
    }

    /// Whether `entry` is in the log that `key` signs.
    public func isValid(entry: Span<UInt8>, key: VerifierKey) -> Bool {
        guard let head = checkpoint.checkpoint(signedBy: key) else { return false }
        return InclusionProof(index: index, size: head.size, hashes: hashes).isValid(leaf: .leaf(entry), root: head.root)
    }
}

extension LogProof {
    /// Proves that the entry at `index` is in the log that the source's checkpoint signs, and returns the entry too.
    /// - Throws: also when the tiles do not lead from the entry to the signed root.
    public static func make(
        from source: any LogSource, key: VerifierKey, index: UInt64
    ) async throws(VerificationFailure) -> (entry: [UInt8], proof: LogProof) {
        let bytes = try await LogReader(source).file(TilePath.checkpoint)
        guard let note = SignedNote(bytes), let head = note.checkpoint(signedBy: key) else {
            throw VerificationFailure(
                .signature, "is no checkpoint that \(key.name) has signed with this key", file: TilePath.checkpoint)
        }
        guard index < head.size else {
            throw VerificationFailure(.missing, "the log has \(head.size) entries, numbered from 0", index: index)
        }
        var tiles = TileReader(source, size: head.size)
        let entry = try await tiles.entries(bundle: index / 256)[Int(index % 256)]
        let inclusion = try await tiles.inclusionProof(index: index)
        let proof = LogProof(index: index, hashes: inclusion.hashes, checkpoint: note)
        guard proof.isValid(entry: entry.span, key: key) else {
            throw VerificationFailure(.tree, "the tiles do not lead from this entry to the signed root", index: index)
        }
        return (entry, proof)
    }
}
