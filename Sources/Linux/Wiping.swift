import Glibc

/// Zeroes the front of an array, or all of it, in a way the compiler may not leave out: for buffers that held a secret. The array must be
/// the only holder of its storage, or the zeroes go into a copy.
public func wipe(_ bytes: inout [UInt8], first count: Int = .max) {
    unsafe bytes.withUnsafeMutableBytes { buffer in
        if let base = buffer.baseAddress { unsafe explicit_bzero(base, min(count, buffer.count)) }
    }
}
