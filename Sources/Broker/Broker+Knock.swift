import Courier
import EventLoop
import Ledger
import Policy
import Sealing
import Shares
import Sodium
import Storage
import Vocabulary

extension Broker {
    /// The template of the one push that rooms know.
    public static let template = "peer_waiting"

    /// Asks for a push to the side in `slot`, unless it is there. When this returns `queued` the push is durable.
    func knock(in roomID: RoomID, _ record: RoomRecord, at slot: UInt8) async throws(BrokerError) -> Delivery {
        var room = record
        for _ in 0..<3 {
            let now = time.now
            // The side may have arrived while the store was asked.
            if presence.isPresent(Presence.Place(room: room.room, slot: slot)) {
                metrics.add(.knocksUnneeded)
                return .peerPresent
            }
            guard let name = room[slot]?.token else { return .noToken }
            let expires = room.expires
            let token = try await store.read { try $0.token(name, expires: expires) }
            if let token, let delivery = try await queue(token, room: roomID, now: now) { return delivery }
            guard let again = try await live(keys.roomIndex(roomID)) else { throw .roomNotFound }
            room = again
        }
        return .noToken
    }

    /// Stores a job that pushes to this token, if its side and the token itself may be knocked at now.
    /// - Returns: nil when the token can't be used, or not any more.
    private func queue(_ token: TokenRecord, room: RoomID, now: UInt64) async throws(BrokerError) -> Delivery? {
        let context = token.context
        guard now < token.expires, let template = policies.template(Self.template) else {
            return nil
        }
        let heldUntil = max(startGraceEnd(token.room), recentAccepts.holdEnd(token.room, now: now))
        let plan = times(template).plan(now: now, heldUntil: heldUntil, tokenExpires: token.expires)
        // The room ends too soon for a push.
        guard let plan else { return .noToken }
        guard !departures.isFull(topic: token.topic, environment: token.environment) else { throw .tooManyPushes }
        let opened = try ifItOpens { () throws(SealingError) in
            try keys.openToken(token.sealed.span, context: context, room: room)
        }
        guard let opened else { return nil }
        let place = try secret { () throws(SealingError) in try tokenKnocks.take(opened.token, context.environment, now: now) }
        guard let place else { return throttled(token, room, until: tokenKnocks.end ?? now) }
        watchWindows()
        // Taken before the wait, so that knocks at the same moment don't all find room; given back unless a push comes of it.
        var isQueued = false
        defer { if !isQueued { tokenKnocks.giveBack(place) } }
        let (charges, isThrottled) = try chargeKnock(token)
        if isThrottled { return throttled(token, room, until: now + policies.rooms.knockThrottleMs) }
        defer { if !isQueued { shares.refund(charges) } }
        let new = try self.job(opened, token, context, plan, room: room)
        let job = new.record
        hold(job)
        defer { if !isQueued { release(job) } }
        let throttle = policies.rooms.knockThrottleMs
        let outcome = try await store.write { try $0.knock(new, throttle: throttle, now: now, knocked: plan.knocked) }
        switch outcome {
        case .queued:
            isQueued = true
            metrics.add(.knocksQueued)
            schedule(Departures.Departure(job: job, place: place, charge: charges.first.map { PushCharge(shares, $0) }))
            return .queued
        case .throttled(let until): return throttled(token, room, until: until)
        case .changed: return nil
        }
    }

    private func throttled(_ token: TokenRecord, _ room: RoomID, until end: UInt64) -> Delivery {
        metrics.add(.knocksThrottled)
        let now = time.now
        checkAgain(Presence.Place(room: token.room, slot: token.slot), in: room, afterMs: end - min(now, end) + 1)
        return .throttled
    }

    /// Charges a push to this side, and its entries in the log. A knock without a caller is not charged.
    /// - Returns: the charges, that of the queue first; and whether the side or the caller is over its share.
    private func chargeKnock(_ token: TokenRecord) throws(BrokerError) -> (charges: [Charge], isThrottled: Bool) {
        let side = shares.side(token.room, slot: token.slot)
        do throws(Shortage) {
            guard let queued = try charge(.queuedPushes, side: side, urgency: .knock) else { return ([], false) }
            do throws(Shortage) {
                return ([queued] + (try chargeEntries(urgency: .knock)), false)
            } catch {
                shares.refund(queued)
                throw error
            }
        } catch {
            if case .overShare = error { return ([], true) }
            throw .tooManyPushes
        }
    }

    /// Seals a token, which the member's room id has opened, into a job that the broker alone can open until its deadline.
    private func job(
        _ opened: OpenedToken, _ token: TokenRecord, _ context: TokenContext, _ plan: JobTimes.Plan, room: RoomID
    ) throws(BrokerError) -> NewJob {
        let job = JobContext(
            generation: keys.currentGeneration, job: JobID.random(), purgeID: context.purgeID, kind: context.kind,
            environment: context.environment, topic: token.topic, template: Self.template, deadlineMs: plan.deadline,
            expiryMs: token.expires)
        let handle = keys.handle(room, kind: "room", slot: token.slot)
        let sealed = try secret { () throws(SealingError) in
            try keys.sealJob(JobContent(token: opened.token, sealedAtMs: opened.sealedAtMs, handle: handle), context: job)
        }
        let row = JobRecord(
            job: job.job, deadline: plan.deadline, notBefore: plan.notBefore, purgeID: token.purgeID, room: token.room,
            slot: token.slot, kind: token.kind, environment: token.environment, topic: token.topic, template: Self.template,
            generation: job.generation, expires: token.expires, sealed: sealed)
        return NewJob(row, openedID: opened.ref.openedID(job.job))
    }

    private func times(_ template: Template) -> JobTimes { JobTimes(template) }

    /// A push that may leave, or how its job ends without one.
    enum Ready {
        case push(Push)
        /// The push must wait until there is room for its token.
        case short(SlotShortage)
        /// Nil: not now, the broker is stopping.
        case end(JobOutcome?)
        /// Its side is being probed: it is looked at again when the probe has ended.
        case probing(Presence.Place)
    }

    func makeReady(_ departure: Departures.Departure) async -> Ready {
        let job = departure.job
        let isLate = departure.isMissed || time.now >= job.deadline
        // The side may have arrived while the job was stored or waited, or returned after a restart.
        if let room = job.room {
            let place = Presence.Place(room: room, slot: job.slot)
            switch isLate ? (presence.isPresent(place) ? .present : .absent) : check(place, isAwaited: false) {
            case .present: return .end(JobOutcome(status: 0, reason: .unsent, releaseThrottle: true))
            case .probing: return .probing(place)
            case .absent: break
            }
        }
        // Past its deadline the key is as good as gone: what became of it before a restart is not known.
        guard !isLate else {
            return .end(JobOutcome(status: 0, reason: departure.isFromBefore ? .unknown : .unsent))
        }
        // Its token may have been destroyed since, before a restart too.
        guard job.isLast || !revocations.contains(job.purgeID) else { return .end(JobOutcome(status: 0, reason: .unsent)) }
        do {
            guard try await stands(job) else { return .end(JobOutcome(status: 0, reason: .unsent)) }
        } catch {
            // That it can't be read now does not say that it is gone: what was acknowledged is sent.
            if error == .closed { return .end(nil) }
        }
        // Something came in its place while it waited.
        guard isNewest(departure) else { return .end(JobOutcome(status: 0, reason: .other)) }
        do throws(SlotShortage) {
            if let push = try push(for: departure) { return .push(push) }
        } catch { return .short(error) }
        metrics.add(.alarms)
        return .end(JobOutcome(status: 0, reason: .other))
    }

    /// Whether the token of a job is there still, or went with the job's own request.
    private func stands(_ job: JobRecord) async throws(StoreError) -> Bool {
        if job.isLast || renewals.contains(job.purgeID) { return true }
        return try await store.engine.read { try $0.holdsToken(of: job) }
    }

    private func isNewest(_ departure: Departures.Departure) -> Bool {
        departure.replaces.map { newest.isNewest(departure.job.job, at: $0) } ?? true
    }

    func send(_ push: Push, of job: JobRecord) async -> JobOutcome? {
        switch await courier.send(push) {
        case .delivered:
            metrics.add(.pushesDelivered)
            return JobOutcome(status: 200, reason: nil)
        case .failed(_, .stopped, _):
            return nil
        case .failed(let status, .revoked, _):
            let isGone = revocations.contains(job.purgeID)
            return JobOutcome(status: UInt16(clamping: status), reason: isGone ? .unsent : .other)
        case .failed(let status, let reason, let verdict):
            metrics.add(.pushesFailed)
            if reason == .notConfigured { metrics.add(.pushesNotConfigured) }
            return JobOutcome(
                status: UInt16(clamping: status), reason: reason.recorded,
                purge: Self.purges(verdict, sealedAt: push.sealedAtMs))
        }
    }

    /// A token sealed after the moment from which APNs calls it gone is live again.
    private static func purges(_ verdict: Verdict, sealedAt: UInt64) -> Bool {
        switch verdict {
        case .keep, .configuration: false
        case .purge(nil): true
        case .purge(let moment?): sealedAt <= moment
        }
    }

    /// Returns nil for a row that does not open.
    private func push(for departure: Departures.Departure) throws(SlotShortage) -> Push? {
        let job = departure.job
        guard let template = policies.template(job.template),
            let content = try opened({ () throws(SealingError) in try keys.openJob(job.sealed.span, context: job.context) }),
            let apnsID = try? keys.apnsID(job.job, deadlineMs: job.deadline, generation: job.generation),
            let (fields, stampMs) = try fields(of: job),
            let rendered = try? template.render(handle: content.handle, fields: fields, nowMs: stampMs)
        else { return nil }
        let counted = times(template).counted(deadline: job.deadline, tokenExpires: job.expires)
        return Push(
            apnsID: apnsID, token: content.token,
            environment: job.environment, topic: job.topic + rendered.pushType.topicSuffix, type: rendered.pushType,
            priority: UInt8(clamping: rendered.priority),
            expirationS: expiration(template, counted, job.expires),
            collapseID: content.handle.base64url, payload: rendered.payload, sealedAtMs: content.sealedAtMs,
            deadlineMs: job.deadline,
            isWanted: { [revocations, newest] in
                (job.isLast || !revocations.contains(job.purgeID))
                    && (departure.replaces.map { newest.isNewest(job.job, at: $0) } ?? true)
            })
    }

    /// By Apple's clock, also while broker time is ahead of the wall clock: a phone would ring long after the call.
    private func expiration(_ template: Template, _ counted: UInt64, _ tokenExpires: UInt64) -> UInt64 {
        let expires = template.expiration(nowMs: counted, tokenExpiryMs: tokenExpires)
        return expires - min(expires, time.secondsAhead)
    }

    /// What an audience's push is filled with, and when that was so; rooms have nothing but their handle.
    private func fields(of job: JobRecord) throws(SlotShortage) -> (fields: [String: FieldValue], stampMs: UInt64)? {
        if job.fields == nil { return ([:], time.now) }
        return try content(of: job).map { ($0.fields, $0.stampMs) }
    }

    /// Returns nil in rooms, and for a row that does not open.
    func content(of job: JobRecord) throws(SlotShortage) -> PushContent? {
        guard let sealed = job.fields else { return nil }
        let place = Place(generation: job.generation, expiryMs: job.deadline)
        let note = try opened { () throws(SealingError) in
            try keys.openNote(sealed.span, .fields, place, [job.job.bytes], block: 64)
        }
        return note.flatMap(PushContent.init)
    }
}
