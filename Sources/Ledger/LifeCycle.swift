/// Checks the story that the entries tell, one entry at a time in the log's order: the life of each ref, and that keys die on time.
///
/// All times are starts of windows, rounded down, so that an event at `at` happened at `at` or up to a window later. Each bound is the
/// tightest that a broker which keeps the rule always meets under that rounding, whatever the length of a window:
/// - An event due at `d` has `at <= d`: so a purge with `at > until + 2 min` was late. No allowance for the window is needed.
/// - Once a window later than `d` is in the log, no entry can be added that is still on time: at the head, too, a live ref is overdue when
///   the last `at > until + 2 min`.
/// - The key of epoch `e - 2` dies when epoch `e` begins; a held ratchet may be one epoch behind. So its successor in the ledger,
///   `keys.ratcheted` of `e - 3` or later, is due at the start of `e` and has 2 minutes. After each start it has 2 minutes and an epoch,
///   whatever came before: a clock that leapt holds the ratchet for an epoch at most, the log then tells of a start, and the clock may leap
///   again meanwhile.
/// - From a `broker.started` to a purge two windows are rounded: 2 minutes can look like 2 minutes rounded up to whole windows, which is
///   2 minutes for windows of 1 s and 60 s; and so with 7 minutes and the ratchet.
/// - A window begins at a multiple of the length that the log states: only so does that length say how much may have been rounded.
struct LifeCycle {
    /// How long after its due time something may be done.
    static let graceMs: UInt64 = 120_000
    static let epochMs: UInt64 = 300_000

    private(set) var report = Report()
    private var refs = IDTable()
    /// By a ref's number: its `until`, or `purgedMark`.
    private var until: [UInt64] = []
    /// By a ref's number: where it was sealed.
    private var sealedAt: [UInt64] = []
    private var jobs = IDTable()
    /// By a job's number: its ref's number, or `doneMark`.
    private var refOfJob: [UInt32] = []
    private var clock = LogClock()
    /// All epochs up to this one have no key any more; nil before the first entry.
    private var destroyed: UInt64?
    private var destroyedBeforeWindow: UInt64?
    /// The entry that closed the log.
    private var closedAt: UInt64?
    /// Of the entry before this one, if that has one and is of the same window.
    private var lastRef: OpaqueID?

    private static let purgedMark = UInt64.max
    private static let doneMark = UInt32.max

    mutating func admit(_ entry: Entry, index: UInt64) throws(VerificationFailure) {
        let fields: EntryFields
        do { fields = try EntryFields(entry.encoded.span) } catch {
            throw VerificationFailure(.entry, error.description, index: index)
        }
        try admit(fields, index: index)
    }

    mutating func admit(_ entry: EntryFields, index: UInt64) throws(VerificationFailure) {
        let (at, ref) = (entry.atMs, entry.ref)
        if let closedAt {
            throw VerificationFailure(.afterClosed, "comes after entry \(closedAt), which closed the log", index: index)
        }
        if report.fromMs == nil { report.fromMs = at }
        if at != report.toMs {
            guard at >= report.toMs ?? 0 else {
                throw VerificationFailure(.time, "its time is before its predecessor's", index: index)
            }
            try closeWindow(before: index)
            let start = entry.op == .brokerStarted ? entry.number * 1000 : nil
            // What lived in an earlier log comes first, in a window of that log: no entry here names its length.
            guard (report.toMs == nil && start == nil) || clock.allowsWindow(at: at, beginningWith: start) else {
                throw VerificationFailure(.time, "its window begins at no multiple of the windows' length", index: index)
            }
            clock.advance(to: at)
            report.toMs = at
            destroyedBeforeWindow = destroyed
            lastRef = nil
        }
        guard
            clock.hasStarted || entry.op == .brokerStarted || entry.op == .tokenSealed || entry.op == .tokenOpened
        else {
            throw VerificationFailure(.entry, "comes before any broker.started", index: index)
        }
        report.size += 1
        // A broker that keeps the rule begins a log without the keys of two epochs ago.
        if destroyed == nil { destroyed = max(at / Self.epochMs, 2) - 2 }
        switch entry.op {
        case .brokerStarted: clock.start(resolutionMs: entry.number * 1000)
        case .keysRatcheted:
            try ratchet(entry.number, at: at, index: index)
        case .tokenSealed:
            guard refs.insert(ref) != nil else {
                throw VerificationFailure(.sealedTwice, "sealed a second time", index: index, ref: ref)
            }
            until.append(entry.untilMs)
            sealedAt.append(index)
            report.sealed += 1
        case .tokenOpened:
            let number = try live(ref, index: index)
            guard at < until[number] else {
                throw VerificationFailure(.openedLate, "opened at or after its until", index: index, ref: ref)
            }
            guard jobs.insert(entry.job) != nil else {
                throw VerificationFailure(.jobTwice, "opened for a job that was opened before", index: index, ref: ref)
            }
            refOfJob.append(UInt32(number))
            report.opened += 1
        case .pushDelivered:
            try conclude(entry, index: index)
            report.delivered += 1
        case .pushFailed:
            try conclude(entry, index: index)
            report.failed += 1
        case .tokenPurged:
            try purge(ref, at: at, index: index)
        case .ledgerClosed:
            closedAt = index
        case .brokerStopped, .policyLoaded, .keysGenerated, .requestRefused: break
        }
        let named = entry.op.hasRef ? ref : nil
        // After an entry without a ref they may begin anew: a stop publishes its window early, and a start goes on with it.
        if let named, let lastRef, named < lastRef {
            throw VerificationFailure(
                .entry, "stands behind a larger ref of its window: they are not sorted", index: index, ref: ref)
        }
        lastRef = named
    }

    /// Checks what the end of the log leaves open: the last window's ratchet, and refs that should be gone.
    mutating func finish() throws(VerificationFailure) -> Report {
        try closeWindow(before: report.size)
        report.live = report.sealed - report.purged
        for (number, until) in until.enumerated() where until != Self.purgedMark {
            if clock.lateness(of: until) == .late {
                throw VerificationFailure(
                    .neverPurged, "sealed until \(Timestamp.text(until)), and still not purged at the end of the log",
                    index: sealedAt[number], ref: OpaqueID(refs.ids[number]))
            }
        }
        return report
    }

    private func live(_ ref: OpaqueID, index: UInt64) throws(VerificationFailure) -> Int {
        guard let number = refs.number(of: ref) else {
            throw VerificationFailure(.neverSealed, "used, and never sealed", index: index, ref: ref)
        }
        guard until[number] != Self.purgedMark else {
            throw VerificationFailure(.afterPurge, "used after it was purged", index: index, ref: ref)
        }
        return number
    }

    private mutating func conclude(_ entry: EntryFields, index: UInt64) throws(VerificationFailure) {
        guard let job = jobs.number(of: entry.job) else {
            throw VerificationFailure(.jobUnknown, "an outcome of a job that was not opened", index: index, ref: entry.ref)
        }
        guard refOfJob[job] != Self.doneMark else {
            throw VerificationFailure(.outcomeTwice, "a second outcome of one job", index: index, ref: entry.ref)
        }
        guard refs.ids[Int(refOfJob[job])] == entry.ref.value else {
            throw VerificationFailure(.jobUnknown, "an outcome of a job that opened another ref", index: index, ref: entry.ref)
        }
        refOfJob[job] = Self.doneMark
    }

    private mutating func purge(_ ref: OpaqueID, at: UInt64, index: UInt64) throws(VerificationFailure) {
        guard let number = refs.number(of: ref) else {
            throw VerificationFailure(.neverSealed, "purged, and never sealed", index: index, ref: ref)
        }
        let due = until[number]
        guard due != Self.purgedMark else {
            throw VerificationFailure(.purgedTwice, "purged a second time", index: index, ref: ref)
        }
        switch clock.lateness(of: due) {
        case .none: break
        case .excused: report.excused += 1
        case .late:
            throw VerificationFailure(
                .purgedLate, "purged at \(Timestamp.text(at)), more than 2 minutes after \(Timestamp.text(due))", index: index,
                ref: ref)
        }
        until[number] = Self.purgedMark
        report.purged += 1
    }

    private mutating func ratchet(_ epoch: UInt64, at: UInt64, index: UInt64) throws(VerificationFailure) {
        // The key of the epoch that runs is in use: who says it is destroyed only wants to be rid of this check.
        guard epoch < clock.latestMs / Self.epochMs else {
            throw VerificationFailure(.ratchetEarly, "claims that keys of an epoch are destroyed that is not over", index: index)
        }
        destroyed = max(destroyed ?? 0, epoch)
    }

    /// At the end of a window all of its entries are known: a ratchet that was due before it must have come before it.
    private func closeWindow(before index: UInt64) throws(VerificationFailure) {
        guard let destroyed = destroyedBeforeWindow else { return }
        let due = (destroyed + 4) * Self.epochMs
        if clock.isRatchetLate(dueMs: due) {
            throw VerificationFailure(
                .ratchetLate, "by \(Timestamp.text(report.toMs ?? 0)) the keys of epoch \(destroyed + 1) should be destroyed",
                index: index - 1)
        }
    }
}
