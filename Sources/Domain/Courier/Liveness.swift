/// Judges a connection's peer by PINGs and their answers. All times are on the loop's clock.
///
/// Networks drop connections without a word. Any frame shows that the peer is alive, however slow its responses are.
struct Liveness {
    private let timing: Timing
    private(set) var lastRead: UInt64
    /// When the unanswered PING was sent.
    private(set) var pingedAt: UInt64?
    /// PINGs that were acknowledged while requests waited, since the last response.
    private var pingsInARow: UInt64 = 0

    init(_ timing: Timing, now: UInt64) {
        self.timing = timing
        lastRead = now
    }

    mutating func read(now: UInt64) { lastRead = now }

    mutating func pinged(now: UInt64) { pingedAt = now }

    mutating func acknowledged(whileBusy: Bool) {
        pingedAt = nil
        if whileBusy { pingsInARow += 1 }
    }

    mutating func answered() { pingsInARow = 0 }

    private func quietMs(_ now: UInt64) -> UInt64 { now - min(now, lastRead) }

    /// True if a request that is sent now needs a PING with it.
    func isIdle(now: UInt64) -> Bool { pingedAt == nil && quietMs(now) >= timing.quietMs }

    /// True if the PINGs of another connection should test this one, too.
    func isQuiet(now: UInt64) -> Bool { pingedAt == nil && quietMs(now) >= timing.lateMs }

    /// True if a request that has waited for `waitedMs` needs a PING. A peer that acknowledges PINGs but is slow gets fewer and fewer.
    func isLate(waitedMs: UInt64, now: UInt64) -> Bool {
        let lateMs = timing.lateMs << min(pingsInARow, 5)
        return pingedAt == nil && waitedMs >= lateMs && quietMs(now) >= lateMs
    }

    /// When the peer counts as dead, unless something is read before. Nil without an unanswered PING.
    var silentAt: UInt64? { pingedAt.map { max($0, lastRead) + timing.pingMs } }

    /// No frame has followed a PING in time.
    func isSilent(now: UInt64) -> Bool { silentAt.map { now >= $0 } ?? false }

    /// When the peer becomes doubtful: half of the PING timeout. No request is sent until a frame arrives.
    var doubtfulAt: UInt64? { silentAt.map { $0 - timing.pingMs / 2 } }

    func isDoubtful(now: UInt64) -> Bool { doubtfulAt.map { now >= $0 } ?? false }

    /// The next moment at which the peer becomes doubtful or dead. Nil without an unanswered PING.
    func nextVerdict(now: UInt64) -> UInt64? { isDoubtful(now: now) ? silentAt : doubtfulAt }
}
