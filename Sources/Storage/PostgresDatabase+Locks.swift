import Vocabulary

extension LockKey {
    /// The number of the advisory lock. Equal numbers of different keys only cost time.
    func number(salt: Int64) -> Int64 {
        let (kind, name): (UInt64, UInt64) =
            switch self {
            case .room(let index): (1, index.lastWord)
            case .code(let index): (2, index.lastWord)
            case .shortCodes: (3, 0)
            case .owner(let index): (4, index.lastWord)
            case .device(let index): (5, index.lastWord)
            case .registration(let row): (6, row.purgeID.low)
            case .session(let index): (7, index.lastWord)
            case .timer(let id): (8, id.low)
            case .seen(let index): (9, index.lastWord)
            case .partitions: (10, 0)
            case .schedule: (11, 0)
            case .sweep: (12, 0)
            }
        return Int64(bitPattern: name ^ kind << 56) ^ salt
    }
}

extension Digest {
    /// An index begins with its expiry, so its end is its own.
    fileprivate var lastWord: UInt64 {
        var word: UInt64 = 0
        withBytes { word = $0.bigEndian64(at: 24) }
        return word
    }
}
