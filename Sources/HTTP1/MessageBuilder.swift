/// Puts together a request that came by another protocol than HTTP/1.1, so that everything above sees one shape: the target, then
/// header lines, then the body as it comes. Its bytes are zeroed with it, or by the message's owner.
public final class MessageBuilder {
    private var head: Message.Head
    private var fields: [Message.Field] = []
    private var store = ByteStore()

    public init(method: Method, target: Span<UInt8>) {
        head = Message.Head(method: method, keepsAlive: true, targetCount: target.count, bodyStart: target.count)
        store.append(target)
    }

    /// Adds a header line; all of them come before the body.
    public func addHeader(_ name: Span<UInt8>, _ value: Span<UInt8>) {
        precondition(bodyCount == 0, "a header line after the body")
        let start = Int32(store.count)
        store.append(name)
        let middle = Int32(store.count)
        store.append(value)
        fields.append(Message.Field(name: start..<middle, value: middle..<Int32(store.count)))
        head.bodyStart = store.count
    }

    /// Whether the first header line called `name` (lower case) has this value, but for the case of letters.
    public func hasHeader(_ name: StaticString, _ value: Span<UInt8>) -> Bool {
        for field in fields where store.isToken(Int(field.name.lowerBound)..<Int(field.name.upperBound), name) {
            return store.withSpan(Int(field.value.lowerBound)..<Int(field.value.upperBound)) { held in
                held.count == value.count && held.indices.allSatisfy { held[$0].lowercased == value[$0].lowercased }
            }
        }
        return false
    }

    public func appendBody(_ bytes: Span<UInt8>) { store.append(bytes) }

    public var bodyCount: Int { store.count - head.bodyStart }
    /// Bytes held: target, header lines and body.
    public var byteCount: Int { store.count }

    /// The request; the builder is empty afterwards.
    public func finish() -> Message {
        var taken = ByteStore()
        swap(&taken, &store)
        return Message(head: head, fields: fields, store: taken)
    }
}

extension Method {
    /// The method of this name, which is case-sensitive (RFC 9110 section 9.1).
    public init(name: Span<UInt8>) {
        let known: [Method] = [.get, .post, .put, .delete, .head, .patch, .options]
        self =
            known.first { method in
                let text = method.name
                return name.count == text.utf8CodeUnitCount
                    && name.indices.allSatisfy { unsafe name[$0] == text.utf8Start[$0] }
            } ?? .other
    }
}

extension UInt8 {
    /// An ASCII capital letter as a small one.
    public var lowercased: UInt8 { (0x41...0x5A).contains(self) ? self | 0x20 : self }
}
