import Linux
import Vocabulary

/// Finds repeated ids in a log of any size. Sorts them in runs in a temporary file, then merges the runs.
final class Uniqueness {
    /// A sorted part of the file, and the ids of it that are in memory.
    private struct Run {
        var next: Int
        let end: Int
        var ids: [UInt128] = []
        var position = 0
    }

    private let limit: Int
    private let file: OpenFile
    private var ids: [UInt128] = []
    private var runs: [Run] = []
    private var written = 0

    /// - Parameter limit: the most ids sorted in memory at a time.
    init(limit: Int = 1 << 20) throws(VerificationFailure) {
        self.limit = limit
        do throws(Errno) {
            let folder = try File.makeTemporaryFolder(prefix: "mayfly-ids")
            // The file has no name any more, so it disappears with this process.
            defer { try? File.removeTree(folder) }
            file = try OpenFile("\(folder)/ids", .createNew(mode: 0o600))
        } catch { throw Self.failure(error) }
        ids.reserveCapacity(limit)
    }

    /// Adds the ids of seals, openings and purges, and the jobs of openings.
    func add(_ entry: EntryFields) throws(VerificationFailure) {
        switch entry.op {
        case .tokenSealed, .tokenPurged: try add(entry.id)
        case .tokenOpened:
            try add(entry.id)
            try add(entry.job)
        default: break
        }
    }

    func add(_ id: some OpaqueID) throws(VerificationFailure) {
        ids.append(id.value)
        if ids.count == limit { try writeRun() }
    }

    /// - Throws: `.idTwice` with the smallest repeated id.
    func check() throws(VerificationFailure) {
        if !ids.isEmpty { try writeRun() }
        // A binary heap of runs by their next id.
        var heap: [(id: UInt128, run: Int)] = []
        for run in runs.indices {
            if let id = try next(run) { heap.append((id, run)) }
        }
        heap.sort { $0.id < $1.id }
        var last: UInt128?
        while let (id, run) = heap.first {
            if id == last { throw VerificationFailure(.idTwice, "is duplicate in the log", id: EntryID(id)) }
            last = id
            if let id = try next(run) {
                heap[0].id = id
            } else {
                heap[0] = heap[heap.count - 1]
                heap.removeLast()
            }
            Self.sink(&heap)
        }
    }

    private static func sink(_ heap: inout [(id: UInt128, run: Int)]) {
        var parent = 0
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count && heap[child].id < heap[least].id {
                least = child
            }
            guard least != parent else { return }
            heap.swapAt(parent, least)
            parent = least
        }
    }

    private func writeRun() throws(VerificationFailure) {
        ids.sort()
        var bytes: [UInt8] = []
        bytes.reserveCapacity(ids.count * EntryID.count)
        for id in ids { bytes.append(bigEndian: id) }
        do { try file.write(bytes.span, at: written) } catch { throw Self.failure(error) }
        runs.append(Run(next: written, end: written + bytes.count))
        written += bytes.count
        ids.removeAll(keepingCapacity: true)
    }

    private func next(_ run: Int) throws(VerificationFailure) -> UInt128? {
        if runs[run].position == runs[run].ids.count {
            let count = min(runs[run].end - runs[run].next, 1 << 14)
            guard count > 0 else { return nil }
            var bytes = [UInt8](repeating: 0, count: count)
            let read: Int
            do throws(Errno) {
                var span = bytes.mutableSpan
                read = try file.read(into: &span, at: runs[run].next)
            } catch { throw Self.failure(error) }
            guard read == count else { throw VerificationFailure(.unreadable, "the temporary file of ids was truncated") }
            runs[run].ids = stride(from: 0, to: count, by: EntryID.count).map {
                EntryID(bytes: bytes.span.extracting($0..<$0 + EntryID.count))!.value
            }
            runs[run].next += count
            runs[run].position = 0
        }
        defer { runs[run].position += 1 }
        return runs[run].ids[runs[run].position]
    }

    private static func failure(_ error: Errno) -> VerificationFailure {
        VerificationFailure(.unreadable, "a temporary file of ids can't be used: \(error.reason)")
    }
}
