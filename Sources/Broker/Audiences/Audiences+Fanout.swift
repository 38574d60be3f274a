import EventLoop
import Ledger
import Policy
import Sealing
import Shares
import Storage
import Vocabulary

/// A template to push to some registrations, with the values of its fields.
struct AudienceEvent: Sendable {
    /// A value of a template's field. Handles are derived for each receiver with its own key.
    enum Value: Sendable {
        case plain(FieldValue)
        case handle(kind: String, id: [UInt8])
    }

    var template: String
    /// A handle. Of two pushes to one token with the same handle, the later replaces the earlier. A Live Activity has the handle of its session.
    var collapse: Value
    var fields: [String: Value] = [:]
}

/// The change to store for an event, with the pushes to its whole audience.
struct Fanout: Sendable {
    var change = AudienceChange.empty
    /// Pushes that leave now, and updates that wait for their window.
    var pushes = 0
    /// Pushes beyond a token's budget. Alerts are left out, updates wait.
    var throttled = 0
    /// Pushes that a browser would not show, and that are not sent to one.
    var skipped = 0
    /// The reserved units of token budgets. `claim` adds its event.
    let admission: Admission

    static func += (all: inout Fanout, more: Fanout) {
        all.change.jobs += more.change.jobs
        all.change.waits += more.change.waits
        all.change.purges += more.change.purges
        all.change.oldest = more.change.oldest ?? all.change.oldest
        all.pushes += more.pushes
        all.throttled += more.throttled
        all.skipped += more.skipped
        all.admission.add(more.admission)
    }
}

extension Audiences {
    /// Checks that an event can be rendered, before anything is stored.
    /// - Parameter sent: the caller's names of fields.
    /// - Throws: `.outOfRange` if a value is not allowed; `.storageUnavailable` if the policy in force lacks the template or a field.
    func check(_ event: AudienceEvent, sent: [String: String] = [:]) throws {
        guard let template = policy.templates[event.template] else { throw BrokerError.storageUnavailable }
        let zero = Handle(0)
        do {
            _ = try template.render(handle: zero, fields: event.fields.mapValues { $0.value { _, _ in zero } }, nowMs: time.now)
        } catch RenderError.outOfRange(let name), RenderError.notListed(let name) {
            throw BrokerError.outOfRange(sent[name] ?? name, allowed: template.allowed(in: name))
        } catch {
            throw BrokerError.storageUnavailable
        }
    }

    /// Builds a push to each of these registrations.
    /// - Throws: `.tooManyPushes` if there is no room for all of them; `.storageUnavailable`.
    func pushes(
        _ event: AudienceEvent, to registrations: [RegistrationRecord], of audience: [UInt8]
    ) async throws -> Fanout {
        try await admit(registrations)
        var fanout = newFanout()
        for (number, registration) in registrations.enumerated() {
            // Thousands may watch one printer.
            if number % 64 == 63 { await loop.nextTurn() }
            guard let opened = try open(registration, of: audience) else { continue }
            if case .webPush = opened.token.address.destination, policy.templates[event.template]?.reachesBrowsers == false {
                fanout.skipped += 1
                continue
            }
            guard let reservation = try reserve(opened) else {
                fanout.throttled += 1
                continue
            }
            fanout.admission.add(reservation)
            guard let job = try job(content(event, opened), to: opened) else { continue }
            fanout.change.jobs.append(AudienceJob(job))
            fanout.pushes += 1
        }
        return fanout
    }

    /// Pushes an event to the caller's own registrations for an audience, because the caller asks whether pushes arrive.
    /// - Throws: `.tooManyRequests` if every address has used up its tests, or the user its events.
    func test(
        _ event: AudienceEvent, of audience: [UInt8], for principal: Principal, charging payer: RequestCharges?
    ) async throws -> EventReceipt {
        try check(event)
        // A failed try means that one of the registrations changed meanwhile.
        return try await retrying { _ in
            let admission = Admission(charges.shares)
            admission.add(try chargeEvent(of: principal.user))
            var tested: [RegistrationRecord] = []
            var refusals: [BrokerError] = []
            for registration in try await registrations(of: principal.user) where registration.takesTests {
                // One of another audience does not open.
                guard let opened = try open(registration, of: audience) else { continue }
                do {
                    admission.add(try await outbox.reserveTest(opened.token.address))
                    tested.append(registration)
                } catch let refusal as BrokerError {
                    refusals.append(refusal)
                }
            }
            if tested.isEmpty, let refusal = refusals.first { throw refusal }
            let fanout = try await pushes(event, to: tested, of: audience)
            let receipt = EventReceipt(
                pushes: fanout.pushes, throttled: fanout.throttled + refusals.count, skipped: fanout.skipped)
            // If nothing is pushed, the event and all tests are refunded. Otherwise tests of skipped devices count, too.
            guard fanout.pushes > 0 else { return receipt }
            fanout.admission.add(admission)
            return try await apply(fanout, charging: payer) == .done ? receipt : nil
        }
    }

    /// Returns an empty fan-out.
    nonisolated func newFanout() -> Fanout { Fanout(admission: Admission(charges.shares)) }

    /// Builds an update of each of these Live Activities: a push if its window is open. Otherwise the update waits for the window, and replaces
    /// any that waits already.
    func updates(
        _ event: AudienceEvent, to activities: [RegistrationRecord], of audience: [UInt8]
    ) async throws -> Fanout {
        try await admit(activities)
        var fanout = newFanout()
        for activity in activities {
            guard let opened = try open(activity, of: audience) else { continue }
            let content = content(event, opened)
            if time.now < activity.opens {
                fanout.change.waits.append(try wait(content, of: audience, for: activity, until: activity.opens))
            } else if let reservation = try reserve(opened) {
                fanout.admission.add(reservation)
                guard let update = try update(content, of: opened) else { continue }
                fanout.change.jobs.append(update)
            } else {
                fanout.change.waits.append(try wait(content, of: audience, for: activity, until: tokenPushesEnd))
                fanout.throttled += 1
                continue
            }
            fanout.pushes += 1
        }
        return fanout
    }

    /// Builds the last push to each of these Live Activities. It ignores windows, and destroys the token.
    func ends(
        _ event: AudienceEvent, to activities: [RegistrationRecord], of audience: [UInt8]
    ) async throws -> Fanout {
        try await admit(activities)
        var fanout = newFanout()
        for activity in activities {
            guard let opened = try open(activity, of: audience),
                var update = try update(content(event, opened), of: opened)
            else {
                // The row ends even if no push can be sent.
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

    /// Builds an update that leaves now. Its stamp is later than all stamps before it, because a phone drops older updates.
    func update(_ content: PushContent, of activity: OpenedRegistration) throws -> AudienceJob? {
        var content = content
        let stamp = max(content.stampMs / 1_000, activity.record.stamp + 1)
        content.stampMs = max(content.stampMs, stamp * 1_000)
        guard let job = try job(content, to: activity) else { return nil }
        let opens = time.now + (limits.activities?.updateMs ?? 0)
        return AudienceJob(job, update: ActivityUpdate(wasOpens: activity.record.opens, opens: opens, stamp: stamp))
    }

    /// Stores a change and queues its pushes. Any outcome but `.done` changed nothing and cost no budget. A change that may leave out
    /// registrations which are gone is `.done` without them.
    func apply(_ fanout: Fanout, charging payer: RequestCharges?) async throws -> ChangeOutcome {
        let now = time.now
        let change = fanout.change
        var jobs = change.jobs.map(\.job.record)
        defer { fanout.admission.end() }
        try charges.charge(pushes: jobs.count, in: fanout.admission, charging: payer)
        await outbox.reserve(jobs)
        var outcome: ChangeOutcome
        do {
            outcome = try await store.write { try $0.apply(change, now: now) }
        } catch {
            await outbox.release(jobs)
            throw error
        }
        var leftOut: [JobRecord] = []
        if case .leftOut(let gone) = outcome {
            leftOut = jobs.filter { gone.contains($0.row) }
            await outbox.release(leftOut)
            jobs.removeAll { gone.contains($0.row) }
            outcome = .done
        }
        guard outcome == .done else {
            await outbox.release(jobs)
            return outcome
        }
        let charge = fanout.admission.commit()
        charge?.refund(leftOut.count)
        metrics.add(.knocksQueued, jobs.count)
        let purged = change.jobs.filter { $0.purge != nil }.count + change.purges.count
        if purged > 0 {
            metrics.add(.tokensPurged, purged)
            await outbox.revoke(change.purges.map(\.row.purgeID))
            await sweeper.scheduleScrub()
        }
        // Settle the approval before its clearing pushes are queued, so that no push still asks after one of them.
        if case .settle(let id, _, _, _) = change.timer { await outbox.settle(id) }
        await outbox.add(jobs, charge: charge)
        // Only now, so that `run` finds the stored rows.
        for wait in change.waits where wait.waiting != nil { expectDue(wait.opens) }
        if case .begin(let timer, _) = change.timer { expectDue(timer.due) }
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

    /// Returns nil if the row does not open: it was edited, or has just expired.
    func open(_ record: RegistrationRecord, of audience: [UInt8]) throws -> OpenedRegistration? {
        let context = record.context
        guard let details = try keys.details(of: record),
            let token = try ifItOpens({
                try keys.openToken(record.sealed.span, context: context, audience: ownerField(audience).span)
            })
        else { return nil }
        return OpenedRegistration(record: record, context: context, token: token, details: details)
    }

    /// An event queues all of its pushes or none. Otherwise nobody would know which devices were left out.
    private func admit(_ registrations: [RegistrationRecord]) async throws {
        guard await outbox.freePlaces >= registrations.count else { throw BrokerError.tooManyPushes }
    }

    /// When the budgets of tokens are renewed.
    var tokenPushesEnd: UInt64 { tokenPushes.end ?? time.now }

    /// Returns nil if the token's budget is used up. The budget exists because anyone who knows a token can register it as their own.
    func reserve(_ registration: OpenedRegistration) throws -> KeyedBudget.Reservation? {
        let now = time.now
        let reservation = try tokenPushes.reserve(registration.token.address, now: now)
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

    private func job(_ content: PushContent, to registration: OpenedRegistration) throws -> NewJob? {
        guard let template = policy.templates[content.template],
            let plan = JobTimes(template).plan(now: time.now, delayedUntil: 0, tokenExpires: registration.record.expires)
        else { return nil }
        return try keys.newJob(
            registration.token, registration.context, template: content.template, plan: plan, handle: content.collapse,
            content: content, size: settings.addressSize)
    }
}

extension RegistrationRecord {
    /// Live Activities show no alert, and a silenced device must stay silent.
    fileprivate var takesTests: Bool { kind != .liveActivity && DevicePreferences(rawValue: preferences).contains(.enabled) }
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
    /// Describes the allowed values of a field, for a caller who sent another value.
    func allowed(in name: String) -> String {
        switch fields.first(where: { $0.name == name })?.kind {
        case .number(let range, _)?: "\(range.lowerBound) to \(range.upperBound)"
        case .oneOf(let words)?: "one of \(words.joined(separator: ", "))"
        default: "what the policy allows"
        }
    }
}
