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
    /// The length of an epoch of the keys.
    static let epoch = 300
    /// How long a push may take: 2 minutes for the push, 1 for an outage that is too short for a gap, 10 s for the start.
    static let jobLimit = 190

    /// The policy's timing. It is the same at every start.
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
    /// Names of the templates in force.
    var inForce: Set<[UInt8]> = []
    /// Templates in force before this window's starts. A crash leaves openings that the log orders after the start.
    var beforeStart: Set<[UInt8]> = []
    /// The template found last. A cache, so not part of the saved state.
    var lastTemplate: [UInt8]?
    var longestLife = 0
    var gaps = Gaps()
    var order = EntryOrder()
    var buckets = Buckets()
    /// All buckets up to this time are closed or never existed.
    var lastClosed = 0
    var carriedUntil: Int?
    var jobs = OpenJobs()
    /// Open jobs of the previous log.
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

    /// Returns true if something due at `due` is on time now. Gaps extend the deadline.
    func isOnTime(due: Int, grace: Int) -> Bool {
        let rest = at - due - grace - resolution
        return rest <= 0 || rest <= gaps.overlap(from: due, to: at)
    }

    /// Returns whether a push that was opened at `opened` may end now. A gap excuses its length and two windows: the entries next to it may be dated
    /// up to one window late.
    func isJobOnTime(opened: Int) -> Bool {
        let slack = gaps.overlap(from: opened, to: at) > 0 ? 2 * resolution : 0
        return isOnTime(due: opened, grace: Self.jobLimit + slack)
    }

    func checkOpen(_ index: UInt64) throws(VerificationFailure) {
        if let closedAt {
            throw VerificationFailure(.afterClosed, "comes after entry \(closedAt), which closed the log", index: index)
        }
    }

    /// Checks the next entry's time, window and order. Ends the previous batch and window first.
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

    /// Drops gaps that end before everything that is still due.
    private mutating func forgetGaps() {
        var oldest = min(
            lastClosed, at - timing.hour, destroyed.due, swept.due, jobs.oldest ?? at, carriedJobs > 0 ? openedAt : at)
        oldest = min(oldest, isSweptAnnounced ? swept.epoch * Self.epoch : 0)
        gaps.forget(before: oldest - Int(Entry.resolutionLimit))
    }

    /// Checks what is still open at the end of the log.
    mutating func finish() throws(VerificationFailure) -> Report {
        let index = report.size
        // A large batch spans several checkpoints, and a broker may be killed between them. The next entry shows whether it was complete.
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

    /// - Parameter index: of the entry after the batch.
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

    /// Checks the deadlines at the end of a window.
    /// - Parameter index: of the entry after the window.
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
        if let oldest = jobs.oldest, !isJobOnTime(opened: oldest) {
            throw VerificationFailure(
                .outcomeLate, "a push that was opened at \(Self.text(oldest)) has no outcome", index: index - 1)
        }
        if carriedJobs > 0, !isJobOnTime(opened: openedAt) {
            throw VerificationFailure(
                .outcomeLate, "\(carriedJobs) pushes of the previous log have no outcome", index: index - 1)
        }
        guard hasStarted, at - lastClosed - Self.grace - resolution > 0, case let midnight = firstDue, midnight <= at,
            !isOnTime(due: midnight, grace: Self.grace)
        else { return }
        throw VerificationFailure(
            .midnightMissing, "the batch of \(Self.text(midnight)), which closes its bucket, is missing", index: index - 1)
    }

    /// The end of the first day whose bucket must be closed. Empty buckets within a gap are exempt.
    var firstDue: Int {
        min(
            buckets.first?.until ?? .max, gaps.firstOutside(after: lastClosed, step: timing.day, margin: resolution))
    }

    static func text(_ seconds: Int) -> String { Timestamp.text(UInt64(seconds) * 1_000) }
}

extension Conservation {
    /// Writes or reads the verifier's state.
    mutating func code(_ coder: inout StateCoder) {
        func templates(_ set: inout Set<[UInt8]>) {
            var list = set.sorted { $0.lexicographicallyPrecedes($1) }
            coder.code(&list, empty: []) { $1.code(&$0) }
            set = Set(list)
        }
        coder.code(&report.size)
        coder.code(&report.fromMs)
        coder.code(&report.toMs)
        coder.code(&report.sealed)
        coder.code(&report.carried)
        coder.code(&report.purged)
        coder.code(&report.opened)
        coder.code(&report.delivered)
        coder.code(&report.failed)
        coder.code(&report.bucketsClosed)
        coder.code(&at)
        coder.code(&resolution)
        coder.code(&timing.hour)
        coder.code(&timing.day)
        coder.code(&timing.seals)
        templates(&inForce)
        templates(&beforeStart)
        coder.code(&longestLife)
        gaps.code(&coder)
        order.code(&coder)
        buckets.code(&coder)
        coder.code(&lastClosed)
        coder.code(&carriedUntil)
        jobs.code(&coder)
        coder.code(&carriedJobs)
        coder.code(&openedAt)
        coder.code(&early)
        coder.code(&booked)
        coder.code(&destroyed.epoch)
        coder.code(&destroyed.due)
        coder.code(&destroyed.dueBefore)
        coder.code(&swept.epoch)
        coder.code(&swept.due)
        coder.code(&swept.dueBefore)
        coder.code(&isSweptAnnounced)
        coder.code(&batch.isOpen)
        coder.code(&batch.seals)
        coder.code(&batch.purges)
        coder.code(&batch.closings)
        coder.code(&batch.rotationClosings)
        coder.code(&isRotating)
        var op = OpName.allCases.firstIndex(of: lastOp)!
        coder.code(&op)
        lastOp = OpName.allCases.indices.contains(op) ? OpName.allCases[op] : lastOp
        coder.code(&closedAt)
        var next = Array((report.next ?? "").utf8)
        coder.code(&next)
        report.next = next.isEmpty ? nil : String(decoding: next, as: UTF8.self)
    }
}
