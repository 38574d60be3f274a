import Sodium
import Vocabulary

/// The use of a derived key or index. The label is part of the derivation, so no key has two uses.
struct Label: Sendable {
    let name: String
    let prefix: [UInt8]

    init(_ name: String) {
        self.name = name
        prefix = Array("mayfly/v1 \(name)\0".utf8)
    }

    static let chain = Label("chain")
    static let epoch = Label("epoch")
    static let day = Label("day")
    static let file = Label("ratchet-file")
    static let wrapping = Label("wrapping")
    static let wrappingID = Label("wrapping-id")
    static let token = Label("token")
    static let audience = Label("audience")
    static let pending = Label("pending")
    static let creator = Label("creator")
    static let retry = Label("retry")
    static let job = Label("job")
    static let apnsID = Label("apns-id")
    static let app = Label("app")
    static let room = Label("room")
    static let join = Label("join")
    static let client = Label("client")
    static let member = Label("member")
    static let audienceIndex = Label("audience-index")
    static let ownerIndex = Label("owner-index")
    static let deviceIndex = Label("device-index")
    static let sessionIndex = Label("session-index")
    static let activeClient = Label("active-client")
    static let seenIndex = Label("seen-index")
    static let requestIndex = Label("request-index")
    static let details = Label("details")
    static let update = Label("update")
    static let fields = Label("fields")
    static let timer = Label("timer")
    static let nodes = Label("nodes")
    static let ref = Label("ref")
}

/// `D(k, label, f...) = BLAKE2b-256(key k, "mayfly/v1 " || label || 00 || (u32be length || f)...)`, computed field by field.
struct Derivation: ~Copyable {
    private var hash: GenericHash

    /// - Parameter key: 32 bytes.
    init(_ key: Span<UInt8>, _ label: Label) {
        precondition(key.count == 32)
        hash = GenericHash(key: key)
        hash.update(label.prefix.span)
    }

    /// Uses key 0: 32 zero bytes.
    init(_ label: Label) {
        let zero = InlineArray<32, UInt8>(repeating: 0)
        self.init(zero.span, label)
    }

    mutating func add(_ field: Span<UInt8>) {
        let count = UInt32(field.count)
        let prefix: InlineArray<4, UInt8> = [
            UInt8(truncatingIfNeeded: count >> 24), UInt8(truncatingIfNeeded: count >> 16), UInt8(truncatingIfNeeded: count >> 8),
            UInt8(truncatingIfNeeded: count),
        ]
        hash.update(prefix.span)
        hash.update(field)
    }

    mutating func add(_ byte: UInt8) {
        let field: InlineArray<1, UInt8> = [byte]
        add(field.span)
    }

    mutating func add(_ secret: Secret) { secret.withBytes { add($0) } }

    /// Writes the 32 bytes to `output`.
    consuming func finish(into output: inout MutableSpan<UInt8>) { hash.finish(into: &output) }

    consuming func digest() -> Digest {
        var bytes = InlineArray<32, UInt8>(repeating: 0)
        var span = bytes.mutableSpan
        finish(into: &span)
        return Digest(bytes)
    }

    /// Returns the 32 bytes in a slot of the arena.
    consuming func secret(for purpose: Arena.Purpose = .anything) throws(SealingError) -> Slot {
        let slot = try Arena.shared.take(for: purpose)
        var derivation: Derivation? = self
        slot.withMutableBytes(32) { derivation.take()!.finish(into: &$0) }
        return slot
    }
}

// A region with several chains and keys of 32 bytes each.
extension LockedMemory {
    /// Writes `D(the 32 bytes at key, label)` to `output`. Both may be the same offset.
    func derive(from key: Int, _ label: Label, to output: Int) { derive(from: key, label, to: output, of: self) }

    /// Writes the result to `output` of another region.
    func derive(from key: Int, _ label: Label, to output: Int, of other: LockedMemory) {
        var derivation: Derivation? = withBytes(key..<key + 32) { Derivation($0, label) }
        other.withMutableBytes(output..<output + 32) { derivation.take()!.finish(into: &$0) }
    }

    func copy(from source: Int, to output: Int) {
        withBytes(source..<source + 32) { source in withMutableBytes(output..<output + 32) { $0.write(source, at: 0) } }
    }
}
