import Sodium
public import Vocabulary

/// A file that proves that an entry is in the log (C2SP tlog-proof): the inclusion proof and its checkpoint.
public struct LogProof: Sendable, Hashable {
    static let header = "c2sp.org/tlog-proof@v1"
    /// Longer files are refused. The longest entry, 64 hashes and the longest checkpoint are shorter in total.
    public static let byteLimit = 4 * SignedNote.byteLimit

    public var index: UInt64
    public var hashes: [Digest]
    /// The checkpoint with all its signatures.
    public var checkpoint: SignedNote
    /// The entry's bytes. The format doesn't prove them: use `entry(signedBy:)`.
    public var extra: [UInt8]?

    public init(index: UInt64, hashes: [Digest], checkpoint: SignedNote, extra: [UInt8]? = nil) {
        (self.index, self.hashes, self.checkpoint, self.extra) = (index, hashes, checkpoint, extra)
    }

    /// Reads a proof file. Returns nil if it is malformed.
    public init?(_ bytes: [UInt8]) {
        guard bytes.count <= Self.byteLimit, let text = String(validating: bytes, as: UTF8.self),
            let split = bytes.indices.dropLast().first(where: { bytes[$0] == 0x0a && bytes[$0 + 1] == 0x0a }),
            let note = SignedNote(Array(bytes[(split + 2)...]))
        else { return nil }
        var lines = text.utf8.prefix(split).split(separator: 0x0a, omittingEmptySubsequences: false).map {
            String(Substring($0))
        }[...]
        guard lines.popFirst() == Self.header else { return nil }
        var extra: [UInt8]?
        if let line = lines.first, line.hasPrefix("extra ") {
            guard let bytes = Base64.standard.decode(String(line.dropFirst(6))) else { return nil }
            extra = bytes
            lines.removeFirst()
        }
        guard let number = lines.popFirst(), number.hasPrefix("index "), let index = UInt64(number.dropFirst(6)),
            number == "index \(index)", lines.count <= 64
        else { return nil }
        var hashes: [Digest] = []
        for line in lines {
            guard let bytes = Base64.standard.decode(line), let hash = Digest(bytes: bytes.span) else { return nil }
            hashes.append(hash)
        }
        self.init(index: index, hashes: hashes, checkpoint: note, extra: extra)
    }

    /// The proof's file.
    public var encoded: [UInt8] {
        let extra = extra.map { ["extra " + Base64.standard.encode($0.span)] } ?? []
        let lines = [Self.header] + extra + ["index \(index)"] + hashes.map(\.base64)
        return Array((lines.joined(separator: "\n") + "\n\n").utf8) + checkpoint.encoded
    }

    /// Returns true if `entry` is in the log of `key`.
    public func isValid(entry: Span<UInt8>, key: VerifierKey) -> Bool {
        guard let head = checkpoint.checkpoint(signedBy: key) else { return false }
        return InclusionProof(index: index, size: head.size, hashes: hashes).isValid(leaf: .leaf(entry), root: head.root)
    }

    /// Verifies the proof. Returns its entry, and the checkpoint of the log that contains the entry.
    /// - Throws: why the proof is invalid.
    public func entry(signedBy key: VerifierKey) throws(VerificationFailure) -> (entry: Entry, head: Checkpoint) {
        guard let head = checkpoint.checkpoint(signedBy: key) else {
            throw VerificationFailure(.signature, "its checkpoint is not signed by \(key.name) with this key")
        }
        guard let extra else {
            throw VerificationFailure(.missing, "contains no entry, only the position of one. Make it with `mayfly audit prove`")
        }
        guard index < head.size else {
            throw VerificationFailure(.tree, "its checkpoint is of \(head.size) entries, numbered from 0", index: index)
        }
        let needed = InclusionProof.ranges(index: index, size: head.size).count
        guard hashes.count == needed else {
            throw VerificationFailure(
                .tree, "the proof has \(hashes.count) hashes, but needs \(needed) from this entry to the root", index: index)
        }
        guard isValid(entry: extra.span, key: key) else {
            throw VerificationFailure(
                .tree, "the hashes don't connect the entry to the signed root: entry, number or hashes were changed",
                index: index)
        }
        do {
            return (try Entry(canonical: extra.span), head)
        } catch { throw VerificationFailure(.entry, "is not a valid entry: \(error)", index: index) }
    }
}

extension LogProof {
    /// Proves that the entry at `index` is in the log under the source's checkpoint.
    /// - Throws: `.missing` if the log is shorter; `.tree` if the tiles don't connect the entry to the signed root.
    public static func make(
        from source: any LogSource, key: VerifierKey, index: UInt64
    ) async throws(VerificationFailure) -> LogProof {
        let note = try await checkpoint(of: source, key)
        var tree = try await SignedTree(source, head: note.head)
        guard index < note.head.size else {
            throw VerificationFailure(.missing, "the log has \(note.head.size) entries, numbered from 0", index: index)
        }
        let entry = try await tree.entries(bundle: index / 256)[Int(index % 256)]
        return try await make(from: source, key, note, index, entry)
    }

    /// Proves the latest purge of the token with this ref. Without a purge, proves the latest opening or seal.
    /// - Throws: `.missing` if the log has no entry about the token.
    public static func make(
        from source: any LogSource, key: VerifierKey, ref: Ref
    ) async throws(VerificationFailure) -> LogProof {
        let note = try await checkpoint(of: source, key)
        var tree = try await SignedTree(source, head: note.head)
        let event = try await TokenStory.find(in: &tree, ref).entryToProve!
        return try await make(from: source, key, note, event.index, event.entry.encoded)
    }

    static func checkpoint(
        of source: any LogSource, _ key: VerifierKey
    ) async throws(VerificationFailure) -> (note: SignedNote, head: Checkpoint) {
        let bytes = try await LogReader(source).file(TilePath.checkpoint)
        guard let note = SignedNote(bytes), let head = note.checkpoint(signedBy: key) else {
            throw VerificationFailure(
                .signature, "is not a checkpoint signed by \(key.name) with this key", file: TilePath.checkpoint)
        }
        return (note, head)
    }

    private static func make(
        from source: any LogSource, _ key: VerifierKey, _ checkpoint: (note: SignedNote, head: Checkpoint), _ index: UInt64,
        _ entry: [UInt8]
    ) async throws(VerificationFailure) -> LogProof {
        var tiles = TileReader(source, size: checkpoint.head.size)
        let inclusion = try await tiles.inclusionProof(index: index)
        let proof = LogProof(index: index, hashes: inclusion.hashes, checkpoint: checkpoint.note, extra: entry)
        guard proof.isValid(entry: entry.span, key: key) else {
            throw VerificationFailure(.tree, "the tiles don't connect this entry to the signed root", index: index)
        }
        return proof
    }
}
