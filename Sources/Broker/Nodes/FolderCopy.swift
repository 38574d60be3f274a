import Ledger
import Storage
import Vocabulary

/// The database has the log of another key.
struct ForeignLog: Error, CustomStringConvertible {
    var description: String {
        "the database has the log of another key. All nodes of a deployment need the same keys/ledger.key"
    }
}

/// Keeps a follower's ledger folder like that of the node that leads.
struct FolderCopy: Sendable {
    let store: PostgresStore
    let folder: LedgerFolder
    let key: VerifierKey

    /// Copies the entries that the folder lacks: from the database if it still has them, otherwise from the node that leads.
    /// - Parameter source: nil if no other node leads.
    /// - Returns: the folder's size. `isComplete` is false if another node's entries are or were needed; the next call finds out.
    func update(from source: (any LogSource)?) async throws -> (size: UInt64, isComplete: Bool) {
        guard let head = try await store.logHead() else { return (0, true) }
        guard let note = SignedNote(Array(head.checkpoint.utf8)), let checkpoint = note.checkpoint(signedBy: key) else {
            throw ForeignLog()
        }
        guard case .behind(let log) = try folder.compare(with: checkpoint, key: key) else { return (head.size, true) }
        let (first, entries) = try await store.unpublished(after: log.size)
        if first <= log.size, first + UInt64(entries.count) == head.size {
            let lacking = Array(entries[Int(log.size - first)...])
            try await copyPolicies(of: lacking, source)
            try folder.publish(log.append(lacking), checkpoint: note)
            return (head.size, true)
        }
        guard let source else { return (log.size, false) }
        return (try await copy(log, from: source), false)
    }

    /// Returns true if the database's log is this folder's, or continues it.
    func isContinued() async throws -> Bool {
        let head = try await store.logHead().flatMap { SignedNote(Array($0.checkpoint.utf8))?.checkpoint(signedBy: key) }
        do {
            switch try folder.compare(with: head, key: key) {
            case .current: return true
            case .behind(let log):
                let (first, entries) = try await store.unpublished(after: log.size)
                guard let head, first <= log.size, first + UInt64(entries.count) == head.size else { return false }
                return log.append(Array(entries[Int(log.size - first)...])).root == head.root
            }
        } catch let error as LedgerFolder.Failure {
            if case .io = error { throw error }
            return false
        }
    }

    /// Bundles in one step of a copy.
    private static let step = 64

    /// Copies all that the node that leads has published.
    private func copy(_ start: TileLog, from source: any LogSource) async throws -> UInt64 {
        guard let note = try await source.read(TilePath.checkpoint).flatMap({ SignedNote($0) }),
            let checkpoint = note.checkpoint(signedBy: key), checkpoint.size > start.size
        else { return start.size }
        let reader = TileReader(source, size: checkpoint.size)
        let width = UInt64(TilePath.fullWidth)
        var log = start
        while log.size < checkpoint.size {
            let first = log.size / width
            var entries: [[UInt8]] = []
            for bundle in first..<min(first + UInt64(Self.step), (checkpoint.size + width - 1) / width) {
                entries += try await reader.entries(bundle: bundle)
            }
            let lacking = Array(entries[Int(log.size - first * width)...])
            try await copyPolicies(of: lacking, source)
            let plan = log.append(lacking)
            if plan.newSize == checkpoint.size { try folder.publish(plan, checkpoint: note) } else { try folder.add(plan) }
            log = plan.log
        }
        return log.size
    }

    private func copyPolicies(of entries: [[UInt8]], _ source: (any LogSource)?) async throws {
        guard let source else { return }
        for entry in entries {
            guard case .policyLoaded(_, let digest)? = (try? Entry(canonical: entry.span))?.op else { continue }
            guard try folder.read(TilePath.policy(digest)) == nil, let bytes = try await source.read(TilePath.policy(digest)),
                Digest.sha256(bytes.span) == digest
            else { continue }
            _ = try folder.writePolicy(bytes)
        }
    }
}
