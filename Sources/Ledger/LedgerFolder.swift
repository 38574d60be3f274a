import Linux
public import Vocabulary

/// The folder from which the log is published. Files in it never change, but for `checkpoint`, which only grows.
///
/// Order of a publication: tiles and bundles beside their names, synced, then renamed; their folders synced; then the checkpoint. After a
/// crash anywhere in between the old checkpoint stands with all that it needs, and the same plan can be written again.
public struct LedgerFolder: Sendable {
    public enum Failure: Error, Sendable, Equatable, CustomStringConvertible {
        case io(Errno)
        /// The file holds other bytes than those to be written. Nothing was overwritten.
        case conflict(path: String)
        case missing(path: String)
        case damaged(path: String)
        /// The checkpoint is malformed, or signed by another key.
        case foreignCheckpoint
        /// The folder shows more than the store knows: the store is older than what the world has seen.
        case ahead(folder: UInt64, store: UInt64)
        /// Two heads of one size.
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

    /// How a folder stands to the store's head; `log` is its state.
    public enum Standing: Sendable {
        case current(log: TileLog)
        /// To be published from `log.size` on, from the batches that the store still holds.
        case behind(log: TileLog)
    }

    public let path: String
    private let source: FolderSource

    /// What of a publication is written. Tests stop it there.
    enum Stage: CaseIterable { case begun, tiles, checkpoint }
    var reached: @Sendable (Stage) throws(Errno) -> Void = { (_) throws(Errno) in }

    public init(_ path: String) {
        self.path = path
        source = FolderSource(path)
    }

    /// The published checkpoint's file, nil before the first publication.
    public func checkpoint() throws(Failure) -> [UInt8]? { try read(TilePath.checkpoint) }

    /// A file of the log by its path, nil if there is none.
    public func read(_ path: String) throws(Failure) -> [UInt8]? {
        do { return try source.file(path) } catch { throw .io(error) }
    }

    /// Makes a plan's files and then its checkpoint visible, durably. Doing it again changes nothing.
    /// - Throws: `conflict` if a file lies there with other bytes, `ahead` if the published checkpoint is larger, `different` if the
    ///   checkpoint is not of the plan's size and root, or another one of that size is published.
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
        removePartials(behind: plan.files)
    }

    /// The folder as it will be once the plan is published: proofs of its head can be made before anything is shown.
    public func source(after plan: PublicationPlan) -> any LogSource {
        let files = Dictionary(plan.files.map { ($0.path, $0.bytes) }) { _, last in last }
        return FunctionSource { path in
            if let bytes = files[path] { return bytes }
            return try read(path)
        }
    }

    /// Keeps a policy under its digest, durably, before the entry that names it is recorded.
    public func writePolicy(_ bytes: [UInt8]) throws(Failure) -> Digest {
        let digest = Digest.sha256(bytes.span)
        let file = LogFile(path: TilePath.policy(digest), bytes: bytes)
        // Every start needs it. One that finds it there must not fail because the folder can't be written just now.
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

    /// Compares the folder with the store's head (nil: none yet), and reads its state back.
    ///
    /// The state's files are checked against the folder's own checkpoint; all others are `Verifier`'s work.
    public func standing(comparedWith head: Checkpoint?, key: VerifierKey) throws(Failure) -> Standing {
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

    /// Writes files durably. One that exists must hold the same bytes, and is written again all the same: what can be read need not have
    /// reached the disk, and after an error of fsync another one says nothing about what was written before.
    func write(_ files: [LogFile]) throws(Failure) {
        for file in files {
            if let bytes = try read(file.path), bytes != file.bytes { throw .conflict(path: file.path) }
        }
        do { try replace(files) } catch { throw .io(error) }
    }

    /// Above this many files, one flush of the whole file system takes less time than one a file.
    private static let manyFiles = 8

    private func replace(_ files: [LogFile]) throws(Errno) {
        let folders = try makeFolders(for: files.map { "\(path)/\($0.path)" })
        let isMany = files.count > Self.manyFiles
        let system = try FileSystem(path)
        for file in files {
            let beside = try OpenFile("\(path)/\(file.path).new", .create(mode: 0o644))
            try beside.truncate(to: 0)
            try beside.write(file.bytes.span, at: 0)
            if !isMany { try beside.sync() }
        }
        if isMany { try system.sync() }
        for file in files { try File.rename("\(path)/\(file.path).new", to: "\(path)/\(file.path)") }
        for folder in folders { try File.syncFolder(folder) }
    }

    /// Makes the folders of files, and returns all in which a name may be new: a new folder is one in its parent, and so on up.
    private func makeFolders(for places: [String]) throws(Errno) -> Set<String> {
        var folders: Set<String> = File.exists(path) ? [path] : [path, File.folder(of: path)]
        try File.makeFolder(path, mode: 0o755)
        for place in places {
            var folder = File.folder(of: place)
            if !folders.contains(folder) { try File.makeFolder(folder, mode: 0o755) }
            while folders.insert(folder).inserted { folder = File.folder(of: folder) }
        }
        return folders
    }

    /// A full tile makes its partial ones unnecessary. Only tidiness, so that failing is no error: what stays is still right.
    private func removePartials(behind files: [LogFile]) {
        for file in files where !file.path.contains(".p/") {
            let folder = "\(path)/\(TilePath.partialFolder(file.path))"
            if File.exists(folder) { try? File.removeTree(folder) }
        }
    }
}
