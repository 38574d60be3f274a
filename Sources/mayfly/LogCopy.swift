import Ledger

/// All files of a log that its checkpoint needs, as they lie there: good or bad is for the reader to find out.
struct LogCopy {
    private let source: any LogSource
    private let limit: Int
    private var copied: [(path: String, bytes: [UInt8])] = []
    private var count = 0

    /// `limit`: how many bytes the files may have in all.
    init(_ source: any LogSource, limit: Int) { (self.source, self.limit) = (source, limit) }

    /// - Throws: `CheckFailed` when there is no checkpoint, or the log is larger than the limit.
    consuming func files() async throws -> [(path: String, bytes: [UInt8])] {
        guard let note = try await add(TilePath.checkpoint), let text = SignedNote(note)?.text, let head = Checkpoint(text: text)
        else { throw CheckFailed("the log has no readable checkpoint") }
        // Each entry takes 32 bytes for its hash alone.
        guard head.size <= UInt64(limit) / 32 else { throw tooLarge("\(head.size) entries") }
        var policies: Set<Digest> = []
        var (level, hashes) = (0, head.size)
        while hashes > 0 {
            for index in 0..<(hashes + 255) / 256 {
                let width = Int(min(hashes - index * 256, 256))
                try await addTile(TilePath.hashes(level: level, index: index), width)
                guard level == 0, let bundle = try await addTile(TilePath.entries(index: index), width) else { continue }
                policies.formUnion(Self.policies(named: bundle))
            }
            (level, hashes) = (level + 1, hashes / 256)
        }
        for policy in policies.sorted(by: { "\($0)" < "\($1)" }) { try await add(TilePath.policy(policy)) }
        return copied
    }

    /// A growing log may have dropped a partial file for the full one.
    @discardableResult
    private mutating func addTile(_ full: String, _ width: Int) async throws -> [UInt8]? {
        if let bytes = try await add(TilePath.path(full, width: width)) { return bytes }
        return width < TilePath.fullWidth ? try await add(full) : nil
    }

    @discardableResult
    private mutating func add(_ path: String) async throws -> [UInt8]? {
        guard let bytes = try await source.read(path) else { return nil }
        copied.append((path, bytes))
        count += bytes.count
        guard count <= limit else { throw tooLarge("more than \(limit >> 20) MiB of files") }
        return bytes
    }

    private func tooLarge(_ size: String) -> CheckFailed {
        CheckFailed(
            "the log has \(size): a report may have \(limit >> 20) MiB at most. Publish the page beside the log instead "
                + "(mayfly audit page DIR), or use mayfly audit verify, which has no limit")
    }

    private static func policies(named bundle: [UInt8]) -> [Digest] {
        var (found, position): ([Digest], Int) = ([], 0)
        for _ in 0..<TilePath.fullWidth where position + 2 <= bundle.count {
            let end = position + 2 + (Int(bundle[position]) << 8 | Int(bundle[position + 1]))
            guard end <= bundle.count else { break }
            switch try? Entry(canonical: bundle.span.extracting(position + 2..<end)).op {
            case .policyLoaded(_, let policy), .brokerStarted(_, _, let policy, _, _): found.append(policy)
            default: break
            }
            position = end
        }
        return found
    }
}
