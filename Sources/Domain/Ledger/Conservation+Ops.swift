import Policy
import Vocabulary

extension Conservation {
    /// Applies an entry that `place` has accepted.
    /// - Parameters:
    ///   - bytes: the entry's bytes.
    ///   - rules: those of the policy that the entry names. Nil if it names none.
    mutating func apply(
        _ entry: EntryFields, _ bytes: Span<UInt8>, _ rules: PublishedRules?, _ index: UInt64
    ) throws(VerificationFailure) {
        guard !isRotating || entry.op == .bucketClosed || entry.op == .ledgerClosed else {
            throw VerificationFailure(.unbalanced, "a bucket was closed before its time, but the log continues", index: index)
        }
        switch entry.op {
        case .brokerStarted: try start(rules!, resolution: Int(entry.number), index)
        case .policyLoaded: load(rules!)
        case .keysRatcheted: try ratchet(Int(entry.number), swept: Int(entry.second), index)
        case .tokenOpened:
            guard jobs.open(entry.job, at: at) else {
                throw VerificationFailure(.jobTwice, "opens a job that is already open", index: index, id: entry.job)
            }
            guard isTemplate(bytes, entry.text) else {
                throw VerificationFailure(.templateUnknown, "no policy in force has its template", index: index, id: entry.job)
            }
            report.opened += 1
        case .pushDelivered:
            try conclude(entry.job, index)
            report.delivered += 1
        case .pushFailed:
            try conclude(entry.job, index)
            report.failed += 1
        case .tokenSealed:
            batch.isOpen = true
            batch.seals += 1
            let until = try bucket(entry, index)
            guard until <= ((at + resolution + longestLife) / timing.day + 1) * timing.day else {
                throw VerificationFailure(.lifeTooLong, "its life is longer than any policy allows", index: index, id: entry.id)
            }
            buckets.seal(until: until)
            report.sealed += 1
        case .tokenPurged:
            batch.isOpen = true
            batch.purges += 1
            if entry.hasUntil { try expire(entry, index) } else { early += 1 }
            report.purged += 1
        case .bucketClosed:
            batch.isOpen = true
            try close(entry, index)
        case .ledgerOpened: (carriedJobs, openedAt) = (Int(entry.second), at)
        case .bucketCarried:
            let until = Int(entry.untilMs / 1_000)
            guard until > carriedUntil ?? -1 else {
                throw VerificationFailure(.carry, "carries its bucket after a later one", index: index)
            }
            guard UInt64(buckets.remaining) + entry.number < 1 << 53 else {
                throw VerificationFailure(.carry, "carries more tokens than can be counted", index: index)
            }
            carriedUntil = until
            buckets.carry(Int(entry.number), until: until)
            report.carried += entry.number
        case .ledgerClosed:
            if let left = buckets.first {
                throw VerificationFailure(
                    .unbalanced, "the bucket of \(Self.text(left.until)) is not closed", index: index)
            }
            guard booked == early else {
                throw VerificationFailure(.overbooked, "\(early - booked) early purges belong to no bucket", index: index)
            }
            closedAt = index
            report.next = String(decoding: entry.text.map { bytes[$0] }, as: UTF8.self)
        case .brokerStopped, .keysGenerated, .requestRefused: break
        }
    }

    /// Most entries have the same template as the previous one, so that one is tried first.
    private mutating func isTemplate(_ bytes: Span<UInt8>, _ range: Range<Int>) -> Bool {
        if let lastTemplate, bytes.matches(lastTemplate, at: range) { return true }
        let template = range.map { bytes[$0] }
        guard inForce.contains(template) || beforeStart.contains(template) else { return false }
        lastTemplate = template
        return true
    }

    private mutating func start(_ rules: PublishedRules, resolution: Int, _ index: UInt64) throws(VerificationFailure) {
        // `VerifierRun` refuses a start whose policy has no timing.
        let named = rules.timing!
        let timing = Timing(hour: Int(named.hourSeconds), day: Int(named.daySeconds), seals: named.batchSeals)
        guard !hasStarted || timing == self.timing, timing.hour % resolution == 0 else {
            throw VerificationFailure(
                .policyChanged, "names a policy with another timing than the log's, or one that its windows don't divide",
                index: index)
        }
        if !hasStarted {
            lastClosed = Int(report.fromMs! / 1_000) / timing.day * timing.day
            if let first = buckets.first { lastClosed = min(lastClosed, first.until - timing.day) }
            guard buckets.allSatisfy({ $0.until % timing.day == 0 }) else {
                throw VerificationFailure(.carry, "the log carries a bucket that ends within a day of its policy", index: index)
            }
        }
        (self.timing, self.resolution) = (timing, resolution)
        beforeStart.formUnion(inForce)
        (inForce, lastTemplate) = ([], nil)
        load(rules)
    }

    private mutating func load(_ rules: PublishedRules) {
        for template in rules.templates { inForce.insert(Array(template.utf8)) }
        longestLife = max(longestLife, rules.longestLifeSeconds)
    }

    private mutating func ratchet(_ epoch: Int, swept next: Int, _ index: UInt64) throws(VerificationFailure) {
        guard (epoch + 1) * Self.epoch <= at + resolution else {
            throw VerificationFailure(.ratchetEarly, "reports destroyed keys of an epoch that has not ended", index: index)
        }
        destroyed.epoch = max(destroyed.epoch, epoch)
        destroyed.due = (destroyed.epoch + 4) * Self.epoch
        guard next * Self.epoch <= at + resolution else {
            throw VerificationFailure(.sweptEarly, "reports purges of tokens that are not due yet", index: index)
        }
        guard !isSweptAnnounced || next >= swept.epoch else {
            throw VerificationFailure(
                .sweptEarly, "reports an earlier epoch than \(swept.epoch), before which everything was purged", index: index)
        }
        (swept.epoch, isSweptAnnounced) = (next, true)
        // A sweep that began before the epoch ended may report the epoch before; the next report still has its time.
        swept.due = max(next + 2, at / Self.epoch + 1) * Self.epoch
        let due = (next + 1) * Self.epoch
        guard isOnTime(due: due, grace: Self.grace) else {
            throw VerificationFailure(
                .sweptLate, "something due before \(Self.text(due)) is not purged at \(Self.text(at))", index: index)
        }
    }

    private mutating func conclude(_ job: JobID, _ index: UInt64) throws(VerificationFailure) {
        if let opened = jobs.close(job) {
            guard isJobOnTime(opened: opened) else {
                throw VerificationFailure(
                    .outcomeLate, "comes more than \(Self.jobLimit) s after its opening", index: index, id: job)
            }
        } else {
            guard carriedJobs > 0, isJobOnTime(opened: openedAt) else {
                throw VerificationFailure(.jobUnknown, "an outcome of a job that is not open", index: index, id: job)
            }
            carriedJobs -= 1
        }
    }

    private func bucket(_ entry: EntryFields, _ index: UInt64) throws(VerificationFailure) -> Int {
        let until = Int(entry.untilMs / 1_000)
        guard until % timing.day == 0, until > lastClosed else {
            let isClosed = until % timing.day == 0
            throw VerificationFailure(
                .bucketUnknown, isClosed ? "its bucket is closed" : "its until is not the end of a day", index: index,
                id: entry.op == .bucketClosed ? nil : entry.id)
        }
        return until
    }

    private mutating func expire(_ entry: EntryFields, _ index: UInt64) throws(VerificationFailure) {
        let until = try bucket(entry, index)
        guard until - timing.day <= at + resolution else {
            throw VerificationFailure(.purgedEarly, "expired before its day", index: index, id: entry.id)
        }
        guard buckets.expire(until: until) else {
            throw VerificationFailure(
                .unbalanced, "its bucket has no live token left", index: index, id: entry.id)
        }
    }

    private mutating func close(_ entry: EntryFields, _ index: UInt64) throws(VerificationFailure) {
        let until = try bucket(entry, index)
        let (bucket, ended) = (buckets.find(until), Int(entry.second))
        guard bucket.sealed == Int(entry.number), bucket.expired == Int(entry.expired) else {
            throw VerificationFailure(
                .unbalanced, "the log has \(bucket.sealed) seals and \(bucket.expired) expiries for it", index: index)
        }
        booked += ended
        guard booked <= early else {
            throw VerificationFailure(.overbooked, "more early purges are booked than were published", index: index)
        }
        batch.closings += 1
        guard until <= at ? bucket.remaining == ended : bucket.remaining >= ended else {
            throw VerificationFailure(
                .unbalanced, "\(bucket.remaining) tokens remained in it, but \(ended) ended early", index: index)
        }
        if until > at {
            batch.rotationClosings += 1
            isRotating = true
        } else {
            let due = firstDue
            guard due >= until else {
                throw VerificationFailure(
                    .midnightMissing, "the bucket of \(Self.text(due)) should be closed before it", index: index)
            }
            guard isOnTime(due: until, grace: Self.grace) else {
                throw VerificationFailure(
                    .batchLate, "was due at \(Self.text(until)), and is published at \(Self.text(at))", index: index)
            }
            lastClosed = until
        }
        report.bucketsClosed += 1
        buckets.close(until)
    }
}
