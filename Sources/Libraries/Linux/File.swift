import CLinux
import Glibc

/// Blocking calls on paths. A mode is the nine permission bits: `0o600`.
public enum File {
    public enum Kind: Sendable, Equatable { case file, folder, link, socket, other }

    public struct Status: Sendable, Equatable {
        public let kind: Kind
        public let mode: UInt32
        public let owner: UInt32
        /// Hard links to the file. If there is more than one, a second name for it exists.
        public let links: Int
        public let size: Int
        /// Device and inode identify a file.
        public let identity: Identity
        public let modifiedMs: UInt64

        public struct Identity: Sendable, Hashable {
            public let device: UInt64
            public let inode: UInt64
        }

        /// The owner is this process's user, and nobody else may read or write the file.
        public var isPrivate: Bool { mode & 0o077 == 0 && owner == geteuid() }

        public var isOwn: Bool { owner == geteuid() }

        /// Why others could read or change the file, as text that follows its name. Nil if it is this user's alone.
        public var exposure: String? {
            guard isOwn else { return "belongs to user \(owner), not to the present user (\(geteuid()))" }
            guard let access = othersAccess else { return nil }
            return "has mode \(modeText), so others could \(access) it"
        }

        /// What others may do with the file or folder by its mode, as a verb. Nil if nothing.
        public var othersAccess: String? {
            if mode & 0o022 != 0 { return "change" }
            if mode & 0o044 != 0 { return kind == .folder ? "list" : "read" }
            return mode & 0o011 == 0 ? nil : kind == .folder ? "enter" : "run"
        }

        /// The mode in four octal digits: `0644`.
        public var modeText: String {
            let digits = String(mode, radix: 8)
            return String(repeating: "0", count: max(0, 4 - digits.count)) + digits
        }

        /// Root owns the file, this process runs as another user, and at most the group may read it. A systemd credential has this form: its access
        /// list appears as the group's permission.
        public var isRootsAlone: Bool { mode & 0o037 == 0 && owner == 0 && geteuid() != 0 }

        init(_ raw: stat) {
            kind =
                switch raw.st_mode & Glibc.S_IFMT {
                case Glibc.S_IFREG: .file
                case Glibc.S_IFDIR: .folder
                case Glibc.S_IFLNK: .link
                case Glibc.S_IFSOCK: .socket
                default: .other
                }
            mode = raw.st_mode & 0o7777
            owner = raw.st_uid
            links = Int(raw.st_nlink)
            size = Int(raw.st_size)
            identity = Identity(device: UInt64(raw.st_dev), inode: UInt64(raw.st_ino))
            modifiedMs = UInt64(max(0, raw.st_mtim.tv_sec)) * 1000 + UInt64(raw.st_mtim.tv_nsec) / 1_000_000
        }
    }

    /// Whether a file system is mounted on the path. A mount point can't be renamed.
    public static func isMountPoint(_ path: String) throws(Errno) -> Bool {
        let result = unsafe mayfly_is_mount_point(path)
        guard result >= 0 else { throw .last("statx", path: path) }
        return result > 0
    }

    /// Returns nil if nothing exists at the path. Describes the target of a symbolic link unless `followLinks` is false.
    public static func status(_ path: String, followLinks: Bool = true) throws(Errno) -> Status? {
        var raw = stat()
        let result = unsafe followLinks ? stat(path, &raw) : lstat(path, &raw)
        if result == 0 { return Status(raw) }
        if errno == ENOENT || errno == ENOTDIR { return nil }
        throw .last("stat", path: path)
    }

    public static func exists(_ path: String) -> Bool { unsafe access(path, F_OK) == 0 }

    /// Whether this user can read the file.
    public static func isReadable(_ path: String) -> Bool { unsafe access(path, R_OK) == 0 }

    /// - Throws: if this user can't write the file, or create files in the folder. A read-only file system refuses root too.
    public static func checkWritable(_ path: String) throws(Errno) {
        guard unsafe access(path, W_OK) == 0 else { throw .last("access", path: path) }
    }

    /// Reads the whole file.
    /// - Throws: `EFBIG` if it holds more than `limit` bytes.
    public static func read(_ path: String, limit: Int) throws(Errno) -> [UInt8] {
        let file = try OpenFile(path, .read)
        // The extra byte detects a file that grows. Files of /proc have size 0.
        var bytes = [UInt8](repeating: 0, count: min(limit, max(4096, try file.status().size)) + 1)
        var count = 0
        while true {
            var rest = bytes.mutableSpan
            var free = rest._mutatingExtracting(count..<rest.count)
            let got = try file.read(into: &free, at: count)
            count += got
            guard count <= limit else { throw Errno(code: EFBIG, "read", path: path) }
            if count < bytes.count { break }
            bytes.append(contentsOf: repeatElement(0, count: min(bytes.count, limit + 1 - bytes.count)))
        }
        bytes.removeLast(bytes.count - count)
        return bytes
    }

    /// Creates or overwrites a file, without durability or atomicity.
    public static func write(_ path: String, _ bytes: Span<UInt8>, mode: UInt32) throws(Errno) {
        let file = try OpenFile(path, .create(mode: mode))
        try file.truncate(to: 0)
        try file.write(bytes, at: 0)
    }

    /// Replaces the file atomically and durably: after a crash it has either the old or the new content.
    ///
    /// Writes a temporary file, syncs it, renames it and syncs the folder. The file gets `mode` regardless of the umask.
    public static func replaceDurably(_ path: String, _ bytes: Span<UInt8>, mode: UInt32) throws(Errno) {
        // A rename would replace a device: root could lose /dev/null.
        if let kind = try status(path)?.kind, kind != .file, kind != .folder { throw OpenFile.noFile(path) }
        try writeBeside(path, bytes, mode: mode)
        try rename(temporary(path), to: path)
        try syncFolder(folder(of: path))
    }

    /// Zeroes a file durably, then removes it.
    public static func removeAndErase(_ path: String) throws(Errno) {
        let old = try OpenFile(path, .readWriteNoLink)
        try old.erase()
        try remove(path)
        try syncFolder(folder(of: path))
    }

    /// Creates a folder and its missing parents with `mode` less the umask. An existing folder is not changed.
    public static func makeFolder(_ path: String, mode: UInt32 = 0o700) throws(Errno) {
        if unsafe mkdir(path, mode) == 0 { return }
        if errno == ENOENT, folder(of: path) != path {
            try makeFolder(folder(of: path), mode: mode)
            if unsafe mkdir(path, mode) == 0 { return }
        }
        let error = Errno.last("mkdir", path: path)
        guard error.isExisting, try status(path)?.kind == .folder else { throw error }
    }

    /// Returns the sorted names in a folder, without `.` and `..`.
    public static func list(_ path: String) throws(Errno) -> [String] {
        guard let folder = unsafe opendir(path) else { throw .last("opendir", path: path) }
        defer { unsafe _ = closedir(folder) }
        var names: [String] = []
        errno = 0
        while let entry = unsafe readdir(folder) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != ".", name != ".." { names.append(name) }
            errno = 0
        }
        guard errno == 0 else { throw .last("readdir", path: path) }
        return names.sorted()
    }

    public static func remove(_ path: String) throws(Errno) {
        guard unsafe unlink(path) == 0 else { throw .last("unlink", path: path) }
    }

    /// Removes an empty folder.
    public static func removeFolder(_ path: String) throws(Errno) {
        guard unsafe rmdir(path) == 0 else { throw .last("rmdir", path: path) }
    }

    public static func rename(_ path: String, to target: String) throws(Errno) {
        guard unsafe Glibc.rename(path, target) == 0 else { throw .last("rename", path: path) }
    }

    /// Exchanges the names of two files in one step.
    /// - Throws: `EINVAL`, `ENOSYS` or `EOPNOTSUPP` if the file system doesn't support it.
    public static func exchange(_ path: String, _ other: String) throws(Errno) {
        guard unsafe mayfly_exchange(path, other) == 0 else { throw .last("exchange", path: path) }
    }

    /// Sets the mode of the file at `path`. Never follows a link.
    static func setMode(_ path: String, _ mode: UInt32) throws(Errno) {
        guard unsafe fchmodat(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW) == 0 else { throw .last("chmod", path: path) }
    }

    /// Creates a symbolic link at `path`.
    public static func symbolicLink(_ path: String, to target: String) throws(Errno) {
        guard unsafe symlink(target, path) == 0 else { throw .last("symlink", path: path) }
    }

    /// Adds `path` as a second name of the file at `target`.
    public static func hardLink(_ path: String, to target: String) throws(Errno) {
        guard unsafe link(target, path) == 0 else { throw .last("link", path: path) }
    }

    /// Makes names created, renamed or removed in a folder durable.
    public static func syncFolder(_ path: String) throws(Errno) {
        let folder = try openFolder(path)
        guard retrying({ fsync(folder.raw) }) == 0 else { throw .last("fsync", path: path) }
    }

    fileprivate static func openFolder(_ path: String) throws(Errno) -> Descriptor {
        let raw = retrying { unsafe mayfly_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) }
        guard raw >= 0 else { throw .last("open", path: path) }
        return Descriptor(owning: raw)
    }

    /// Creates an empty folder for tests and temporary state. Returns its path.
    public static func makeTemporaryFolder(prefix: String = "mayfly") throws(Errno) -> String {
        var template = Array("/tmp/\(prefix).XXXXXX\0".utf8CString.dropLast())
        let made = unsafe template.withUnsafeMutableBufferPointer { unsafe mkdtemp($0.baseAddress!) != nil }
        guard made else { throw .last("mkdtemp") }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Removes a folder with its content, without following links.
    public static func removeTree(_ path: String) throws(Errno) {
        for name in try list(path) {
            let child = "\(path)/\(name)"
            if try status(child, followLinks: false)?.kind == .folder {
                try removeTree(child)
            } else {
                try remove(child)
            }
        }
        try removeFolder(path)
    }

    /// Returns the absolute path without links, `.` and `..`.
    public static func resolve(_ path: String) throws(Errno) -> String {
        guard let found = unsafe realpath(path, nil) else { throw .last("resolve", path: path) }
        defer { unsafe free(found) }
        return unsafe String(cString: found)
    }

    /// The path's parent folder: `a` for `a/b`, `.` for `a`, `/` for `/a`.
    public static func folder(of path: String) -> String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    private static func temporary(_ path: String) -> String { path + ".new" }

    private static func writeBeside(_ path: String, _ bytes: Span<UInt8>, mode: UInt32) throws(Errno) {
        let beside = temporary(path)
        // A crash during an earlier replacement may have left this file, and it may hold keys. Don't zero a link's target: it isn't ours.
        if let left = try status(beside, followLinks: false) {
            if left.kind == .file { try removeAndErase(beside) } else { try remove(beside) }
        }
        let file = try OpenFile(beside, .createNew(mode: mode & 0o600))
        do throws(Errno) {
            try file.write(bytes, at: 0)
            try file.setMode(mode)
            try file.sync()
        } catch {
            try? file.erase()
            try? remove(beside)
            throw error
        }
    }
}

/// The file system of a path, to make many files durable at once.
public struct FileSystem: ~Copyable, Sendable {
    private let descriptor: Descriptor
    private let path: String

    /// Open it before writing the files: `sync` then reports their errors too.
    public init(_ path: String) throws(Errno) {
        descriptor = try File.openFolder(path)
        self.path = path
    }

    /// Makes all writes to the file system durable with one disk flush, including those of other processes.
    /// - Throws: writeback errors since this value was created (Linux 5.8 or later).
    public func sync() throws(Errno) {
        guard syncfs(descriptor.raw) == 0 else { throw .last("syncfs", path: path) }
    }
}
