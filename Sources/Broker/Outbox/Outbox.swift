import Courier
public import EventLoop
import Ledger
import Policy
import Sealing
import Shares
public import Storage
import Vocabulary
import WebPush

/// Owns each push from the stored job to the recorded outcome, for rooms and audiences alike.
///
/// A *job* is the stored row, a *push* is what goes to Apple, an *outcome* is what the ledger records.
public actor Outbox: LoopActor, BrokerPart {
    typealias Entry = OutboxQueue.Entry

    public nonisolated let loop: EventLoop
    nonisolated let shared: Dependencies
    private let courier: any PushSender
    private let presence: Presence

    var queue: OutboxQueue
    /// The jobs that it owns, from the reservation to the recorded outcome.
    private var owned: Set<JobID> = []
    /// Jobs whose side is being probed.
    private var probing: [RoomSide: [Entry]] = [:]
    private let wanted = WantedPushes()
    private let tests: KeyedBudget
    /// After an outage of Apple, outcomes come by the thousand. More at a time would delay every other operation of the store.
    private let recordingLimit = Limiter(256)
    /// When the next line about unrecorded outcomes may be logged, on the loop's clock.
    private var outcomesLogAt: UInt64 = 0
    private var lastRecordFailed = false
    /// When the next refusal of the same kind may be logged, on the loop's clock.
    private var refusalLogAt: [String: UInt64] = [:]

    /// How long pushes wait for free slots after a shortage.
    private static let pauseMs: UInt64 = 250

    init(_ shared: Dependencies, courier: any PushSender, presence: Presence) {
        loop = shared.loop
        self.shared = shared
        self.courier = courier
        self.presence = presence
        tests = KeyedBudget(.testPushes, nodes: { shared.nodes })
        queue = OutboxQueue(
            limit: shared.charges.shares.table[.queuedPushes].total,
            shuffles: shared.policies.templates.values.contains { !$0.timing.isAtOnce })
    }

    // MARK: Quota

    var isFull: Bool { freePlaces == 0 }

    /// How many more jobs the queue takes.
    var freePlaces: Int { queue.freePlaces }

    /// Reserves room for a job that is about to be stored. From now on the sweeper leaves the job alone.
    func reserve(_ job: JobRecord) {
        queue.queued += 1
        owned.insert(job.job)
        sweeper.assumeIsolated { $0.hold(jobDue: job.deadline) }
    }

    /// Releases a job that was not stored, or whose outcome is recorded.
    func release(_ job: JobRecord) {
        queue.queued -= 1
        owned.remove(job.job)
        sweeper.assumeIsolated { $0.release(jobDue: job.deadline) }
    }

    func reserve(_ jobs: [JobRecord]) { for job in jobs { reserve(job) } }

    func release(_ jobs: [JobRecord]) { for job in jobs { release(job) } }

    /// Reserves a test push to this address, whichever room or app asks for it.
    /// - Throws: `.tooManyRequests` if the address had three within the window.
    func reserveTest(_ address: PushAddress) throws -> KeyedBudget.Reservation {
        let (now, isFirst) = (time.now, tests.end == nil)
        let reservation = try tests.reserve(address, now: now)
        if isFirst { watchTests() }
        if let reservation { return reservation }
        // The rest of the window would show when somebody's first test was.
        throw BrokerError.tooManyRequests(retryAfterSeconds: Int(Budget.testPushes.windowMs / 1_000))
    }

    /// Counts must not outlive their window, even if no request follows.
    private func watchTests() {
        guard let end = tests.end else { return }
        loop.after(end - min(time.now, end) + 1) {
            self.assumeIsolated { outbox in
                outbox.tests.forget(outbox.time.now)
                outbox.watchTests()
            }
        }
    }

    // MARK: Tokens

    /// Withdraws the queued pushes to these tokens, which were destroyed.
    /// - Parameter tokens: purge ids.
    func revoke(_ tokens: [EntryID]) {
        revokeHere(tokens)
        for token in tokens { shared.neighbors?.post(.revoked(token)) }
    }

    func revokeHere(_ tokens: [EntryID]) {
        let now = time.now
        for token in tokens { wanted.revoke(token, until: now + policies.jobDeadlineMs, now: now) }
    }

    /// Keeps the queued pushes to these tokens, which were sealed again under other purge ids.
    func renew(_ tokens: [EntryID]) {
        renewHere(tokens)
        for token in tokens { shared.neighbors?.post(.renewed(token)) }
    }

    func renewHere(_ tokens: [EntryID]) {
        let now = time.now
        for token in tokens { wanted.renew(token, until: now + policies.jobDeadlineMs, now: now) }
    }

    /// Withdraws the queued pushes that ask for an approval, which has ended. Other nodes hear of it with the news for their sockets.
    func settle(_ request: RequestID) {
        let now = time.now
        wanted.settle(request, until: now + policies.jobDeadlineMs, now: now)
    }

    // MARK: Stored jobs

    /// Queues the jobs that a previous run left.
    public func resumeJobs() async throws {
        resume(try await store.read { try $0.jobs() })
    }

    /// Queues stored jobs that it doesn't own yet.
    public func resume(_ stored: [JobRecord]) {
        let jobs = stored.filter { !owned.contains($0.job) }
        if jobs.isEmpty { return }
        reserve(jobs)
        add(jobs, isFromBefore: true)
        shared.log.info(
            "courier: \(Metrics.inWords(jobs.count)) pushes resumed that a previous run, another node or a commit without an answer has left"
        )
    }

    /// Queues jobs that are stored.
    func add(_ jobs: [JobRecord], charge: PushCharge? = nil, isFromBefore: Bool = false) {
        let contents: [PushContent?]
        do {
            contents = try jobs.map(keys.content)
        } catch {
            store.reportShortage(error)
            loop.after(Self.pauseMs) { self.assumeIsolated { $0.add(jobs, charge: charge, isFromBefore: isFromBefore) } }
            return
        }
        let entries = zip(jobs, contents).map { job, content in
            var entry = Entry(job: job, reservation: nil, charge: charge, isFromBefore: isFromBefore)
            if let content {
                let target = WantedPushes.Target(token: job.purgeID, collapse: content.collapse)
                wanted.add(job, to: target, stampMs: content.stampMs)
                entry.target = target
                entry.asks = content.asks
            }
            return entry
        }
        // Schedule only now that all targets are known. Otherwise an older push might leave before the newer one that replaces it is known.
        for entry in entries { schedule(entry) }
    }

    /// Queues a job for its time. A job that missed its time gets a later slot.
    func schedule(_ entry: Entry) {
        let now = time.now
        var entry = entry
        let job = entry.job
        let timing = policies.template(job.context.template)?.timing
        let leaves = timing?.departure(missed: job.notBefore, now: now) ?? job.notBefore
        entry.isMissed = leaves >= job.deadline
        if leaves > now, !entry.isMissed {
            if queue.schedule(entry, at: leaves) { watch(leaves) }
        } else {
            queue.makeDue(entry)
            startDue()
        }
    }

    private func watch(_ leaves: UInt64) {
        loop.after(leaves - min(time.now, leaves)) {
            self.assumeIsolated { outbox in
                // Broker time goes slower while the wall clock is behind it.
                if outbox.time.now < leaves { return outbox.watch(leaves) }
                outbox.queue.makeDue(at: leaves)
                outbox.startDue()
            }
        }
    }

    // MARK: Delivery

    private func startDue() {
        while let entry = queue.startNext() {
            Task(executorPreference: loop) { await self.deliver(entry) }
        }
    }

    /// Why a push that is due is not sent now.
    private enum Unsent: Error {
        case ended(JobOutcome)
        /// Its side is being probed.
        case probing(RoomSide)
        case short(SlotShortage)
        /// Too many pushes of its app are under way.
        case held
        /// The broker is stopping. The next start resumes the job.
        case stopping
    }

    /// Handles a job from its time to its recorded outcome: check, render, send, record, release.
    private func deliver(_ started: Entry) async {
        var entry = started
        defer {
            queue.endDelivery(of: entry)
            startDue()
        }
        let outcome: JobOutcome
        do throws(Unsent) {
            let push: Push
            do {
                defer {
                    queue.endPreparation()
                    startDue()
                }
                try await check(entry)
                push = try render(&entry)
            }
            outcome = try await send(push, of: entry)
        } catch {
            switch error {
            case .ended(let ended): outcome = ended
            case .probing(let side): return wait(entry, forProbeOf: side)
            // The push was acknowledged, so it is tried again until its deadline.
            case .short: return queue.makeDue(entry)
            case .held:
                if queue.hold(entry) { return }
                // Only strangers' hosts have such a limit.
                metrics.add(.webPushesFailed)
                outcome = JobOutcome(status: 0, reason: entry.isFromBefore ? .unknown : .unsent)
            case .stopping: return
            }
        }
        // Refund pushes that never left. Otherwise rooms that are closed at once would exhaust the token's budget without ringing the phone.
        if outcome.neverLeft { entry.reservation?.cancel() }
        await recordingLimit.acquire()
        await record(outcome, of: entry.job)
        if let target = entry.target { wanted.remove(from: target) }
        release(entry.job)
        entry.charge?.refund()
        recordingLimit.release()
    }

    /// Checks that the push is in time and still wanted.
    /// - Throws: `.ended` if it is not, `.probing`, or `.stopping`.
    private func check(_ entry: Entry) async throws(Unsent) {
        let job = entry.job
        let isLate = entry.isMissed || time.now >= job.deadline
        // The side may have arrived while the job waited, or may have come back after a restart.
        if let room = job.room, !entry.isTest {
            let side = RoomSide(room: room, slot: job.slot)
            switch isLate ? await presence.lastKnownState(side) : await presence.check(side, isAwaited: false) {
            case .present: throw .ended(JobOutcome(status: 0, reason: .unsent, releaseThrottle: true))
            case .probing: throw .probing(side)
            case .absent: break
            }
        }
        // The key may be gone after the deadline, and nobody knows whether a previous run has sent the push.
        if isLate { throw .ended(JobOutcome(status: 0, reason: entry.isFromBefore ? .unknown : .unsent)) }
        if wanted.isRevoked(job.purgeID), !job.isLast { throw .ended(JobOutcome(status: 0, reason: .unsent)) }
        guard try await isStored(job) else { throw .ended(JobOutcome(status: 0, reason: .unsent)) }
        // Another node may have cleared the approval.
        guard try await isPending(entry.asks) else {
            throw .ended(JobOutcome(status: 0, reason: entry.isFromBefore ? .unknown : .unsent))
        }
        // A newer push may have replaced this one.
        guard wanted.isNewest(job.job, of: entry.target) else { throw .ended(JobOutcome(status: 0, reason: .other)) }
    }

    /// True if this approval waits for its answer.
    private func isPending(_ request: RequestID?) async throws(Unsent) -> Bool {
        guard let request else { return true }
        do throws(StoreError) {
            return try await store.engine.read { try $0.timer(request) }?.answer == 0
        } catch {
            if error == .closed { throw .stopping }
            // A failed read doesn't prove that the approval has ended. Send the push.
            return true
        }
    }

    /// True if the job is stored, and its token exists, was renewed, or was destroyed by the request that queued this job.
    private func isStored(_ job: JobRecord) async throws(Unsent) -> Bool {
        let needsToken = !job.isLast && !wanted.isRenewed(job.purgeID)
        do throws(StoreError) {
            return try await store.engine.read { try $0.holds(job, token: needsToken) }
        } catch {
            if error == .closed { throw .stopping }
            // A failed read doesn't prove the token is gone. We acknowledged this push, so send it. After lost commits the sender waits.
            return true
        }
    }

    /// Opens the job and renders its push.
    /// - Throws: `.ended` if the row was edited, its key is gone, or this broker can't send to its address; `.short` after a shortage, which
    ///   pauses the queue; `.held`.
    private func render(_ entry: inout Entry) throws(Unsent) -> Push {
        let job = entry.job
        let content = try orPause { () throws(SlotShortage) in
            try opened { () throws(SealingError) in try keys.openJob(job.sealed.span, context: job.context) }
        }
        guard let content else { throw invalid() }
        let destination = content.address.destination
        guard settings.reaches(destination) else {
            noteUnserved(destination)
            throw .ended(JobOutcome(status: 0, reason: .topicDisallowed))
        }
        guard queue.admit(&entry, to: SendGroup(content.address)) else { throw .held }
        // The template may have no text for browsers: rooms don't require one, and the policy may have changed.
        if case .webPush = destination, policies.template(job.context.template)?.reachesBrowsers == false {
            throw .ended(JobOutcome(status: 0, reason: .unsent))
        }
        let (target, asks) = (entry.target, entry.asks)
        let push = try orPause { () throws(SlotShortage) in
            try self.push(of: job, content) { [wanted] in wanted.isWanted(job, of: target, asks: asks) }
        }
        guard let push else { throw invalid() }
        return push
    }

    private func orPause<Value>(_ body: () throws(SlotShortage) -> Value) throws(Unsent) -> Value {
        do throws(SlotShortage) {
            return try body()
        } catch {
            pause(error)
            throw .short(error)
        }
    }

    /// The row does not open or does not fit its template.
    private func invalid() -> Unsent {
        alarm(
            "a stored push failed: it can't be opened or doesn't fit its template. Either the database was edited or the policy changed"
        )
        return .ended(JobOutcome(status: 0, reason: .other))
    }

    /// Alarms that a token's app or push service can't be served any more, at most once a minute. Its tokens are kept. For browsers it
    /// alarms once per start. Otherwise strangers could repeat it.
    private func noteUnserved(_ destination: Destination) {
        count([.failed, .notConfigured], destination)
        let pauseMs: UInt64 =
            switch destination {
            case .apns, .other: 60_000
            case .webPush: .max / 2
            }
        let text =
            switch destination {
            case .apns:
                "pushes to an app fail, because it is not configured any more. No token is purged. Configure it again, or wait until its tokens expire"
            case .webPush:
                "Web Push messages fail, because the VAPID key that their addresses were made for is not configured. No address is purged. Configure it again as --vapid-key or --vapid-previous-key, or wait until the addresses expire"
            case .other:
                "pushes to another service than APNs fail, because this release can't send there. No token is purged. Run the release that accepted their addresses"
            }
        alarm(text, pauseMs: pauseMs)
    }

    /// Counts an alarm and logs its text, unless it did so in the last `pauseMs`.
    private func alarm(_ text: String, pauseMs: UInt64 = 60_000) {
        guard loop.now >= refusalLogAt[text] ?? 0 else { return }
        refusalLogAt[text] = loop.now + pauseMs
        metrics.add(.alarms)
        shared.log.error("courier: \(text)")
    }

    /// Returns nil if the row does not fit its template.
    private func push(
        of job: JobRecord, _ content: JobContent, isWanted: @escaping @Sendable () -> Bool
    ) throws(SlotShortage) -> Push? {
        guard let template = policies.template(job.context.template),
            let apnsID = try opened({ () throws(SealingError) in
                try keys.apnsID(job.job, deadlineMs: job.deadline, generation: job.context.generation)
            }),
            let (fields, stampMs) = try fields(of: job),
            let payload = payload(template, content, fields, stampMs)
        else { return nil }
        let counted = JobTimes(template).countedFrom(deadline: job.deadline, tokenExpires: job.expires)
        var push = Push(
            apnsID: apnsID, address: content.address, type: template.pushType, priority: UInt8(clamping: template.priority),
            expirationS: expiration(template, counted, job.expires),
            collapseID: content.handle.base64url, payload: payload, sealedAtMs: content.sealedAtMs,
            deadlineMs: job.deadline, isWanted: isWanted)
        (push.ttlS, push.addressEndsMs) = (template.ttlSeconds, job.expires)
        return push
    }

    /// Returns what the address's service is given to show. Nil if the fields don't fit the template.
    private func payload(
        _ template: Template, _ content: JobContent, _ fields: [String: FieldValue], _ stampMs: UInt64
    ) -> [UInt8]? {
        switch content.address.destination {
        case .apns, .other: return (try? template.render(handle: content.handle, fields: fields, nowMs: stampMs))?.payload
        case .webPush:
            guard let origin = settings.webPush?.origin else { return nil }
            return (try? template.renderWeb(handle: content.handle, fields: fields, nowMs: stampMs, origin: origin)) ?? nil
        }
    }

    /// Apple compares this with its own clock, so correct it by the lead of broker time. Otherwise a phone could ring long after the call, or never.
    private func expiration(_ template: Template, _ counted: UInt64, _ tokenExpires: UInt64) -> UInt64 {
        let expires = template.expiration(nowMs: counted, tokenExpiryMs: tokenExpires)
        // 0 means at once.
        return expires == 0 ? 0 : UInt64(max(1, Int64(clamping: expires) - time.secondsAhead))
    }

    /// The fields of an audience's push and their time. A room's push has none.
    private func fields(of job: JobRecord) throws(SlotShortage) -> (fields: [String: FieldValue], stampMs: UInt64)? {
        if job.fields == nil { return ([:], time.now) }
        return try keys.content(of: job).map { ($0.fields, $0.stampMs) }
    }

    /// Returns the content of the newest push to this target that has no outcome: Apple may not have it yet.
    func newestContent(of target: WantedPushes.Target) throws -> PushContent? {
        guard let job = wanted.newest(of: target) else { return nil }
        return try keys.content(of: job)
    }

    private func send(_ push: Push, of entry: Entry) async throws(Unsent) -> JobOutcome {
        let job = entry.job
        switch await courier.send(push) {
        case .delivered:
            count([.delivered], push.address.destination)
            return JobOutcome(status: 200, reason: nil)
        case .failed(_, .stopped, _): throw .stopping
        case .failed(let status, .revoked, _):
            let isGone = wanted.isRevoked(job.purgeID) || entry.asks.map(wanted.isSettled) == true
            return JobOutcome(status: UInt16(clamping: status), reason: isGone ? .unsent : .other)
        case .failed(let status, let reason, let verdict):
            count(reason == .notConfigured ? [.failed, .notConfigured] : [.failed], push.address.destination)
            if status != 0, reason.reaction(status: status).isFinal { note(refusal: reason, status, of: push, verdict) }
            return JobOutcome(
                status: UInt16(clamping: status), reason: reason.recorded,
                purge: Self.purges(verdict, sealedAt: push.sealedAtMs))
        }
    }

    private func count(_ ends: [Metrics.PushEnd], _ destination: Destination) {
        for end in ends { metrics.add(end.counter(of: destination)) }
    }

    /// Counts a refusal, and logs the first of its kind and then one an hour. The first may already show a wrong environment or topic.
    private func note(refusal reason: PushReason, _ status: Int, of push: Push, _ verdict: Verdict) {
        // Otherwise whoever owns a host could make up refusals by Apple.
        guard SendGroup(push.address) != .foreignHosts else { return }
        metrics.addRefusal(reason)
        // The courier's alarm has a line of its own.
        // Nobody may make lines about hosts that a stranger chose.
        guard verdict != .configuration, case .apns(_, let environment) = push.address.destination else { return }
        // The list of apps may have changed since the push was sent.
        let topic = settings.bundleID(of: push.address.destination).map { $0 + push.type.topicSuffix } ?? "an unknown app"
        let kind = "\(environment) \(topic) \(status) \(reason.rawValue)"
        guard loop.now >= refusalLogAt[kind] ?? 0 else { return }
        refusalLogAt[kind] = loop.now + 3_600_000
        let explanation = reason.explanation
        shared.log.warning(
            "courier: APNs (\(environment)) refused a push to \(topic) with \(status) \(reason.rawValue): \(explanation.means). "
                + "What to do: \(explanation.remedy). \(Metrics.refused) counts all refusals")
    }

    /// A token that was sealed after the moment from which Apple calls it gone is live again.
    private static func purges(_ verdict: Verdict, sealedAt: UInt64) -> Bool {
        switch verdict {
        case .keep, .configuration: false
        case .purge(nil): true
        case .purge(let moment?): sealedAt <= moment
        }
    }

    /// Records the outcome. The ledger must have every outcome, so this retries until the broker stops.
    private func record(_ outcome: JobOutcome, of job: JobRecord) async {
        var wait: UInt64 = 100
        while true {
            do {
                try await store.engine.write { try $0.finish(job, outcome) }
                lastRecordFailed = false
                // The job's row must leave the write-ahead log, too: the key that opens it lives ten minutes more.
                await sweeper.scheduleScrub()
                return
            } catch {
                if error == .closed { return }
                // Report the second failure, not the first: by then all outcomes that wait are counted.
                if wait > 100 { reportUnrecorded(error) }
                try? await loop.sleep(wait)
                wait = min(wait * 2, 5_000)
            }
        }
    }

    /// Logs at most one line a minute: thousands of outcomes may wait, and each is retried again and again.
    private func reportUnrecorded(_ error: StoreError) {
        lastRecordFailed = true
        guard loop.now >= outcomesLogAt else { return }
        outcomesLogAt = loop.now + 60_000
        metrics.add(.alarms)
        shared.log.error(
            "courier: outcomes of \(Metrics.inWords(recordingLimit.count)) pushes are not recorded yet (\(error)); trying again"
        )
    }

    // MARK: Waiting

    private func wait(_ entry: Entry, forProbeOf side: RoomSide) {
        if probing[side] == nil {
            presence.assumeIsolated { presence in
                presence.afterProbe(of: side) { self.assumeIsolated { $0.resume(at: side) } }
            }
        }
        probing[side, default: []].append(entry)
    }

    /// Continues the jobs of a side whose probe has ended. If the side is present, its jobs end now. Otherwise they leave at their time.
    private func resume(at side: RoomSide) {
        let isPresent = presence.assumeIsolated { $0.isPresent(side) }
        for entry in probing.removeValue(forKey: side) ?? [] {
            if isPresent { queue.makeDue(entry) } else { schedule(entry) }
        }
        startDue()
    }

    private func pause(_ shortage: SlotShortage) {
        store.reportShortage(shortage)
        guard queue.pause() else { return }
        loop.after(Self.pauseMs) {
            self.assumeIsolated { outbox in
                outbox.queue.resume()
                outbox.startDue()
            }
        }
    }

    /// Waits until no push is under way, but not longer than `deadlineMs`. The next start resumes the others.
    public func drain(deadlineMs: UInt64) async {
        let end = loop.now + deadlineMs
        while queue.openCount > 0, loop.now < end { try? await loop.sleep(20) }
        if lastRecordFailed, recordingLimit.count > 0 {
            shared.log.error(
                "courier: outcomes of \(Metrics.inWords(recordingLimit.count)) pushes could not be recorded. The next start sends them again if they have time left, and records the others as unknown"
            )
        }
    }
}

extension JobOutcome {
    /// True if the push certainly never reached Apple.
    fileprivate var neverLeft: Bool {
        switch reason {
        case .unsent, .unreachable: status == 0
        default: false
        }
    }
}
