import Ledger
import SQLite

extension Tables {
    func logHead() throws -> LogHead? {
        try rows("SELECT size, checkpoint, window FROM log") {
            LogHead(size: $0.time(0), checkpoint: $0.text(1), window: $0.time(2))
        }.first
    }

    /// How far the head has come.
    func logProgress() throws -> LogProgress {
        try rows("SELECT size, done, through, window, last_ref, last_sequence FROM log", read: Self.progress).first
            ?? LogProgress()
    }

    /// How far what is known to lie in the folder has come.
    func folderProgress() throws -> LogProgress {
        try rows("SELECT size, done, through, window, last_ref, last_sequence FROM folder", read: Self.progress).first
            ?? LogProgress()
    }

    private static func progress(_ row: Statement) -> LogProgress {
        LogProgress(
            size: row.time(0), run: ClosedRun(after: row.time(1), through: row.time(2)),
            last: row.isNull(5)
                ? nil : EntryKey(window: row.time(3), id: row.blobOrNil(4).map { OpaqueID(row: $0) }, sequence: row.time(5)))
    }

    func commit(_ head: LogHead, after size: UInt64, entries: [ClosedEntry]) throws -> Bool {
        let progress = try logProgress()
        guard progress.size == size else { return false }
        guard try folderProgress().size == size else { throw StoreError.unavailable("the head before is not published") }
        if let first = entries.first, progress.covers(first.key) {
            throw StoreError.damaged("a ledger entry was sequenced twice")
        }
        let next = progress.advanced(by: entries)
        try run(
            """
            INSERT OR REPLACE INTO log (one, size, checkpoint, window, done, through, last_ref, last_sequence)
            VALUES (1, ?, ?, ?, ?, ?, ?, ?)
            """, .time(head.size), .text(head.checkpoint), .time(head.window), .time(next.run.after), .time(next.run.through),
            .blob(next.last?.id?.bytes), next.last.map { .time($0.sequence) } ?? .null)
        journal.backlog.covered = entries.count { !$0.isPurge }
        return true
    }

    /// They stay where they were recorded until they are published.
    func unpublished() throws -> (first: UInt64, entries: [[UInt8]]) {
        let (head, folder) = (try logProgress(), try folderProgress())
        let count = Int(head.size - folder.size)
        if count == 0 { return (folder.size, []) }
        let run = ClosedRun(after: folder.run.after, through: head.run.through)
        return (folder.size, try entries(of: run, after: folder.last, limit: count).map(\.bytes))
    }

    func published(upTo size: UInt64) throws -> Bool {
        let (head, folder) = (try logProgress(), try folderProgress())
        if head.size > folder.size, size >= head.size {
            try run(
                """
                INSERT OR REPLACE INTO folder (one, size, window, done, through, last_ref, last_sequence)
                SELECT 1, size, window, done, through, last_ref, last_sequence FROM log
                """)
            var backlog = journal.backlog
            backlog.waiting -= Int(head.size - folder.size)
            backlog.limited -= backlog.covered
            backlog.covered = 0
            journal.backlog = backlog
        }
        return try forgetEntries()
    }

    func mark(_ name: String) throws -> [UInt8]? {
        try rows("SELECT value FROM node WHERE name = ?", .text(name)) { $0.blob(0) }.first
    }

    func setMark(_ name: String, _ value: [UInt8]) throws {
        try run("INSERT OR REPLACE INTO node (name, value) VALUES (?, ?)", .text(name), .blob(value))
    }
}
