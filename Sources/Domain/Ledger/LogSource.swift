import Linux
import Vocabulary

/// A place to read a log from: a folder or a static file server.
public protocol LogSource: Sendable {
    /// Returns the file at a path below the log's folder, or nil if there is none. The auditor sees the text of a thrown error.
    func read(_ path: String) async throws -> [UInt8]?

    /// Returns the names in a folder of the log, or nil if this source can't list folders.
    func list(_ folder: String) async throws -> [String]?
}

extension LogSource {
    public func list(_ folder: String) async throws -> [String]? { nil }
}

/// A log on this machine.
public struct FolderSource: LogSource {
    /// The size of the largest possible file: 256 entries of 65,535 bytes.
    private static let fileLimit = 256 * (2 + EntryBundle.entryLimit)

    public let path: String

    public init(_ path: String) { self.path = path }

    public func read(_ path: String) async throws -> [UInt8]? { try file(path) }

    public func list(_ folder: String) async throws -> [String]? {
        do throws(Errno) {
            return try File.list("\(self.path)/\(folder)")
        } catch {
            // A growing log may delete it at any moment.
            if error.isMissing || error.isNoFile { return [] }
            throw error
        }
    }

    func file(_ path: String) throws(Errno) -> [UInt8]? {
        let path = "\(self.path)/\(path)"
        // Opening a pipe would block, and reading a device would never end.
        guard let status = try File.status(path), status.kind == .file else { return nil }
        do throws(Errno) {
            return try File.read(path, limit: Self.fileLimit)
        } catch {
            if error.isMissing || error.isNoFile { return nil }
            throw error
        }
    }
}

/// A log read by a function, such as an HTTP client's GET.
public struct FunctionSource: LogSource {
    private let function: @Sendable (String) async throws -> [UInt8]?

    public init(_ function: @escaping @Sendable (_ path: String) async throws -> [UInt8]?) { self.function = function }

    public func read(_ path: String) async throws -> [UInt8]? { try await function(path) }
}

/// Reads a source's files. Errors name the file.
struct LogReader: Sendable {
    private let source: any LogSource

    init(_ source: any LogSource) { self.source = source }

    func file(_ path: String) async throws(VerificationFailure) -> [UInt8] {
        guard let bytes = try await fileIfThere(path) else {
            let more = path == TilePath.checkpoint ? ": there is no log here. A broker's log is under /audit/" : ""
            throw VerificationFailure(.missing, "is missing\(more)", file: path)
        }
        return bytes
    }

    /// Returns the first `width` hashes of a tile.
    func tile(_ full: String, width: Int) async throws(VerificationFailure) -> [UInt8] {
        let (bytes, isLonger) = try await partOrFull(full, width: width)
        let count = width * Digest.count
        guard bytes.count == count || (isLonger && bytes.count > count) else {
            throw VerificationFailure(.damaged, "is not \(count) bytes long", file: TilePath.path(full, width: width))
        }
        return Array(bytes.prefix(count))
    }

    /// Returns a bundle that starts with `width` entries. It has more only if `isLonger`.
    func bundle(_ full: String, width: Int) async throws(VerificationFailure) -> (bytes: [UInt8], isLonger: Bool) {
        try await partOrFull(full, width: width)
    }

    /// Returns the widths of the partial files beside a full one. Empty if the source can't list folders.
    func partialWidths(_ full: String) async throws(VerificationFailure) -> [Int] {
        let folder = TilePath.partialFolder(full)
        do {
            // Other names aren't files of the log.
            return try await source.list(folder)?.compactMap { name in
                Int(name).flatMap { (1..<TilePath.fullWidth).contains($0) && String($0) == name ? $0 : nil }
            } ?? []
        } catch { throw VerificationFailure(.unreadable, "can't be listed: \(error)", file: folder) }
    }

    /// A growing log may replace a partial file by the full one, which starts with the same bytes.
    private func partOrFull(_ full: String, width: Int) async throws(VerificationFailure) -> (bytes: [UInt8], isLonger: Bool) {
        let path = TilePath.path(full, width: width)
        if let bytes = try await fileIfThere(path) { return (bytes, false) }
        guard width < TilePath.fullWidth, let bytes = try await fileIfThere(full) else {
            throw VerificationFailure(.missing, "is missing", file: path)
        }
        return (bytes, true)
    }

    /// Returns nil if there is no such file.
    func fileIfThere(_ path: String) async throws(VerificationFailure) -> [UInt8]? {
        do {
            return try await source.read(path)
        } catch { throw VerificationFailure(.unreadable, "can't be read: \(error)", file: path) }
    }
}

/// Copies all files that belong to a log's checkpoint, without verifying them.
public struct LogCopy {
    private let source: any LogSource
    private let limit: Int
    private var copied: [(path: String, bytes: [UInt8])] = []
    private var count = 0

    /// - Parameter limit: the most bytes of all files together.
    public init(_ source: any LogSource, limit: Int) { (self.source, self.limit) = (source, limit) }

    /// Reads the files.
    /// - Throws: `LogCopyError`, or what the source throws.
    public consuming func files() async throws -> [(path: String, bytes: [UInt8])] {
        guard let note = try await add(TilePath.checkpoint), let text = SignedNote(note)?.text, let head = Checkpoint(text: text)
        else { throw LogCopyError.noCheckpoint }
        // Each entry needs at least the 32 bytes of its hash.
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

    /// Adds the full file if a growing log has deleted the partial one.
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
    /// Has the log's size as text.
    case tooLarge(String)

    public var description: String {
        switch self {
        case .noCheckpoint: "the log has no readable checkpoint"
        case .tooLarge(let size): "the log has \(size)"
        }
    }
}
