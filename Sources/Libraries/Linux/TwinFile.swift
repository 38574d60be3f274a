import CLinux
import Glibc

/// A small key file with a spare file of its size that holds zeros. The file is replaced as a whole, its old bytes are zeroed, and a replacement
/// needs no disk space.
///
/// A replacement is written to the spare, synced, and exchanged with the file in one step. The old file is then zeroed and becomes the next spare.
/// After a crash at any point the file has either the old or the new content. `prepare` then zeroes what the crash left in the spare. Both files have
/// mode 0600. Only one process at a time may call `create`, `prepare` and `replace`. Calls block.
public struct TwinFile: Sendable {
    public let path: String
    public var spare: String { path + ".new" }

    /// The steps of a replacement. Tests interrupt it there.
    enum Stage { case written, exchanged, durable, erased }
    var reached: @Sendable (Stage) throws(Errno) -> Void = { (_) throws(Errno) in }

    public init(_ path: String) { self.path = path }

    /// Creates the file, which must not exist yet, and its spare. After a crash the file is either complete or absent.
    public func create(_ bytes: Span<UInt8>) throws(Errno) {
        guard try File.status(path, followLinks: false) == nil else { throw Errno(code: EEXIST, "create", path: path) }
        let file = try allocated(cleaned())
        do throws(Errno) {
            try file.write(bytes, at: 0)
            try file.truncate(to: bytes.count)
            try file.sync()
            try File.rename(spare, to: path)
            try File.syncFolder(File.folder(of: path))
            _ = try allocated(cleaned())
        } catch {
            try? file.erase()
            for name in [path, spare] { try? File.remove(name) }
            throw error
        }
    }

    /// Zeroes what a crash left in the spare. Creates a missing or unusable spare if there is disk space.
    public func prepare() throws(Errno) {
        let found = try cleaned()
        do throws(Errno) {
            _ = try allocated(found)
        } catch {
            guard error.isOutOfSpace else { throw error }
        }
    }

    /// Replaces the file's content durably and zeroes the old content, under all of its names.
    ///
    /// Disk blocks are needed only for bytes beyond the old size. If it throws, the file has either the old or the new content.
    public func replace(_ bytes: Span<UInt8>) throws(Errno) {
        let new = try allocated(cleaned())
        let old = File.exists(path) ? try OpenFile(path, .readWriteNoLink) : nil
        try new.write(bytes, at: 0)
        try new.truncate(to: bytes.count)
        try new.sync()
        if old != nil { try exchange() } else { try File.rename(spare, to: path) }
        try reached(.exchanged)
        // Erase the old file only after this sync. Until then a power failure could restore the old file under its name.
        try File.syncFolder(File.folder(of: path))
        try reached(.durable)
        if let old {
            // The blocks of a file without a name become free for the next spare when `old` is closed.
            try old.erase()
        }
        try reached(.erased)
        // Best effort: the next call retries.
        try? prepare()
    }

    /// Zeroes and removes both files.
    public func destroy() throws(Errno) {
        for name in [path, spare] where File.exists(name) { try File.removeAndErase(name) }
    }

    private func exchange() throws(Errno) {
        do throws(Errno) {
            try reached(.written)
            try File.exchange(spare, path)
        } catch {
            guard [EINVAL, ENOSYS, EOPNOTSUPP].contains(error.code) else { throw error }
            // The file system doesn't support the exchange. A rename reuses the spare's blocks too.
            try File.rename(spare, to: path)
        }
    }

    /// Returns the existing spare, zeroed and with a single name. Returns nil if there is none or it was unusable.
    private func cleaned() throws(Errno) -> OpenFile? {
        guard let found = try File.status(spare, followLinks: false) else { return nil }
        // Another user's file holds none of our keys, and a link's target isn't ours to write.
        if found.kind == .file, found.owner == geteuid() {
            if found.mode != Self.mode { try File.setMode(spare, Self.mode) }
            let file = try OpenFile(spare, .readWriteNoLink)
            if try !file.isZero() {
                // The exchange may not be durable yet. Without this sync a power failure could put the zeros in the file's place.
                try File.syncFolder(File.folder(of: path))
                try file.erase()
            }
            // Reject a spare that others could open or that has another name: they would read the next keys.
            if found.mode == Self.mode, try file.status().links == 1 { return file }
        }
        try File.remove(spare)
        return nil
    }

    /// Returns a spare at least as long as the file. Creates it if there is none.
    private func allocated(_ found: consuming OpenFile?) throws(Errno) -> OpenFile {
        if let found {
            try fill(found)
            return found
        }
        let file = try OpenFile(spare, .createNew(mode: Self.mode))
        do throws(Errno) {
            try file.setMode(Self.mode)
            try fill(file)
            try File.syncFolder(File.folder(of: path))
        } catch {
            try? File.remove(spare)
            throw error
        }
        return file
    }

    /// Writes zeros up to the file's size. A hole would reserve no blocks.
    private func fill(_ spare: borrowing OpenFile) throws(Errno) {
        let (have, want) = (try spare.status().size, try File.status(path)?.size ?? 0)
        guard have < want else { return }
        let zeros = [UInt8](repeating: 0, count: want - have)
        try spare.write(zeros.span, at: have)
        try spare.sync()
    }

    private static let mode: UInt32 = 0o600
}
