import EventLoop
import Ledger
import Policy
import Sealing
import Storage
import Vocabulary

// From a job that is stored to its outcome.

extension Broker {
    /// How long pushes wait for free slots after a shortage.
    private static let pauseMs: UInt64 = 250

    /// Takes up the jobs that a previous run left.
    public func resumeJobs() async throws(BrokerError) {
        let jobs = try await store.read { try $0.jobs() }
        for job in jobs { hold(job) }
        take(jobs, isFromBefore: true)
        if !jobs.isEmpty { log("courier: \(Metrics.inWords(jobs.count)) pushes resumed from before the start") }
    }

    /// From before the job is stored until its outcome is: the sweeper leaves it alone.
    func hold(_ job: JobRecord) {
        departures.enter(job)
        sweeper.assumeIsolated { $0.hold(jobDue: job.deadline) }
    }

    func release(_ job: JobRecord) {
        departures.leave(job)
        sweeper.assumeIsolated { $0.release(jobDue: job.deadline) }
    }

    /// Lets pushes to an audience leave, whose jobs are durable.
    func take(_ jobs: [JobRecord], charge: PushCharge? = nil, isFromBefore: Bool = false) {
        let contents: [PushContent?]
        do throws(SlotShortage) {
            contents = try jobs.map { job throws(SlotShortage) in try content(of: job) }
        } catch {
            store.tell(.overloaded(error))
            loop.after(Self.pauseMs) { self.assumeIsolated { $0.take(jobs, charge: charge, isFromBefore: isFromBefore) } }
            return
        }
        let departures = zip(jobs, contents).map { job, content in
            var departure = Departures.Departure(job: job, place: nil, charge: charge, isFromBefore: isFromBefore)
            if let content {
                let place = NewestPushes.Place(token: job.purgeID, collapse: content.collapse)
                newest.add(job, at: place, stampMs: content.stampMs)
                departure.replaces = place
            }
            return departure
        }
        // All are known before the first leaves, or an old one might.
        for departure in departures { schedule(departure) }
    }

    /// What the newest of the pushes on their way there says: Apple may not have taken it.
    func underWay(at place: NewestPushes.Place) throws(BrokerError) -> PushContent? {
        guard let job = newest.newest(at: place) else { return nil }
        return try unlessShort { () throws(SlotShortage) in try content(of: job) }
    }

    func hold(_ jobs: [JobRecord]) { for job in jobs { hold(job) } }

    func release(_ jobs: [JobRecord]) { for job in jobs { release(job) } }

    /// Those of these registrations a push to which may wait for Apple.
    func fitting(_ registrations: [RegistrationRecord]) -> [RegistrationRecord] { departures.fitting(registrations) }

    var isFull: Bool { departures.isFull }

    /// Lets a push leave at its time. One that was stored too late for it, or slept through it with the broker, takes a later slot.
    func schedule(_ departure: Departures.Departure) {
        let now = time.now
        var departure = departure
        let job = departure.job
        let timing = policies.template(job.template)?.timing
        let leaves = timing?.departure(missed: job.notBefore, now: now) ?? job.notBefore
        departure.isMissed = leaves >= job.deadline
        if leaves > now, !departure.isMissed {
            if departures.wait(departure, until: leaves) { watch(leaves) }
        } else {
            departures.add(departure)
            startDue()
        }
    }

    private func watch(_ leaves: UInt64) {
        loop.after(leaves - min(time.now, leaves)) {
            self.assumeIsolated { broker in
                // Broker time goes slower while the wall clock is behind it.
                if broker.time.now < leaves { return broker.watch(leaves) }
                broker.departures.arrive(at: leaves)
                broker.startDue()
            }
        }
    }

    /// The probe for which pushes waited has ended: they end now, or leave at their time.
    func resumePushes(at place: Presence.Place) {
        for departure in waitingPushes.removeValue(forKey: place) ?? [] {
            if presence.isPresent(place) { departures.add(departure) } else { schedule(departure) }
        }
        startDue()
    }

    private func startDue() {
        while let departure = departures.start() {
            Task(executorPreference: loop) { await self.deliver(departure) }
        }
    }

    private func deliver(_ departure: Departures.Departure) async {
        let ready = await makeReady(departure)
        departures.isReady()
        if case .short(let shortage) = ready { pause(shortage) }
        startDue()
        let outcome: JobOutcome?
        switch ready {
        case .push(let push): outcome = await send(push, of: departure.job)
        case .end(let end): outcome = end
        case .probing(let place):
            // Not waited for here: only a few pushes are made ready at a time.
            waitingPushes[place, default: []].append(departure)
            outcome = nil
        case .short:
            // The push was acknowledged: it is tried again until its deadline.
            departures.end(departure)
            departures.add(departure)
            return
        }
        // Without an outcome the broker is stopping, and the next start resumes the job; or a probe runs.
        if let outcome {
            // Or rooms that are closed at once would use the token's share up, and no phone would ring.
            if let place = departure.place, outcome.neverLeft { tokenKnocks.giveBack(place) }
            if !departures.mayRecord() {
                await withCheckedContinuation { turn in departures.waitToRecord { turn.resume() } }
            }
            await record(outcome, of: departure.job)
            if let place = departure.replaces { newest.remove(at: place) }
            release(departure.job)
            departure.charge?.refund()
            departures.isRecorded()?()
        }
        departures.end(departure)
        startDue()
    }

    private func pause(_ shortage: SlotShortage) {
        store.tell(.overloaded(shortage))
        guard departures.pause() else { return }
        loop.after(Self.pauseMs) {
            self.assumeIsolated { broker in
                broker.departures.resume()
                broker.startDue()
            }
        }
    }

    /// The outcome must reach the ledger: tried again until it does, or the broker stops.
    private func record(_ outcome: JobOutcome, of job: JobRecord) async {
        var wait: UInt64 = 100
        while true {
            do {
                try await store.engine.write { try $0.finish(job, outcome) }
                holdsOutcomes = false
                // Its row, too: the key that opens it lives ten minutes more.
                await sweeper.noteErasure()
                return
            } catch {
                if error == .closed { return }
                // From the second time on: then it is known how many wait.
                if wait > 100 { noteHeldOutcomes(error) }
                try? await loop.sleep(wait)
                wait = min(wait * 2, 5_000)
            }
        }
    }

    /// Once a minute: pushes have ended by the thousand, and each is tried again and again.
    private func noteHeldOutcomes(_ error: StoreError) {
        holdsOutcomes = true
        guard loop.now >= outcomesLogAt else { return }
        outcomesLogAt = loop.now + 60_000
        metrics.add(.alarms)
        log(
            "courier: outcomes of \(Metrics.inWords(departures.unrecordedOutcomes)) pushes are not recorded yet (\(error)); trying again"
        )
    }

    /// Waits until no push is under way, at most so long. What is left is taken up at the next start.
    public func drainPushes(deadlineMs: UInt64) async {
        let end = loop.now + deadlineMs
        while departures.open > 0, loop.now < end { try? await loop.sleep(20) }
        if holdsOutcomes, departures.unrecordedOutcomes > 0 {
            log(
                "courier: outcomes of \(Metrics.inWords(departures.unrecordedOutcomes)) pushes could not be recorded. The next start sends them again if they have time left, and records the others as unknown"
            )
        }
    }
}

extension JobOutcome {
    /// Whether the push certainly never reached Apple.
    fileprivate var neverLeft: Bool {
        switch reason {
        case .unsent, .unreachable: status == 0
        default: false
        }
    }
}
