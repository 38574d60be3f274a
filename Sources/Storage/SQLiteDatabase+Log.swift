import Ledger
import Policy
import SQLite
import Vocabulary

// The log's head, and what it covers.
extension SQLiteDatabase {
    func closedEntries(before window: UInt64, limit: Int) throws -> [ClosedEntry] {
        // One transaction for all reads, since others write meanwhile.
        let begins = !inTransaction
        if begins { try beginReading() }
        defer { if begins { endReading() } }
        return try closedEntries(before: window, batches: try completeBatches(before: window), limit: limit)
    }

    private func completeBatches(before window: UInt64) throws -> [CompleteBatch] {
        var batches: [CompleteBatch] = []
        try each(
            "SELECT number, moment, window_start, rank, id FROM batch WHERE window_start < $1 ORDER BY window_start, number",
            .time(window)
        ) { row in
            if batches.last?.window == row.time(2) {
                batches[batches.count - 1].numbers.append(row.int(0))
            } else {
                let last = try row.isNull(3) ? nil : (rank: UInt8(clamping: row.int(3)), id: row.id(4) as EntryID)
                batches.append(CompleteBatch(window: row.time(2), moment: row.time(1), numbers: [row.int(0)], last: last))
            }
        }
        return batches
    }

    /// Replaces the head and deletes the rows that it covers.
    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) throws -> Bool {
        guard try (logHead()?.size ?? 0) == size else { return false }
        guard try isFolderCurrent() else { throw StoreError.unavailable("the previous head is not published") }
        var books = journal.books
        books.covered = try cover(entries, from: size)
        books.inWindows -= try remove(entries)
        for entry in entries {
            if case .batch(let number, let rank, _, _, _, _) = entry.source { books.removeFromBatch(number, rank: rank) }
            if entry.endsBatch {
                books.frozen.removeAll { $0.window == entry.window }
                runs = [:]
            }
        }
        let closed = try updateBuckets(with: entries)
        books.closedBucket = closed ?? books.closedBucket
        journal.books = books
        if closed != nil { try saveSchedule() }
        try setHead(head, rank: entries.last?.source.rank ?? lastRank())
        return true
    }

    func published(upTo size: UInt64) throws {
        guard let head = try logHead(), size >= head.size else { return }
        try deletePublishedPages()
        try run("DELETE FROM unpublished")
        journal.books.covered = Books.Covered()
    }

    /// Returns true if log and folder have all entries except those of open batches, which may go into the next log.
    private func isAllPublished() throws -> Bool {
        let books = journal.books
        return try books.inWindows == 0 && books.frozen.allSatisfy { $0.window == nil } && isFolderCurrent()
    }
}

extension Books {
    fileprivate mutating func removeFromBatch(_ number: Int64, rank: UInt8) {
        for index in frozen.indices {
            if frozen[index].short.number == number { frozen[index].short.add(rank: rank, -1) }
            if frozen[index].long?.number == number { frozen[index].long?.add(rank: rank, -1) }
        }
    }
}

// The end of a log and the start of the next.
extension SQLiteDatabase {
    func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) throws -> Bool {
        guard try logHead() != nil, try isAllPublished() else { return false }
        // A past bucket closes with its midnight batch, whose entries can't go into the next log.
        let (window, day) = (journal.window(rank: 0), journal.timing.daySeconds)
        guard let closed = journal.books.closedBucket, closed >= window / day * day else { return false }
        for event in events { try append(event, window: window) }
        for (until, bucket) in try buckets() { try append(bucket.closed(until: until), window: window) }
        try append(.ledgerClosed(next: next), window: window)
        try setMark(mark.name, mark.value)
        return true
    }

    func beginLog(after end: Checkpoint, marks: [StoreMark]) throws -> Bool {
        guard let head = try logHead(), head.size == end.size, try isAllPublished() else { return false }
        guard let origin = EntryText(end.origin) else { throw StoreError.damaged("the origin of the log that ended") }
        try run("DELETE FROM log")
        try run("UPDATE bucket SET carried = sealed + carried - expired - ended, sealed = 0, expired = 0, ended = 0")
        try run("DELETE FROM bucket WHERE carried <= 0")
        var books = journal.books
        (books.closedBucket, books.isCut) = (nil, false)
        journal.books = books
        let jobs = try rows("SELECT count(*) FROM job") { UInt64(clamping: $0.int(0)) }[0]
        try append(.ledgerOpened(previous: origin, size: end.size, root: end.root, jobs: jobs), window: head.window)
        for (until, bucket) in try buckets() {
            try append(.bucketCarried(untilMs: until * 1_000, live: bucket.carried), window: head.window)
        }
        for mark in marks { try setMark(mark.name, mark.value) }
        return true
    }

    /// Returns true if the folder is known to have everything under the head.
    private func isFolderCurrent() throws -> Bool { try !exists("SELECT 1 FROM unpublished LIMIT 1") }
}
