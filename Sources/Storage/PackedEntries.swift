import Ledger

/// Ledger entries as a row of `entry` holds them, one behind the other: flags, the ref if there is one, the text's length (u16) and the text.
struct PackedEntries {
    private(set) var bytes: [UInt8] = []
    private(set) var count = 0

    /// 1: a ref follows. 2: a purge.
    private static let (hasRef, isPurge): (UInt8, UInt8) = (1, 2)

    mutating func append(_ entry: Entry) {
        let ref = entry.ref
        bytes.append((ref == nil ? 0 : Self.hasRef) | (entry.op.isPurge ? Self.isPurge : 0))
        if let ref { bytes += ref.bytes }
        let length = bytes.count
        bytes.append(0)
        bytes.append(0)
        entry.encode(into: &bytes)
        let text = bytes.count - length - 2
        bytes[length] = UInt8(text >> 8)
        bytes[length + 1] = UInt8(text & 0xff)
        count += 1
    }

    /// Takes back what was appended after there were `count` entries in `length` bytes.
    mutating func cut(to length: Int, count: Int) {
        bytes.removeLast(bytes.count - length)
        self.count = count
    }

    /// One of them, `text` being where its text lies.
    struct Place {
        var ref: OpaqueID?
        var isPurge: Bool
        var text: Range<Int>
    }

    /// Reads a row.
    /// - Throws: `damaged` for one that this program did not write.
    static func read(_ row: Span<UInt8>, _ body: (Place) throws -> Void) throws {
        var at = 0
        while at < row.count {
            let flags = row[at]
            at += 1
            var ref: OpaqueID?
            if flags & Self.hasRef != 0 {
                guard at + OpaqueID.count <= row.count else { throw StoreError.damaged("an entry that is cut off") }
                ref = OpaqueID(row.extracting(at..<at + OpaqueID.count))
                at += OpaqueID.count
            }
            guard at + 2 <= row.count else { throw StoreError.damaged("an entry that is cut off") }
            let text = at + 2..<at + 2 + Int(row[at]) << 8 + Int(row[at + 1])
            guard text.upperBound <= row.count else { throw StoreError.damaged("an entry that is cut off") }
            try body(Place(ref: ref, isPurge: flags & Self.isPurge != 0, text: text))
            at = text.upperBound
        }
    }
}

extension Entry.Op {
    var isPurge: Bool {
        if case .tokenPurged = self { true } else { false }
    }
}
