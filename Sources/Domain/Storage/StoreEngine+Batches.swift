import Ledger
import Policy
import Vocabulary

// Seals and purges wait for their batch. At a boundary, an hour or a midnight, a batch is frozen. When everything that expired before the
// boundary is purged, it gets a window.
extension StoreEngine {
    /// Freezes and completes batches that are due, even while nothing can be published. Call it at least twice a minute.
    func settleBatches() throws {
        guard state.hasStarted, try isBatchDue() else { return }
        while let boundary = try write({ try nextBatch() }) {
            try waitForWriters()
            guard try write({ try complete(boundary) }) else { return }
        }
    }

    /// Freezes a batch if a boundary has passed and none waits for purges.
    /// - Returns: the boundary of the batch that is to be completed.
    private func nextBatch() throws -> UInt64? {
        var schedule = try lockSchedule()
        if let boundary = try incompleteBatch() { return boundary }
        let boundary = timing.boundary(upTo: moment / 1_000)
        let last = schedule.lastBoundary ?? boundary
        guard boundary > last, try batchWindow() > schedule.lastBatch else { return nil }
        schedule.lastBoundary = boundary
        try save(schedule)
        let isMidnight = boundary / timing.daySeconds > last / timing.daySeconds
        guard try isMidnight || hasSeals(timing.batchSeals, before: boundary) else { return nil }
        try freeze(at: boundary, isMidnight: isMidnight)
        return boundary
    }

    /// - Returns: false if the batch must wait.
    private func complete(_ boundary: UInt64) throws -> Bool {
        var schedule = try lockSchedule()
        // Another node may have completed it.
        guard try incompleteBatch() == boundary else { return true }
        let isSwept = try rows(
            "SELECT NOT EXISTS (SELECT 1 FROM token WHERE expires < $1) AND NOT EXISTS (SELECT 1 FROM registration WHERE expires < $1)",
            .time(boundary * 1_000)
        ) { $0.bool(0) }[0]
        let window = try batchWindow()
        // Two batches can't share a window.
        guard isSwept, window > schedule.lastBatch else { return false }
        try queue("UPDATE batch SET window_start = $1 WHERE moment = $2", .time(window), .time(boundary), expecting: nil)
        schedule.lastBatch = window
        try save(schedule)
        try noteComplete(boundary, window: window)
        return true
    }
}

// The start and the end of a log, and its head.
extension StoreEngine {
    func start(_ events: [Entry.Op], _ marks: [StoreMark]) throws {
        var schedule = try lockSchedule()
        let window = try startWindow()
        try begin(&schedule, window)
        try append(events, marks, window: window)
    }

    /// Notes where a log begins, at its first entry. It has no buckets of earlier days.
    private func begin(_ schedule: inout Schedule, _ window: UInt64) throws {
        if schedule.closedBucket == nil {
            schedule.closedBucket = window / timing.daySeconds * timing.daySeconds
            schedule.lastBoundary = max(schedule.lastBoundary ?? 0, timing.boundary(upTo: window))
            try record(timing)
        }
        try save(schedule)
    }

    func append(_ events: [Entry.Op], _ marks: [StoreMark], window: UInt64) throws {
        for var op in events {
            guard op.rank != 3, op.rank != 4 else { throw StoreError.unavailable("an entry of a batch was recorded by itself") }
            if case .keysRatcheted(let epoch, _) = op { op = .keysRatcheted(epoch: epoch, swept: try sweptEpoch(at: moment)) }
            try append(op, window: window)
        }
        for mark in marks { try setMark(mark.name, mark.value) }
    }

    /// Replaces the head and deletes the rows that it covers. The schedule's lock makes this a compare-and-swap.
    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) throws -> Bool {
        try write {
            var schedule = try lockSchedule()
            guard try (logHead()?.size ?? 0) == size else { return false }
            guard try isFolderCurrent() else { throw StoreError.unavailable("the previous head is not published") }
            try cover(entries, from: size)
            let rank = try entries.last?.source.rank ?? lastRank()
            let inWindows = try remove(entries)
            if let closed = try updateBuckets(with: entries) {
                schedule.closedBucket = closed
                try save(schedule)
            }
            try setHead(head, rank: rank)
            try noteCommitted(entries, inWindows: inWindows)
            return true
        }
    }

    /// Returns true if log and folder have all entries except those of open batches, which may go into the next log.
    private func isAllPublished() throws -> Bool {
        try !exists("SELECT 1 FROM entry LIMIT 1") && !exists("SELECT 1 FROM batch WHERE window_start IS NOT NULL")
            && isFolderCurrent()
    }

    func closeLog(_ events: [Entry.Op], next: EntryText, mark: StoreMark) throws -> Bool {
        let schedule = try lockSchedule()
        guard try logHead() != nil, try isAllPublished() else { return false }
        // A past bucket closes with its midnight batch, whose entries can't go into the next log.
        let (window, day) = (try window(), timing.daySeconds)
        guard let closed = schedule.closedBucket, closed >= window / day * day else { return false }
        let closings = try buckets().map { $0.bucket.closed(until: $0.until) }
        try append(events + closings + [.ledgerClosed(next: next)], [mark], window: window)
        return true
    }

    func beginLog(after end: Checkpoint, marks: [StoreMark]) throws -> Bool {
        var schedule = try lockSchedule()
        guard let head = try logHead(), head.size == end.size, try isAllPublished() else { return false }
        guard let origin = EntryText(end.origin) else { throw StoreError.damaged("the origin of the log that ended") }
        let carried = try buckets().filter { $0.bucket.live > 0 }
        let jobs = try UInt64(count("SELECT count(*) FROM job"))
        try queue("DELETE FROM log")
        try queue("DELETE FROM unpublished", expecting: nil)
        try queue(
            "UPDATE bucket SET carried = sealed + carried - expired - ended, sealed = 0, expired = 0, ended = 0", expecting: nil)
        try queue("DELETE FROM bucket WHERE carried <= 0", expecting: nil)
        schedule.closedBucket = nil
        try reopen(head.window)
        try begin(&schedule, head.window)
        let openings: [Entry.Op] = [.ledgerOpened(previous: origin, size: end.size, root: end.root, jobs: jobs)]
        let balances: [Entry.Op] = carried.map { .bucketCarried(untilMs: $0.until * 1_000, live: $0.bucket.live) }
        try append(openings + balances, marks, window: head.window)
        return true
    }
}

extension Bucket {
    fileprivate var live: UInt64 { sealed + carried - min(sealed + carried, expired + ended) }
}
