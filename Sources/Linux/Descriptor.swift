import CLinux
import Glibc

/// Owns an open file descriptor and closes it when it goes away.
public struct Descriptor: ~Copyable, Sendable {
    public let raw: Int32

    /// Takes over an open descriptor: nobody else may close it.
    public init(owning raw: Int32) {
        precondition(raw >= 0, "not an open descriptor")
        self.raw = raw
    }

    deinit {
        // Linux frees the number even when close is interrupted: never try again.
        _ = close(raw)
    }

    /// Hands the number to the caller, who closes it.
    public consuming func release() -> Int32 {
        let raw = self.raw
        discard self
        return raw
    }
}
