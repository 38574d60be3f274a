import Ledger
import Policy
import SQLite
import Vocabulary

// Seals and purges wait under the number of their batch, by their ids: neither their order nor their time is kept.
extension SQLiteDatabase {
    /// Adds a token's sealing to the open batch.
    func waitSealed(_ id: EntryID, expires: UInt64, isLong: Bool) throws {
        let number = journal.addToOpenBatch(rank: 3, isLong: isLong)
        try wait(batch: number, rank: 3, id: id, until: journal.timing.untilMs(expiryMs: expires), cause: nil)
    }

    /// Adds a token's purge to the frozen batch if that waits for it, otherwise to the open one. An expired token is recorded as expired.
    func waitPurged(_ id: EntryID, _ cause: PurgeCause, expires: UInt64, isLong: Bool) throws {
        let number =
            journal.addToFrozenBatch(expires: expires, isLong: isLong) ?? journal.addToOpenBatch(rank: 4, isLong: isLong)
        let until = journal.timing.untilMs(expiryMs: expires)
        let cause = expires <= journal.moment ? .expired(untilMs: until) : cause
        try wait(batch: number, rank: 4, id: id, until: until, cause: cause)
    }

    private func wait(batch: Int64, rank: UInt8, id: EntryID, until: UInt64, cause: PurgeCause?) throws {
        try run(
            "INSERT INTO waiting (batch, rank, id, until, cause) VALUES ($1, $2, $3, $4, $5)", .int(batch), .number(rank),
            .id(id),
            .time(until / 1_000), cause.map { .int($0.column) } ?? .null)
    }

    /// Completes the frozen batch if its purges are in, and freezes the next one if a boundary has passed.
    func settleBatches() throws {
        guard journal.hasStarted else { return }
        if let batch = journal.books.incomplete { guard try complete(batch) else { return } }
        guard let (moment, isMidnight) = journal.boundary else { return }
        if isMidnight || journal.books.short.seals >= journal.timing.batchSeals { try freeze(at: moment, isMidnight: isMidnight) }
        journal.books.looked = moment
        if let batch = journal.books.incomplete { _ = try complete(batch) }
        try saveSchedule()
    }

    private func freeze(at moment: UInt64, isMidnight: Bool) throws {
        var books = journal.books
        var next = max(books.short.number, books.long.number)
        func replace(_ batch: inout Batch, isLong: Bool) throws -> Batch {
            defer { batch = Batch(number: next) }
            next += 1
            try run("UPDATE batch SET moment = $1 WHERE number = $2", .time(moment), .int(batch.number))
            try run("INSERT INTO batch (number, is_long) VALUES ($1, $2)", .int(next), .bool(isLong))
            return batch
        }
        let short = try replace(&books.short, isLong: false)
        let long = isMidnight ? try replace(&books.long, isLong: true) : nil
        books.frozen.append(FrozenBatch(moment: moment, short: short, long: long))
        journal.books = books
    }

    /// Assigns a window to a frozen batch, once everything that expired before its moment is purged.
    private func complete(_ batch: FrozenBatch) throws -> Bool {
        let isSwept = try rows(
            "SELECT EXISTS (SELECT 1 FROM token WHERE expires < $1) OR EXISTS (SELECT 1 FROM registration WHERE expires < $1)",
            .time(batch.moment * 1_000)
        ) { $0.int(0) == 0 }[0]
        guard isSwept else { return false }
        let window = journal.window(rank: 3)
        try run("UPDATE batch SET window_start = $1 WHERE moment = $2", .time(window), .time(batch.moment))
        var books = journal.books
        books.frozen[books.frozen.count - 1].window = window
        books.lastBatch = window
        journal.books = books
        try saveSchedule()
        return true
    }

    /// Reads the batches, and counts what waits in each.
    func resumeBatches(_ books: inout Books) throws {
        var batches: [Int64: Batch] = [:]
        try each("SELECT batch, rank, count(*) FROM waiting GROUP BY batch, rank") { row in
            batches[row.int(0), default: Batch(number: row.int(0))].add(rank: UInt8(clamping: row.int(1)), Int(row.int(2)))
        }
        try each("SELECT number, is_long, moment, window_start FROM batch ORDER BY moment, is_long") { row in
            let batch = batches[row.int(0)] ?? Batch(number: row.int(0))
            switch (row.isNull(2), row.int(1) != 0) {
            case (true, false): books.short = batch
            case (true, true): books.long = batch
            case (false, false):
                books.frozen.append(
                    FrozenBatch(moment: row.time(2), window: row.isNull(3) ? nil : row.time(3), short: batch))
            case (false, true): books.frozen[books.frozen.count - 1].long = batch
            }
        }
    }
}

extension PurgeCause {
    /// As `waiting` has it, beside `until` in unix seconds.
    var column: Int64 {
        switch self {
        case .ended: 0
        case .expired: 1
        case .policy: 2
        }
    }

    init?(column: Int64, until: UInt64) {
        switch column {
        case 0: self = .ended
        case 1: self = .expired(untilMs: until * 1_000)
        case 2: self = .policy
        default: return nil
        }
    }
}

extension Journal {
    /// Counts an entry in the open batch of its kind.
    /// - Returns: the batch's number.
    fileprivate func addToOpenBatch(rank: UInt8, isLong: Bool) -> Int64 {
        var books = books
        defer { self.books = books }
        if isLong {
            books.long.add(rank: rank)
            return books.long.number
        }
        books.short.add(rank: rank)
        return books.short.number
    }

    /// Counts a purge in the batch that waits for it, if there is one.
    fileprivate func addToFrozenBatch(expires: UInt64, isLong: Bool) -> Int64? {
        var books = books
        guard let batch = books.incomplete, expires < batch.moment * 1_000 else { return nil }
        let last = books.frozen.count - 1
        defer { self.books = books }
        if isLong {
            books.frozen[last].long?.add(rank: 4)
            return batch.long?.number
        }
        books.frozen[last].short.add(rank: 4)
        return batch.short.number
    }
}
