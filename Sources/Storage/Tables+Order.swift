import Ledger
import SQLite

/// The entries of a part of a closed window, in the log's order: all whose refs lie in one stretch. A window of a million entries has many
/// parts, so that only some of it is ever in memory.
struct OrderedPart {
    struct Key {
        var id: OpaqueID?
        var sequence: UInt64
        var start: Int
        var count: Int
        var isPurge: Bool
    }

    let run: ClosedRun
    let window: UInt64
    /// Which one of how many, a power of two; entries without a ref are in the first.
    let part: Int
    let parts: Int
    private(set) var keys: [Key] = []
    private var bytes: [UInt8] = []

    init(run: ClosedRun, window: UInt64, part: Int, parts: Int) {
        (self.run, self.window, self.part, self.parts) = (run, window, part, parts)
    }

    static func part(of id: OpaqueID?, parts: Int) -> Int {
        guard let id else { return 0 }
        let front = Int(truncatingIfNeeded: id.value >> 96)
        return (front * parts) >> 32
    }

    /// Takes from a row what belongs to the part.
    mutating func add(_ row: Span<UInt8>, from sequence: UInt64) throws {
        var sequence = sequence
        try PackedEntries.read(row) { entry in
            if Self.part(of: entry.ref, parts: parts) == part {
                keys.append(
                    Key(
                        id: entry.ref, sequence: sequence, start: bytes.count, count: entry.text.count, isPurge: entry.isPurge))
                bytes.append(addingCapacity: entry.text.count) { text in
                    for index in entry.text { text.append(row[index]) }
                }
            }
            sequence += 1
        }
    }

    mutating func sort() {
        let window = window
        keys.sort { Self.key($0, window) < Self.key($1, window) }
    }

    private static func key(_ key: Key, _ window: UInt64) -> EntryKey {
        EntryKey(window: window, id: key.id, sequence: key.sequence)
    }

    /// Where what comes after `position` begins.
    func start(after position: EntryKey?) -> Int {
        guard let position, position.window == window else { return 0 }
        var (low, high) = (0, keys.count)
        while low < high {
            let middle = (low + high) / 2
            if Self.key(keys[middle], window) <= position { low = middle + 1 } else { high = middle }
        }
        return low
    }

    func entry(_ index: Int) -> ClosedEntry {
        let key = keys[index]
        return ClosedEntry(
            window: window, id: key.id, sequence: key.sequence, bytes: Array(bytes[key.start..<key.start + key.count]),
            isPurge: key.isPurge, run: run)
    }
}

extension Tables {
    /// Entries of the windows before `window` in the log's order, those that come after what is in the log already. None may come into these
    /// windows any more, unless it is to follow all of them.
    func closedEntries(before window: UInt64, limit: Int) throws -> [ClosedEntry] {
        let progress = try logProgress()
        var run = progress.run
        if progress.last == nil {
            guard let through = try lastSequence(before: window), through > run.after else { return [] }
            run = ClosedRun(after: run.after, through: through)
        }
        return try entries(of: run, after: progress.last, limit: limit)
    }

    /// Those after `last`, in the log's order.
    func entries(of run: ClosedRun, after last: EntryKey?, limit: Int) throws -> [ClosedEntry] {
        var entries: [ClosedEntry] = []
        var position = last
        var part = try part(of: run, at: position)
        while let current = part {
            let start = current.start(after: position)
            let end = min(start + min(limit - entries.count, current.keys.count), current.keys.count)
            for index in start..<end { entries.append(current.entry(index)) }
            position = entries.last?.key ?? position
            if end < current.keys.count { return entries }
            // Looked for in any case: only then is it known which entry is the last.
            part = try self.part(after: current)
            if entries.count == limit, part != nil { return entries }
        }
        ordered = nil
        if !entries.isEmpty { entries[entries.count - 1].isLastOfRun = true }
        return entries
    }

    /// Bytes of a window's rows that are put in order at a time, more or less.
    private static let partBytes = 16_777_216

    /// The part in which the entry after `position` lies, or one before it.
    private func part(of run: ClosedRun, at position: EntryKey?) throws -> OrderedPart? {
        guard let position else { return try firstPart(of: run, after: 0) }
        if let ordered, ordered.run == run, ordered.window == position.window,
            ordered.part == OrderedPart.part(of: position.id, parts: ordered.parts)
        {
            return ordered
        }
        let parts = try parts(of: run, window: position.window)
        return try fill(
            OrderedPart(
                run: run, window: position.window, part: OrderedPart.part(of: position.id, parts: parts), parts: parts))
    }

    /// The next part that is not empty.
    private func part(after last: OrderedPart) throws -> OrderedPart? {
        for part in last.part + 1..<max(last.parts, last.part + 1) {
            let next = try fill(OrderedPart(run: last.run, window: last.window, part: part, parts: last.parts))
            if !next.keys.isEmpty { return next }
        }
        return try firstPart(of: last.run, after: last.window)
    }

    private func firstPart(of run: ClosedRun, after window: UInt64) throws -> OrderedPart? {
        let found = try rows(
            "SELECT window FROM entry WHERE window > ? AND sequence > ? AND sequence <= ? ORDER BY window LIMIT 1", .time(window),
            .time(run.after), .time(run.through)
        ) { $0.time(0) }
        guard let next = found.first else { return nil }
        var part = OrderedPart(run: run, window: next, part: 0, parts: try parts(of: run, window: next))
        part = try fill(part)
        return part.keys.isEmpty ? try self.part(after: part) : part
    }

    private func parts(of run: ClosedRun, window: UInt64) throws -> Int {
        let bytes = try rows(
            "SELECT coalesce(sum(length(bytes)), 0) FROM entry WHERE window = ? AND sequence > ? AND sequence <= ?",
            .time(window), .time(run.after), .time(run.through)
        ) { Int($0.int(0)) }[0]
        var parts = 1
        while bytes / parts > Self.partBytes { parts *= 2 }
        return parts
    }

    private func fill(_ empty: OrderedPart) throws -> OrderedPart {
        ordered = nil
        var part = empty
        try each(
            "SELECT sequence, bytes FROM entry WHERE window = ? AND sequence > ? AND sequence <= ? ORDER BY sequence",
            .time(part.window), .time(part.run.after), .time(part.run.through)
        ) { row in try row.withBlob(1) { try part.add($0, from: row.time(0)) } }
        part.sort()
        ordered = part
        return part
    }
}
