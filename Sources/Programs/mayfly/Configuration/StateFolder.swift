import Linux
import Sealing
import Storage
import Synchronization

/// The paths of a state folder. It contains no other files.
struct StateFolder {
    let path: String
    private let isDefault: Bool
    /// The key file. It may be in another folder, which must exist.
    let ratchetKey: String
    let hasRatchetKeyElsewhere: Bool
    /// The default of `database`.
    let sqlite: String
    /// A file in this folder or elsewhere, or a server.
    let database: DatabaseAddress

    /// - Parameter path: nil for the default.
    init(path: String?, ratchetKey: String? = nil, database: DatabaseAddress? = nil) {
        let (path, isDefault) = (path ?? Setting.state.standard!, path == nil)
        (self.path, self.isDefault) = (path, isDefault)
        self.ratchetKey = ratchetKey ?? path + "/keys/ratchet.key"
        hasRatchetKeyElsewhere = ratchetKey != nil
        sqlite = path + "/mayfly.sqlite"
        self.database = database ?? .file(sqlite)
    }

    /// The folder as messages show it.
    var shown: String { shown(path) }

    /// Returns one of the paths below as messages show it. A path from a setting could be a secret by mistake.
    func shown(_ path: String) -> String {
        guard path.hasPrefix(self.path), path != ratchetKey || !hasRatchetKeyElsewhere else { return ShownPath(path).description }
        return isDefault ? path : ShownPath(self.path).description + path.dropFirst(self.path.count)
    }

    /// The database as messages show it. A URI may have a password.
    var shownDatabase: String {
        switch database {
        case .file(let path): shown(path)
        case .server: "the PostgreSQL database"
        }
    }

    /// - Throws: `CommandFailed` beside a server if this folder still has a SQLite broker: its key file would be destroyed.
    func checkMoved() throws {
        guard database.isServer, try DatabaseAddress.file(sqlite).exists() else { return }
        throw CommandFailed(
            "\(shown(sqlite)) has a broker's rows. Move them with `mayfly migrate --move`, or choose another state folder")
    }

    /// - Throws: `CommandFailed` if the folder doesn't exist or this user can't write to it.
    func checkUsable() throws {
        try checkKind()
        guard File.exists(path) else {
            throw CommandFailed(
                "the state folder \(shown) doesn't exist. Correct \(Setting.state.named), or make it with `mayfly keys init`")
        }
        try checkWritable()
    }

    /// False also if this user may not look.
    var isFolder: Bool { (try? File.status(path))??.kind == .folder }

    /// - Throws: `UsageError` if something else than a folder is there.
    func checkKind() throws {
        guard let kind = try File.status(path)?.kind, kind != .folder else { return }
        throw UsageError("\(Setting.state.named): \(shown) is a \(kind == .file ? "file" : "device"), not a folder. Correct it")
    }

    /// - Throws: `CommandFailed` if the SQLite file doesn't exist, and can't be made.
    func checkDatabaseFolder() throws {
        guard case .file(let path) = database, try File.status(path) == nil else { return }
        let folder = File.folder(of: path)
        guard try File.status(folder)?.kind == .folder else {
            throw CommandFailed(
                "\(Setting.database.named): the folder \(shown(folder)) doesn't exist. Make it for the broker's user, or correct the path"
            )
        }
        do throws(Errno) {
            try File.checkWritable(folder)
        } catch {
            throw CommandFailed("\(shownDatabase) can't be made: \(error.reason). Correct its folder's owner and mode")
        }
    }

    /// What lets other users into the folder and its keys. `isBad`: they could read or replace what is in it.
    func exposures() throws -> [(text: String, isBad: Bool)] {
        var found: [(text: String, isBad: Bool)] = []
        for folder in [path, keys] {
            guard let status = try File.status(folder) else { continue }
            // Root reads everything anyway.
            if !status.isOwn, status.owner != 0 {
                let remedy = ProcessControl.isRoot ? ": it can't use what root makes there" : ", or chown it"
                let text = "\(shown(folder)) belongs to user \(status.owner), who can read and replace what is in it"
                found.append(("\(text). Run this as that user\(remedy)", !ProcessControl.isRoot))
            }
            if let access = status.othersAccess {
                let text = "other users can \(access) \(shown(folder)) (mode \(status.modeText)). Set its mode to 0700"
                found.append((text, access == "change"))
            }
        }
        return found
    }

    private func checkWritable() throws {
        do {
            try File.checkWritable(path)
        } catch {
            throw CommandFailed(
                error.isReadOnly
                    ? "the state folder \(shown) is on a read-only file system, so nothing can be stored. Linux makes a file system read-only "
                        + "after a disk error, or if it was mounted so. Check the kernel's log, mount it read-write, and run this again"
                    : "this user can't write to the state folder \(shown): \(error.reason). Correct the folder's owner and mode, or run this "
                        + "as its owner")
        }
    }

    /// Locks the folder and its SQLite file for one broker: two would sign different heads of one log, or overwrite each other's entries.
    /// - Throws: `CommandFailed` if the folder isn't writable, or another broker has locked it or the file.
    func lock() throws -> FolderLock {
        try checkWritable()
        let folder: OpenFile
        do {
            folder = try OpenFile(path, .read)
        } catch {
            throw CommandFailed("the state folder \(ShownPath(path)) can't be opened: \(error)")
        }
        guard try folder.tryLock() else {
            throw CommandFailed("another broker uses the state folder \(ShownPath(path)). Stop it, or use another folder")
        }
        let lock = FolderLock(folder: folder)
        if case .file(let path) = database, File.exists(path) { try lock.add(path, shown: shownDatabase) }
        return lock
    }

    /// Makes the SQLite file if it is missing, and locks it.
    func makeDatabase(_ lock: FolderLock) throws {
        try checkDatabaseFolder()
        guard case .file(let path) = database else { return }
        // SQLite copies this mode to its other files. The ledger's files keep the umask's mode because they are public.
        if !File.exists(path) { try CommandFailed.naming(shownDatabase) { try File.write(path, [UInt8]().span, mode: 0o600) } }
        try lock.add(path, shown: shownDatabase)
    }

    /// Reads the key file. Changes nothing.
    /// - Throws: `UsageError` if `--wrapping-key` is missing or superfluous, otherwise `CommandFailed`.
    func loadKeys(_ wrapping: WrappingKey?, longestLifeSeconds: UInt64 = KeyRing.longestLifeSeconds) throws -> KeyRing {
        guard !database.isServer || File.exists(ratchetKey) else {
            throw CommandFailed(
                "the keys are only in the memory of the nodes, so this command can't use them. A node with --wrapping-key keeps a key file"
            )
        }
        do throws(KeyFileError) {
            return try KeyRing.load(path: ratchetKey, wrapping: wrapping, longestLifeSeconds: longestLifeSeconds)
        } catch {
            let text = "\(shown(ratchetKey)): \(error)"
            throw error == .wrapped || error == .notWrapped ? UsageError(text) : CommandFailed(text)
        }
    }

    /// True if there is a key file, and it is wrapped. Such a file is kept beside a server.
    var hasWrappedKeys: Bool {
        do throws(KeyFileError) {
            _ = try KeyRing.load(path: ratchetKey, wrapping: nil)
            return false
        } catch { return error == .wrapped }
    }

    var keys: String { path + "/keys" }
    var ledgerKey: String { keys + "/ledger.key" }
    /// The next log's key during a rotation.
    var nextLedgerKey: String { keys + "/ledger.key.next" }
    var ledger: String { path + "/ledger" }
    var verifierKey: String { path + "/ledger.vkey" }

    // Only `keys throwaway` makes these.
    var apnsKey: String { keys + "/apns.p8" }
    var jwtSecret: String { keys + "/jwt.secret" }
    /// Of a demo.
    var vapidKey: String { keys + "/vapid.pem" }
    var webhookSecret: String { keys + "/webhook.secret" }
    var simulatorCertificate: String { keys + "/simulator.pem" }
    var simulatorCA: String { keys + "/simulator-ca.pem" }
}

/// The lock of a state folder and its SQLite file. It ends with this object, which must outlive all connections to the file: a process that closes a
/// descriptor of a file loses SQLite's locks on it.
final class FolderLock: Sendable {
    private let folder: OpenFile
    private let file = Mutex<OpenFile?>(nil)

    fileprivate init(folder: consuming OpenFile) { self.folder = folder }

    fileprivate func add(_ path: String, shown: String) throws {
        if file.withLock({ $0 != nil }) { return }
        var opened: OpenFile?
        do { opened = try OpenFile(path, .read) } catch { throw CommandFailed("\(shown): \(error)") }
        guard try opened?.tryLock() == true else {
            throw CommandFailed("another broker uses the database \(shown). Stop it, or use another file")
        }
        file.withLock { $0 = opened.take() }
    }
}

extension WrappingKeySource {
    /// Parses `--wrapping-key` without reading a file. Returns nil if it isn't set.
    init?(_ configuration: Configuration) throws {
        guard let text = configuration[.wrappingKey] else { return nil }
        guard text.hasPrefix("command:") else {
            self = .file(try configuration.requiredFile(.wrappingKey).path)
            return
        }
        let words = text.dropFirst("command:".count).split(separator: " ").map(String.init)
        guard let path = words.first, path.hasPrefix("/") else {
            throw configuration.invalid(
                .wrappingKey,
                "must be a command: a program's absolute path and words separated by spaces. No shell is used; for more write a script"
            )
        }
        self = .command(path: path, arguments: Array(words.dropFirst()))
    }

    /// Reads the key.
    /// - Throws: `CommandFailed` with the setting's name.
    func get() throws -> WrappingKey {
        try CommandFailed.naming(Setting.wrappingKey.named) { try read() }
    }
}
