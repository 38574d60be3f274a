import Ledger
import Policy
import Vocabulary

/// What an engine's keeping has in common with the others': statements that all of them take. `EngineRows+*.swift` are its parts.
protocol EngineRows: RowReading {
    /// The timing in force.
    var timing: LedgerTiming { get }
    /// Changes rows at once.
    /// - Returns: the number of changed rows.
    func change(_ sql: StaticString, _ values: [SQLValue]) throws -> Int
    /// Changes rows before the transaction ends, which fails unless it changes `count`. Nil allows any number.
    func queue(_ sql: StaticString, expecting count: Int?, _ values: [SQLValue]) throws
    /// Returns the entries of a batch and rank that are not in the log, sorted by id, at most `limit`.
    func waiting(_ batch: CompleteBatch, rank: UInt8, limit: Int) throws -> [ClosedEntry]
    /// Records that entries are in the log.
    /// - Parameter entries: adjacent entries of one batch and rank. At midnight, entries of short and long tokens alternate.
    func removeFromBatch(_ entries: ArraySlice<ClosedEntry>) throws
    /// Returns the entries under the head that a folder of `size` entries may lack, perhaps with some before them, and the index of the first.
    func unpublished(after size: UInt64) throws -> (first: UInt64, entries: [[UInt8]])
}

extension EngineRows {
    func change(_ sql: StaticString, _ values: SQLValue...) throws -> Int { try change(sql, values) }

    func queue(_ sql: StaticString, _ values: SQLValue..., expecting count: Int? = 1) throws {
        try queue(sql, expecting: count, values)
    }

    /// Returns the latest window with an entry, in unix seconds, or 0 if there is none.
    func latestWindow() throws -> UInt64 {
        max(
            try logHead()?.window ?? 0, try rows("SELECT max(window_start) FROM entry") { $0.time(0) }[0],
            try rows("SELECT max(window_start) FROM batch") { $0.time(0) }[0])
    }

    // MARK: Timing

    /// Returns the recorded timing, or nil before the log's first entry.
    /// - Throws: `.otherTiming` if it differs from `timing`.
    func recordedTiming(expecting timing: LedgerTiming?) throws -> LedgerTiming? {
        guard let recorded = try mark(timingMark).flatMap({ LedgerTiming(mark: $0) }) else { return nil }
        if let timing, timing != recorded { throw StoreError.otherTiming(recorded: recorded.text, given: timing.text) }
        return recorded
    }

    func record(_ timing: LedgerTiming) throws { try setMark(timingMark, timing.mark) }

    private var timingMark: String { "ledger_timing" }
}

extension LedgerTiming {
    fileprivate var mark: [UInt8] {
        [hourSeconds, daySeconds, UInt64(batchSeals)].flatMap { [UInt8](bigEndian: $0) }
    }

    fileprivate init?(mark: [UInt8]) {
        guard mark.count == 24 else { return nil }
        let numbers = stride(from: 0, to: 24, by: 8).map { mark[$0..<$0 + 8].reduce(0) { $0 << 8 | UInt64($1) } }
        self.init(hourSeconds: numbers[0], daySeconds: numbers[1], batchSeals: Int(numbers[2]))
    }

    fileprivate var text: String { "hourSeconds \(hourSeconds), daySeconds \(daySeconds), batchSeals \(batchSeals)" }
}

extension PurgeCause {
    /// The code in a waiting entry.
    var column: Int64 {
        switch self {
        case .ended: 0
        case .expired: 1
        case .policy: 2
        }
    }

    /// - Parameter until: unix seconds.
    init?(column: Int64, until: UInt64) {
        switch column {
        case 0: self = .ended
        case 1: self = .expired(untilMs: until * 1_000)
        case 2: self = .policy
        default: return nil
        }
    }
}
