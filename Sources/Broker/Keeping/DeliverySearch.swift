public import Sealing
public import Vocabulary

/// Which job an `apns-id` belongs to, for an operator who was given one: about ten minutes long, as long as the key of the epoch in which
/// the job's deadline lay exists. Nobody can tell later.
public struct DeliverySearch {
    private let keys: KeyRing
    private let apnsID: String

    /// - Parameter apnsID: a UUID, in either case; nil for anything else.
    public init?(_ apnsID: String, keys: KeyRing) {
        let lower = apnsID.lowercased()
        let groups = lower.split(separator: "-", omittingEmptySubsequences: false)
        guard groups.map(\.utf8.count) == [8, 4, 4, 4, 12], lower.utf8.allSatisfy({ "0123456789abcdef-".utf8.contains($0) })
        else {
            return nil
        }
        self.apnsID = lower
        self.keys = keys
    }

    /// No job recorded in a window that begins before this moment can be found any more, unix ms: a job waits two minutes at most, and a
    /// window is a minute long at most.
    public var earliestMs: UInt64 { keys.baseEpoch.startMs - min(keys.baseEpoch.startMs, 180_000) }

    /// Whether the job's `apns-id` is the one that is searched for.
    /// - Parameter nowMs: unix ms.
    public func isOf(_ job: JobID, nowMs: UInt64) -> Bool {
        let last = Epoch(atMs: nowMs + Epoch.lengthMs)
        for generation in keys.generations {
            var epoch = keys.baseEpoch
            while epoch <= last {
                if (try? keys.apnsID(job, deadlineMs: epoch.startMs, generation: generation.id)) == apnsID { return true }
                epoch = Epoch(epoch.number + 1)
            }
        }
        return false
    }
}
