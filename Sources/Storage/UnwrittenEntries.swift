import Ledger

/// The ledger entries of a transaction until they are written: together, so that an entry costs no page of its own.
struct UnwrittenEntries {
    /// What becomes one row.
    struct Row {
        var window: UInt64
        /// The number of its first entry; the others follow without a gap.
        var first: UInt64
        var entries = PackedEntries()
    }

    private(set) var rows: [Row] = []
    /// As it was when the transaction began; nil outside of one.
    private var beginning: Journal.Backlog?
    /// As it was when the operation under way began.
    private var marked = (rows: 0, length: 0, count: 0, backlog: Journal.Backlog())

    /// Bytes after which a row takes no more.
    private static let fullRow = 65_536

    mutating func begin(_ backlog: Journal.Backlog) {
        (rows, beginning) = ([], backlog)
        mark(backlog)
    }

    mutating func mark(_ backlog: Journal.Backlog) {
        marked = (rows.count, rows.last?.entries.bytes.count ?? 0, rows.last?.entries.count ?? 0, backlog)
    }

    mutating func cutToMark() -> Journal.Backlog {
        rows.removeLast(max(0, rows.count - marked.rows))
        if !rows.isEmpty { rows[rows.count - 1].entries.cut(to: marked.length, count: marked.count) }
        return marked.backlog
    }

    /// The transaction is over: forgets them.
    /// - Returns: the backlog from before it, if one was under way.
    @discardableResult mutating func end() -> Journal.Backlog? {
        defer { (rows, beginning) = ([], nil) }
        return beginning
    }

    mutating func takeAll() -> [Row] {
        defer { rows = [] }
        return rows
    }

    /// - Returns: a row that is full, to be written now. One that was begun by an earlier operation has to wait, or it would go with this one.
    mutating func append(_ entry: Entry, window: UInt64, sequence: UInt64) -> Row? {
        var full: Row?
        if let last = rows.last, last.window == window, last.entries.bytes.count < Self.fullRow {
            rows[rows.count - 1].entries.append(entry)
        } else {
            if rows.count > marked.rows { full = rows.removeLast() }
            rows.append(Row(window: window, first: sequence))
            rows[rows.count - 1].entries.append(entry)
        }
        return full
    }
}
