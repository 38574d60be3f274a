import Vocabulary

/// Checks that the entries of a window come in the log's one order.
///
/// An entry of rank 0 restarts the order. A stop publishes its window early, and the next start continues that window.
struct EntryOrder {
    private var rank = 0
    private var key: UInt128 = 0

    /// Returns false if the entry comes out of order.
    mutating func admit(_ entry: EntryFields, isNewWindow: Bool) -> Bool {
        let rank = Int(entry.op.rank)
        let key: UInt128 =
            switch rank {
            case 1, 3, 4: entry.id.value
            case 2: entry.job.value
            case 5: UInt128(entry.untilMs)
            default: 0
            }
        defer { (self.rank, self.key) = (rank, key) }
        return isNewWindow || rank == 0 || rank > self.rank || rank == self.rank && key > self.key
    }

    mutating func code(_ coder: inout StateCoder) {
        coder.code(&rank)
        coder.code(&key)
    }
}
