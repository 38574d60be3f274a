import CLinux
import Glibc

/// A failed system call: which one, on what, and glibc's error number.
public struct Errno: Error, Sendable, Equatable, CustomStringConvertible {
    public let code: Int32
    /// The call and the path or address it was made for: `open var/keys/ratchet.key`. A path as `ShownPath` has it.
    public let call: String
    /// What is wrong with what it was made for, if there is more to say than the number does: `is no file but a pipe`.
    private let note: String?

    public init(code: Int32, call: String) {
        self.code = code
        self.call = call
        note = nil
    }

    /// What is in the path may be a secret that was put there by mistake: only `ShownPath` decides whether it is told.
    init(code: Int32, _ call: String, path: String, note: String? = nil) {
        self.code = code
        self.call = "\(call) \(ShownPath(path))"
        self.note = note
    }

    /// The error of the call that has just failed on this thread.
    static func last(_ call: @autoclosure () -> String) -> Errno {
        let code = errno
        return Errno(code: code, call: call())
    }

    /// The same for a call on a path.
    static func last(_ call: String, path: String) -> Errno {
        let code = errno
        return Errno(code: code, call, path: path)
    }

    public var description: String { call + (note.map { ", which " + $0 } ?? ": " + Self.text(code)) }

    /// Why, without the call and what it was made for.
    public var reason: String { note.map { "it " + $0 } ?? Self.text(code) }

    public var isMissing: Bool { code == ENOENT }
    /// A name that can't be read as a file: it is a folder, or lies below a file.
    public var isNoFile: Bool { code == EISDIR || code == ENOTDIR }
    public var isExisting: Bool { code == EEXIST }
    /// The file system is mounted read-only.
    public var isReadOnly: Bool { code == EROFS }
    /// A move from one file system to another.
    public var isOtherFileSystem: Bool { code == EXDEV }
    public var isRefused: Bool { code == ECONNREFUSED }
    public var isAddressInUse: Bool { code == EADDRINUSE }
    /// A Unix-domain path where something else stands.
    public var isNoSocket: Bool { code == ENOTSOCK }
    /// The process or the machine has no descriptor left; accepting can go on once some are closed.
    public var isOutOfDescriptors: Bool { code == EMFILE || code == ENFILE }
    /// A file's size limit, a full disk or a quota: nothing more can be written.
    public var isOutOfSpace: Bool { code == ENOSPC || code == EDQUOT || code == EFBIG }
    /// The peer is gone: reset, timed out, or a write after it closed.
    public var isConnectionLost: Bool { code == ECONNRESET || code == EPIPE || code == ETIMEDOUT || code == ECONNABORTED }

    private static func text(_ code: Int32) -> String {
        unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { buffer in
            guard unsafe strerror_r(code, buffer.baseAddress!, buffer.count) == 0 else { return "error \(code)" }
            return unsafe String(cString: buffer.baseAddress!)
        }
    }
}

/// Repeats a call that a signal interrupted.
@inline(__always)
func retrying<R: SignedInteger>(_ call: () -> R) -> R {
    while true {
        let result = call()
        if result != -1 || errno != EINTR { return result }
    }
}
