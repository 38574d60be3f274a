import Vocabulary

/// Writes or reads a verifier's state, field by field: one description serves both directions.
struct StateCoder {
    private(set) var bytes: [UInt8]
    private var position = 0
    private let isReading: Bool
    /// The input is truncated or invalid.
    var isDamaged = false

    /// Writes.
    init() { (bytes, isReading) = ([], false) }

    init(reading bytes: [UInt8]) { (self.bytes, isReading) = (bytes, true) }

    var isAtEnd: Bool { position == bytes.count }

    mutating func code(_ number: inout UInt64) {
        guard isReading else {
            return bytes.append(bigEndian: number)
        }
        guard !isDamaged, bytes.count - position >= 8 else {
            isDamaged = true
            return
        }
        number = bytes[position..<position + 8].reduce(0) { $0 << 8 | UInt64($1) }
        position += 8
    }

    mutating func code(_ number: inout Int) {
        var raw = UInt64(bitPattern: Int64(number))
        code(&raw)
        number = Int(Int64(bitPattern: raw))
    }

    mutating func code(_ flag: inout Bool) {
        var raw = flag ? 1 : 0
        code(&raw)
        flag = raw == 1
    }

    mutating func code(_ number: inout Int?) {
        var raw = [number].compactMap(\.self)
        code(&raw, empty: 0) { $1.code(&$0) }
        number = raw.first
    }

    mutating func code(_ number: inout UInt64?) {
        var raw = [number].compactMap(\.self)
        code(&raw, empty: 0) { $1.code(&$0) }
        number = raw.first
    }

    mutating func code(_ id: inout UInt128) {
        var (high, low) = (UInt64(truncatingIfNeeded: id >> 64), UInt64(truncatingIfNeeded: id))
        code(&high)
        code(&low)
        id = UInt128(high) << 64 | UInt128(low)
    }

    mutating func code(_ digests: inout [Digest]) {
        code(&digests, empty: .emptyRoot) { digest, coder in
            var bytes: [UInt8] = []
            bytes.append(digest)
            coder.code(&bytes)
            if let read = Digest(bytes: bytes.span) { digest = read } else { coder.isDamaged = true }
        }
    }

    mutating func code(_ text: inout [UInt8]) {
        var count = text.count
        code(&count)
        guard isReading else { return bytes.append(contentsOf: text) }
        guard !isDamaged, (0...bytes.count - position).contains(count) else {
            isDamaged = true
            return
        }
        text = Array(bytes[position..<position + count])
        position += count
    }

    mutating func code<Element>(
        _ list: inout [Element], empty: Element, _ each: (inout Element, inout StateCoder) -> Void
    ) {
        var count = list.count
        code(&count)
        if isReading {
            // Each element takes a byte or more.
            guard !isDamaged, (0...bytes.count - position).contains(count) else {
                isDamaged = true
                return
            }
            list = Array(repeating: empty, count: count)
        }
        for index in list.indices where !isDamaged { each(&list[index], &self) }
    }
}
