import CLinux
import Glibc

/// A failed system call, its path or address, and glibc's error number.
public struct Errno: Error, Sendable, Equatable, CustomStringConvertible {
    public let code: Int32
    /// The call and its path or address: `open var/keys/ratchet.key`. Paths are printed by `ShownPath`.
    public let call: String
    /// A reason that replaces the text of the error number: `is no file but a pipe`.
    private let note: String?

    public init(code: Int32, call: String) {
        self.code = code
        self.call = call
        note = nil
    }

    /// A path may hold a secret by mistake, so `ShownPath` decides what is shown.
    init(code: Int32, _ call: String, path: String, note: String? = nil) {
        self.code = code
        self.call = "\(call) \(ShownPath(path))"
        self.note = note
    }

    /// The error of the call that just failed on this thread.
    static func last(_ call: @autoclosure () -> String) -> Errno {
        let code = errno
        return Errno(code: code, call: call())
    }

    /// The error of the call on a path that just failed on this thread.
    static func last(_ call: String, path: String) -> Errno {
        let code = errno
        return Errno(code: code, call, path: path)
    }

    public var description: String { call + (note.map { ", which " + $0 } ?? ": " + Self.text(code)) }

    /// The reason without the call and its path.
    public var reason: String { note.map { "it " + $0 } ?? Self.text(code) }

    public var isMissing: Bool { code == ENOENT }
    /// The path is a folder, or is below a file.
    public var isNoFile: Bool { code == EISDIR || code == ENOTDIR }
    public var isExisting: Bool { code == EEXIST }
    /// The file system is mounted read-only.
    public var isReadOnly: Bool { code == EROFS }
    /// A move from one file system to another.
    public var isOtherFileSystem: Bool { code == EXDEV }
    public var isRefused: Bool { code == ECONNREFUSED }
    public var isAddressInUse: Bool { code == EADDRINUSE }
    /// No interface of this machine has the address.
    public var isNoOwnAddress: Bool { code == EADDRNOTAVAIL }
    /// The Unix-domain path exists and is no socket.
    public var isNoSocket: Bool { code == ENOTSOCK }
    /// Nothing more can be written: the disk is full, or a quota or file size limit is reached.
    public var isOutOfSpace: Bool { code == ENOSPC || code == EDQUOT || code == EFBIG }
    /// The peer is gone: it reset the connection, timed out, or closed before a write.
    public var isConnectionLost: Bool { code == ECONNRESET || code == EPIPE || code == ETIMEDOUT || code == ECONNABORTED }

    private static func text(_ code: Int32) -> String {
        unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
            guard unsafe strerror_r(code, buffer.baseAddress!, buffer.count) == 0 else { return "error \(code)" }
            return unsafe String(cString: buffer.baseAddress!)
        }
    }
}

/// Repeats a call until no signal interrupts it.
@inline(__always)
func retrying<R: SignedInteger>(_ call: () -> R) -> R {
    while true {
        let result = call()
        if result != -1 || errno != EINTR { return result }
    }
}
