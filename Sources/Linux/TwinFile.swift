import CLinux
import Glibc

/// A small file of keys and, beside it, a spare of its size that holds zeros: the file is replaced whole, its old bytes are zeroed, and
/// neither needs space on the disk.
///
/// A replacement is written into the spare, made durable and exchanged with the file in one step; what was the file is zeroed and is the
/// next spare. After a crash at any point the file is the old or the new one, whole, and `prepare` zeroes what the crash left in
/// the spare. Both have mode 0600. One process at a time may call `create`, `prepare` and `replace`. Calls block.
public struct TwinFile: Sendable {
    public let path: String
    public var spare: String { path + ".new" }

    /// How far a replacement has come. Tests stop it there.
    enum Stage { case written, exchanged, durable, erased }
    var reached: @Sendable (Stage) throws(Errno) -> Void = { (_) throws(Errno) in }

    public init(_ path: String) { self.path = path }

    /// Writes the file, which must not exist yet, and its spare. After a crash the file is there, whole, or is not.
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

    /// Zeroes what a crash left in the spare and, where there is space, makes the spare if it is missing or unfit.
    public func prepare() throws(Errno) {
        let found = try cleaned()
        do throws(Errno) {
            _ = try allocated(found)
        } catch {
            guard error.isOutOfSpace else { throw error }
        }
    }

    /// Replaces the file's content durably and zeroes the old, under every name that it has.
    ///
    /// Blocks are needed only for what exceeds those the old file has. When it throws, the file is the old or the new one.
    public func replace(_ bytes: Span<UInt8>) throws(Errno) {
        let new = try allocated(cleaned())
        let old = File.exists(path) ? try OpenFile(path, .readWriteNoLink) : nil
        try new.write(bytes, at: 0)
        try new.truncate(to: bytes.count)
        try new.sync()
        if old != nil { try exchange() } else { try File.rename(spare, to: path) }
        try reached(.exchanged)
        // Not before: until then a power cut could bring the old file back under its name.
        try File.syncFolder(File.folder(of: path))
        try reached(.durable)
        if let old {
            // Closed at the end of this: what has no name left gives its blocks to the next spare.
            try old.erase()
        }
        try reached(.erased)
        // Only if that is possible; the next call tries again.
        try? prepare()
    }

    private func exchange() throws(Errno) {
        do throws(Errno) {
            try reached(.written)
            try File.exchange(spare, path)
        } catch {
            guard [EINVAL, ENOSYS, EOPNOTSUPP].contains(error.code) else { throw error }
            // The file system does not know it. The spare's blocks serve all the same.
            try File.rename(spare, to: path)
        }
    }

    /// The spare that is there, all zeros, under no other name; nil if there is none, or none that was fit.
    private func cleaned() throws(Errno) -> OpenFile? {
        guard let found = try File.status(spare, followLinks: false) else { return nil }
        // Another user's file holds none of our keys, and what a link points to is not ours to write.
        if found.kind == .file, found.owner == geteuid() {
            if found.mode != Self.mode { try File.setMode(spare, Self.mode) }
            let file = try OpenFile(spare, .readWriteNoLink)
            if try !file.isZero() {
                // The exchange may not be durable yet: without this, a power cut could put the zeros in the file's place.
                try File.syncFolder(File.folder(of: path))
                try file.erase()
            }
            // Who could open it before, or has another name for it, would read the next keys.
            if found.mode == Self.mode, try file.status().links == 1 { return file }
        }
        try File.remove(spare)
        return nil
    }

    /// The spare, made if there is none, at least as long as the file.
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

    /// Writes zeros, not a hole, up to the file's size.
    private func fill(_ spare: borrowing OpenFile) throws(Errno) {
        let (have, want) = (try spare.status().size, try File.status(path)?.size ?? 0)
        guard have < want else { return }
        let zeros = [UInt8](repeating: 0, count: want - have)
        try spare.write(zeros.span, at: have)
        try spare.sync()
    }

    private static let mode: UInt32 = 0o600
}
