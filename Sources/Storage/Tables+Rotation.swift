import Ledger
import SQLite

extension Tables {
    func closeLog(next: EntryText, mark: StoreMark) throws -> Bool {
        guard try logHead() != nil, try isAllPublished() else { return false }
        try record(.ledgerClosed(next: next))
        try setMark(mark.name, mark.value)
        return true
    }

    func beginLog(after size: UInt64, marks: [StoreMark]) throws -> Bool {
        guard let head = try logHead(), head.size == size, try isAllPublished() else { return false }
        try run("DELETE FROM entry")
        try run("DELETE FROM log")
        try run("DELETE FROM folder")
        let window = head.window
        for select in Self.pagesOfTokens {
            try eachToken(select) { ref, kind, expires in try record(.sealed(ref, kind: kind, expires: expires), window: window) }
        }
        for job in try jobs() {
            // An opening needs a seal before it.
            guard try holdsToken(of: job) else { throw StoreError.damaged("a push without its token") }
            try record(.opened(job), window: window)
        }
        for mark in marks { try setMark(mark.name, mark.value) }
        return true
    }

    private static let pagesOfTokens: [StaticString] = [
        "SELECT expires, ref, kind FROM token WHERE (expires, ref) > (?, ?) ORDER BY expires, ref LIMIT ?",
        "SELECT expires, ref, kind FROM registration WHERE (expires, ref) > (?, ?) ORDER BY expires, ref LIMIT ?",
    ]

    /// All tokens of a table, page after page, so that not all are in memory at once.
    private func eachToken(
        _ select: StaticString, _ body: (_ ref: [UInt8], _ kind: UInt8, _ expires: UInt64) throws -> Void
    ) throws {
        let page = 10_000
        var (expires, ref): (UInt64, [UInt8]) = (0, [])
        while true {
            let tokens = try rows(select, .time(expires), .blob(ref), .number(page)) {
                ($0.time(0), $0.blob(1), UInt8(clamping: $0.int(2)))
            }
            for (expires, ref, kind) in tokens { try body(ref, kind, expires) }
            guard tokens.count == page, let last = tokens.last else { return }
            (expires, ref) = (last.0, last.1)
        }
    }
}
