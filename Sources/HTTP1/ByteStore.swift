import Glibc

/// Growing bytes outside Swift's arrays, so that every copy of them is known and wiped: on growth, by `wipe()`, at the end.
@safe struct ByteStore: ~Copyable {
    private var base: UnsafeMutablePointer<UInt8>?
    private(set) var count = 0
    private var capacity = 0

    init() { unsafe base = nil }

    deinit {
        wipe()
        unsafe base?.deallocate()
    }

    mutating func append(_ bytes: UnsafePointer<CChar>, _ length: Int) {
        // Nothing may come before there is a place for it: llhttp reports an empty name.
        guard length > 0 else { return }
        if count + length > capacity { grow(to: count + length) }
        unsafe memcpy(base! + count, bytes, length)
        count += length
    }

    mutating func append(_ bytes: Span<UInt8>) {
        guard bytes.count > 0 else { return }
        unsafe bytes.withUnsafeBytes { unsafe append($0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count) }
    }

    mutating func removeLast() { count -= 1 }

    subscript(index: Int) -> UInt8 {
        precondition(index >= 0 && index < count)
        return unsafe base![index]
    }

    func withSpan<R, E: Error>(_ range: Range<Int>, _ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R {
        precondition(range.upperBound <= count)
        guard let base = unsafe base else { return try use(Span()) }
        return try use(unsafe Span(_unsafeStart: UnsafePointer(base + range.lowerBound), count: range.count))
    }

    private mutating func grow(to needed: Int) {
        var wanted = max(512, capacity * 2)
        while wanted < needed { wanted *= 2 }
        let larger = UnsafeMutablePointer<UInt8>.allocate(capacity: wanted)
        if let old = unsafe base {
            unsafe memcpy(larger, old, count)
            unsafe explicit_bzero(old, capacity)
            unsafe old.deallocate()
        }
        unsafe base = unsafe larger
        capacity = wanted
    }

    /// Zeroes what was written; the count stays, so that ranges into the store stay valid.
    func wipe() {
        if let base = unsafe base { unsafe explicit_bzero(base, count) }
    }
}
