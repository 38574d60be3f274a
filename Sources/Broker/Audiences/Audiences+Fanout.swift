import EventLoop
import Ledger
import Policy
import Sealing
import Storage
import Vocabulary

/// One template that is pushed to each of some registrations.
struct AudienceEvent: Sendable {
    /// A value of a template's field. Handles are made for each receiver with its own key.
    enum Value: Sendable {
        case plain(FieldValue)
        case handle(kind: String, id: [UInt8])
    }

    var template: String
    /// A handle. Of two pushes to one token with the same handle, the later replaces the earlier. For a Live Activity it is the session's.
    var collapse: Value
    var fields: [String: Value] = [:]
}

/// The change to store so that a whole audience is told.
struct Fanout: Sendable {
    var change = AudienceChange()
    /// Pushes that leave now, and updates that wait for their window.
    var pushes = 0
    /// Pushes beyond a token's budget. Alerts are left out, updates wait.
    var throttled = 0
    /// What these pushes took of their tokens' budgets.
    var reservations: [KeyedBudget.Reservation] = []

    /// Nothing of it is stored: the reservations are free again.
    func cancel() { for reservation in reservations { reservation.cancel() } }

    static func += (all: inout Fanout, more: Fanout) {
        all.change.jobs += more.change.jobs
        all.change.waits += more.change.waits
        all.change.purges += more.change.purges
        all.pushes += more.pushes
        all.throttled += more.throttled
        all.reservations += more.reservations
    }
}

extension Audiences {
    /// Checks that an event can be rendered, while its caller can still be told.
    ///
    /// - Parameter sent: the caller's names of fields.
    /// - Throws: `.outOfRange` if a value is not allowed; `.storageUnavailable` if the policy in force lacks the template or a field.
    func check(_ event: AudienceEvent, sent: [String: String] = [:]) throws(BrokerError) {
        guard let template = policy.templates[event.template] else { throw .storageUnavailable }
        let zero = Handle(0)
        do throws(RenderError) {
            _ = try template.render(handle: zero, fields: event.fields.mapValues { $0.value { _, _ in zero } }, nowMs: time.now)
        } catch {
            switch error {
            case .outOfRange(let name), .notListed(let name):
                throw .outOfRange(sent[name] ?? name, allowed: template.allowed(in: name))
            default: throw .storageUnavailable
            }
        }
    }

    /// A push to each of these registrations.
    /// - Throws: `.tooManyPushes` if there is no room for all of them; `.storageUnavailable`.
    func pushes(
        _ event: AudienceEvent, to registrations: [RegistrationRecord], of audience: [UInt8]
    ) async throws(BrokerError) -> Fanout {
        try await admit(registrations)
        return try await build { fanout async throws(BrokerError) in
            for (number, registration) in registrations.enumerated() {
                // Thousands may watch one printer.
                if number % 64 == 63 { await loop.nextTurn() }
                guard let opened = try open(registration, of: audience) else { continue }
                guard let reservation = try reserve(opened) else {
                    fanout.throttled += 1
                    continue
                }
                fanout.reservations.append(reservation)
                guard let job = try job(content(event, opened), to: opened) else { continue }
                fanout.change.jobs.append(AudienceJob(job))
                fanout.pushes += 1
            }
        }
    }

    /// An update of each of these Live Activities: a push if its window is open. Otherwise the update waits for the window, and replaces any
    /// that waits already.
    func updates(
        _ event: AudienceEvent, to activities: [RegistrationRecord], of audience: [UInt8]
    ) async throws(BrokerError) -> Fanout {
        try await admit(activities)
        return try await build { fanout throws(BrokerError) in
            for activity in activities {
                guard let opened = try open(activity, of: audience) else { continue }
                let content = content(event, opened)
                if time.now < activity.opens {
                    fanout.change.waits.append(try wait(content, of: audience, for: activity, until: activity.opens))
                } else if let reservation = try reserve(opened) {
                    fanout.reservations.append(reservation)
                    guard let update = try update(content, of: opened) else { continue }
                    fanout.change.jobs.append(update)
                } else {
                    fanout.change.waits.append(try wait(content, of: audience, for: activity, until: tokenPushesEnd))
                    fanout.throttled += 1
                    continue
                }
                fanout.pushes += 1
            }
        }
    }

    /// Builds a fan-out. If that fails, its reservations are cancelled.
    func build(_ body: (inout Fanout) async throws(BrokerError) -> Void) async throws(BrokerError) -> Fanout {
        var fanout = Fanout()
        do throws(BrokerError) {
            try await body(&fanout)
        } catch {
            fanout.cancel()
            throw error
        }
        return fanout
    }

    /// The end of each of these Live Activities. It ignores windows, and destroys the token.
    func ends(
        _ event: AudienceEvent, to activities: [RegistrationRecord], of audience: [UInt8]
    ) async throws(BrokerError) -> Fanout {
        try await admit(activities)
        var fanout = Fanout()
        for activity in activities {
            guard let opened = try open(activity, of: audience),
                var update = try update(content(event, opened), of: opened)
            else {
                // A row that can't be pushed to ends all the same.
                fanout.change.purges.append(RegistrationPurge(activity.row, .ended))
                continue
            }
            update.purge = .ended
            update.job.record.isLast = true
            fanout.change.jobs.append(update)
            fanout.pushes += 1
        }
        return fanout
    }

    /// An update that leaves now. Its time must be later than that of any before it, or a phone would drop it.
    func update(_ content: PushContent, of activity: OpenedRegistration) throws(BrokerError) -> AudienceJob? {
        var content = content
        let stamp = max(content.stampMs / 1_000, activity.record.stamp + 1)
        content.stampMs = max(content.stampMs, stamp * 1_000)
        guard let job = try job(content, to: activity) else { return nil }
        let opens = time.now + (limits.activities?.updateMs ?? 0)
        return AudienceJob(job, update: ActivityUpdate(wasOpens: activity.record.opens, opens: opens, stamp: stamp))
    }

    /// Stores a change and queues its pushes. Any outcome but `.done` changed nothing and cost no budget. A change that may leave out
    /// registrations which are gone is `.done` without them.
    func apply(_ fanout: Fanout) async throws(BrokerError) -> ChangeOutcome {
        let now = time.now
        let change = fanout.change
        var jobs = change.jobs.map(\.job.record)
        let charge: PushCharge?
        do {
            charge = try broker.shared.charges.chargePushes(jobs.count)
        } catch {
            fanout.cancel()
            throw error
        }
        await outbox.reserve(jobs)
        var outcome: ChangeOutcome
        do {
            outcome = try await store.write { try $0.apply(change, now: now) }
        } catch {
            await outbox.release(jobs)
            charge?.refund(jobs.count)
            fanout.cancel()
            throw error
        }
        if case .leftOut(let gone) = outcome {
            let leftOut = jobs.filter { gone.contains($0.row) }
            await outbox.release(leftOut)
            charge?.refund(leftOut.count)
            jobs.removeAll { gone.contains($0.row) }
            outcome = .done
        }
        guard outcome == .done else {
            await outbox.release(jobs)
            charge?.refund(jobs.count)
            fanout.cancel()
            return outcome
        }
        metrics.add(.knocksQueued, jobs.count)
        let purged = change.jobs.filter { $0.purge != nil }.count + change.purges.count
        if purged > 0 {
            metrics.add(.tokensPurged, purged)
            await outbox.revoke(change.purges.map(\.row.purgeID))
            await sweeper.noteErasure()
        }
        await outbox.add(jobs, charge: charge)
        // Only now, so that `run` finds what is stored.
        for wait in change.waits where wait.waiting != nil { expectDue(wait.opens) }
        if case .begin(let timer) = change.timer { expectDue(timer.due) }
        return outcome
    }

    // MARK: Parts

    /// A registration whose seals are open.
    struct OpenedRegistration {
        let record: RegistrationRecord
        let context: TokenContext
        let token: OpenedToken
        let details: RegistrationDetails
    }

    /// Returns nil if the row was edited, or if it ended a moment ago.
    func open(_ record: RegistrationRecord, of audience: [UInt8]) throws(BrokerError) -> OpenedRegistration? {
        let context = record.context
        guard let details = try details(of: record),
            let token = try ifItOpens({ () throws(SealingError) in
                try keys.openToken(record.sealed.span, context: context, audience: ownerField(audience).span)
            })
        else { return nil }
        return OpenedRegistration(record: record, context: context, token: token, details: details)
    }

    /// An event queues all of its pushes or none: otherwise nobody could tell who was left out.
    private func admit(_ registrations: [RegistrationRecord]) async throws(BrokerError) {
        guard await outbox.fitting(registrations).count == registrations.count else { throw .tooManyPushes }
    }

    /// When the budgets of tokens are renewed.
    var tokenPushesEnd: UInt64 { tokenPushes.end ?? time.now }

    /// Returns nil if the token's budget is used up. Anyone who knows a token could register it as their own.
    func reserve(_ registration: OpenedRegistration) throws(BrokerError) -> KeyedBudget.Reservation? {
        let now = time.now
        let reservation = try available { () throws(SealingError) in
            try tokenPushes.reserve(registration.token.token, registration.context.environment, now: now)
        }
        if reservation == nil { metrics.add(.knocksThrottled) }
        watchWindows()
        return reservation
    }

    private func content(_ event: AudienceEvent, _ registration: OpenedRegistration) -> PushContent {
        let handle = handles(registration.details)
        return PushContent(
            template: event.template, stampMs: time.now, collapse: collapse(event.collapse, registration.details),
            fields: event.fields.mapValues { $0.value(handle) })
    }

    private func handles(_ details: RegistrationDetails) -> (_ kind: String, _ id: [UInt8]) -> Handle {
        { [keys] kind, id in keys.handle(key: details.handleKey.secret, kind: kind, slot: 0, id: id.span) }
    }

    func collapse(_ value: AudienceEvent.Value, _ details: RegistrationDetails) -> Handle {
        if case .handle(let handle) = value.value(handles(details)) { return handle }
        return Handle(0)
    }

    private func job(_ content: PushContent, to registration: OpenedRegistration) throws(BrokerError) -> NewJob? {
        let record = registration.record
        guard let template = policy.templates[content.template],
            let plan = JobTimes(template).plan(now: time.now, heldUntil: 0, tokenExpires: record.expires)
        else { return nil }
        let context = JobContext(
            generation: keys.currentGeneration, job: JobID.random(), purgeID: registration.context.purgeID,
            kind: registration.context.kind,
            environment: registration.context.environment, topic: record.topic, template: content.template,
            deadlineMs: plan.deadline, expiryMs: record.expires)
        return try available { () throws(SealingError) in
            let sealed = try keys.sealJob(
                JobContent(token: registration.token.token, sealedAtMs: registration.token.sealedAtMs, handle: content.collapse),
                context: context)
            let fields = try keys.sealNote(
                content.encoded, .fields, ExpirySlot(generation: context.generation, expiryMs: plan.deadline),
                [context.job.bytes],
                block: 64)
            let row = JobRecord(
                job: context.job, deadline: plan.deadline, notBefore: plan.notBefore, purgeID: record.purgeID, room: nil,
                slot: 0,
                kind: record.kind, environment: record.environment, topic: record.topic, template: content.template,
                generation: context.generation, expires: record.expires, sealed: sealed, fields: fields)
            return NewJob(row, openedID: registration.token.ref.openedID(context.job))
        }
    }
}

extension AudienceEvent.Value {
    static func session(_ session: [UInt8]) -> Self { .handle(kind: "session", id: session) }

    func value(_ handle: (_ kind: String, _ id: [UInt8]) -> Handle) -> FieldValue {
        switch self {
        case .plain(let value): value
        case .handle(let kind, let id): .handle(handle(kind, id))
        }
    }
}

extension Template {
    /// Describes what a field may hold, for a caller who sent something else.
    func allowed(in name: String) -> String {
        switch fields.first(where: { $0.name == name })?.kind {
        case .number(let range, _)?: "\(range.lowerBound) to \(range.upperBound)"
        case .oneOf(let words)?: "one of \(words.joined(separator: ", "))"
        default: "what the policy allows"
        }
    }
}
