internal import CNghttp2

/// Bytes that are zeroed when the last reference to them goes, and wherever they are moved from.
final class WipedBytes: Sendable {
    // Written only while its owner holds the one reference.
    private nonisolated(unsafe) var store: [UInt8] = []

    var bytes: [UInt8] { unsafe store }

    init(capacity: Int) { unsafe store.reserveCapacity(capacity) }

    init(_ source: UnsafeBufferPointer<UInt8>) { unsafe store = Array(source) }

    init(copying other: WipedBytes, adding more: Int) {
        unsafe store.reserveCapacity(other.bytes.count + more)
        unsafe store.append(contentsOf: other.bytes)
    }

    deinit { unsafe Self.wipe(&store) }

    func append(_ more: Span<UInt8>) {
        if unsafe store.count + more.count > store.capacity {
            var larger: [UInt8] = []
            unsafe larger.reserveCapacity(max(store.count + more.count, store.capacity * 2))
            unsafe larger.append(contentsOf: store)
            unsafe swap(&store, &larger)
            Self.wipe(&larger)
        }
        unsafe more.withUnsafeBufferPointer { unsafe store.append(contentsOf: $0) }
    }

    func clear() {
        unsafe Self.wipe(&store)
        unsafe store.removeAll(keepingCapacity: true)
    }

    /// Zeroes an array that no one else holds.
    static func wipe(_ bytes: inout [UInt8]) {
        unsafe bytes.withUnsafeMutableBytes { if let start = $0.baseAddress { unsafe explicit_bzero(start, $0.count) } }
    }
}

/// A piece of a body, zeroed when the last copy of it goes.
public struct HTTP2Data: Sendable, Equatable {
    private let storage: WipedBytes

    init(_ source: UnsafeBufferPointer<UInt8>) { storage = unsafe WipedBytes(source) }

    public init(_ bytes: [UInt8]) {
        storage = WipedBytes(capacity: bytes.count)
        storage.append(bytes.span)
    }

    public var bytes: [UInt8] { storage.bytes }
    public var count: Int { storage.bytes.count }

    public static func == (a: HTTP2Data, b: HTTP2Data) -> Bool { a.bytes == b.bytes }
}
