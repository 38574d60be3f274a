import Glibc

/// A parsed message and the only copy of its bytes: target, header lines, body, in that order. The bytes are zeroed by `wipe()` and on deinit. Not
/// `Sendable`: it belongs to the actor whose parser created it.
public final class Message {
    struct Field {
        var name: Range<Int32>
        var value: Range<Int32>

        var nameRange: Range<Int> { Int(name.lowerBound)..<Int(name.upperBound) }
        var valueRange: Range<Int> { Int(value.lowerBound)..<Int(value.upperBound) }
    }

    struct Head {
        var method = Method.other
        var status: UInt16 = 0
        var keepsAlive = false
        var isVersion11 = true
        var wantsUpgrade = false
        var targetCount = 0
        var bodyStart = 0
    }

    private let head: Head
    private let fields: [Field]
    private let store: ByteStore

    init(head: Head, fields: [Field], store: consuming ByteStore) {
        self.head = head
        self.fields = fields
        self.store = store
    }

    /// Creates a request in memory for tests of handlers. Header names in any case.
    public convenience init(method: Method, target: String, headers: [(name: String, value: String)] = [], body: [UInt8] = []) {
        let builder = MessageBuilder(method: method, target: target.utf8.span)
        for (name, value) in headers { builder.addHeader(name.utf8.span, value.utf8.span) }
        builder.appendBody(body.span)
        self.init(head: builder.head, fields: builder.fields, store: builder.takeStore())
    }

    /// The method of a request; `.other` for a response.
    public var method: Method { head.method }
    /// The status of a response; 0 for a request.
    public var status: UInt16 { head.status }
    /// Whether the sender keeps the connection open, by version and `Connection`.
    public var keepsAlive: Bool { head.keepsAlive }
    /// True for HTTP/1.1, false for 1.0.
    public var isVersion11: Bool { head.isVersion11 }
    /// Whether the sender asked to change the protocol (`Connection: upgrade` and `Upgrade`).
    public var wantsUpgrade: Bool { head.wantsUpgrade }
    public var headerCount: Int { fields.count }
    public var bodyCount: Int { store.count - head.bodyStart }

    /// Lends the request target as sent: visible ASCII without `#`.
    public func withTarget<R, E: Error>(_ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R {
        try store.withSpan(0..<head.targetCount, use)
    }

    /// Lends the body without its transfer coding.
    public func withBody<R, E: Error>(_ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R {
        try store.withSpan(head.bodyStart..<store.count, use)
    }

    /// Calls `use` with the value of the first header line called `name` (lower case), trimmed. Returns nil if there is none.
    public func withHeader<R, E: Error>(_ name: StaticString, _ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R? {
        for field in fields where isCalled(field, name) {
            return try store.withSpan(field.valueRange, use)
        }
        return nil
    }

    /// Calls `use` with the value of each header line called `name` (lower case), in order.
    public func forEachHeader<E: Error>(_ name: StaticString, _ use: (Span<UInt8>) throws(E) -> Void) throws(E) {
        for field in fields where isCalled(field, name) {
            try store.withSpan(field.valueRange, use)
        }
    }

    /// Calls `use` with the name and value of each header line, in order. Names are as sent.
    public func forEachHeader<E: Error>(_ use: (Span<UInt8>, Span<UInt8>) throws(E) -> Void) throws(E) {
        for field in fields {
            try store.withSpan(field.nameRange) { (name) throws(E) in
                try store.withSpan(field.valueRange) { (value) throws(E) in try use(name, value) }
            }
        }
    }

    /// True if the header's list contains `token`, in any case. All lines called `name` (lower case) are one list (RFC 9110 section 5.3).
    public func listContains(_ name: StaticString, _ token: StaticString) -> Bool {
        fields.contains { isCalled($0, name) && store.withSpan($0.valueRange) { $0.listContains(token) } }
    }

    /// Returns the value as text. Not for secrets: a `String` can't be wiped.
    public func header(_ name: StaticString) -> String? {
        withHeader(name) { value in String(decoding: value.indices.map { value[$0] }, as: UTF8.self) }
    }

    public func wipe() { store.wipe() }

    private func isCalled(_ field: Field, _ name: StaticString) -> Bool {
        store.isToken(field.nameRange, name)
    }
}

/// Builds a request that arrived by another protocol, so that the layers above see a single type. Add the target, then header lines, then the body.
/// Bytes are zeroed on deinit or with the message.
public final class MessageBuilder {
    fileprivate private(set) var head: Message.Head
    fileprivate private(set) var fields: [Message.Field] = []
    private var store = ByteStore()

    public init(method: Method, target: Span<UInt8>) {
        head = Message.Head(method: method, keepsAlive: true, targetCount: target.count, bodyStart: target.count)
        store.append(target)
    }

    /// Adds a header line. Add all of them before the body.
    public func addHeader(_ name: Span<UInt8>, _ value: Span<UInt8>) {
        precondition(bodyCount == 0, "a header line after the body")
        let start = Int32(store.count)
        store.append(name)
        let middle = Int32(store.count)
        store.append(value)
        fields.append(Message.Field(name: start..<middle, value: middle..<Int32(store.count)))
        head.bodyStart = store.count
    }

    /// Whether the first header line called `name` (lower case) has this value, ignoring case.
    public func hasHeader(_ name: StaticString, _ value: Span<UInt8>) -> Bool {
        for field in fields where store.isToken(field.nameRange, name) {
            return store.withSpan(field.valueRange) { held in
                held.count == value.count && held.indices.allSatisfy { held[$0].lowercased == value[$0].lowercased }
            }
        }
        return false
    }

    public func appendBody(_ bytes: Span<UInt8>) { store.append(bytes) }

    /// True if a body of `count` bytes is within the limit.
    public func allowsBody(_ count: Int, _ limits: MessageLimits) -> Bool {
        let method = head.method
        return count <= limits.bodyBytes
            || count <= store.withSpan(0..<head.targetCount) { limits.longBodyBytes(method, $0) }
    }

    public var bodyCount: Int { store.count - head.bodyStart }
    /// The total bytes of target, header lines and body.
    public var byteCount: Int { store.count }

    /// Returns the request and empties the builder.
    public func finish() -> Message {
        Message(head: head, fields: fields, store: takeStore())
    }

    fileprivate func takeStore() -> ByteStore {
        var taken = ByteStore()
        swap(&taken, &store)
        return taken
    }
}

/// The supported request methods. Others are `other`, which handlers answer with 405.
public enum Method: UInt8, Sendable, Hashable {
    case get, head, post, put, delete, options, patch, other

    /// The name in a request line. Empty for `other`.
    public var name: StaticString {
        switch self {
        case .get: "GET"
        case .head: "HEAD"
        case .post: "POST"
        case .put: "PUT"
        case .delete: "DELETE"
        case .options: "OPTIONS"
        case .patch: "PATCH"
        case .other: ""
        }
    }

    /// Parses a method's name, which is case-sensitive (RFC 9110 section 9.1).
    public init(name: Span<UInt8>) {
        let (first, second): (Method, Method) =
            switch name.count {
            case 3: (.get, .put)
            case 4: (.post, .head)
            case 5: (.patch, .other)
            case 6: (.delete, .other)
            case 7: (.options, .other)
            default: (.other, .other)
            }
        self = first.isNamed(name) ? first : second.isNamed(name) ? second : .other
    }

    /// The length of the longest method's name.
    static let longestName = 7

    private func isNamed(_ bytes: Span<UInt8>) -> Bool {
        let text = name
        return bytes.count == text.utf8CodeUnitCount && bytes.indices.allSatisfy { unsafe bytes[$0] == text.utf8Start[$0] }
    }
}

/// A growing buffer outside Swift's arrays, so that every copy is known and wiped: on growth, by `wipe()` and on deinit.
@safe struct ByteStore: ~Copyable {
    private var base: UnsafeMutablePointer<UInt8>?
    private(set) var count = 0
    private var capacity = 0

    init() { unsafe base = nil }

    deinit {
        wipe()
        unsafe free(base)
    }

    mutating func append(_ bytes: UnsafePointer<CChar>, _ length: Int) {
        // llhttp reports an empty name before there is a buffer.
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
        // `allocate` asks for an alignment, which takes longer.
        guard let memory = unsafe malloc(wanted) else { fatalError("out of memory") }
        let larger = unsafe memory.bindMemory(to: UInt8.self, capacity: wanted)
        if let old = unsafe base {
            unsafe memcpy(larger, old, count)
            unsafe explicit_bzero(old, capacity)
            unsafe free(old)
        }
        unsafe base = unsafe larger
        capacity = wanted
    }

    /// Zeroes the content. The count stays, so ranges into the store stay valid.
    func wipe() {
        if let base = unsafe base { unsafe explicit_bzero(base, count) }
    }
}
