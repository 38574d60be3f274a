import Linux
import Sealing
import Storage
import Vocabulary

@testable import Broker

// What a day has, and what is looked at when it ends.
extension Life {
    private static let hour: UInt64 = 3_600_000
    private static let attacker = SocketAddress.v4(0xcb00_7142, port: 9)

    /// Draws a day: quiet or busy, perhaps with a rush hour, an attacker and faults. The last hours are quiet.
    func plan(_ day: UInt64) {
        if day > 0, day % 4 == 0 { spell = Spell(chance) }
        let isQuiet = chance.upTo(3) == 0
        for _ in 0..<(isQuiet ? 1 + chance.upTo(3) : 5 + chance.upTo(8)) { later(chance.upTo(20 * Self.hour)) { $0.makeRoom() } }
        for _ in 0..<(isQuiet ? chance.upTo(4) : 6 + chance.upTo(14)) { later(chance.upTo(21 * Self.hour)) { $0.someApp() } }
        if chance.upTo(5) == 0 {
            let begin = chance.upTo(20 * Self.hour)
            for _ in 0..<15 {
                later(begin + chance.upTo(900_000)) { $0.makeRoom() }
                later(begin + chance.upTo(900_000)) { $0.someApp() }
            }
        }
        if chance.upTo(6) == 0 { later(chance.upTo(20 * Self.hour)) { $0.attack() } }
        for _ in 0..<spell.frequency * chance.pick([0, 1, 1, 2, 3] as [Int]) {
            later(chance.upTo(20 * Self.hour)) { $0.someFault() }
        }
        if day % 4 == 2 {
            later(chance.upTo(20 * Self.hour)) { life in
                life.comeSoon()
                life.rareChange(life.spell.change)
            }
        }
        if chance.upTo(8) == 0 { later(chance.upTo(20 * Self.hour)) { $0.setTheClockRight() } }
        if day % 4 == 1 { later(chance.upTo(12 * Self.hour)) { $0.thief.isWaiting = true } }
        later(22 * Self.hour) { $0.everybodyLeaves() }
        later(23 * Self.hour) { $0.isNight = true }
        if day % 7 == 3 {
            later(12 * Self.hour) { life in
                guard let bytes = try? File.read(life.simulated.folder + "/ratchet.key", limit: 1 << 20) else { return }
                life.oldKeys = (bytes, life.machine.monotonic)
            }
        }
    }

    private func everybodyLeaves() {
        for (number, meeting) in meetings.sorted(by: { $0.key < $1.key }) {
            for slot: UInt8 in [1, 2] {
                for socket in meeting[slot].sockets { drop(socket.number, number, slot, isDeliberate: chance.upTo(2) == 0) }
            }
        }
        for number in meetings.keys.sorted() where chance.upTo(3) == 0 { look(number) }
        for number in meetings.keys.sorted() where chance.upTo(3) == 0 { intrude(number) }
    }

    // MARK: The attacker

    /// Somebody tries join codes as fast as he may, and rings one phone from many rooms.
    private func attack() {
        let began = machine.monotonic
        let (run, guesses) = (runs, TestClock(0))
        for number in 0..<130 {
            ask("a guess", isHonest: false) { run in
                try await run.broker.rooms.accept(
                    AcceptRoom(joinid: Array("9\(number)9999".utf8), client: [1], address: nil),
                    from: Self.attacker)
            } _: { life, answer in
                switch answer {
                case .done: life.chronicle.fail("a guess found a room")
                case .refused(.roomNotFound): guesses.advance(1)
                case .refused(.tooManyRequests), .unknown: break
                case .refused(let error): life.chronicle.fail("a guess was answered with \(error.code)")
                }
            }
        }
        later(60_000) { life in
            // All of them came at one moment, so in one window of the budget.
            guard life.runs == run, life.steppedAt < began, guesses.now > 100 else { return }
            life.chronicle.fail("\(guesses.now) guesses of one address were answered")
        }
    }

    // MARK: The night

    /// Compares what is stored and what is left over with what callers know, and looks into the files.
    func lookAtNight() async throws {
        let time = brokerTime
        forgetOld(time)
        guard isCalm(900_000), let run else { return }
        let counts: StoreCounts
        do { counts = try await run.store.counts() } catch { throw Broken(description: "the counts can't be read: \(error)") }
        try judge(counts, time)
        let presence = await run.broker.presence.counts
        if presence != Presence.Counts() { throw Broken(description: "nobody is there, and presence has \(presence)") }
        let (queued, open) = await run.broker.outbox.left
        if counts.jobs + queued + open > 0 {
            throw Broken(description: "no push is due, and \(counts.jobs) jobs are stored, \(queued) queued, \(open) open")
        }
        let (accepted, delivered) = (services.delivered, follower.delivered - settledDeliveries)
        if !accepted.contains(delivered) {
            throw Broken(description: "since the last night \(accepted) pushes were accepted, and the log has \(delivered)")
        }
        services.settle()
        settledDeliveries = follower.delivered
        let files = try File.list("/proc/self/fd").count
        descriptors = descriptors ?? files
        if files > descriptors! + 8 { throw Broken(description: "\(files) descriptors are open, and \(descriptors!) were") }
        let most = 1_000 + 4 * meetings.count
        if Arena.shared.used > most {
            throw Broken(description: "the arena has \(Arena.shared.used) secrets, and at most \(most) are in use")
        }
        let words = ["code-", "creator-", "joiner-", "user-", "session-", "printer-", "activity-", "back end"]
        for line in simulated.prints.all {
            if let word = words.first(where: { line.contains($0) }) {
                throw Broken(description: "the broker's log has \(word): \(line)")
            }
        }
        try search.compareKeys(simulated.folder + "/ratchet.key", day: figuresDay)
        if let found = try search.find(inFolder: simulated.folder, isDeep: false) {
            throw Broken(description: "in the state folder, \(found)")
        }
        try rob()
    }

    /// All that was acknowledged is stored until its end, and nothing else.
    private func judge(_ counts: StoreCounts, _ time: UInt64) throws {
        // A moment for the sweep.
        let (now, after) = (time - min(time, 3_000), max(time, highestTime) + 3_000)
        let present = meetings.values.filter { $0.ends > now }
        let certain = present.filter { $0.isSure && $0.ends > after }
        func check(_ what: String, _ count: Int, _ least: Int, _ most: Int) throws {
            guard count < least || count > most else { return }
            throw Broken(description: "\(count) \(what) are stored, \(least) to \(most) were acknowledged")
        }
        func doubtful(_ kind: Doubt) -> Int { doubts.count { $0.kind == kind && $0.until > now } }
        let coded = present.filter { !$0.isAccepted || !$0.isSure }
        try check("codes", counts.codes, coded.count { $0.isSure && $0.ends > after }, coded.count + doubtful(.room))
        try check("rooms", counts.rooms, certain.count, present.count + doubtful(.room))
        let sides = certain.flatMap { [$0.creator, $0.joiner] }
        let possible = tokens.values.filter { token in
            guard case .side = token.holder else { return false }
            return token.goneAt == nil && token.expires ?? 0 > now
        }
        try check(
            "tokens", counts.tokens, sides.count { $0.token != nil && $0.isTokenSure }, possible.count + doubtful(.token))
        let registered = devices.values.filter { $0.expires > now }
        try check(
            "registrations", counts.registrations, registered.count { $0.isSure && $0.expires > after },
            registered.count + doubtful(.registration))
    }

    private func forgetOld(_ time: UInt64) {
        let day: UInt64 = 86_400_000
        doubts.removeAll { $0.until + day < time }
        devices = devices.filter { $0.value.expires + 60_000 > time }
        meetings = meetings.filter { $0.value.ends + 600_000 > time || $0.value.isBusy }
        let now = machine.monotonic
        tokens = tokens.filter { _, token in
            if let gone = token.goneAt, gone + day < now { return false }
            return (token.expires ?? time) + day > time
        }
        (onlyIDs, messages) = ([:], [:])
    }
}

extension Outbox {
    /// Jobs that are queued, and those that are due or under way.
    var left: (queued: Int, open: Int) { (queue.queued, queue.openCount) }
}
