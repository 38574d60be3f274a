import Broker
import Linux
import Policy
import Sealing

/// A stop or kill of the broker, and what happens before the next start.
struct Interruption {
    enum Change { case none, oldKeys, foreignKeys, noKeys, lostKeys, rotation, policies, app, webPush }

    /// False for a kill.
    var stops: Bool
    var awayMs: UInt64
    var change = Change.none
    var restarts = true
}

extension Life {
    // MARK: Starts and stops

    func start() async throws {
        var tries = 0
        while true {
            let before = machine.monotonic
            do {
                try await simulated.start(roomSockets: self, sessionSockets: self)
                break
            } catch {
                guard faults.lastAt >= before else { throw Broken(description: "a start was refused without a fault: \(error)") }
                chronicle.add("the start failed: \(error)")
                machine.pass(chance.upTo(chance.upTo(2) == 0 ? 5_000 : 300_000))
                tries += 1
                if tries == 5 { faults.end() }
            }
        }
        run = await simulated.run
        runs += 1
        (previousStart, startedAt) = (startedAt, machine.monotonic)
        chronicle.add("started")
        noticeSteps()
        // A push that was acknowledged is sent by the next run, if enough time is left.
        let soon = startedAt + 20_000
        dues = dues.mapValues { $0.filter { $0.isDurable && $0.deadline > soon } }.filter { !$0.value.isEmpty }
    }

    func interrupt(_ interruption: Interruption) async throws {
        self.interruption = nil
        let change = interruption.change
        chronicle.addFault(interruption.stops ? "stop" : "kill", "away for \(interruption.awayMs / 1_000) s")
        if change != .none { chronicle.addFault("\(change)", "before the next start") }
        _ = brokerTime
        services.doubt(last: isCalm(600_000) ? 3_000 : 600_000)
        if interruption.stops { await simulated.stop() } else { await simulated.kill() }
        (run, waits, busyUsers) = (nil, [:], [])
        for number in meetings.keys {
            meetings[number]?.isBusy = false
            for slot: UInt8 in [1, 2] {
                meetings[number]?[slot].sockets = []
                meetings[number]?[slot].reportedUntil = 0
            }
        }
        faults.endKilling()
        guard interruption.restarts else { return }
        if change != .none {
            faults.end()
        }
        machine.pass(interruption.awayMs)
        if chance.upTo(4) == 0 { machine.reboot() }
        switch change {
        case .none: if chance.upTo(6) == 0 { faults.kill(after: chance.upTo(12)) }
        case .oldKeys: if let oldKeys { try await startWithCopy(oldKeys.bytes, "an old key file") }
        case .lostKeys: try await startWithLostKeys()
        case .foreignKeys: try await startWithForeignKeys()
        case .noKeys: try await startWithoutKeys()
        case .rotation: try await rotate()
        case .policies: try await replacePolicies()
        case .app: await replaceApp()
        case .webPush:
            takesSubscriptions = true
            await simulated.enablePush()
        }
        try await start()
        // Most apps that were open come back.
        for (number, meeting) in meetings.sorted(by: { $0.key < $1.key }) where meeting.isAccepted && chance.upTo(3) == 0 {
            later(chance.upTo(8_000)) { $0.visit(number, UInt8(1 + $0.chance.upTo(2))) }
        }
    }

    // MARK: Key files

    private var keyFile: String { simulated.folder + "/ratchet.key" }

    private func refuseStart(_ what: String, _ isExpected: (any Error) -> Bool) async throws {
        do {
            try await simulated.start()
        } catch {
            guard isExpected(error) else { throw Broken(description: "a start with \(what) was refused with \(error)") }
            return chronicle.add("a start with \(what) was refused")
        }
        throw Broken(description: "a start with \(what) was not refused")
    }

    private func startWithCopy(_ copy: [UInt8], _ what: String) async throws {
        let present = try File.read(keyFile, limit: 1 << 20)
        try File.write(keyFile, copy.span, mode: 0o600)
        try await refuseStart(what) { $0 is StaleKeys }
        try File.write(keyFile, present.span, mode: 0o600)
    }

    /// Somebody finds a copy of keys that were given up.
    private func startWithLostKeys() async throws {
        if let lostKeys { try await startWithCopy(lostKeys, "a key file that was given up") }
    }

    private func startWithForeignKeys() async throws {
        let files = [keyFile, keyFile + ".new"]
        for file in files { try File.rename(file, to: file + ".kept") }
        try KeyRing.create(path: keyFile, nowMs: machine.wall)
        try await refuseStart("a foreign key file") { $0 is StaleKeys }
        for file in files { try File.rename(file + ".kept", to: file) }
    }

    /// The keys are lost for good, and with them all tokens.
    private func startWithoutKeys() async throws {
        let copy = try File.read(keyFile, limit: 1 << 20)
        try File.rename(keyFile, to: keyFile + ".kept")
        try await refuseStart("no key file") { $0 as? KeyFileError == .missing }
        try File.rename(keyFile + ".kept", to: keyFile)
        try await simulated.renewKeys()
        for number in tokens.keys where tokens[number]?.goneAt == nil { tokens[number]?.goneAt = machine.monotonic }
        (meetings, devices, approvals, dues, doubts) = ([:], [:], [:], [:], [])
        // Keys that were made within an hour of each other can't be told apart.
        if keysMadeAt + 7_200_000 < machine.monotonic {
            lostKeys = oldKeys.flatMap { chance.upTo(2) == 0 ? $0.bytes : nil } ?? copy
        }
        oldKeys = nil
        keysMadeAt = machine.monotonic
        if chance.upTo(2) == 0 { try await startWithLostKeys() }
    }

    private func replacePolicies() async throws {
        var changes: [(old: String, new: String)] = []
        terms = Terms()
        switch chance.upTo(3) {
        case 0:
            changes = [(#""knockThrottleSeconds": 30"#, #""knockThrottleSeconds": 60"#)]
            terms.throttleMs = 60_000
        case 1:
            changes = [(#""ttlSeconds": 120,"#, #""ttlSeconds": 120, "sendSlotSeconds": 20,"#)]
            terms.slotMs = 20_000
        default: break
        }
        chronicle.add("policies: \(terms)")
        let audiences = await simulated.audiencePolicies
        await simulated.replacePolicies(try Self.rooms(timing, changes), audiences)
    }

    /// Another app is configured in place of the present one. Tokens of that one are kept, and can't be pushed to.
    private func replaceApp() async {
        app = 1 - app
        dues = dues.filter { isServed($0.key) }
        await simulated.replaceApp(Self.apps[app])
        if app == 0 || chance.upTo(4) == 0 { return }
        later(chance.upTo(43_200_000)) { life in
            if life.app == 1 { life.interruption = Interruption(stops: true, awayMs: 1_000, change: .app) }
        }
    }

    // MARK: Faults of a day

    enum Fault: CaseIterable {
        case killAtCall, kill, stop, fullDisk, flakyStore, folder, clock, drift, sleep, apple, witnesses, change

        /// How often it comes, compared with the others.
        var weight: Int {
            switch self {
            case .killAtCall, .clock, .apple: 5
            case .change: 4
            case .stop: 3
            case .kill, .fullDisk, .flakyStore: 2
            case .folder, .drift, .sleep, .witnesses: 1
            }
        }
    }

    /// The faults of four days. Half of all spells have one or two kinds, which come often: one fault often hides what another one shows.
    struct Spell {
        var faults = Fault.allCases
        /// A change that is tried at least once.
        let change: Interruption.Change
        /// All steps of a clock are a half of this or more, ms, and in one direction. Nil: any.
        var stepMs: (most: UInt64, isAhead: Bool)?

        init(_ chance: Chance) {
            change = chance.pick([.oldKeys, .foreignKeys, .lostKeys, .lostKeys, .rotation, .policies, .app])
            guard chance.upTo(2) == 0 else { return }
            let kinds = self.kinds
            faults = (0..<1 + chance.upTo(2)).map { _ in chance.pick(kinds) }
            stepMs = (chance.pick([5_000, 60_000, 60_000, 170_000]), chance.upTo(2) == 0)
        }

        var kinds: [Fault] { faults.flatMap { Array(repeating: $0, count: $0.weight) } }
        /// How many times more often than usual faults come.
        var frequency: Int { faults.count < 3 ? 2 : 1 }
    }

    func someFault() {
        comeSoon()
        switch chance.pick(spell.kinds) {
        case .killAtCall:
            let calls = chance.upTo(60)
            chronicle.addFault("kill at a call", "at call \(calls)")
            faults.kill(after: calls)
        case .kill: interruption = Interruption(stops: false, awayMs: chance.absence())
        case .stop: interruption = Interruption(stops: true, awayMs: chance.absence())
        case .fullDisk:
            // The log can't excuse what a broker does late while it runs.
            let length = chance.upTo(40_000)
            chronicle.addFault("full disk", "for \(length / 1_000) s")
            faults.fillDisk(forMs: length)
        case .flakyStore:
            let length = chance.upTo(40_000)
            chronicle.addFault("flaky store", "for \(length / 1_000) s")
            faults.beFlaky(forMs: length)
        case .folder:
            let length = chance.upTo(1_800_000)
            chronicle.addFault("log folder", "can't be written for \(length / 1_000) s, mostly")
            faults.failFolder(forMs: length)
        case .clock:
            if spell.stepMs == nil { setTheClock() } else { setTheClockManyTimes() }
        case .drift:
            drift = Int64(chance.upTo(400)) - 200
            chronicle.addFault("drift", "\(drift) ms an hour")
        case .sleep:
            let length = chance.absence()
            chronicle.addFault("sleep", "for \(length / 1_000) s")
            machine.sleep(length)
            appleOffset += length
        case .apple:
            let (mood, length) = (chance.pick(LifeServices.Mood.allCases), 60_000 + chance.upTo(7_200_000))
            chronicle.addFault("push services", "\(mood) for \(length / 1_000) s")
            services.mood = mood
            later(length) { $0.services.mood = .fine }
        case .witnesses:
            chronicle.addFault("witnesses", witnesses.misbehave())
            later(60_000 + chance.upTo(7_200_000)) { $0.witnesses.end() }
        case .change: rareChange(chance.upTo(2) == 0 ? spell.change : nil)
        }
    }

    /// Some callers come while a fault lasts, or shortly after it.
    func comeSoon() {
        for _ in 0..<3 {
            later(chance.upTo(120_000)) { $0.makeRoom() }
            later(chance.upTo(120_000)) { $0.someApp() }
        }
    }

    /// - Parameter wanted: nil for any.
    func rareChange(_ wanted: Interruption.Change?) {
        let away = chance.upTo(60_000)
        let often: [Interruption.Change] = [.policies, .oldKeys].flatMap { [$0, $0, $0] } + [.foreignKeys, .foreignKeys]
        var change = wanted ?? chance.pick(often + [.noKeys, .rotation, .app, .lostKeys])
        // No keys were lost yet, so lose them now.
        if change == .lostKeys, lostKeys == nil { change = .noKeys }
        switch change {
        case .policies: interruption = Interruption(stops: true, awayMs: away, change: .policies)
        case .oldKeys where oldKeys.map { $0.at + 7_200_000 < machine.monotonic } ?? false && isCalm(3_600_000):
            interruption = Interruption(stops: chance.upTo(2) == 0, awayMs: away, change: .oldKeys)
        case .foreignKeys where isCalm(3_600_000) && keysMadeAt + 7_200_000 < machine.monotonic:
            interruption = Interruption(stops: chance.upTo(2) == 0, awayMs: away, change: .foreignKeys)
        case .noKeys: interruption = Interruption(stops: chance.upTo(2) == 0, awayMs: away, change: .noKeys)
        case .rotation: interruption = Interruption(stops: true, awayMs: away, change: .rotation)
        case .app: interruption = Interruption(stops: true, awayMs: away, change: .app)
        case .lostKeys where lostKeys != nil && isCalm(3_600_000):
            interruption = Interruption(stops: true, awayMs: away, change: .lostKeys)
        default: break
        }
    }

    /// The machine asks a time server.
    func setTheClockRight() {
        let step = -clockError
        chronicle.addFault("clock", "set right by \(step) ms")
        machine.step(step)
    }

    /// Many steps in a row, often about the hour, at which the log has most to do.
    private func setTheClockManyTimes() {
        let hour: UInt64 = 3_600_000
        let first = chance.upTo(2) == 0 ? 0 : hour - brokerTime % hour - min(hour - brokerTime % hour, chance.upTo(180_000))
        later(first) { $0.comeSoon() }
        for number in 0..<1 + chance.upTo(16) { later(first + number * chance.upTo(20_000)) { $0.setTheClock() } }
    }

    private func setTheClock() {
        let size: UInt64 =
            switch chance.upTo(25) {
            case ..<13: chance.upTo(5_000)
            case ..<18: chance.upTo(60_000)
            case ..<22: 60_000 + chance.upTo(400_000)
            default: chance.upTo(18_000_000)
            }
        let length = spell.stepMs.map { $0.most / 2 + chance.upTo($0.most / 2) } ?? size
        let isAhead = spell.stepMs?.isAhead ?? (chance.upTo(2) == 0)
        let step = isAhead ? Int64(length) : -Int64(length)
        chronicle.addFault("clock", "set by \(step) ms")
        // Also in the middle of a transaction.
        if chance.upTo(3) == 0 { faults.stepInStore(after: chance.upTo(4), by: step) } else { machine.step(step) }
        if spell.stepMs != nil { return }
        // Often somebody sets it right soon.
        if chance.upTo(4) > 0 {
            later(chance.upTo(chance.upTo(2) == 0 ? 300_000 : 7_200_000)) { life in
                life.chronicle.addFault("clock", "set by \(-step) ms")
                life.machine.step(-step)
                life.comeSoon()
            }
        }
    }
}
