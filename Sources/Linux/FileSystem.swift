import CLinux
import Glibc

/// The file system that holds a path, to make many files durable at once.
public struct FileSystem: ~Copyable, Sendable {
    private let descriptor: Descriptor
    private let path: String

    /// Opened before the files are written: `sync` then tells of their errors too.
    public init(_ path: String) throws(Errno) {
        let raw = retrying { unsafe mayfly_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) }
        guard raw >= 0 else { throw .last("open", path: path) }
        descriptor = Descriptor(owning: raw)
        self.path = path
    }

    /// Makes all that was written to the file system durable, whoever wrote it: one flush of the disk instead of one a file.
    /// - Throws: what went wrong in writing back since this value was made (Linux 5.8 and later tell).
    public func sync() throws(Errno) {
        guard syncfs(descriptor.raw) == 0 else { throw .last("syncfs", path: path) }
    }
}
