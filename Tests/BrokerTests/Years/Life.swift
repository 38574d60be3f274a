import Courier
import EventLoop
import Ledger
import Linux
import Policy
import Sealing
import Vocabulary

@testable import Broker
@testable import Storage

/// A life of one broker, drawn from one seed: its callers, its machine's faults, and the rules that hold through all of it.
///
/// The rules look at what callers, Apple, auditors and thieves see: answers, pushes, the published log, the files. Only counts of what is left
/// behind come from inside, and broker time, by which every expiry is stated.
actor Life: LoopActor {
    /// How a call ended for its caller.
    enum Answer<Value: Sendable>: Sendable {
        case done(Value)
        case refused(BrokerError)
        /// Nobody knows whether it was done.
        case unknown
    }

    /// The promises of the policies in force.
    struct Terms {
        var throttleMs: UInt64 = 30_000
        var slotMs: UInt64 = 0
        var approvalMs: UInt64 = 60_000
    }

    nonisolated let loop: EventLoop
    nonisolated let machine: MachineClock
    nonisolated let simulated: SimulatedBroker
    nonisolated let seed: UInt64
    nonisolated let chance: Chance
    nonisolated let chronicle: Chronicle
    nonisolated let faults: StoreFaults
    nonisolated let services: LifeServices
    nonisolated let webPush: SimulatedWebPush
    nonisolated let witnesses: LifeWitnesses
    nonisolated let timing: LedgerTiming

    var run: SimulatedBroker.Run?
    /// How often the broker has started.
    var runs = 0
    var startedAt: UInt64 = 0
    /// When the run before this one started.
    var previousStart: UInt64 = 0
    /// When a clock stepped or the machine slept, on the monotonic clock.
    var steppedAt: UInt64 = 0
    /// When the clocks were last looked at, on the monotonic clock.
    private var lookedAt: UInt64 = 0
    /// Broker time when it was last asked, and the highest ever.
    private var lastBrokerTime: UInt64 = 0
    private(set) var highestTime: UInt64 = 0
    var terms = Terms()
    /// Which of `apps` is configured.
    var app = 0
    /// True if people may have subscriptions: from the start, or since a restart in the middle of the life.
    var takesSubscriptions: Bool
    /// When that restart comes, on the monotonic clock.
    private(set) var enablesAt: UInt64 = 0
    /// The drift of the wall clock, ms an hour.
    var drift: Int64 = 0
    /// A stop or kill that was drawn and not carried out.
    var interruption: Interruption?
    private var checkedAt: UInt64 = 0
    /// Open descriptors of the process in the first night.
    var descriptors: Int?
    /// True if the day ends, so that what is left can be counted.
    var isNight = false
    /// How far the wall clock is ahead of the monotonic one, without drift.
    private var offset: Int64
    /// How far Apple's clock, which is right, is ahead of the monotonic one.
    var appleOffset: UInt64

    var meetings: [Int: Meeting] = [:]
    var tokens: [Int: Token] = [:]
    var devices: [Int: Device] = [:]
    /// Pushes that must come, by token: for a caller's acknowledgement, and for somebody who waits.
    var dues: [Int: [Due]] = [:]
    var waits: [Int: Due] = [:]
    /// Until this broker time, calls that got no answer may still have stored something.
    var doubts: [(kind: Doubt, until: UInt64)] = []
    var approvals: [RequestID: ApprovalStory] = [:]
    var busyUsers: Set<Int> = []
    /// The `apns-id` of each push that can't come twice, by token and payload.
    var onlyIDs: [String: String] = [:]
    /// The last message of each Web Push, by `apns-id`.
    var messages: [String: WebPushAttempt] = [:]
    /// An old copy of the key file, and when it was made, on the monotonic clock.
    var oldKeys: (bytes: [UInt8], at: UInt64)?
    /// A copy of a key file that was given up as lost.
    var lostKeys: [UInt8]?
    var spell: Spell
    /// When the present key file was made, on the monotonic clock.
    var keysMadeAt: UInt64 = 0

    var follower: LogFollower
    var search = ByteSearch()
    var thief = LifeThief()
    var figures = Figures()
    /// The deliveries in the log at the last settled night.
    var settledDeliveries = 0
    /// How many checkpoints of this log were verified in full.
    private var verified = 0
    /// How many logs were closed.
    private(set) var logs = 0
    var lastNumber = 0
    private var agenda: [(at: UInt64, work: @Sendable (isolated Life) -> Void)] = []
    private let begin: UInt64

    /// The two apps of a life, by their bundle ids.
    static let apps = ["com.example.app", "com.example.other"]

    enum Doubt { case room, token, registration }

    struct Figures {
        var calls = 0
        var pushes = 0
        /// Pushes to subscriptions. They are counted in `pushes`, too.
        var messages = 0
        var refusals = 0
    }

    init(seed: UInt64, loop: EventLoop, machine: MachineClock) throws {
        self.seed = seed
        self.loop = loop
        self.machine = machine
        begin = machine.monotonic
        (offset, lookedAt) = (Int64(machine.wall) - Int64(machine.monotonic), machine.monotonic)
        appleOffset = machine.wall - machine.monotonic
        let chance = Chance(seed: seed)
        let timing = LedgerTiming(hourSeconds: 3_600, daySeconds: 86_400, batchSeals: chance.pick([1, 4, 64]))
        (self.chance, self.timing, spell, takesSubscriptions) = (chance, timing, Spell(chance), seed % 2 == 1)
        let faults = StoreFaults(seed: seed &+ 1, machine)
        let services = LifeServices(seed: seed &+ 2, machine)
        let webPush = try SimulatedWebPush { services.take($0) }
        let witnesses = LifeWitnesses(seed: seed &+ 3, machine)
        simulated = try SimulatedBroker(
            loop: loop, machine: machine, resolution: 60, policy: try Self.rooms(timing),
            audiences: try ["companion", "monitor", "calls"].map { try Policy.builtIn($0, replacing: []) },
            fault: { faults.fault(at: $0) }, folderFault: { stage throws(Errno) in try faults.atFolder(stage) },
            whenStoreAsksTheTime: { faults.storeAsksTheTime() }, meetsDeadlines: true,
            witnesses: { try witnesses.start($0, $1, $2, $3) }, prints: LogLines(most: 200),
            webPush: webPush, webPushSeed: seed &+ 4, script: { services.take($0) })
        (self.faults, self.services, self.webPush, self.witnesses) = (faults, services, webPush, witnesses)
        chronicle = Chronicle(machine)
        follower = LogFollower(simulated.ledger, simulated.key.verifierKey)
        try witnesses.serve(simulated.key.verifierKey)
        search.add(Self.mark, "a token", until: .max)
        search.add(Array(webPush.point.dropFirst()), "a p256dh", until: .max)
    }

    static func rooms(_ timing: LedgerTiming, _ more: [(old: String, new: String)] = []) throws -> Policy {
        let new = """
            "hourSeconds": \(timing.hourSeconds), "daySeconds": \(timing.daySeconds), "batchSeals": \(timing.batchSeals)
            """
        return try Policy.builtIn(
            "rooms", replacing: [(#""hourSeconds": 3600, "daySeconds": 86400, "batchSeals": 64"#, new)] + more)
    }

    // MARK: The life

    /// - Parameter report: called at the end of each month of 30 days.
    func play(days: Int, report: @Sendable (Int, Life) async -> Void) async throws {
        services.serve(self)
        enablesAt = machine.monotonic + UInt64(days) * 43_200_000
        if takesSubscriptions { await simulated.enablePush() }
        do {
            try await start()
            for day in 0..<UInt64(days) {
                plan(day)
                try await live(until: begin + (day + 1) * 86_400_000)
                search.forget(day: day)
                if day % 30 == 29 || Int(day) == days - 1 {
                    try await verifyMonth()
                    await report(Int(day) + 1, self)
                }
            }
            try await end()
        } catch {
            await simulated.kill()
            await simulated.runOut()
            let events = chronicle.latest
            try File.write(simulated.folder + "/events", Array(events.joined(separator: "\n").utf8).span, mode: 0o600)
            throw BrokenRule(
                seed: seed, days: days, rule: "\(error)", events: events, prints: simulated.prints.all, folder: simulated.folder)
        }
        await simulated.runOut()
        thief.forgetCopy()
        services.serve(nil)
        try simulated.remove()
    }

    /// Something that ended the story.
    struct Broken: Error, CustomStringConvertible {
        let description: String
    }

    func later(_ ms: UInt64, _ work: @escaping @Sendable (isolated Life) -> Void) {
        let at = machine.monotonic + ms
        let place = agenda.firstIndex { $0.at > at } ?? agenda.count
        agenda.insert((at, work), at: place)
    }

    func live(until end: UInt64) async throws {
        while machine.monotonic < end {
            let now = machine.monotonic
            // The clock drifts step by step. Rules are looked at once an hour at least.
            let next = min(max(agenda.first?.at ?? end, now), end, now + 3_600_000)
            await simulated.advance(next - now)
            noticeSteps()
            let drifted = drift * Int64(machine.monotonic - now) / 3_600_000
            machine.step(drifted)
            offset += drifted
            if await simulated.isDead { interruption = interruption ?? Interruption(stops: false, awayMs: chance.absence()) }
            if !takesSubscriptions, interruption == nil, machine.monotonic >= enablesAt {
                interruption = Interruption(stops: true, awayMs: 5_000, change: .webPush)
            }
            if let interruption { try await interrupt(interruption) }
            while let first = agenda.first, first.at <= machine.monotonic {
                agenda.removeFirst()
                first.work(self)
            }
            noticeSteps()
            await simulated.settle()
            try await check()
            try await copyState()
            if isNight {
                isNight = false
                try await lookAtNight()
            }
        }
    }

    /// After a step of the clock or a sleep of the machine, nothing is promised about the pushes that were due.
    func noticeSteps() {
        let now = Int64(machine.wall) - Int64(machine.monotonic)
        if abs(now - offset) > 1_500 {
            steppedAt = machine.monotonic
            (dues, waits) = ([:], [:])
            // It may have happened at any time since the last look.
            services.doubt(last: machine.monotonic - lookedAt + 5_000)
        }
        (offset, lookedAt) = (now, machine.monotonic)
    }

    var brokerTime: UInt64 {
        if let run { lastBrokerTime = run.time.now }
        highestTime = max(highestTime, lastBrokerTime)
        return lastBrokerTime
    }

    /// How far the wall clock is ahead of Apple's, in ms.
    var clockError: Int64 { Int64(machine.wall) - Int64(machine.monotonic + appleOffset) }

    /// True in the last hours of a day, in which nobody comes.
    var isEvening: Bool { (machine.monotonic - begin) % 86_400_000 >= 79_200_000 }

    /// True if no fault had an effect for so long, and the broker ran all the time.
    func isCalm(_ ms: UInt64) -> Bool { run != nil && machine.monotonic >= max(faults.lastAt, startedAt, steppedAt) + ms }

    func number() -> Int {
        lastNumber += 1
        return lastNumber
    }

    // MARK: Calls

    /// Makes a call. Its answer counts only if the broker that was asked still runs.
    /// - Parameter isHonest: true if a refusal for a shortage breaks a rule while nothing is at fault.
    func ask<Value: Sendable>(
        _ what: String, isHonest: Bool = true, _ body: @escaping @Sendable (SimulatedBroker.Run) async throws -> Value,
        _ then: @escaping @Sendable (isolated Life, Answer<Value>) -> Void
    ) {
        guard let run else { return then(self, .unknown) }
        figures.calls += 1
        chronicle.add(what)
        let number = runs
        Task(executorPreference: loop) {
            let result: Result<Value, any Error>
            do { result = .success(try await body(run)) } catch { result = .failure(error) }
            await self.take(result, what, number, isHonest, then)
        }
    }

    private func take<Value: Sendable>(
        _ result: Result<Value, any Error>, _ what: String, _ number: Int, _ isHonest: Bool,
        _ then: @Sendable (isolated Life, Answer<Value>) -> Void
    ) async {
        // A dead broker answers nobody.
        let isDead = await simulated.isDead
        if number != runs || run == nil || isDead { return then(self, .unknown) }
        switch result {
        case .success(let value): then(self, .done(value))
        case .failure(let error):
            guard let refusal = BrokerError(thrown: error) else {
                chronicle.fail("\(what) failed with \(error)")
                return then(self, .unknown)
            }
            figures.refusals += 1
            let isShort = refusal.status == 503 || refusal.status == 429
            if isHonest, isShort, isCalm(10_000) { chronicle.fail("\(what) was refused without a fault: \(refusal.code)") }
            then(self, refusal.status == 503 ? .unknown : .refused(refusal))
        }
    }

    // MARK: Checks

    /// Looks at all rules that can be judged now.
    func check() async throws {
        do {
            if let news = try await follower.read(simulated.kept) { try follower.take(news) }
        } catch { throw Broken(description: "\(error)") }
        if let broken = chronicle.broken { throw Broken(description: broken) }
        let now = machine.monotonic
        for (token, list) in dues {
            if let due = list.first(where: { $0.deadline < now }) {
                throw Broken(description: "no push to token \(token): \(due.what)")
            }
        }
        // Nothing is promised in time while something is at fault.
        if faults.lastAt >= checkedAt { waits = [:] }
        checkedAt = now
        for (token, due) in waits where due.deadline < now {
            throw Broken(description: "nobody was rung by token \(token) in time: \(due.what)")
        }
        guard isCalm(600_000) else { return }
        let time = brokerTime
        if let missing = follower.missing(before: time) { throw Broken(description: "the log has no \(missing.what)") }
        if follower.lastAt + 900_000 < time {
            throw Broken(description: "the log's last entry is of \(follower.lastAt), and it is \(time)")
        }
    }

    /// Verifies the whole log with all checkpoints of this month, as an auditor and a watch would, and looks into all files.
    func verifyMonth() async throws {
        try await check()
        let (source, key) = (FolderSource(simulated.ledger.path), simulated.key.verifierKey)
        let new = simulated.kept.after(verified)
        verified += new.count
        do {
            _ = try await Verifier(source, key: key, allowsGaps: true, unique: true).verify(since: Self.older(new))
            if isCalm(900_000) {
                _ = try await LogWatch(source, key: key, folder: "\(simulated.folder)/watch-\(logs)", allowsGaps: true)
                    .run(now: brokerTime / 1_000)
            }
            try await lookAtStories(source, key)
        } catch { throw Broken(description: "the log doesn't verify: \(error)") }
        try await checkContradiction(source)
        if let found = try search.find(inFolder: simulated.ledger.path, isDeep: true) {
            throw Broken(description: "in the log, \(found)")
        }
    }

    /// Checks that a kept checkpoint of another log with the same key fails the verification.
    private func checkContradiction(_ source: FolderSource) async throws {
        let other = simulated.key.sign(size: 1, root: Digest(InlineArray(repeating: 0x5a)))
        let verifier = Verifier(source, key: simulated.key.verifierKey, allowsGaps: true, unique: true)
        do throws(VerificationFailure) {
            _ = try await verifier.verify(since: Self.older([other.encoded]))
            throw VerificationFailure(.tree, "it verifies")
        } catch {
            if error.code != .rewritten { throw Broken(description: "a log that contradicts a kept checkpoint: \(error)") }
        }
    }

    /// Asks the log for the stories of some tokens, as their owners would.
    private func lookAtStories(_ source: FolderSource, _ key: VerifierKey) async throws {
        let day = timing.daySeconds * 1_000
        let known = tokens.values.filter { token in
            token.log == logs && token.sealedAt.map { $0 / day < brokerTime / day } == true && isCalm(900_000)
        }.sorted { $0.number < $1.number }
        for token in known.suffix(20) where chance.upTo(8) == 0 {
            guard let ref = token.ref else { continue }
            let story = try await TokenStory.find(in: source, key: key, ref: ref)
            guard story.seals.count == 1, story.purges.count <= 1, story.pushes.count >= token.pushes.count else {
                throw LogCheck.Fault.missing("\(token.pushes.count) pushes to token \(token.number). Its story: \(story)")
            }
        }
    }

    static func older(_ notes: [[UInt8]]) -> [Verifier.OlderCheckpoint] {
        notes.enumerated().map { Verifier.OlderCheckpoint(name: "checkpoint \($0.offset)", bytes: $0.element) }
    }

    /// Ends the log of a stopped broker, verifies it with all checkpoints that it ever had, and begins another.
    func rotate() async throws {
        // Everything of the last run is published by the stop.
        try await check()
        let (folder, key): (String, VerifierKey)
        do {
            logs += 1
            (folder, key) = try await simulated.rotateLog(logs)
            let kept = simulated.kept.all
            if let news = try await follower.read(simulated.kept, in: LedgerFolder(folder)) { try follower.take(news) }
            let report = try await Verifier(FolderSource(folder), key: key, allowsGaps: true, unique: true)
                .verify(since: Self.older(kept))
            guard report.next != nil else { throw LogCheck.Fault.unverified("the closed log is not closed") }
        } catch { throw Broken(description: "after a rotation: \(error)") }
        simulated.kept.removeAll()
        verified = 0
        follower.begin(simulated.key.verifierKey)
        try witnesses.serve(simulated.key.verifierKey)
        try File.removeTree(folder)
    }

    // MARK: The end

    /// Everything expires while no broker runs. The next run purges it, and nothing is left.
    private func end() async throws {
        faults.end()
        services.end()
        witnesses.end()
        chronicle.add("the last run ends")
        let time = brokerTime
        try await interrupt(Interruption(stops: true, awayMs: 1_000, restarts: false))
        // The last batch is that of a midnight. Until shortly before one nobody runs.
        let day: UInt64 = 86_400_000
        machine.pass(40 * day)
        let later = max(Int64(time) + Int64(40 * day) - Int64(machine.wall), 0)
        machine.step(later)
        machine.pass((2 * day - 600_000 - machine.wall % day) % day)
        (dues, waits, approvals) = ([:], [:], [:])
        try await start()
        await simulated.advance(1_200_000)
        try await check()
        let counts = try await simulated.run?.store.counts()
        if var counts {
            counts.waitingEntries = 0
            if counts != StoreCounts() { throw Broken(description: "after the end of everything there are \(counts)") }
        }
        if let left = follower.expected.first { throw Broken(description: "at the end the log has no \(left.value.what)") }
        if follower.pending > 0 { throw Broken(description: "at the end \(follower.pending) pushes have no outcome") }
        await simulated.stop()
        run = nil
        if let found = try search.find(inFolder: simulated.folder, isDeep: true) {
            throw Broken(description: "at the end, \(found)")
        }
        do {
            let report = try await Verifier(
                FolderSource(simulated.ledger.path), key: simulated.key.verifierKey, allowsGaps: true, unique: true
            ).verify(since: Self.older(simulated.kept.all))
            if report.live > 0 || report.pending > 0 {
                throw LogCheck.Fault.missing("\(report.live) purges and \(report.pending) outcomes")
            }
        } catch { throw Broken(description: "the last log doesn't verify: \(error)") }
    }
}
