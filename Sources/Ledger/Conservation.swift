import Policy
import Vocabulary

/// Checks the log's totals, one entry at a time. It doesn't follow single tokens: each day's seals must equal its expiries and early ends.
/// It also checks that keys are destroyed on time, and that each push has one outcome.
///
/// All times are unix seconds. An entry at `at` happened at `at` or up to a window later, so each limit allows a window more.
/// `audit/README.md` has these rules as a table.
struct Conservation {
    /// How long after its due time something may be done.
    static let grace = 120
    /// Key time.
    static let epoch = 300
    /// How long a push may take until its outcome: 2 minutes for the push, one for an outage too short to be a gap, 10 s for the start.
    static let jobLimit = 190

    /// The timing of the policy, as every start of the log must name it.
    struct Timing: Equatable {
        var hour = 0
        var day = 0
        var seals = 0
    }

    /// The batch being read: seals (rank 3), purges (4), closings (5).
    struct Batch {
        var isOpen = false
        var seals = 0
        var purges = 0
        var closings = 0
        /// Closings of buckets before their time, because the log ends.
        var rotationClosings = 0
    }

    /// One claim of `keys.ratcheted`: the last epoch without keys, or the epoch before which everything due is purged.
    struct Announced {
        var epoch = 0
        /// The time by which the next claim must come.
        var due = 0
        /// `due` at the start of this window.
        var dueBefore = 0
    }

    var report = Report()
    let allowsGaps: Bool
    var at = 0
    /// The length of a window; 0 before the first start.
    var resolution = 0
    var timing = Timing()
    /// Names of templates.
    var inForce: Set<[UInt8]> = []
    /// Templates in force before this window's starts. A crash leaves openings that the log orders after the start.
    var beforeStart: Set<[UInt8]> = []
    /// One of these. Not part of the state: it saves time only.
    var lastTemplate: [UInt8]?
    var longestLife = 0
    var gaps = Gaps()
    var order = EntryOrder()
    var buckets = Buckets()
    /// Buckets of this time and before are closed or never were.
    var lastClosed = 0
    var carriedUntil: Int?
    var jobs = OpenJobs()
    /// Open jobs of the log before.
    var carriedJobs = 0
    var openedAt = 0
    /// Early purges: published, and claimed by closed buckets.
    var early = 0
    var booked = 0
    var destroyed = Announced()
    var swept = Announced()
    var isSweptAnnounced = false
    var batch = Batch()
    var isRotating = false
    var lastOp = OpName.brokerStarted
    var closedAt: UInt64?

    init(allowsGaps: Bool = false) { self.allowsGaps = allowsGaps }

    var hasStarted: Bool { resolution > 0 }

    /// Returns whether what was due then is on time now. Gaps extend the bound.
    func isOnTime(due: Int, grace: Int) -> Bool {
        let rest = at - due - grace - resolution
        return rest <= 0 || rest <= gaps.overlap(from: due, to: at)
    }

    /// Refuses everything after the log's end.
    func checkOpen(_ index: UInt64) throws(VerificationFailure) {
        if let closedAt {
            throw VerificationFailure(.afterClosed, "comes after entry \(closedAt), which closed the log", index: index)
        }
    }

    /// Checks the place of the next entry: its time, its window and its order. Ends the batch and the window before it.
    mutating func place(_ entry: EntryFields, _ index: UInt64) throws(VerificationFailure) {
        let (next, isFirst) = (Int(entry.atMs / 1_000), report.fromMs == nil)
        guard next >= at else { throw VerificationFailure(.time, "its time is before its predecessor's", index: index) }
        let isNewWindow = isFirst || next > at
        if batch.isOpen, isNewWindow || !(3...5).contains(entry.op.rank) { try endBatch(index) }
        if isFirst {
            report.fromMs = entry.atMs
            destroyed.epoch = max(next / Self.epoch, 2) - 2
            destroyed.due = (destroyed.epoch + 4) * Self.epoch
            swept.due = (next / Self.epoch + 2) * Self.epoch
        } else if isNewWindow {
            try endWindow(index)
        }
        if isNewWindow { try begin(next, entry, isFirst, index) }
        switch entry.op {
        case .brokerStarted: break
        case .ledgerOpened:
            guard isFirst else { throw VerificationFailure(.carry, "isn't the log's first entry", index: index) }
        case .bucketCarried:
            guard !isFirst, [.ledgerOpened, .bucketCarried].contains(lastOp) else {
                throw VerificationFailure(.carry, "doesn't follow the entries that open a log", index: index)
            }
        default:
            guard hasStarted else { throw VerificationFailure(.entry, "comes before any broker.started", index: index) }
        }
        guard order.admit(entry, isNewWindow: isNewWindow) else {
            throw VerificationFailure(.entry, "is out of order within its window", index: index)
        }
        lastOp = entry.op
        report.size += 1
    }

    private mutating func begin(
        _ next: Int, _ entry: EntryFields, _ isFirst: Bool, _ index: UInt64
    ) throws(VerificationFailure) {
        let isStart = entry.op == .brokerStarted
        guard (hasStarted && next % resolution == 0) || (isStart && next % Int(entry.number) == 0) || (!hasStarted && !isStart)
        else { throw VerificationFailure(.time, "its window doesn't begin at a multiple of the window length", index: index) }
        let silence = Gaps.Span(start: at + resolution, end: next)
        at = next
        (beforeStart, lastTemplate) = ([], nil)
        report.toMs = entry.atMs
        (destroyed.dueBefore, swept.dueBefore) = (destroyed.due, swept.due)
        guard !isFirst, isStart, silence.end - silence.start >= Gaps.shortest else { return }
        forgetGaps()
        guard !gaps.record(silence) || allowsGaps else {
            throw VerificationFailure(
                .gaps, "no broker ran for more than \(Gaps.dayLimit) s of a UTC day, so nothing shows what happened then",
                index: index)
        }
    }

    /// Drops gaps that end before everything still due.
    private mutating func forgetGaps() {
        var oldest = min(
            lastClosed, at - timing.hour, destroyed.due, swept.due, jobs.oldest ?? at, carriedJobs > 0 ? openedAt : at)
        oldest = min(oldest, isSweptAnnounced ? swept.epoch * Self.epoch : 0)
        gaps.forget(before: oldest - Int(Entry.resolutionLimit))
    }

    /// Checks what the end of the log leaves open.
    mutating func finish() throws(VerificationFailure) -> Report {
        let index = report.size
        // A large batch is published under several heads, and a broker may be killed between them. The next entry shows whether the batch
        // was complete.
        if batch.isOpen, !(3...4).contains(lastOp.rank) { try endBatch(index) }
        guard !isRotating || closedAt != nil else {
            throw VerificationFailure(.unbalanced, "a bucket was closed before its time, but the log continues", index: index - 1)
        }
        if index > 0 { try endWindow(index) }
        report.pending = UInt64(jobs.count + carriedJobs)
        report.live = UInt64(max(0, buckets.remaining - (early - booked)))
        report.gapSeconds = UInt64(gaps.total)
        if hasStarted {
            report.timing = LedgerTiming(
                hourSeconds: UInt64(timing.hour), daySeconds: UInt64(timing.day), batchSeals: timing.seals)
        }
        return report
    }

    /// - Parameter index: of the entry behind the batch.
    private mutating func endBatch(_ index: UInt64) throws(VerificationFailure) {
        let batch = batch
        self.batch = Batch()
        let (hasTokens, isMidnight) = (batch.seals + batch.purges > 0, batch.closings > batch.rotationClosings)
        if hasTokens, !isMidnight, batch.seals < timing.seals {
            throw VerificationFailure(
                .smallBatch, "its batch has \(batch.seals) seals, but the policy requires \(timing.seals)", index: index - 1)
        }
        let moment = at / timing.hour * timing.hour
        if hasTokens || isMidnight, timing.hour > Self.grace + resolution, !isOnTime(due: moment, grace: Self.grace) {
            throw VerificationFailure(
                .batchLate, "its batch was due at \(Self.text(moment)), and is published at \(Self.text(at))", index: index - 1)
        }
        if batch.rotationClosings == 0, early - booked > buckets.remaining {
            throw VerificationFailure(
                .overbooked, "\(early - booked) early purges are published for \(buckets.remaining) tokens that live",
                index: index - 1)
        }
    }

    /// Judges a window when all of its entries are in.
    /// - Parameter index: of the entry behind the window.
    private func endWindow(_ index: UInt64) throws(VerificationFailure) {
        func lateDue(_ due: Int) -> Bool {
            if at - due - Self.grace - resolution <= 0 { return false }
            return !isOnTime(due: due, grace: Self.grace + (gaps.cover(due, upTo: due + Self.grace) ? Self.epoch : 0))
        }
        if lateDue(destroyed.dueBefore) {
            throw VerificationFailure(
                .ratchetLate,
                "keys that were due by \(Self.text(destroyed.dueBefore)) are not reported as destroyed",
                index: index - 1)
        }
        if lateDue(swept.dueBefore) {
            throw VerificationFailure(
                .sweptLate, "what was due by \(Self.text(swept.dueBefore)) is not reported as purged", index: index - 1)
        }
        if let oldest = jobs.oldest, !isOnTime(due: oldest, grace: Self.jobLimit) {
            throw VerificationFailure(
                .outcomeLate, "a push that was opened at \(Self.text(oldest)) has no outcome", index: index - 1)
        }
        if carriedJobs > 0, !isOnTime(due: openedAt, grace: Self.jobLimit) {
            throw VerificationFailure(
                .outcomeLate, "\(carriedJobs) pushes of the previous log have no outcome", index: index - 1)
        }
        guard hasStarted, at - lastClosed - Self.grace - resolution > 0, case let midnight = firstDue, midnight <= at,
            !isOnTime(due: midnight, grace: Self.grace)
        else { return }
        throw VerificationFailure(
            .midnightMissing, "the batch of \(Self.text(midnight)), which closes its bucket, is missing", index: index - 1)
    }

    /// The first end of a day whose bucket has to be closed: all but empty ones in a gap.
    var firstDue: Int {
        min(
            buckets.open.first?.until ?? .max, gaps.firstOutside(after: lastClosed, step: timing.day, margin: resolution))
    }

    static func text(_ seconds: Int) -> String { Timestamp.text(UInt64(seconds) * 1_000) }
}
