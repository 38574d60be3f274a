import Broker
import Linux
import Policy
import Sealing

/// A stop or kill of the broker, and what happens before the next start.
struct Interruption {
    enum Change { case none, oldKeys, foreignKeys, noKeys, lostKeys, rotation, policies, app }

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
                try await simulated.start()
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
        await run?.broker.presence.setEdge(self)
        await run?.companion?.setEdge(self)
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
        apple.doubt(last: isCalm(600_000) ? 3_000 : 600_000)
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
        dues = dues.filter { tokens[$0.key]?.app == app }
        await simulated.replaceApp(Self.apps[app])
        if app == 0 || chance.upTo(4) == 0 { return }
        later(chance.upTo(43_200_000)) { life in
            if life.app == 1 { life.interruption = Interruption(stops: true, awayMs: 1_000, change: .app) }
        }
    }

    // MARK: Faults of a day

    func someFault() {
        comeSoon()
        switch chance.upTo(32) {
        case ..<5:
            let calls = chance.upTo(60)
            chronicle.addFault("kill at a call", "at call \(calls)")
            faults.kill(after: calls)
        case ..<7: interruption = Interruption(stops: false, awayMs: chance.absence())
        case ..<10: interruption = Interruption(stops: true, awayMs: chance.absence())
        case ..<12:
            // The log can't excuse what a broker does late while it runs.
            let length = chance.upTo(40_000)
            chronicle.addFault("full disk", "for \(length / 1_000) s")
            faults.fillDisk(forMs: length)
        case ..<14:
            let length = chance.upTo(40_000)
            chronicle.addFault("flaky store", "for \(length / 1_000) s")
            faults.beFlaky(forMs: length)
        case ..<15:
            let length = chance.upTo(1_800_000)
            chronicle.addFault("log folder", "can't be written for \(length / 1_000) s, mostly")
            faults.failFolder(forMs: length)
        case ..<20: setTheClock()
        case ..<21:
            drift = Int64(chance.upTo(400)) - 200
            chronicle.addFault("drift", "\(drift) ms an hour")
        case ..<22:
            let length = chance.absence()
            chronicle.addFault("sleep", "for \(length / 1_000) s")
            machine.sleep(length)
            appleOffset += length
        case ..<27:
            let (mood, length) = (chance.pick(LifeApple.Mood.allCases), 60_000 + chance.upTo(7_200_000))
            chronicle.addFault("Apple", "\(mood) for \(length / 1_000) s")
            apple.mood = mood
            later(length) { $0.apple.mood = .fine }
        case ..<28:
            chronicle.addFault("witnesses", witnesses.misbehave())
            later(60_000 + chance.upTo(7_200_000)) { $0.witnesses.end() }
        default: rareChange()
        }
    }

    /// Some callers come while a fault lasts, or shortly after it.
    private func comeSoon() {
        for _ in 0..<3 {
            later(chance.upTo(120_000)) { $0.makeRoom() }
            later(chance.upTo(120_000)) { $0.someApp() }
        }
    }

    private func rareChange() {
        let away = chance.upTo(60_000)
        switch chance.upTo(12) {
        case 0..<3: interruption = Interruption(stops: true, awayMs: away, change: .policies)
        case 3..<6 where oldKeys.map { $0.at + 7_200_000 < machine.monotonic } ?? false && isCalm(3_600_000):
            interruption = Interruption(stops: chance.upTo(2) == 0, awayMs: away, change: .oldKeys)
        case 6..<8 where isCalm(3_600_000) && keysMadeAt + 7_200_000 < machine.monotonic:
            interruption = Interruption(stops: chance.upTo(2) == 0, awayMs: away, change: .foreignKeys)
        case 8: interruption = Interruption(stops: chance.upTo(2) == 0, awayMs: away, change: .noKeys)
        case 9: interruption = Interruption(stops: true, awayMs: away, change: .rotation)
        case 10: interruption = Interruption(stops: true, awayMs: away, change: .app)
        case 11 where lostKeys != nil && isCalm(3_600_000):
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

    private func setTheClock() {
        let size: UInt64 =
            switch chance.upTo(25) {
            case ..<13: chance.upTo(5_000)
            case ..<18: chance.upTo(60_000)
            case ..<22: 60_000 + chance.upTo(400_000)
            default: chance.upTo(18_000_000)
            }
        let step = chance.upTo(2) == 0 ? Int64(size) : -Int64(size)
        chronicle.addFault("clock", "set by \(step) ms")
        // Also in the middle of a transaction.
        if chance.upTo(3) == 0 { faults.stepInStore(after: chance.upTo(4), by: step) } else { machine.step(step) }
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
