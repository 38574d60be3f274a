import Ledger
import Storage
import Synchronization

/// Notices that the broker was away without having stopped: the machine slept, or its clock jumped.
///
/// What was due meanwhile is done late, and an auditor has to see why. So the log says anew that the broker started, before it
/// says what was late.
public final class Heartbeat: Sendable {
    /// A longer silence is an absence; the sweeper wakes at least twice as often.
    static let longestSilence: UInt64 = 60_000

    private let last: Mutex<UInt64>
    private let time: BrokerTime
    private let resume: @Sendable () async -> Void

    /// - Parameter resume: records that the broker goes on.
    public init(time: BrokerTime, resume: @escaping @Sendable () async -> Void) {
        self.time = time
        self.resume = resume
        last = Mutex(time.now)
    }

    /// Called before anything late could be recorded, and regularly.
    func beat() async {
        let now = time.now
        let silence = last.withLock { last in
            defer { last = max(last, now) }
            return now - min(now, last)
        }
        if silence > Self.longestSilence { await resume() }
    }
}
