import Ledger
import Policy
import Vocabulary

/// An entry of a closed window or a complete batch.
public struct ClosedEntry: Sendable, Equatable {
    /// Unix seconds.
    public var window: UInt64
    /// The canonical encoding.
    public var bytes: [UInt8]
    var source: Source
    /// True for the last entry of its batch.
    var endsBatch = false

    /// Where the entry was read.
    enum Source: Sendable, Equatable {
        case window(rank: UInt8, key: [UInt8])
        /// `until`: unix seconds. `cause`: nil for a seal. `page`: the key of the page that the entry ends, if the engine has pages.
        case batch(number: Int64, rank: UInt8, id: EntryID, until: UInt64, cause: PurgeCause?, page: Int64?)
        /// A bucket's closing, which is computed from the entries before it.
        case closing(until: UInt64)

        var rank: UInt8 {
            switch self {
            case .window(let rank, _), .batch(_, let rank, _, _, _, _): rank
            case .closing: 5
            }
        }
    }
}

extension ClosedEntry {
    /// A seal or purge of a batch.
    /// - Parameters: as in `Source.batch`.
    init(
        of batch: CompleteBatch, _ number: Int64, rank: UInt8, id: EntryID, until: UInt64, cause: PurgeCause?, page: Int64? = nil
    ) {
        let op: Entry.Op =
            if let cause { .tokenPurged(id: id, cause: cause) } else { .tokenSealed(id: id, untilMs: until * 1_000) }
        self.init(
            window: batch.window, bytes: Entry(atMs: batch.window * 1_000, op).encoded,
            source: .batch(number: number, rank: rank, id: id, until: until, cause: cause, page: page))
    }

    /// Counts the entries of batches by bucket.
    static func buckets(of entries: some Sequence<ClosedEntry>) -> [UInt64: Bucket] {
        var buckets: [UInt64: Bucket] = [:]
        for entry in entries {
            guard case .batch(_, let rank, _, let until, let cause, _) = entry.source else { continue }
            if rank == 3 {
                buckets[until, default: Bucket()].sealed += 1
            } else if case .expired = cause {
                buckets[until, default: Bucket()].expired += 1
            } else {
                buckets[until, default: Bucket()].ended += 1
            }
        }
        return buckets
    }
}

/// Published totals of the tokens that expire on one day.
struct Bucket: Sendable, Equatable {
    var sealed: UInt64 = 0
    var carried: UInt64 = 0
    var expired: UInt64 = 0
    var ended: UInt64 = 0
}

/// A batch whose entries may be published.
struct CompleteBatch {
    /// Unix seconds.
    var window: UInt64
    var moment: UInt64
    /// The numbers of the batches of short and of long tokens.
    var numbers: [Int64]
    /// The last seal or purge that is in the log. Nil if none is.
    var last: (rank: UInt8, id: EntryID)?
}

extension Row {
    /// Reads a batch's last entry in the log from a column with its rank and the next one with its id. Returns nil if they are null.
    func last(_ column: Int32) throws(StoreError) -> (rank: UInt8, id: EntryID)? {
        isNull(column) ? nil : (number(column), try id(column + 1))
    }
}

extension StoreError {
    /// A batch whose entries can't be published.
    static var damagedBatch: StoreError { .damaged("ledger entries that wait for their batch") }
}

extension StoreEngine {
    /// Returns the entries of the windows before `window` in the log's order, at most `limit`. Fewer only if there are no more, or if the next
    /// batch is damaged.
    /// - Parameter batches: those before `window`, by window.
    /// - Throws: `.damaged` if the log's next entries are those of a damaged batch.
    func closedEntries(before window: UInt64, batches: [CompleteBatch], limit: Int) throws -> [ClosedEntry] {
        let head = try logHead()
        let started = try lastRank() >= 3 ? head?.window : nil
        var entries: [ClosedEntry] = []
        for batch in batches {
            // A batch that is partly in the log continues before later entries of its window.
            if batch.window != started { try addWindows(to: &entries, before: batch.window, rank: 3, limit: limit) }
            let preceding = entries.count
            do {
                // Entries that precede the head's would spoil the log, and a batch of a later window has none in it.
                guard batch.window >= head?.window ?? 0, batch.last == nil || batch.window == started else {
                    throw StoreError.damagedBatch
                }
                try add(batch, to: &entries, limit: limit)
            } catch {
                // The log gets what precedes a damaged batch, and stops there.
                guard case .damaged = StoreError(any: error), preceding > 0 else { throw error }
                return Array(entries.prefix(preceding))
            }
            if entries.count >= limit { return entries }
        }
        try addWindows(to: &entries, before: window, rank: 0, limit: limit)
        return entries
    }

    /// Adds the window entries that precede `rank` of `window` in the log.
    private func addWindows(to entries: inout [ClosedEntry], before window: UInt64, rank: UInt8, limit: Int) throws {
        var after: (window: UInt64, rank: UInt8, key: [UInt8]) = (0, 0, [])
        for entry in entries.reversed() {
            guard case .window(let rank, let key) = entry.source else { continue }
            after = (entry.window, rank, key)
            break
        }
        entries += try rows(
            """
            SELECT window_start, rank, key, bytes FROM entry WHERE (window_start, rank, key) > ($1, $2, $3) AND (window_start, rank) < ($4, $5)
            ORDER BY window_start, rank, key LIMIT $6
            """, .time(after.window), .number(after.rank), .blob(after.key), .time(window), .number(rank),
            .number(limit - entries.count)
        ) { row in
            ClosedEntry(
                window: row.time(0), bytes: row.blob(3), source: .window(rank: row.number(1), key: row.blob(2)))
        }
    }

    /// Adds the entries of a batch that are not in the log yet.
    private func add(_ batch: CompleteBatch, to entries: inout [ClosedEntry], limit: Int) throws {
        for rank in [3, 4] as [UInt8] {
            let room = limit - entries.count
            let found = try waiting(batch, rank: rank, limit: min(room, .max - 1) + 1)
            entries += found.prefix(room)
            if found.count > room { return }
        }
        let closings = try closings(of: batch, after: entries)
        let room = limit - entries.count
        entries += closings.prefix(room)
        if closings.count > room { return }
        // A batch is never empty: it has seals, or a closing at midnight.
        guard let last = entries.last, last.window == batch.window, last.source.rank >= 3 else { return }
        entries[entries.count - 1].endsBatch = true
    }

    // MARK: Buckets

    /// The most empty buckets to close at each end of an absence: 22 years of days. With days of seconds, as in trials, an absence of years would
    /// need too many entries. Both ends are closed, since the oldest buckets may have ended while the broker ran.
    private static var mostEmpty: UInt64 { 8_192 }

    /// Returns the closings of a midnight batch, without those in `entries`.
    private func closings(of batch: CompleteBatch, after entries: [ClosedEntry]) throws -> [ClosedEntry] {
        let day = timing.daySeconds
        let midnight = batch.moment / day * day
        let last = try earliest("SELECT closed FROM schedule") ?? midnight
        var closed = last
        for case .closing(let until) in entries.lazy.map(\.source) { closed = max(closed, until) }
        guard midnight > closed else { return [] }
        let buckets = try buckets(after: entries)
        let empty = min((midnight - last) / day, Self.mostEmpty)
        let ends = (0..<empty).flatMap { [midnight - $0 * day, last + ($0 + 1) * day] }
        let untils = Set(ends).union(buckets.keys).filter { $0 > closed && $0 <= midnight }
        return untils.sorted().map { until in
            ClosedEntry(
                window: batch.window,
                bytes: Entry(atMs: batch.window * 1_000, (buckets[until] ?? Bucket()).closed(until: until)).encoded,
                source: .closing(until: until))
        }
    }

    /// Returns the open buckets as they will be when `entries` are in the log.
    private func buckets(after entries: [ClosedEntry]) throws -> [UInt64: Bucket] {
        var buckets = Dictionary(uniqueKeysWithValues: try buckets().map { ($0.until, $0.bucket) })
        for (until, added) in ClosedEntry.buckets(of: entries) {
            buckets[until, default: Bucket()].sealed += added.sealed
            buckets[until, default: Bucket()].expired += added.expired
            buckets[until, default: Bucket()].ended += added.ended
        }
        return buckets
    }

    /// Returns the open buckets with the counts of the log's entries, earliest first.
    func buckets() throws -> [(until: UInt64, bucket: Bucket)] {
        try rows("SELECT until, sealed, carried, expired, ended FROM bucket ORDER BY until") {
            ($0.time(0), Bucket(sealed: $0.time(1), carried: $0.time(2), expired: $0.time(3), ended: $0.time(4)))
        }
    }
}

extension Bucket {
    /// - Parameter until: unix seconds.
    func closed(until: UInt64) -> Entry.Op {
        .bucketClosed(untilMs: until * 1_000, sealed: sealed, expired: expired, ended: ended)
    }
}
