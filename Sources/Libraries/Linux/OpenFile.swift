import CLinux
import Glibc

/// An open regular file; calls block. Offsets and sizes are in bytes.
public struct OpenFile: ~Copyable, Sendable {
    public let descriptor: Descriptor
    let path: String

    public enum Access: Sendable {
        case read
        /// Reads and writes an existing file.
        case readWrite
        /// Like `readWrite`, but refuses a symbolic link (`ELOOP`).
        case readWriteNoLink
        /// Reads and writes; creates a missing file.
        case create(mode: UInt32)
        /// Reads and writes a file that must not exist yet.
        case createNew(mode: UInt32)
        /// Appends, whatever offset is passed; creates a missing file. Devices are allowed.
        case append(mode: UInt32)
    }

    /// Never blocks on another process (as opening a pipe would), except with `.append`.
    /// - Throws: `EINVAL` for anything but a file or a folder: a pipe, a device, a socket.
    public init(_ path: String, _ access: Access) throws(Errno) {
        let (flags, mode): (Int32, UInt32) =
            switch access {
            case .read: (O_RDONLY | O_NONBLOCK, 0)
            case .readWrite: (O_RDWR | O_NONBLOCK, 0)
            case .readWriteNoLink: (O_RDWR | O_NONBLOCK | O_NOFOLLOW, 0)
            case .create(let mode): (O_RDWR | O_NONBLOCK | O_CREAT, mode)
            case .createNew(let mode): (O_RDWR | O_CREAT | O_EXCL, mode)
            case .append(let mode): (O_WRONLY | O_CREAT | O_APPEND, mode)
            }
        let raw = retrying { unsafe mayfly_open(path, flags | O_CLOEXEC, mode) }
        guard raw >= 0 else {
            // The kernel reports ENXIO for a socket and for a pipe without a reader.
            if errno == ENXIO { throw Self.noFile(path) }
            throw .last("open", path: path)
        }
        let descriptor = Descriptor(owning: raw)
        let kind = try Self.status(descriptor.raw, path).kind
        guard kind == .file || kind == .folder || flags & O_APPEND != 0 else { throw Self.noFile(path) }
        self.descriptor = descriptor
        self.path = path
    }

    static func noFile(_ path: String) -> Errno {
        Errno(code: EINVAL, "open", path: path, note: "is a pipe, a device or a socket, not a file")
    }

    public func status() throws(Errno) -> File.Status { try Self.status(descriptor.raw, path) }

    private static func status(_ descriptor: Int32, _ path: String) throws(Errno) -> File.Status {
        var raw = stat()
        guard unsafe fstat(descriptor, &raw) == 0 else { throw .last("fstat", path: path) }
        return File.Status(raw)
    }

    /// Fills `buffer` from `offset` on. Reads fewer bytes only at the end of the file.
    public func read(into buffer: inout MutableSpan<UInt8>, at offset: Int) throws(Errno) -> Int {
        var done = 0
        while done < buffer.count {
            let count = unsafe buffer.withUnsafeMutableBytes { bytes in
                let (start, size) = unsafe (bytes.baseAddress! + done, bytes.count - done)
                return retrying { unsafe pread(descriptor.raw, start, size, off_t(offset + done)) }
            }
            guard count >= 0 else { throw .last("read", path: path) }
            if count == 0 { break }
            done += count
        }
        return done
    }

    /// Writes all of `bytes` at `offset`.
    public func write(_ bytes: Span<UInt8>, at offset: Int) throws(Errno) {
        var done = 0
        while done < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                let (start, size) = unsafe (bytes.baseAddress! + done, bytes.count - done)
                return retrying { unsafe pwrite(descriptor.raw, start, size, off_t(offset + done)) }
            }
            guard count >= 0 else { throw .last("write", path: path) }
            done += count
        }
    }

    /// Makes content and metadata durable.
    public func sync() throws(Errno) {
        guard retrying({ fsync(descriptor.raw) }) == 0 else { throw .last("fsync", path: path) }
    }

    /// Makes the content durable, and the metadata needed to read it.
    public func syncData() throws(Errno) {
        guard retrying({ fdatasync(descriptor.raw) }) == 0 else { throw .last("fdatasync", path: path) }
    }

    public func truncate(to size: Int) throws(Errno) {
        guard retrying({ ftruncate(descriptor.raw, off_t(size)) }) == 0 else { throw .last("truncate", path: path) }
    }

    public func setMode(_ mode: UInt32) throws(Errno) {
        guard fchmod(descriptor.raw, mode) == 0 else { throw .last("chmod", path: path) }
    }

    /// Whether every byte is zero. The read buffer is wiped: the file may hold a secret.
    func isZero() throws(Errno) -> Bool {
        var bytes = [UInt8](repeating: 0, count: 4096)
        defer { wipe(&bytes) }
        var offset = 0
        while true {
            var span = bytes.mutableSpan
            let count = try read(into: &span, at: offset)
            for index in 0..<count where bytes[index] != 0 { return false }
            if count < bytes.count { return true }
            offset += count
        }
    }

    /// Overwrites every byte with zero, durably. A copy-on-write file system may keep the old blocks.
    public func erase() throws(Errno) {
        let zeros = [UInt8](repeating: 0, count: 4096)
        var left = try status().size
        var offset = 0
        while left > 0 {
            let count = min(left, zeros.count)
            try write(zeros.span.extracting(0..<count), at: offset)
            offset += count
            left -= count
        }
        try syncData()
    }

    /// Acquires the file's exclusive lock (flock) until the file is closed. Returns false if another process holds it.
    public func tryLock() throws(Errno) -> Bool {
        if retrying({ flock(descriptor.raw, LOCK_EX | LOCK_NB) }) == 0 { return true }
        if errno == EWOULDBLOCK { return false }
        throw .last("flock", path: path)
    }
}

/// Owns an open file descriptor and closes it on deinit.
public struct Descriptor: ~Copyable, Sendable {
    public let raw: Int32

    /// Takes ownership of an open descriptor: nobody else may close it.
    public init(owning raw: Int32) {
        precondition(raw >= 0, "not an open descriptor")
        self.raw = raw
    }

    deinit {
        // Linux frees the number even if `close` is interrupted, so never retry.
        _ = close(raw)
    }

    /// Transfers the descriptor to the caller, who closes it.
    public consuming func release() -> Int32 {
        let raw = self.raw
        discard self
        return raw
    }
}
