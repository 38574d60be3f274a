import Vocabulary

/// All files of a log that its checkpoint needs, as they lie there: good or bad is for the reader to find out.
public struct LogCopy {
    private let source: any LogSource
    private let limit: Int
    private var copied: [(path: String, bytes: [UInt8])] = []
    private var count = 0

    /// - Parameter limit: how many bytes the files may have in all.
    public init(_ source: any LogSource, limit: Int) { (self.source, self.limit) = (source, limit) }

    /// Reads the files.
    /// - Throws: `LogCopyError`, or what the source throws.
    public consuming func files() async throws -> [(path: String, bytes: [UInt8])] {
        guard let note = try await add(TilePath.checkpoint), let text = SignedNote(note)?.text, let head = Checkpoint(text: text)
        else { throw LogCopyError.noCheckpoint }
        // Each entry takes 32 bytes for its hash alone.
        guard head.size <= UInt64(limit) / 32 else { throw LogCopyError.tooLarge("\(head.size) entries") }
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
        for policy in policies.sorted(by: { $0.hex < $1.hex }) { try await add(TilePath.policy(policy)) }
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
        guard count <= limit else { throw LogCopyError.tooLarge("more than \(limit >> 20) MiB of files") }
        return bytes
    }

    private static func policies(named bytes: [UInt8]) -> [Digest] {
        var (found, bundle): ([Digest], EntryBundle) = ([], EntryBundle(bytes))
        while let range = bundle.next() {
            switch try? Entry(canonical: bytes.span.extracting(range)).op {
            case .policyLoaded(_, let policy), .brokerStarted(_, _, let policy, _, _): found.append(policy)
            default: break
            }
        }
        return found
    }
}

/// Why a log can't be copied.
public enum LogCopyError: Error, Equatable, CustomStringConvertible {
    case noCheckpoint
    /// How large it is, in words.
    case tooLarge(String)

    public var description: String {
        switch self {
        case .noCheckpoint: "the log has no readable checkpoint"
        case .tooLarge(let size): "the log has \(size)"
        }
    }
}
