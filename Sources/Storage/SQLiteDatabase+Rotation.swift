import Ledger
import Policy
import SQLite

extension SQLiteDatabase {
    func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) throws -> Bool {
        guard try logHead() != nil, try isAllPublished() else { return false }
        // A bucket of the past closes with its midnight batch, and what waits for that can't go into another log.
        let (window, day) = (journal.window(rank: 0), journal.timing.daySeconds)
        guard let closed = journal.books.closed, closed >= window / day * day else { return false }
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
        (books.closed, books.isCut) = (nil, false)
        journal.books = books
        let jobs = try rows("SELECT count(*) FROM job") { UInt64(clamping: $0.int(0)) }[0]
        try append(.ledgerOpened(previous: origin, size: end.size, root: end.root, jobs: jobs), window: head.window)
        for (until, bucket) in try buckets() {
            try append(.bucketCarried(untilMs: until * 1_000, live: bucket.carried), window: head.window)
        }
        for mark in marks { try setMark(mark.name, mark.value) }
        return true
    }
}
