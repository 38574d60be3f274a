/// One parsed message and the only copy of its bytes: target, header lines, body, in that order. The bytes are zeroed by `wipe()` and when
/// the last reference goes. Not `Sendable`: it belongs to the actor whose parser made it.
public final class Message {
    struct Field {
        var name: Range<Int32>
        var value: Range<Int32>
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

    /// A request made in memory, for handlers under test. Names of header lines in any case.
    public convenience init(method: Method, target: String, headers: [(name: String, value: String)] = [], body: [UInt8] = []) {
        var store = ByteStore()
        store.append(target.utf8.span)
        var head = Head(method: method, keepsAlive: true, targetCount: store.count)
        var fields: [Field] = []
        for (name, value) in headers {
            let start = Int32(store.count)
            store.append(name.utf8.span)
            let middle = Int32(store.count)
            store.append(value.utf8.span)
            fields.append(Field(name: start..<middle, value: middle..<Int32(store.count)))
        }
        head.bodyStart = store.count
        store.append(body.span)
        self.init(head: head, fields: fields, store: store)
    }

    /// The method of a request; `.other` for a response.
    public var method: Method { head.method }
    /// The status of a response; 0 for a request.
    public var status: UInt16 { head.status }
    /// Whether the sender left the connection open for more, by version and `Connection`.
    public var keepsAlive: Bool { head.keepsAlive }
    /// HTTP/1.1 rather than 1.0.
    public var isVersion11: Bool { head.isVersion11 }
    /// Whether the sender asked to change the protocol (`Connection: upgrade` and `Upgrade`).
    public var wantsUpgrade: Bool { head.wantsUpgrade }
    public var headerCount: Int { fields.count }
    public var bodyCount: Int { store.count - head.bodyStart }

    /// The bytes of the request target as they were sent: visible ASCII without `#`.
    public func withTarget<R, E: Error>(_ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R {
        try store.withSpan(0..<head.targetCount, use)
    }

    /// The body with its transfer coding removed.
    public func withBody<R, E: Error>(_ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R {
        try store.withSpan(head.bodyStart..<store.count, use)
    }

    /// Calls `use` with the first header line called `name` (lower case), spaces around the value removed; nil when there is none.
    public func withHeader<R, E: Error>(_ name: StaticString, _ use: (Span<UInt8>) throws(E) -> R) throws(E) -> R? {
        for field in fields where isCalled(field, name) {
            return try store.withSpan(Int(field.value.lowerBound)..<Int(field.value.upperBound), use)
        }
        return nil
    }

    /// Calls `use` with every header line called `name` (lower case), in their order.
    public func forEachHeader<E: Error>(_ name: StaticString, _ use: (Span<UInt8>) throws(E) -> Void) throws(E) {
        for field in fields where isCalled(field, name) {
            try store.withSpan(Int(field.value.lowerBound)..<Int(field.value.upperBound), use)
        }
    }

    /// The value as text, for header lines that hold no secret: a `String` can't be wiped.
    public func header(_ name: StaticString) -> String? {
        withHeader(name) { value in String(decoding: value.indices.map { value[$0] }, as: UTF8.self) }
    }

    public func wipe() { store.wipe() }

    private func isCalled(_ field: Field, _ name: StaticString) -> Bool {
        store.isToken(Int(field.name.lowerBound)..<Int(field.name.upperBound), name)
    }
}
