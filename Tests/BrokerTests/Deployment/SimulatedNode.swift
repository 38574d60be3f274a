import Broker
import EventLoop
import Linux
import Policy
import Synchronization
import Vocabulary

@testable import Ledger
@testable import Sealing

/// The state that all parts of a deployment share.
final class DeploymentWorld: Sendable {
    let time: SimulatedTime
    let chance: Chance
    let database: SimulatedDatabase
    let network: SimulatedNetwork
    let services: SimulatedServices
    let webPush: SimulatedWebPush
    /// True once `mayfly push enable` has run. A node takes subscriptions from its next start on.
    let takesSubscriptions = Flag()
    /// Of the real database.
    let uri: String
    let pace: Pace
    let policies: Policies
    let key: SigningKey
    let story: Story

    init(seed: UInt64, uri: String, pace: Pace) throws {
        chance = Chance(seed: seed)
        // At any time of an epoch of the keys.
        time = SimulatedTime(1_800_000_000_000 + seed % 1_000 * 86_400_000 + chance.upTo(300_000))
        (self.uri, self.pace) = (uri, pace)
        database = SimulatedDatabase(time)
        network = SimulatedNetwork(time, database, chance)
        policies = try Policies([Policy.rooms(pace.timing), Policy.builtIn("calls", replacing: [])])
        key = try SigningKey(origin: "log.example/a", seed: [UInt8](repeating: 1, count: 32).span)
        let story = Story(time)
        let services = SimulatedServices(time, chance, story)
        (self.story, self.services) = (story, services)
        webPush = try SimulatedWebPush { services.take($0) }
    }
}

/// The events of a run, for the report of a failure, and the periods of trouble.
final class Story: Sendable {
    /// Times in unix ms.
    private struct Trouble {
        let from: UInt64
        var to = UInt64.max
        /// True if it is only that one node does not serve.
        let isAbsence: Bool

        func touches(_ start: UInt64, _ end: UInt64) -> Bool { from <= end && to >= start }
    }

    private struct State {
        var lines: [String] = []
        var failure: String?
        var troubles: [Int: Trouble] = [:]
        var count = 0
    }

    private let time: SimulatedTime
    private let start: UInt64
    private let state = Mutex(State())

    private static let mostLines = 10_000

    init(_ time: SimulatedTime) { (self.time, start) = (time, time.now) }

    func tell(_ what: String) {
        let ms = time.now - start
        let thousandths = String(1_000 + ms % 1_000).dropFirst()
        state.withLock { state in
            state.lines.append("\(ms / 1_000).\(thousandths) s: \(what)")
            if state.lines.count == 2 * Self.mostLines { state.lines.removeFirst(Self.mostLines) }
        }
    }

    /// Records that something happened that must not. Only the first counts.
    func fail(_ what: String) {
        tell("FAILED: \(what)")
        state.withLock { if $0.failure == nil { $0.failure = what } }
    }

    var failure: String? { state.withLock(\.failure) }
    /// The latest lines, and those before that tell of the room in which something failed.
    func last(_ count: Int) -> [String] {
        state.withLock { state in
            let words = state.failure?.split(separator: " ") ?? []
            guard words.count > 1, words[0] == "room" else { return state.lines.suffix(count) }
            return state.lines.dropLast(count).filter { $0.contains("room \(words[1]) ") } + state.lines.suffix(count)
        }
    }

    // MARK: Trouble

    /// - Parameter isAbsence: true if it is only that one node does not serve.
    /// - Returns: its number, for `end(trouble:)`.
    func beginTrouble(isAbsence: Bool = false) -> Int {
        let now = time.now
        return state.withLock { state in
            state.count += 1
            state.troubles[state.count] = Trouble(from: now, isAbsence: isAbsence)
            return state.count
        }
    }

    func end(trouble: Int) {
        let now = time.now
        state.withLock { state in
            state.troubles[trouble]?.to = now
            // Nobody asks for times longer ago than an hour.
            state.troubles = state.troubles.filter { $0.value.to == .max || $0.value.to + 3_600_000 > now }
        }
    }

    /// True if there was no trouble between two times, unix ms.
    func isCalm(from: UInt64, to: UInt64) -> Bool {
        state.withLock { state in !state.troubles.values.contains { $0.touches(from, to) } }
    }

    /// True if between two times, unix ms, nothing was wrong but that one node did not serve.
    func isServed(from: UInt64, to: UInt64) -> Bool {
        state.withLock { state in
            let troubles = state.troubles.values.filter { $0.touches(from, to) }
            return troubles.count <= 1 && troubles.allSatisfy(\.isAbsence)
        }
    }
}

/// A node of a deployment: its machine, its state folder, and the processes that run there one after the other.
final class SimulatedNode: Sendable {
    let world: DeploymentWorld
    let machine: SimulatedMachine
    let name: EntryText
    let folder: String
    let ledger: LedgerFolder
    /// All checkpoints that this folder ever had.
    let kept: KeptCheckpoints
    /// The key that wraps the key file. It is nil if the node has no key file.
    let wrapping: WrappingKey?
    let prints = LogLines()
    private let current = Mutex<NodeRun?>(nil)
    /// An earlier content of the key file.
    private let old = Mutex<[UInt8]?>(nil)

    init(_ number: Int, _ world: DeploymentWorld, keepsKeys: Bool) throws {
        self.world = world
        machine = SimulatedMachine(number, world.time)
        guard let name = EntryText("node-\(number + 1)") else { preconditionFailure("the name is valid") }
        self.name = name
        folder = try SimulatedBroker.makeFolder()
        var ledger = LedgerFolder(folder + "/ledger")
        let kept = KeptCheckpoints(ledger)
        ledger.reached = { stage throws(Errno) in if stage == .checkpoint { kept.keep() } }
        (self.ledger, self.kept) = (ledger, kept)
        wrapping = try keepsKeys ? WrappingKey([UInt8](0..<32).span) : nil
        world.time.add(machine)
    }

    var run: NodeRun? {
        get { current.withLock(\.self) }
        set { current.withLock { $0 = newValue } }
    }

    var keyFile: String { folder + "/ratchet.key" }

    func storedKeys() throws -> KeyRing? {
        guard File.exists(keyFile) else { return nil }
        return try KeyRing.load(
            path: keyFile, wrapping: wrapping, longestLifeSeconds: UInt64(world.policies.longestLifeSeconds))
    }

    /// While no process runs, the key file may get lost, or an old one or that of another deployment may be put back. Another node has the keys.
    func meddle() throws {
        guard let wrapping else { return }
        let file = try File.exists(keyFile) ? File.read(keyFile, limit: 65_536) : nil
        defer { old.withLock { $0 = file ?? $0 } }
        switch world.chance.upTo(8) {
        case 0: world.story.tell("the key file of \(name) is lost")
        case 1:
            guard let before = old.withLock(\.self) else { return }
            world.story.tell("\(name) gets an old key file")
            if file != nil { try File.remove(keyFile) }
            return try File.write(keyFile, before.span, mode: 0o600)
        case 2:
            world.story.tell("\(name) gets the key file of another deployment")
            if file != nil { try File.remove(keyFile) }
            return try KeyRing.create(path: keyFile, wrapping: wrapping, nowMs: machine.wall)
        default: return
        }
        if file != nil { try File.remove(keyFile) }
    }

    var log: Logger {
        Logger { [self] level, line in
            prints.add(line)
            world.story.tell("\(name) prints \(level.rawValue): \(line)")
            // Some alarms are about what went on for a while.
            if level == .error, world.story.isCalm(from: world.time.now - min(world.time.now, 60_000), to: world.time.now) {
                world.story.fail("\(name) raises an alarm, although nothing was wrong: \(line)")
            }
        }
    }

    /// The log entries of a start.
    var starts: [Entry.Op] {
        guard let version = EntryText("1.0"), let policy = world.policies.all.first else {
            preconditionFailure("there is a version and a policy")
        }
        let digest = Digest.sha256(policy.bytes.span)
        let started = Entry.Op.brokerStarted(
            node: name, version: version, policy: digest, resolutionSeconds: UInt32(world.pace.resolution), binary: digest)
        return [started]
            + world.policies.all.compactMap { policy in
                EntryText(policy.name).map { .policyLoaded(name: $0, policy: .sha256(policy.bytes.span)) }
            }
    }

    func remove() throws { try File.removeTree(folder) }
}
