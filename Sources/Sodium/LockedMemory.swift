import CSodium

/// A region for secrets: guard pages on both sides, a canary, never swapped, not in core dumps, wiped when freed
/// (`sodium_malloc`).
///
/// Access is by range and checked against the bounds. The region itself has no lock: whoever holds it gives each range one writer
/// at a time.
@safe
public final class LockedMemory: @unchecked Sendable, CustomStringConvertible, CustomReflectable {
    /// The system refuses the memory, or refuses to lock it.
    public struct Unavailable: Error, Equatable, CustomStringConvertible {
        public let count: Int
        public var description: String {
            "can't lock \(count) bytes of memory, so secrets could be swapped to disk. Raise the limit (ulimit -l, LimitMEMLOCK=) "
                + "or grant CAP_IPC_LOCK"
        }
    }

    public let count: Int
    @usableFromInline let start: UnsafeMutablePointer<UInt8>

    /// `count` bytes (more than none), all zero.
    public init(count: Int) throws(Unavailable) {
        precondition(count > 0)
        Sodium.initialize()
        guard let region = unsafe sodium_malloc(count) else { throw Unavailable(count: count) }
        // sodium_malloc locks its pages but keeps quiet when that fails; asking again is harmless and tells.
        guard unsafe sodium_mlock(region, count) == 0 else {
            unsafe sodium_free(region)
            throw Unavailable(count: count)
        }
        unsafe sodium_memzero(region, count)
        unsafe start = region.assumingMemoryBound(to: UInt8.self)
        self.count = count
    }

    deinit { unsafe sodium_free(start) }

    @inlinable
    public func withBytes<Result: ~Copyable, Failure: Error>(
        _ range: Range<Int>, _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        precondition(range.lowerBound >= 0 && range.upperBound <= count)
        let buffer = unsafe UnsafeBufferPointer(start: start + range.lowerBound, count: range.count)
        return try body(unsafe buffer.span)
    }

    @inlinable
    public func withMutableBytes<Result: ~Copyable, Failure: Error>(
        _ range: Range<Int>, _ body: (inout MutableSpan<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        precondition(range.lowerBound >= 0 && range.upperBound <= count)
        let buffer = unsafe UnsafeMutableBufferPointer(start: start + range.lowerBound, count: range.count)
        var span = unsafe buffer.mutableSpan
        return try body(&span)
    }

    /// Overwrites a range with zeros.
    public func wipe(_ range: Range<Int>) {
        precondition(range.lowerBound >= 0 && range.upperBound <= count)
        unsafe sodium_memzero(start + range.lowerBound, range.count)
    }

    public var description: String { "<redacted>" }
    public var customMirror: Mirror { Mirror(self, children: []) }
}
