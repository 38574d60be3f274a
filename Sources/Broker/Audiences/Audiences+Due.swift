import EventLoop
import Policy
import Sealing
import Storage
import Vocabulary

// Work that is due at a time: windows of Live Activities that open, timers that run out. All of it is stored, so that a restart loses
// nothing.
extension Audiences {
    /// Rows that are handled together.
    private static let batch = 256
    /// Bounds how long a step of the wall clock can delay the work.
    private static let longestSleep: UInt64 = 30_000
    /// How long a timer waits if the queue has no room for its pushes.
    private static let pause: UInt64 = 5_000

    /// Does the work that is due, until the task is cancelled. After an error it retries a second later.
    /// - Parameter timedOut: called when one of the app's timers runs out.
    func run(_ timedOut: @Sendable (TimerRecord) async throws -> Void) async {
        while !Task.isCancelled {
            do {
                nextDue = .max
                let next = try await work(timedOut)
                expectDue(next)
            } catch {
                // Nothing was settled or dropped, so all of it is still due.
                store.reportShortage(error)
                expectDue(time.now + 1_000)
            }
            await sleep()
        }
    }

    /// Wakes `run`, so that it notices at once that its task was cancelled.
    public func stop() { sleeper.wake() }

    /// Wakes `run` in time for work that is due then.
    func expectDue(_ at: UInt64) {
        nextDue = min(nextDue, at)
        if sleepsUntil > nextDue { sleeper.wake() }
    }

    /// Does the work that is due.
    /// - Returns: when the next work is due.
    func work(_ timedOut: @Sendable (TimerRecord) async throws -> Void) async throws -> UInt64 {
        // A timer whose pushes don't fit into the queue doesn't delay the others.
        var held: Set<RequestID> = []
        while true {
            let (now, limit) = (time.now, Self.batch + held.count)
            let due = try await store.read { try $0.due(now: now, limit: limit) }
            let timers = due.timers.filter { !held.contains($0.id) }
            if timers.isEmpty, due.updates.isEmpty { return min(due.next ?? .max, held.isEmpty ? .max : now + Self.pause) }
            for timer in timers {
                do {
                    try await timedOut(timer)
                } catch {
                    guard BrokerError(thrown: error) == .tooManyPushes, await !outbox.isFull else { throw error }
                    held.insert(timer.id)
                }
            }
            try await send(due.updates)
        }
    }

    /// Sends the updates whose windows are open now, and drops those that can't be sent any more.
    private func send(_ activities: [RegistrationRecord]) async throws {
        guard !activities.isEmpty else { return }
        // The others are still due.
        let fitting = activities.prefix(await outbox.freePlaces)
        guard !fitting.isEmpty else { throw BrokerError.tooManyPushes }
        // An activity that changed meanwhile must not hold up the others. It is tried again.
        if try await sendTogether(fitting) != .done { for activity in fitting { _ = try await sendTogether([activity]) } }
    }

    private func sendTogether(_ activities: ArraySlice<RegistrationRecord>) async throws -> ChangeOutcome {
        var fanout = newFanout()
        for activity in activities { try add(activity, to: &fanout) }
        return try await apply(fanout, charging: nil)
    }

    private func add(_ activity: RegistrationRecord, to fanout: inout Fanout) throws {
        if let (audience, content) = try keys.waiting(of: activity), let opened = try open(activity, of: audience) {
            guard let reservation = try reserve(opened) else {
                fanout.change.waits.append(try wait(content, of: audience, for: activity, until: tokenPushesEnd))
                return
            }
            fanout.admission.add(reservation)
            guard var update = try update(content, of: opened) else {
                fanout.change.waits.append(WaitingUpdate(row: activity.row, wasOpens: activity.opens, waiting: nil))
                return
            }
            update.update?.wasWaiting = activity.waiting
            fanout.change.jobs.append(update)
        } else {
            fanout.change.waits.append(WaitingUpdate(row: activity.row, wasOpens: activity.opens, waiting: nil))
        }
    }

    /// Seals an update that waits, with the audience, without which its token can't be opened later.
    func sealWaiting(
        _ content: PushContent, of audience: [UInt8], for activity: RegistrationRecord
    ) throws -> [UInt8] {
        try keys.sealNote(
            [UInt8(audience.count)] + audience + content.encoded, .update, activity.expirySlot, [activity.purgeID.bytes],
            block: 256)
    }

    /// An update that waits for its window. It replaces any earlier one.
    func wait(
        _ content: PushContent, of audience: [UInt8], for activity: RegistrationRecord, until opens: UInt64
    ) throws -> WaitingUpdate {
        WaitingUpdate(
            row: activity.row, wasOpens: activity.opens, opens: max(opens, activity.opens),
            waiting: try sealWaiting(content, of: audience, for: activity))
    }

    private func sleep() async {
        let now = time.now
        guard nextDue > now, !Task.isCancelled else { return }
        sleepsUntil = min(nextDue, now + Self.longestSleep)
        await sleeper.sleep(sleepsUntil - now)
        sleepsUntil = 0
    }
}

extension KeyRing {
    /// Returns the update that waits, and its audience. Returns nil if none waits, or if it does not open.
    func waiting(of activity: RegistrationRecord) throws -> (audience: [UInt8], content: PushContent)? {
        guard let waiting = activity.waiting,
            let note = try ifItOpens({
                try openNote(waiting.span, .update, activity.expirySlot, [activity.purgeID.bytes], block: 256)
            })
        else { return nil }
        var rest = note[...]
        guard let audience = rest.popName(), let content = PushContent(Array(rest)) else { return nil }
        return (audience, content)
    }
}
