import Glibc

/// Zeroes an array or its first `count` bytes, in a way that the compiler may not remove. Use it for buffers that held a secret. The array must be
/// the only holder of its storage, or a copy is zeroed instead.
public func wipe(_ bytes: inout [UInt8], first count: Int = .max) {
    unsafe bytes.withUnsafeMutableBytes { buffer in
        if let base = buffer.baseAddress { unsafe explicit_bzero(base, min(count, buffer.count)) }
    }
}

extension [UInt8] {
    /// Makes room for `more` bytes and zeroes the old storage. An array that grows by itself leaves its old bytes in freed memory.
    @inlinable
    public mutating func reserveWiping(_ more: Int) {
        guard count + more > capacity else { return }
        var larger: [UInt8] = []
        larger.reserveCapacity(Swift.max(count + more, capacity * 2))
        larger.append(contentsOf: self)
        swap(&self, &larger)
        wipe(&larger)
    }
}
