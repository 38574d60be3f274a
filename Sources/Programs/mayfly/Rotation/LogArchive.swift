import Ledger
import Linux

/// The folder for a closed log and its public key.
struct LogArchive {
    private let state: StateFolder
    /// An absolute path.
    let path: String

    /// - Parameter path: a folder that needn't exist, in one that does.
    init(_ path: String, of state: StateFolder) throws {
        self.state = state
        self.path = try Self.absolute(path)
    }

    /// Returns the absolute path of a folder that needn't exist.
    private static func absolute(_ path: String) throws -> String {
        var path = path[...]
        while path.count > 1, path.last == "/" { path.removeLast() }
        let name = path.split(separator: "/").last ?? ""
        guard !name.isEmpty, name != ".", name != "..", !path.contains(where: \.isNewline) else {
            throw UsageError("--archive must be a new folder in an existing one")
        }
        let parent = File.folder(of: String(path))
        do {
            let found = try File.resolve(parent)
            return found == "/" ? "/\(name)" : "\(found)/\(name)"
        } catch { throw CommandFailed("the archive's parent folder \(ShownPath(parent)) can't be used: \(error)") }
    }

    /// Tries the move with an empty folder, so that no log is closed that can't be moved.
    func check() throws {
        let trial = "\(path)/ledger.new"
        // A crash may have left this folder. If it isn't empty, the check below fails.
        try? File.removeFolder(trial)
        try checkIsFree()
        let own = try File.resolve(state.path)
        for folder in ["ledger", "keys"] where path == "\(own)/\(folder)" || path.hasPrefix("\(own)/\(folder)/") {
            throw CommandFailed("the archive can't be inside \(ShownPath(own))/\(folder)")
        }
        guard try File.status(state.ledger, followLinks: false)?.kind == .folder else {
            throw CommandFailed(
                "\(state.shown(state.ledger)) is not a folder. A link can't be moved: replace it with the folder"
            )
        }
        let probe = "\(state.ledger).new"
        guard try !File.exists(probe) || File.list(probe).isEmpty else {
            throw CommandFailed("\(ShownPath(probe)) is in the way. Move it elsewhere")
        }
        do {
            guard try !File.isMountPoint(state.ledger) else {
                throw CommandFailed(
                    "something is mounted on \(state.shown(state.ledger)), so it can't be moved. Unmount it first")
            }
            try File.makeFolder(probe, mode: 0o755)
            let place = File.exists(path) ? trial : path
            try File.rename(probe, to: place)
            try File.removeFolder(place)
        } catch let error as Errno {
            try? File.removeFolder(probe)
            throw CommandFailed(
                error.isOtherFileSystem
                    ? "\(ShownPath(path)) is on another file system than \(state.shown). Name a folder on the same one, and copy it from there"
                    : "the log can't be moved to \(ShownPath(path)): \(error)")
        }
    }

    /// Requires that the archive doesn't exist or is an empty folder.
    private func checkIsFree() throws {
        guard let status = try File.status(path, followLinks: false) else { return }
        guard status.kind == .folder, try File.list(path).isEmpty else {
            throw CommandFailed(
                "\(ShownPath(path)) exists and is not an empty folder. Name an empty or a new one")
        }
    }

    /// Moves the closed log and its public key to the archive.
    ///
    /// If the archive doesn't exist, the whole folder moves in one step. If it exists, only the contents move, because its parent may not
    /// be writable.
    func takeLog(of old: VerifierKey) throws {
        func isClosedLog(_ path: String) throws -> Bool {
            try LedgerFolder(path).checkpoint().flatMap { SignedNote($0)?.checkpoint(signedBy: old) } != nil
        }
        if try isClosedLog(state.ledger) {
            if try File.status(path, followLinks: false) == nil {
                try old.write(to: "\(state.ledger)/ledger.vkey")
                try File.rename(state.ledger, to: path)
            } else {
                try moveContents(old)
            }
        } else if try !isClosedLog(path) {
            throw CommandFailed(
                "the closed log is neither in \(state.shown(state.ledger)) nor in \(ShownPath(path)). Put it back, and run this again"
            )
        }
        // This also runs after a crash just behind the move. The archive's parent changed only if the whole folder moved.
        if !File.exists(state.ledger) { try File.syncFolder(File.folder(of: path)) }
        try File.syncFolder(state.path)
    }

    /// The public key moves first. It marks the archive as this log's, so a second run can continue. The checkpoint moves last: until then
    /// the log counts as not moved.
    private func moveContents(_ old: VerifierKey) throws {
        let key = "ledger.vkey"
        func move(_ names: [String]) throws {
            for name in names {
                guard !File.exists("\(path)/\(name)") else {
                    throw CommandFailed(
                        "\(ShownPath(path))/\(name) is in the way. Move it elsewhere, and run this again")
                }
                try File.rename("\(state.ledger)/\(name)", to: "\(path)/\(name)")
            }
            try File.syncFolder(path)
            try File.syncFolder(state.ledger)
        }
        if try verifierKey() != old {
            try checkIsFree()
            try old.write(to: "\(state.ledger)/\(key)")
            try move([key])
        }
        try move(try File.list(state.ledger).filter { $0 != TilePath.checkpoint })
        try move([TilePath.checkpoint])
    }

    /// Returns the public key of the archived log, or nil if there is none.
    func verifierKey() throws -> VerifierKey? {
        do {
            return VerifierKey(String(decoding: try File.read("\(path)/ledger.vkey", limit: 4096), as: UTF8.self))
        } catch {
            if error.isMissing || error.isNoFile { return nil }
            throw error
        }
    }
}
