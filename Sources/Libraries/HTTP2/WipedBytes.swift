internal import CNghttp2
import Linux

/// Bytes that are zeroed on deinit and wherever they are moved from.
final class WipedBytes: Sendable {
    // Written only while its owner holds the only reference, so accesses can't overlap.
    @exclusivity(unchecked) private nonisolated(unsafe) var store: [UInt8] = []

    /// Shared by blocks that have no field yet.
    static let empty = WipedBytes(capacity: 0)

    var bytes: [UInt8] { unsafe store }

    init(capacity: Int) { unsafe store.reserveCapacity(capacity) }

    init(_ source: UnsafeBufferPointer<UInt8>) { unsafe store = Array(source) }

    init(copying other: WipedBytes, adding more: Int) {
        unsafe store.reserveCapacity(other.bytes.count + more)
        unsafe store.append(contentsOf: other.bytes)
    }

    deinit { unsafe wipe(&store) }

    func append(_ more: Span<UInt8>) { unsafe Self.append(more, to: &store) }

    /// Appends both.
    /// - Returns: the start of each of them, and the end.
    func append(_ first: Span<UInt8>, _ second: Span<UInt8>) -> (start: Int, middle: Int, end: Int) {
        unsafe Self.append(first, second, to: &store)
    }

    // Static with an inout parameter, because each access to a class's property is checked for exclusivity at run time.
    private static func append(
        _ first: Span<UInt8>, _ second: Span<UInt8>, to store: inout [UInt8]
    ) -> (start: Int, middle: Int, end: Int) {
        store.reserveWiping(first.count + second.count)
        let start = store.count
        store.append(addingCapacity: first.count + second.count) { target in
            unsafe target.withUnsafeMutableBufferPointer { bytes, count in
                unsafe first.withUnsafeBytes { unsafe UnsafeMutableRawBufferPointer(bytes).copyMemory(from: $0) }
                let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(bytes)[first.count...])
                unsafe second.withUnsafeBytes { unsafe rest.copyMemory(from: $0) }
                count = first.count + second.count
            }
        }
        return (start, start + first.count, store.count)
    }

    /// Appends `name`, `prefix` and `count` bytes that `fill` writes in place.
    func append(
        _ name: Span<UInt8>, _ prefix: Span<UInt8>, count: Int, _ fill: (inout MutableSpan<UInt8>) -> Void
    ) -> (start: Int, middle: Int, end: Int) {
        unsafe Self.append(name, prefix, count: count, fill, to: &store)
    }

    private static func append(
        _ name: Span<UInt8>, _ prefix: Span<UInt8>, count: Int, _ fill: (inout MutableSpan<UInt8>) -> Void,
        to store: inout [UInt8]
    ) -> (start: Int, middle: Int, end: Int) {
        store.reserveWiping(name.count + prefix.count + count)
        let place = append(name, prefix, to: &store)
        store.append(addingCapacity: count) { $0.append(repeating: 0, count: count) }
        var all = store.mutableSpan
        var rest = all._mutatingExtracting(place.end..<place.end + count)
        fill(&rest)
        return (place.start, place.middle, store.count)
    }

    private static func append(_ more: Span<UInt8>, to store: inout [UInt8]) {
        store.reserveWiping(more.count)
        unsafe more.withUnsafeBufferPointer { unsafe store.append(contentsOf: $0) }
    }

    func clear() {
        unsafe wipe(&store)
        unsafe store.removeAll(keepingCapacity: true)
    }

    func clear(after count: Int) { unsafe Self.clear(&store, after: count) }

    private static func clear(_ store: inout [UInt8], after count: Int) {
        unsafe store.withUnsafeMutableBytes {
            if let start = $0.baseAddress { unsafe explicit_bzero(start + count, $0.count - count) }
        }
        store.removeLast(store.count - count)
    }
}

/// A part of a body, zeroed when its last copy is released.
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
