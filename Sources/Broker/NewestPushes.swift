import Storage
import Synchronization
import Vocabulary

/// Of the pushes to one token that replace each other (one collapse id), the newest: what Apple has not taken yet is not sent after what came
/// in its place.
final class NewestPushes: Sendable {
    /// Where pushes replace each other.
    struct Place: Hashable, Sendable {
        /// The purge id.
        let token: EntryID
        let collapse: Handle
    }

    private struct Newest {
        var stampMs: UInt64
        var job: JobRecord
        /// Pushes there without an outcome, this one among them: as long as there are any, it is told from them.
        var count: Int
    }

    private let newest = Mutex<[Place: Newest]>([:])

    /// A push that may leave, unless there is a newer one.
    func add(_ job: JobRecord, at place: Place, stampMs: UInt64) {
        newest.withLock { newest in
            var standing = newest[place] ?? Newest(stampMs: stampMs, job: job, count: 0)
            standing.count += 1
            if stampMs >= standing.stampMs { (standing.stampMs, standing.job) = (stampMs, job) }
            newest[place] = standing
        }
    }

    /// Whether nothing has come in its place.
    func isNewest(_ job: JobID, at place: Place) -> Bool { newest.withLock { $0[place].map { $0.job.job == job } ?? true } }

    /// The newest there, as long as any has no outcome.
    func newest(at place: Place) -> JobRecord? { newest.withLock { $0[place]?.job } }

    /// A push has its outcome.
    func remove(at place: Place) {
        newest.withLock { newest in
            guard let count = newest[place]?.count else { return }
            if count > 1 { newest[place]?.count = count - 1 } else { newest[place] = nil }
        }
    }

    var count: Int { newest.withLock(\.count) }
}
