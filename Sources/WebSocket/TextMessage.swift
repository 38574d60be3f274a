import Glibc

/// One received text message in UTF-8, and the only copy of it: zeroed by `wipe()` and when the last reference goes.
public final class TextMessage {
    private var bytes: [UInt8] = []

    init() {}

    /// A message made in memory, for handlers under test.
    public init(_ text: String) { bytes = Array(text.utf8) }

    deinit { wipe() }

    public var count: Int { bytes.count }

    public func withText<R, E: Error>(_ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R {
        let bytes = bytes
        return try use(bytes.span)
    }

    public func wipe() {
        unsafe bytes.withUnsafeMutableBytes { if let base = $0.baseAddress { unsafe explicit_bzero(base, $0.count) } }
    }

    /// Makes room for `more` bytes. An array that grew by itself would leave its old bytes behind.
    func reserve(_ more: Int) {
        guard bytes.count + more > bytes.capacity else { return }
        var larger: [UInt8] = []
        larger.reserveCapacity(max(bytes.count + more, bytes.capacity * 2))
        larger.append(contentsOf: bytes)
        swap(&bytes, &larger)
        unsafe larger.withUnsafeMutableBytes { if let base = $0.baseAddress { unsafe explicit_bzero(base, $0.count) } }
    }

    func append(_ chunk: UnsafePointer<UInt8>, _ count: Int) {
        reserve(count)
        unsafe bytes.append(contentsOf: UnsafeBufferPointer(start: chunk, count: count))
    }
}
