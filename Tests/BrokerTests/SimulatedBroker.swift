import Broker
import Courier
import Linux
import Policy
import Sealing
import Shares
import Storage
import Synchronization
import Vocabulary

@testable import EventLoop
@testable import Ledger

/// A whole broker except listeners and courier, in a folder and on clocks of its own. Hours pass in milliseconds, and the broker can be killed
/// at any call of its store. Everything runs on one loop, whose clock is the machine's.
actor SimulatedBroker: LoopActor {
    /// The parts of a run of the broker.
    struct Run: Sendable {
        let store: FaultyStore
        let keys: KeyRing
        let time: BrokerTime
        let broker: Broker
        let sweeper: Sweeper
        let keeper: KeyKeeper
        let sequencer: Sequencer
        let courier: ScriptedCourier
        let metrics: Metrics
        /// Nil without a policy for it.
        let apps: AudienceApps
        let webPush: SimulatedWebPush?
        var tasks: [Task<Void, Never>] = []
    }

    nonisolated let loop: EventLoop
    nonisolated let machine: MachineClock
    nonisolated let folder: String
    nonisolated let ledger: LedgerFolder
    private nonisolated let signer: Mutex<SigningKey>
    private(set) var policy: Policy
    /// The policies of apps with accounts. Empty if only rooms are served.
    private(set) var audiencePolicies: [Policy]
    /// The app that is configured.
    private var topic = "com.example.app"
    private var resolution: UInt64
    private(set) var run: Run?
    /// The store of the run, or of one that is starting.
    private var store: FaultyStore?
    /// The result of a start.
    private var outcome: Result<Run, any Error>?
    /// The broker's log, for a failure's report.
    nonisolated let prints: LogLines
    nonisolated let kept: KeptCheckpoints

    private let fault: @Sendable (FaultyStore.Call) -> FaultyStore.Fault
    private let whenStoreAsksTheTime: @Sendable () -> Void
    /// True if deadlines override the script of pushes.
    private let meetsDeadlines: Bool
    /// Returns the witnesses of a run, nil if there are none.
    private let witnesses: @Sendable (EventLoop, BrokerTime, Metrics, Logger) throws -> Witnesses?
    private let script: @Sendable (Push) -> (afterMs: UInt64, Outcome)
    private let webPush: SimulatedWebPush?
    /// Draws the waits between the attempts of messages.
    private let webPushChance: Chance
    /// True once subscriptions are taken, from the next start on.
    private var isPushEnabled = false

    /// - Parameters:
    ///   - loop: with `machine` as its clock.
    ///   - policy: nil for the built-in one with batches and buckets as long as windows.
    ///   - fault: called at each call of the store.
    ///   - folderFault: called at each stage of a publication.
    ///   - webPush: nil if none is configured.
    ///   - script: returns how a push to Apple ends.
    ///   - prints: receives the broker's log.
    init(
        loop: EventLoop, machine: MachineClock, resolution: UInt64, policy: Policy? = nil, audiences: [Policy] = [],
        fault: @escaping @Sendable (FaultyStore.Call) -> FaultyStore.Fault = { _ in .none },
        folderFault: @escaping @Sendable (LedgerFolder.Stage) throws(Errno) -> Void = { (_) throws(Errno) in },
        whenStoreAsksTheTime: @escaping @Sendable () -> Void = {}, meetsDeadlines: Bool = false,
        witnesses: @escaping @Sendable (EventLoop, BrokerTime, Metrics, Logger) throws -> Witnesses? = { _, _, _, _ in nil },
        prints: LogLines = LogLines(), webPush: SimulatedWebPush? = nil, webPushSeed: UInt64 = 0,
        script: @escaping @Sendable (Push) -> (afterMs: UInt64, Outcome) = { _ in (50, .delivered) }
    ) throws {
        self.loop = loop
        self.machine = machine
        self.resolution = resolution
        self.policy =
            try policy
            ?? Policy.rooms(
                LedgerTiming(hourSeconds: resolution, daySeconds: resolution, batchSeals: 1))
        audiencePolicies = audiences
        self.fault = fault
        self.whenStoreAsksTheTime = whenStoreAsksTheTime
        self.meetsDeadlines = meetsDeadlines
        self.witnesses = witnesses
        self.prints = prints
        self.script = script
        (self.webPush, webPushChance) = (webPush, Chance(seed: webPushSeed))
        folder = try Self.makeFolder()
        var ledger = LedgerFolder(folder + "/ledger")
        ledger.reached = folderFault
        self.ledger = ledger
        kept = KeptCheckpoints(ledger)
        signer = Mutex(try SigningKey(origin: "log.example/a", seed: [UInt8](repeating: 1, count: 32).span))
        try KeyRing.create(path: folder + "/ratchet.key", nowMs: machine.wall)
    }

    /// In memory if possible, because tests wait for thousands of commits.
    static func makeFolder() throws -> String {
        try File.makeTemporaryFolder(prefix: File.exists("/dev/shm") ? "../dev/shm/mayfly" : "mayfly")
    }

    nonisolated func remove() throws { try File.removeTree(folder) }

    var isDead: Bool { store?.isDead ?? false }
    nonisolated var key: SigningKey { signer.withLock { $0 } }

    /// Replaces the policies from the next start on.
    func replacePolicies(_ rooms: Policy, _ audiences: [Policy]) { (policy, audiencePolicies) = (rooms, audiences) }

    /// Configures another app in place of the one before, from the next start on.
    func replaceApp(_ new: String) { topic = new }

    /// Takes subscriptions from the next start on, as after `mayfly push enable`.
    func enablePush() { isPushEnabled = true }

    // MARK: Life

    private var starts: [Entry.Op] {
        func digest(_ policy: Policy) -> Digest { .sha256(policy.bytes.span) }
        let started = Entry.Op.brokerStarted(
            node: EntryText("node-1")!, version: EntryText("1.0")!, policy: digest(policy), resolutionSeconds: UInt32(resolution),
            binary: digest(policy))
        return [started] + policies.map { .policyLoaded(name: EntryText($0.name)!, policy: digest($0)) }
    }

    private var policies: [Policy] { [policy] + audiencePolicies }

    /// Starts like `mayfly serve`, with windows of `resolution` seconds if given. After an error nothing runs.
    func start(
        resolution: UInt64? = nil, roomSockets: any RoomSockets = NoSockets(), sessionSockets: any CompanionSockets = NoSockets()
    ) async throws {
        precondition(run == nil)
        self.resolution = resolution ?? self.resolution
        outcome = nil
        Task(executorPreference: loop) { await self.tryToStart(roomSockets, sessionSockets) }
        // A start may have to wait, e.g. for the disk.
        while true {
            await settle()
            if outcome != nil { break }
            guard let next = loop.nextDeadline else { fatalError("the start waits for nothing") }
            machine.pass(max(next, machine.monotonic) - machine.monotonic)
        }
        guard case .success(var run) = outcome else {
            if let store {
                store.kill()
                await store.shutDown()
            }
            store = nil
            if case .failure(let error) = outcome { throw error }
            return
        }
        run.tasks = [
            Task(executorPreference: loop) { [run] in await run.keeper.run() },
            Task(executorPreference: loop) { [run] in await run.sequencer.run() },
            Task(executorPreference: loop) { [run] in await run.sweeper.run() },
            Task(executorPreference: loop) { [run] in await run.apps.run() },
        ]
        self.run = run
    }

    private func tryToStart(_ roomSockets: any RoomSockets, _ sessionSockets: any CompanionSockets) async {
        do { outcome = .success(try await assemble(roomSockets, sessionSockets)) } catch { outcome = .failure(error) }
    }

    private func assemble(_ roomSockets: any RoomSockets, _ sessionSockets: any CompanionSockets) async throws -> Run {
        let policies = try Policies(policies)
        let keys = try KeyRing.load(
            path: folder + "/ratchet.key",
            longestLifeSeconds: audiencePolicies.isEmpty ? 86_400 : UInt64(policies.longestLifeSeconds))
        let time = BrokerTime(
            persisted: keys.earliestNowMs, wall: { [machine] in machine.wall }, boot: { [machine] in machine.boot })
        let starts = starts
        let sqlite = try SQLiteStore(
            path: folder + "/mayfly.sqlite", resolution: resolution, timing: policies.ledger, resumption: starts,
            now: { [whenStoreAsksTheTime] in
                whenStoreAsksTheTime()
                return time.now
            })
        let store = FaultyStore(sqlite, loop: loop) { [kept, fault] call in
            if call == .published { kept.keep() }
            return fault(call)
        }
        self.store = store
        let startup = Startup(store: store, keys: keys, time: time)
        try await startup.resumeTime()
        let metrics = Metrics()
        let log = Logger { [prints] _, line in prints.add(line) }
        let sweeper = Sweeper(loop: loop, store: store, time: time, metrics: metrics, log: log)
        let keeper = KeyKeeper(loop: loop, keys: keys, store: store, time: time, metrics: metrics, log: log)
        var deadlineClock: (@Sendable () -> UInt64)?
        if meetsDeadlines { deadlineClock = { time.now } }
        let process = webPush.map { webPush in
            SimulatedWebPush.Process(
                webPush, webPushChance,
                .init(broker: { time.now }, wall: { [machine] in machine.wall }, monotonic: { [machine] in machine.monotonic }))
        }
        let courier = ScriptedCourier(loop: loop, deadlineClock: deadlineClock, webPush: process, script: script)
        let access = StoreAccess(loop: loop, store: store, metrics: metrics, log: log)
        let broker = Broker(
            loop: loop, store: access, keys: keys, time: time, policies: policies, courier: courier, sweeper: sweeper,
            settings: .test(addressSize: isPushEnabled ? .anyService : .apnsOnly, topic: topic, webPush: webPush),
            metrics: metrics, sockets: roomSockets, log: log)
        let apps = try await AudienceApps(broker, sockets: sessionSockets)
        let sequencer = Sequencer(
            loop: loop, store: store, folder: ledger, key: key, resolution: resolution, time: time, metrics: metrics, log: log,
            witnesses: try witnesses(loop, time, metrics, log), witnessFailure: .open,
            refusals: { broker.takeRefusals() }, erased: { await sweeper.scheduleScrub() },
            caughtUp: { broker.shares.clear(.ledgerBacklog) })
        try await startup.catchUp(
            starts, policies: policies.all.map(\.bytes), folder: ledger, sequencer: sequencer, keeper: keeper, sweeper: sweeper)
        try await broker.outbox.resumeJobs()
        return Run(
            store: store, keys: keys, time: time, broker: broker, sweeper: sweeper, keeper: keeper, sequencer: sequencer,
            courier: courier, metrics: metrics, apps: apps, webPush: webPush)
    }

    /// Stops like `mayfly serve` after SIGTERM.
    func stop() async {
        guard let run else { return }
        await end(run) {
            do {
                try await run.sequencer.flush()
                try await run.store.record([.brokerStopped(node: EntryText("node-1")!)])
                try await run.sequencer.flush()
            } catch { self.prints.add("stop: \(error)") }
        }
    }

    /// The keys of a stopped broker are lost, and an operator makes new ones, as `mayfly keys renew` does.
    func renewKeys() async throws {
        let (database, keyFile) = (folder + "/mayfly.sqlite", folder + "/ratchet.key")
        try File.remove(keyFile)
        let store = try SQLiteStore(path: database, resolution: 1, timing: nil, now: { [machine] in machine.wall })
        let born = try await KeyKeeper.recordLoss(store, nowMs: machine.wall)
        await store.shutDown()
        try KeyRing.create(path: keyFile, nowMs: born)
    }

    /// Closes the log of a stopped broker and begins another with a key of its own, as `mayfly keys rotate` does.
    /// - Returns: the folder of the closed log, and its public key.
    func rotateLog(_ number: Int) async throws -> (folder: String, key: VerifierKey) {
        let seed = [UInt8](repeating: 2, count: 24) + [UInt8](bigEndian: UInt64(number))
        let (old, next) = (key, try SigningKey(origin: "log.example/\(number)", seed: seed.span))
        let archive = "\(folder)/log-\(number)"
        let keys = try KeyRing.load(
            path: folder + "/ratchet.key", longestLifeSeconds: UInt64(Policies(policies).longestLifeSeconds))
        let time = BrokerTime(
            persisted: keys.earliestNowMs, wall: { [machine] in machine.wall }, boot: { [machine] in machine.boot })
        let store = try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: resolution, timing: nil, now: { time.now })
        let metrics = Metrics()
        let log = Logger { [prints] _, line in prints.add(line) }
        func sequencer(_ key: SigningKey) -> Sequencer {
            Sequencer(
                loop: loop, store: store, folder: ledger, key: key, resolution: resolution, time: time, metrics: metrics,
                log: log,
                refusals: { [] })
        }
        let sweeper = Sweeper(loop: loop, store: store, time: time, metrics: metrics, log: log)
        let keeper = KeyKeeper(loop: loop, keys: keys, store: store, time: time, metrics: metrics, log: log)
        try await Startup(store: store, keys: keys, time: time).resumeTime()
        let closing = sequencer(old)
        try await closing.recover()
        try await store.start([starts[0]], marks: [])
        await keeper.step()
        await keeper.recordAll()
        var isClosed = false
        for _ in 0..<25 where !isClosed {
            _ = try await sweeper.sweep()
            try await closing.flush()
            isClosed = try await store.closeLog(
                [.brokerStopped(node: EntryText("node-1")!)], next: EntryText(next.verifierKey.name)!,
                mark: StoreMark("rotation", [1]))
            if !isClosed { machine.pass(200) }
        }
        guard isClosed else { throw StoreError.ledgerBehind }
        try await sequencer(old).flush()
        kept.keep()
        ledger.tidy()
        guard let head = try await store.logHead(),
            let end = SignedNote(Array(head.checkpoint.utf8))?.checkpoint(signedBy: old.verifierKey),
            try await store.beginLog(after: end, marks: [])
        else { throw StoreError.ledgerBehind }
        try File.rename(ledger.path, to: archive)
        for policy in policies { _ = try ledger.writePolicy(policy.bytes) }
        signer.withLock { $0 = next }
        try await sequencer(next).flush()
        await store.shutDown()
        return (archive, old.verifierKey)
    }

    /// Like kill -9: everything in memory is lost, and calls under way are never answered.
    func kill() async {
        guard let run else { return }
        run.store.kill()
        await end(run) {}
    }

    private func end(_ run: Run, _ last: () async -> Void) async {
        run.courier.stop()
        for task in run.tasks { task.cancel() }
        await run.sweeper.stop()
        await run.apps.stop()
        await settle()
        for task in run.tasks { await task.value }
        await last()
        await settle()
        await run.store.shutDown()
        (self.run, store) = (nil, nil)
    }

    // MARK: Calls

    /// Creates a room with a token, and records its acknowledgement.
    @discardableResult func makeRoom(_ facts: Facts, lifeSeconds: Int = 7_200) async throws -> Facts.Room {
        guard let running = run?.broker else { throw StoreError.closed }
        let code = Array("code-\(facts.nextNumber())".utf8)
        let token = try Secret(copying: [UInt8](repeating: 7, count: 32).span)
        let membership = try await running.rooms.create(
            CreateRoom(
                joinid: code, lifeSeconds: lifeSeconds, codeLifeSeconds: lifeSeconds, client: Facts.creator, address: .test(token)
            ), from: .v4(0xc633_6401, port: 9))
        let room = Facts.Room(id: membership.room, code: code)
        facts.made(room, membership.ref)
        return room
    }

    /// Returns the published entries.
    nonisolated func entries() async throws -> [Entry] {
        guard let note = try ledger.checkpoint().flatMap({ SignedNote($0) }),
            let size = note.checkpoint(signedBy: key.verifierKey)?.size
        else { return [] }
        let reader = TileReader(FolderSource(ledger.path), size: size)
        var entries: [Entry] = []
        for bundle in 0..<(size + 255) / 256 {
            entries += try await reader.entries(bundle: bundle).map { try Entry(canonical: $0.span) }
        }
        return entries
    }

    // MARK: Time

    /// Lets time pass. Timers fire at their own moments. Returns early if the broker is killed.
    func advance(_ ms: UInt64) async {
        let end = machine.monotonic + ms
        while !isDead {
            await settle()
            let now = machine.monotonic
            guard let next = loop.nextDeadline, next < end else { break }
            machine.pass(max(next, now) - now)
        }
        if isDead { return }
        machine.pass(end - machine.monotonic)
        await settle()
    }

    /// Fires all timers, so that the loop can be stopped.
    func runOut() async {
        await settle()
        while let next = loop.nextDeadline {
            machine.pass(max(next, machine.monotonic) - machine.monotonic)
            await settle()
        }
    }

    /// Waits until nothing is left to do at this time.
    func settle() async {
        await withCheckedContinuation { continuation in watch { continuation.resume() } }
    }

    private func watch(_ whenQuiet: @escaping @Sendable () -> Void) { loop.atEndOfTurn { self.look(whenQuiet) } }

    private func look(_ whenQuiet: @escaping @Sendable () -> Void) {
        if let store, !store.isIdle {
            store.whenIdle { self.assumeIsolated { $0.watch(whenQuiet) } }
        } else if loop.isQuiet {
            whenQuiet()
        } else {
            watch(whenQuiet)
        }
    }
}

/// Every checkpoint that was published, as an auditor could keep them.
final class KeptCheckpoints: Sendable {
    private let ledger: LedgerFolder
    private let kept = Mutex<[[UInt8]]>([])

    init(_ ledger: LedgerFolder) { self.ledger = ledger }

    func keep() {
        guard let checkpoint = try? ledger.checkpoint() else { return }
        kept.withLock { if $0.last != checkpoint { $0.append(checkpoint) } }
    }

    var all: [[UInt8]] { kept.withLock { $0 } }
    var count: Int { kept.withLock { $0.count } }

    /// Returns those after the first `count`.
    func after(_ count: Int) -> [[UInt8]] { kept.withLock { Array($0.dropFirst(count)) } }

    /// Forgets all, since another log begins.
    func removeAll() { kept.withLock { $0 = [] } }
}
