import CSodium
import Synchronization

/// libsodium's functions over spans, without pointers.
///
/// Lengths that the caller knows (keys, nonces, outputs) are preconditions. Invalid input from outside yields nil, false or an error.
public enum Sodium {
    private static let ready: Void = {
        guard sodium_init() >= 0 else { fatalError("libsodium can't be initialised: this system gives no random bytes") }
    }()

    /// Initialises the library once. Every type of this module calls it before its first use of C.
    @inline(__always)
    public static func initialize() { _ = ready }

    /// Fills `bytes` from the operating system's random generator.
    public static func fillRandom(_ bytes: inout MutableSpan<UInt8>) {
        initialize()
        unsafe bytes.withUnsafeMutableBufferPointer {
            guard let start = $0.baseAddress else { return }
            unsafe randombytes_buf(start, $0.count)
        }
    }

    /// A pool of random bytes. Each byte is used once.
    private struct Reserve {
        var bytes: [UInt8] = []
        var next = 0
    }
    private static let reserve = Mutex(Reserve())
    private static let reserveCount = 1024

    /// Fills `bytes` (at most 64) with random bytes for values that are published or stored unencrypted: nonces, ids of jobs. Never use it for a
    /// secret: they come from a pool, so someone who reads this process's memory may see the next ones.
    public static func fillPublicRandom(_ bytes: inout MutableSpan<UInt8>) {
        precondition(bytes.count <= 64)
        let count = bytes.count
        let drawn = reserve.withLock { reserve -> InlineArray<64, UInt8> in
            if reserve.next + count > reserve.bytes.count { reserve = Reserve(bytes: randomBytes(reserveCount)) }
            defer { reserve.next += count }
            var drawn = InlineArray<64, UInt8>(repeating: 0)
            let source = reserve.bytes.span.extracting(reserve.next..<reserve.next + count)
            for index in source.indices { drawn[index] = source[index] }
            return drawn
        }
        for index in 0..<count { bytes[index] = drawn[index] }
    }

    /// Returns `count` random bytes for values that are not secret. Secrets are filled in place.
    public static func randomBytes(_ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        var span = bytes.mutableSpan
        fillRandom(&span)
        return bytes
    }

    /// Returns an unbiased random number below `bound`.
    public static func random(below bound: UInt32) -> UInt32 {
        initialize()
        return randombytes_uniform(bound)
    }

    /// Compares in a time that depends only on the lengths.
    public static func equal(_ left: Span<UInt8>, _ right: Span<UInt8>) -> Bool {
        guard left.count == right.count else { return false }
        return unsafe left.withUnsafeBufferPointer { left in
            unsafe right.withUnsafeBufferPointer { right in
                unsafe left.isEmpty || sodium_memcmp(left.baseAddress!, right.baseAddress!, left.count) == 0
            }
        }
    }

    /// Zeroes `bytes`. The compiler can't remove it.
    public static func wipe(_ bytes: inout MutableSpan<UInt8>) {
        unsafe bytes.withUnsafeMutableBufferPointer { unsafe sodium_memzero($0.baseAddress, $0.count) }
    }

    /// Zeroes the array's whole capacity and empties it.
    ///
    /// Other copies of the array are not reached.
    public static func wipe(_ bytes: inout [UInt8]) {
        unsafe bytes.withUnsafeMutableBufferPointer { unsafe sodium_memzero($0.baseAddress, $0.count) }
        // Growing within the capacity overwrites the rest of an earlier, longer content.
        let spare = bytes.capacity - bytes.count
        if spare > 0 { bytes.append(contentsOf: repeatElement(0, count: spare)) }
        bytes.removeAll(keepingCapacity: false)
    }

    /// Overwrites the stack below the caller, where a cipher or hash may have left values.
    public static func wipeStack() { sodium_stackzero(1024) }

    /// Pads in place to a multiple of `block` (ISO/IEC 7816-4): 0x80 and zeros.
    /// - Returns: the padded length, or nil if `bytes` is too short.
    public static func pad(_ bytes: inout MutableSpan<UInt8>, count: Int, block: Int) -> Int? {
        precondition(count >= 0 && block > 0)
        var padded = 0
        let result = unsafe bytes.withUnsafeMutableBufferPointer { buffer in
            unsafe count > buffer.count ? -1 : sodium_pad(&padded, buffer.baseAddress!, count, block, buffer.count)
        }
        return result == 0 ? padded : nil
    }

    /// Returns the length before `pad`, in constant time, or nil if the padding is invalid.
    public static func unpaddedCount(_ bytes: Span<UInt8>, block: Int) -> Int? {
        precondition(block > 0)
        guard !bytes.isEmpty else { return nil }
        var unpadded = 0
        let result = unsafe bytes.withUnsafeBufferPointer { unsafe sodium_unpad(&unpadded, $0.baseAddress!, $0.count, block) }
        return result == 0 ? unpadded : nil
    }
}
