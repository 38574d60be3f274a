import Linux
public import Vocabulary

/// The folder from which the log is published. Only the file `checkpoint` ever changes.
///
/// A publication writes tiles and bundles under temporary names, syncs them, renames them and syncs their folders. The checkpoint is written
/// last. After a crash in between, the old checkpoint is still complete and the same plan can be written again.
public struct LedgerFolder: Sendable {
    public enum Failure: Error, Sendable, Equatable, CustomStringConvertible {
        case io(Errno)
        /// The file exists with other bytes. Nothing was overwritten.
        case conflict(path: String)
        case missing(path: String)
        case damaged(path: String)
        /// The checkpoint is malformed, or signed by another key.
        case foreignCheckpoint
        /// The folder has more entries than the store, so the store is an old copy.
        case ahead(folder: UInt64, store: UInt64)
        /// Folder and store have the same size but different roots.
        case different(size: UInt64)

        public var description: String {
            switch self {
            case .io(let error): "the ledger's folder: \(error)"
            case .conflict(let path):
                "\(path) has different content. Published files never change, so this folder belongs to another log"
            case .missing(let path): "\(path) is missing: restore the ledger's folder from a mirror or a backup"
            case .damaged(let path): "\(path) is damaged: restore the ledger's folder from a mirror or a backup"
            case .foreignCheckpoint:
                "the checkpoint is not signed by this ledger's key: wrong folder, wrong key, or a damaged file"
            case .ahead(let folder, let store):
                "the published ledger has \(folder) entries, but the store has \(store), so the store is an old copy. To continue would "
                    + "rewrite history. Restore the newer store, or start a new ledger under another origin"
            case .different(let size):
                "the published ledger and the store differ at \(size) entries, so one of them belongs to another ledger. Nothing was changed"
            }
        }
    }

    /// The folder's state compared with the store's head.
    public enum Comparison: Sendable {
        case current(log: TileLog)
        /// Everything from `log.size` on must be published again. The store still has it.
        case behind(log: TileLog)
    }

    public let path: String
    private let source: FolderSource

    /// The steps of a publication, at which tests interrupt it.
    enum Stage: CaseIterable { case begun, tiles, checkpoint }
    var reached: @Sendable (Stage) throws(Errno) -> Void = { (_) throws(Errno) in }

    public init(_ path: String) {
        self.path = path
        source = FolderSource(path)
    }

    /// Returns the published checkpoint, or nil before the first publication.
    public func checkpoint() throws(Failure) -> [UInt8]? { try read(TilePath.checkpoint) }

    /// Returns a file of the log, or nil if there is none.
    public func read(_ path: String) throws(Failure) -> [UInt8]? {
        do { return try source.file(path) } catch { throw .io(error) }
    }

    /// Durably writes a plan's files and then its checkpoint. Idempotent.
    /// - Throws: `.conflict` if a file exists with other bytes; `.ahead` if the published checkpoint is larger; `.different` if the checkpoint
    ///   doesn't match the plan, or another one of that size is published.
    public func publish(_ plan: PublicationPlan, checkpoint: SignedNote) throws(Failure) {
        guard let next = Checkpoint(text: checkpoint.text), next.size == plan.newSize, next.root == plan.root else {
            throw .different(size: plan.newSize)
        }
        if let old = try self.checkpoint() {
            guard let head = SignedNote(old).flatMap({ Checkpoint(text: $0.text) }) else { throw .foreignCheckpoint }
            guard head.size <= plan.newSize else { throw .ahead(folder: head.size, store: plan.newSize) }
            guard head.size < plan.newSize || head.root == plan.root else { throw .different(size: head.size) }
        }
        do { try reached(.begun) } catch { throw .io(error) }
        try write(plan.files)
        do {
            try reached(.tiles)
            try File.makeFolder(path, mode: 0o755)
            try File.replaceDurably("\(path)/\(TilePath.checkpoint)", checkpoint.encoded.span, mode: 0o644)
            try reached(.checkpoint)
        } catch { throw .io(error) }
        removePartials(of: plan.files)
    }

    /// Durably writes a plan's files, as part of a copy whose checkpoint comes last.
    public func add(_ plan: PublicationPlan) throws(Failure) { try write(plan.files) }

    /// Returns the folder's content after the plan's publication. Witnesses need proofs of the new head before it is published.
    public func source(after plan: PublicationPlan) -> any LogSource {
        let files = Dictionary(plan.files.map { ($0.path, $0.bytes) }) { _, last in last }
        return FunctionSource { path in
            if let bytes = files[path] { return bytes }
            return try read(path)
        }
    }

    /// Durably stores a policy under its digest. Must precede the entry that names it.
    public func writePolicy(_ bytes: [UInt8]) throws(Failure) -> Digest {
        let digest = Digest.sha256(bytes.span)
        let file = LogFile(path: TilePath.policy(digest), bytes: bytes)
        // Every start calls this. If the file exists, the start must not fail because the folder can't be written.
        guard try read(file.path) == bytes else {
            try write([file])
            return digest
        }
        do {
            try OpenFile("\(path)/\(file.path)", .read).sync()
            try File.syncFolder(File.folder(of: "\(path)/\(file.path)"))
        } catch { throw .io(error) }
        return digest
    }

    /// Compares the folder with the store's head and restores the log's state from it.
    ///
    /// Only the files with the state are checked against the checkpoint. `Verifier` checks the others.
    /// - Parameter head: nil before the store's first head.
    public func compare(with head: Checkpoint?, key: VerifierKey) throws(Failure) -> Comparison {
        guard let bytes = try checkpoint() else { return head == nil ? .current(log: TileLog()) : .behind(log: TileLog()) }
        guard let published = SignedNote(bytes)?.checkpoint(signedBy: key) else { throw .foreignCheckpoint }
        guard let head, published.size <= head.size else { throw .ahead(folder: published.size, store: head?.size ?? 0) }
        guard published.size < head.size || published.root == head.root else { throw .different(size: head.size) }
        let log = try restore(size: published.size)
        guard log.root == published.root else { throw .damaged(path: "the right edge of tile/") }
        return published.size == head.size ? .current(log: log) : .behind(log: log)
    }
}

extension LedgerFolder {
    private func restore(size: UInt64) throws(Failure) -> TileLog {
        var files: [String: [UInt8]] = [:]
        for path in TileLog.statePaths(size: size) { files[path] = try read(path) }
        do {
            return try TileLog(size: size, files: files)
        } catch {
            switch error {
            case .missing(let path): throw .missing(path: path)
            case .damaged(let path): throw .damaged(path: path)
            }
        }
    }

    /// Durably writes files. Existing files must have the same bytes and are written again: readable data may not have reached the disk, and
    /// after a failed fsync a second one proves nothing about earlier writes.
    func write(_ files: [LogFile]) throws(Failure) {
        for file in files {
            if let bytes = try read(file.path), bytes != file.bytes { throw .conflict(path: file.path) }
        }
        do { try replace(files) } catch { throw .io(error) }
    }

    /// Above this many files, one sync of the whole file system is faster than one per file.
    private static let manyFiles = 8

    private func replace(_ files: [LogFile]) throws(Errno) {
        let folders = try makeFolders(for: files.map { "\(path)/\($0.path)" })
        let isMany = files.count > Self.manyFiles
        let system = try FileSystem(path)
        for file in files {
            let new = try OpenFile("\(path)/\(file.path).new", .create(mode: 0o644))
            try new.truncate(to: 0)
            try new.write(file.bytes.span, at: 0)
            if !isMany { try new.sync() }
        }
        if isMany { try system.sync() }
        for file in files { try File.rename("\(path)/\(file.path).new", to: "\(path)/\(file.path)") }
        for folder in folders { try File.syncFolder(folder) }
    }

    /// Makes the folders of files. Returns all folders that may have a new entry, including the parents of new folders.
    private func makeFolders(for files: [String]) throws(Errno) -> Set<String> {
        var folders: Set<String> = File.exists(path) ? [path] : [path, File.folder(of: path)]
        try File.makeFolder(path, mode: 0o755)
        for file in files {
            var folder = File.folder(of: file)
            if !folders.contains(folder) { try File.makeFolder(folder, mode: 0o755) }
            while folders.insert(folder).inserted { folder = File.folder(of: folder) }
        }
        return folders
    }

    /// A full tile makes its partial ones unnecessary. Errors are ignored, since leftover files are still correct.
    private func removePartials(of files: [LogFile]) {
        for file in files where !file.path.contains(".p/") {
            let folder = "\(path)/\(TilePath.partialFolder(file.path))"
            if File.exists(folder) { try? File.removeTree(folder) }
        }
    }
}

extension LedgerFolder {
    /// Removes what a crash during a publication left: obsolete partial files and files with temporary names. Call it at the start, after the
    /// folder was repaired. Errors are ignored, since leftover files are still correct.
    ///
    /// Such files are near the end of the log. So only the last two folders of each level are searched, with at most 1,000 tiles each.
    public func tidy() {
        guard let bytes = try? checkpoint(), let size = SignedNote(bytes).flatMap({ Checkpoint(text: $0.text) })?.size else {
            return
        }
        removeTemporary(in: path)
        removeTemporary(in: "\(path)/\(File.folder(of: TilePath.policy(.emptyRoot)))")
        for level in 0..<8 where size >> UInt64(8 * level) > 0 {
            tidy(before: size >> UInt64(8 * level + 8)) { TilePath.hashes(level: level, index: $0) }
        }
        tidy(before: size >> 8) { TilePath.entries(index: $0) }
    }

    /// - Parameter end: the index of the first tile that is not full.
    private func tidy(before end: UInt64, _ full: (UInt64) -> String) {
        let last = end / TilePath.groupWidth
        for group in [last, last - min(last, 1)] {
            let first = group * TilePath.groupWidth
            let folder = "\(path)/\(File.folder(of: full(first)))"
            removeTemporary(in: folder)
            for name in (try? File.list(folder)) ?? [] where name.hasSuffix(".p") {
                let partials = "\(folder)/\(name)"
                if let number = UInt64(name.dropLast(2)), first + number < end, File.exists(String(partials.dropLast(2))) {
                    try? File.removeTree(partials)
                } else {
                    removeTemporary(in: partials)
                }
            }
        }
    }

    private func removeTemporary(in folder: String) {
        for name in (try? File.list(folder)) ?? [] where name.hasSuffix(".new") { try? File.remove("\(folder)/\(name)") }
    }
}
