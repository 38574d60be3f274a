import CSodium

/// A region for secrets (`sodium_malloc`): guard pages, a canary, never swapped, not in core dumps, wiped when freed.
///
/// Access is by range and bounds-checked. The region has no lock: its owner allows each range one writer at a time.
@safe
public final class LockedMemory: @unchecked Sendable, CustomStringConvertible, CustomReflectable {
    /// The system refused to allocate or lock the memory.
    public struct Unavailable: Error, Equatable, CustomStringConvertible {
        public let count: Int
        public var description: String {
            "can't lock \(count) bytes of memory, so secrets could be swapped to disk. Raise the limit (ulimit -l, LimitMEMLOCK=) "
                + "or grant CAP_IPC_LOCK"
        }
    }

    public let count: Int
    @usableFromInline let start: UnsafeMutablePointer<UInt8>

    /// Allocates `count` bytes, at least one, all zero.
    public init(count: Int) throws(Unavailable) {
        precondition(count > 0)
        Sodium.initialize()
        guard let region = unsafe sodium_malloc(count) else { throw Unavailable(count: count) }
        // sodium_malloc ignores a failure to lock its pages. Locking again is harmless and reports it.
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

    /// Zeroes a range.
    public func wipe(_ range: Range<Int>) {
        precondition(range.lowerBound >= 0 && range.upperBound <= count)
        unsafe sodium_memzero(start + range.lowerBound, range.count)
    }

    public var description: String { "<redacted>" }
    public var customMirror: Mirror { Mirror(self, children: []) }
}
