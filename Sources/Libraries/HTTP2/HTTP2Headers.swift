internal import CNghttp2

/// A header block (RFC 9113, 8.2): fields in order, pseudo-header fields first, names in lower case. Stored in one buffer, which is zeroed when the
/// last copy of the block is released.
public struct HTTP2Headers: Sendable {
    /// How HPACK may encode a field.
    public enum Indexing: Sendable {
        /// May enter both ends' dynamic tables.
        case incremental
        /// A literal that enters no table at any hop (RFC 7541, 6.2.3). For secrets and for values that never repeat.
        case never
    }

    struct Field {
        var nameStart: Int32, valueStart: Int32, end: Int32
        var indexing: Indexing
    }

    private var storage: WipedBytes
    private(set) var fields: [Field] = []

    /// - Parameter capacity: expected bytes of names and values.
    public init(capacity: Int = 0) {
        storage = capacity == 0 ? .empty : WipedBytes(capacity: capacity)
        fields.reserveCapacity(min(16, capacity / 8))
    }

    var bytes: [UInt8] { storage.bytes }

    public var count: Int { fields.count }

    /// Returns a field as text, for logs of harmless fields and for tests.
    public subscript(index: Int) -> (name: String, value: String) {
        let field = fields[index]
        return (
            String(decoding: bytes[Int(field.nameStart)..<Int(field.valueStart)], as: UTF8.self),
            String(decoding: bytes[Int(field.valueStart)..<Int(field.end)], as: UTF8.self)
        )
    }

    /// The value of the first field called `name`.
    public subscript(name: String) -> String? {
        range(of: name).map { String(decoding: bytes[$0], as: UTF8.self) }
    }

    /// Calls `body` with the value of the first field called `name`. Returns nil if there is none.
    public func withValue<R, E>(of name: String, _ body: (Span<UInt8>) throws(E) -> R) throws(E) -> R? {
        guard let range = range(of: name) else { return nil }
        return try body(bytes.span.extracting(range))
    }

    /// Calls `body` with each field's index, name and value, in order.
    public func forEachField<E>(_ body: (Int, Span<UInt8>, Span<UInt8>) throws(E) -> Void) throws(E) {
        let span = bytes.span
        for (index, field) in fields.enumerated() {
            try body(
                index, span.extracting(Int(field.nameStart)..<Int(field.valueStart)),
                span.extracting(Int(field.valueStart)..<Int(field.end)))
        }
    }

    /// Calls `body` with a field's value.
    public func withValue<R, E>(at index: Int, _ body: (Span<UInt8>) throws(E) -> R) throws(E) -> R {
        try body(bytes.span.extracting(Int(fields[index].valueStart)..<Int(fields[index].end)))
    }

    /// The response's `:status`. Nil unless it has three digits.
    public var status: Int? {
        guard let range = range(of: ":status"), range.count == 3 else { return nil }
        let bytes = bytes
        var status = 0
        for byte in bytes[range] {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
            status = status * 10 + Int(byte - UInt8(ascii: "0"))
        }
        return status
    }

    public mutating func append(_ name: String, _ value: String, _ indexing: Indexing = .incremental) {
        append(name, value.utf8.span, indexing)
    }

    public mutating func append(_ name: String, _ value: Span<UInt8>, _ indexing: Indexing = .incremental) {
        append(name.utf8.span, value, indexing)
    }

    public mutating func append(_ name: Span<UInt8>, _ value: Span<UInt8>, _ indexing: Indexing = .incremental) {
        makeUnique(adding: name.count + value.count)
        appendField(storage.append(name, value), indexing)
    }

    /// Appends a value of `prefix` and `count` bytes that `fill` writes in place, so that no other buffer holds them.
    public mutating func append(
        _ name: String, _ prefix: Span<UInt8>, count: Int, _ indexing: Indexing = .incremental,
        _ fill: (inout MutableSpan<UInt8>) -> Void
    ) {
        makeUnique(adding: name.utf8.count + prefix.count + count)
        appendField(storage.append(name.utf8.span, prefix, count: count, fill), indexing)
    }

    /// Replaces field `index` like `append`.
    public mutating func replace(
        _ index: Int, _ name: String, _ prefix: Span<UInt8>, count: Int, _ indexing: Indexing = .incremental,
        _ fill: (inout MutableSpan<UInt8>) -> Void
    ) {
        append(name, prefix, count: count, indexing, fill)
        fields[index] = fields.removeLast()
    }

    private mutating func makeUnique(adding more: Int) {
        if !isKnownUniquelyReferenced(&storage) { storage = WipedBytes(copying: storage, adding: more) }
    }

    private mutating func appendField(_ place: (start: Int, middle: Int, end: Int), _ indexing: Indexing) {
        fields.append(
            Field(
                nameStart: Int32(place.start), valueStart: Int32(place.middle), end: Int32(place.end), indexing: indexing))
    }

    /// A state of the block for `wipe(after:)`.
    public struct Mark: Sendable {
        let fields: Int
        let bytes: Int
    }

    public var mark: Mark { Mark(fields: fields.count, bytes: bytes.count) }

    /// Removes and zeroes everything appended or replaced since `mark`. A replaced field has no name until it is replaced again.
    public mutating func wipe(after mark: Mark) {
        fields.removeLast(fields.count - mark.fields)
        for index in fields.indices where Int(fields[index].end) > mark.bytes {
            fields[index] = Field(nameStart: 0, valueStart: 0, end: 0, indexing: .never)
        }
        makeUnique(adding: 0)
        storage.clear(after: mark.bytes)
    }

    /// Zeroes and empties the block. Keeps its capacity.
    public mutating func wipe() {
        fields.removeAll(keepingCapacity: true)
        if isKnownUniquelyReferenced(&storage) { storage.clear() } else { storage = .empty }
    }

    /// Returns all names and values in the order of `forEachField`. The copy is not wiped, so the block must not contain secrets.
    public func copyBytes() -> [UInt8] {
        unsafe bytes.withUnsafeBufferPointer { source in
            unsafe [UInt8](unsafeUninitializedCapacity: source.count) { target, count in
                if let start = source.baseAddress { unsafe target.baseAddress!.initialize(from: start, count: source.count) }
                count = source.count
            }
        }
    }

    private func range(of name: String) -> Range<Int>? {
        let wanted = name.utf8.span
        let bytes = bytes
        let held = bytes.span
        search: for field in fields where Int(field.valueStart - field.nameStart) == wanted.count {
            for index in wanted.indices where held[Int(field.nameStart) + index] != wanted[index] { continue search }
            return Int(field.valueStart)..<Int(field.end)
        }
        return nil
    }

    /// Lends the fields in nghttp2's form.
    func withNameValues<R>(_ body: (UnsafeBufferPointer<nghttp2_nv>) -> R) -> R {
        unsafe bytes.withUnsafeBufferPointer { bytes in
            unsafe withUnsafeTemporaryAllocation(of: nghttp2_nv.self, capacity: fields.count) { values in
                // nghttp2's pointers are mutable, but it does not write through them.
                let base = unsafe UnsafeMutablePointer(mutating: bytes.baseAddress)
                for (index, field) in fields.enumerated() {
                    unsafe values.initializeElement(
                        at: index,
                        to: nghttp2_nv(
                            name: base.map { unsafe $0 + Int(field.nameStart) },
                            value: base.map { unsafe $0 + Int(field.valueStart) },
                            namelen: Int(field.valueStart - field.nameStart), valuelen: Int(field.end - field.valueStart),
                            flags: field.indexing == .never ? UInt8(NGHTTP2_NV_FLAG_NO_INDEX.rawValue) : 0))
                }
                return unsafe body(UnsafeBufferPointer(values))
            }
        }
    }
}

extension HTTP2Headers: ExpressibleByDictionaryLiteral {
    public init(dictionaryLiteral fields: (String, String)...) {
        self.init(capacity: 256)
        for (name, value) in fields { append(name, value) }
    }
}

extension HTTP2Headers: Equatable {
    /// Compares fields and their order, ignoring the indexing.
    public static func == (one: HTTP2Headers, other: HTTP2Headers) -> Bool {
        one.bytes == other.bytes
            && one.fields.elementsEqual(other.fields) { $0.valueStart == $1.valueStart && $0.end == $1.end }
    }
}

extension HTTP2Headers: CustomStringConvertible {
    /// Only names: values may be secrets.
    public var description: String {
        "[" + fields.indices.map { self[$0].name }.joined(separator: ", ") + "]"
    }
}
