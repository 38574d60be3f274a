import Linux

/// Where things lie in a state folder. Nothing else appears in it.
struct StateFolder {
    let path: String
    /// Nobody named it: its paths can't be anything else.
    private let isDefault: Bool
    /// The key file. It may lie elsewhere, in a folder that is there already.
    let ratchetKey: String
    let hasRatchetKeyElsewhere: Bool

    /// - Parameter path: nil for the default.
    init(path: String?, ratchetKey: String? = nil) {
        let (path, isDefault) = (path ?? "var", path == nil)
        (self.path, self.isDefault) = (path, isDefault)
        self.ratchetKey = ratchetKey ?? path + "/keys/ratchet.key"
        hasRatchetKeyElsewhere = ratchetKey != nil
    }

    /// As messages name the folder.
    var shown: String { shown(path) }

    /// As messages name one of the paths below.
    func shown(_ path: String) -> String {
        guard path.hasPrefix(self.path), path != ratchetKey || !hasRatchetKeyElsewhere else { return ShownPath(path).description }
        return isDefault ? path : ShownPath(self.path).description + path.dropFirst(self.path.count)
    }

    /// SQLite would notice later, and in words of its own.
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

    /// Holds the folder for one broker: two would sign different heads of one log.
    /// - Throws: `CommandFailed` if nothing can be stored in the folder, or another broker holds it.
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
        return FolderLock(folder: folder)
    }

    var keys: String { path + "/keys" }
    var ledgerKey: String { keys + "/ledger.key" }
    /// The key of the log that is to follow, while one log is exchanged for another.
    var nextLedgerKey: String { keys + "/ledger.key.next" }
    var database: String { path + "/mayfly.sqlite" }
    var ledger: String { path + "/ledger" }
    var verifierKey: String { path + "/ledger.vkey" }

    // Made by `keys throwaway` only.
    var apnsKey: String { keys + "/apns.p8" }
    var jwtSecret: String { keys + "/jwt.secret" }
    var webhookSecret: String { keys + "/webhook.secret" }
    var simulatorCertificate: String { keys + "/simulator.pem" }
    var simulatorCA: String { keys + "/simulator-ca.pem" }
}

/// Holds a state folder as long as it lives.
final class FolderLock: Sendable {
    private let folder: OpenFile

    fileprivate init(folder: consuming OpenFile) { self.folder = folder }
}
