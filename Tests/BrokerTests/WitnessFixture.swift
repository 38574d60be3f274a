import EventLoop
import Ledger
import Linux
import Policy
import Sodium
import Storage
import Synchronization
import Vocabulary

@testable import Broker

/// Witnesses in memory that follow C2SP tlog-witness, unless a test changes their behaviour.
final class FakeWitnesses: Sendable {
    enum Behaviour: Sendable {
        case honest
        /// Answers when the gate is opened.
        case stalls(Gate)
        case answers(UInt16, type: String?, body: String)
        case fails
        /// Accepts the head, but the answer is lost.
        case loses
    }

    struct State {
        var size: UInt64 = 0
        var root = Digest.emptyRoot
        var behaviour = Behaviour.honest
        /// The `old` of each request.
        var asked: [UInt64] = []
    }

    struct Unreachable: Error {}

    let keys: [VerifierKey]
    private let signers: [Ed25519.PrivateKey]
    private let states: Mutex<[State]>
    private let log: VerifierKey
    private let now: @Sendable () -> UInt64

    init(_ count: Int, log: VerifierKey, now: @escaping @Sendable () -> UInt64) throws {
        self.log = log
        self.now = now
        signers = try (0..<count).map { try Ed25519.PrivateKey(seed: [UInt8](repeating: UInt8(50 + $0), count: 32).span) }
        keys = signers.enumerated().map {
            VerifierKey(name: "witness.test/\($0)", algorithm: .cosignature, publicKey: $1.publicKey)!
        }
        states = Mutex(Array(repeating: State(), count: count))
    }

    /// A policy with all witnesses and these further lines.
    func policy(_ lines: String) throws -> WitnessPolicy {
        let text = keys.enumerated().map { "witness w\($0) \($1) http://127.0.0.1:1/\($0)\n" }.joined() + lines
        return try WitnessPolicy(Array(text.utf8))
    }

    subscript(_ index: Int) -> State {
        get { states.withLock { $0[index] } }
        set { states.withLock { $0[index] = newValue } }
    }

    func post(_ url: String, _ body: [UInt8]) async throws -> Witnesses.Answer {
        let path = url.split(separator: "/")
        let index = Int(path[path.count - 2])!
        let text = String(decoding: body, as: UTF8.self)
        let old = UInt64(text.split(separator: "\n")[0].dropFirst(4))!
        let behaviour = states.withLock { states in
            states[index].asked.append(old)
            return states[index].behaviour
        }
        switch behaviour {
        case .honest: return take(index, body, old)
        case .stalls(let gate):
            await gate.pass()
            return take(index, body, old)
        case .answers(let status, let type, let body):
            return Witnesses.Answer(status: status, contentType: type, body: Array(body.utf8))
        case .fails: throw Unreachable()
        case .loses:
            _ = take(index, body, old)
            throw Unreachable()
        }
    }

    private func take(_ index: Int, _ body: [UInt8], _ old: UInt64) -> Witnesses.Answer {
        let split = body.indices.dropLast().first { body[$0] == 0x0a && body[$0 + 1] == 0x0a }!
        let proof = String(decoding: body[..<split], as: UTF8.self).split(separator: "\n").dropFirst().map { line in
            let hash = Base64.standard.decode(String(line))!
            return Digest(bytes: hash.span)!
        }
        let note = SignedNote(Array(body[(split + 2)...]))!
        guard let head = note.checkpoint(signedBy: log) else { return Self.answer(403) }
        return states.withLock { states in
            guard old == states[index].size, old < head.size || head.root == states[index].root else {
                return Self.answer(409, "\(states[index].size)\n", type: "text/x.tlog.size")
            }
            let consistency = ConsistencyProof(oldSize: old, newSize: head.size, hashes: proof)
            guard old == 0 ? proof.isEmpty : consistency.isValid(oldRoot: states[index].root, newRoot: head.root) else {
                return Self.answer(422)
            }
            (states[index].size, states[index].root) = (head.size, head.root)
            return Self.answer(200, line(index, note.text))
        }
    }

    private func line(_ index: Int, _ text: String) -> String {
        let seconds = now() / 1_000
        let signature = signers[index].sign(Array("cosignature/v1\ntime \(seconds)\n\(text)".utf8).span)
        let id = (0..<4).map { UInt8(truncatingIfNeeded: keys[index].id >> UInt32(24 - 8 * $0)) }
        let bytes = id + [UInt8](bigEndian: seconds) + signature
        return "\u{2014} \(keys[index].name) \(Base64.standard.encode(bytes.span))\n"
    }

    private static func answer(_ status: UInt16, _ body: String = "", type: String? = nil) -> Witnesses.Answer {
        Witnesses.Answer(status: status, contentType: type, body: Array(body.utf8))
    }
}

/// Delays all callers until it is opened.
final class Gate: Sendable {
    private let state = Mutex<(isOpen: Bool, waiting: [CheckedContinuation<Void, Never>])>((false, []))

    func pass() async {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLock { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() }
        }
    }

    func open() {
        let waiting = state.withLock { state in
            state.isOpen = true
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }
}

/// A sequencer with a real store and folder, and witnesses in memory.
struct WitnessFixture {
    let path: String
    let clock = TestClock(1_800_000_000_000)
    /// The clock for pauses.
    let steady = TestClock(1_000)
    let time: BrokerTime
    let store: SQLiteStore
    let loop: EventLoop
    let key: SigningKey
    let folder: LedgerFolder
    let fakes: FakeWitnesses
    let metrics = Metrics()
    let lines: LogLines

    init(_ count: Int, waitingLimit: Int = 1_000_000) throws {
        path = try File.makeTemporaryFolder()
        let clock = clock
        let time = BrokerTime(persisted: 0, wall: { clock.now }, boot: { clock.now })
        self.time = time
        store = try SQLiteStore(
            path: path + "/mayfly.sqlite", resolution: 1, timing: .standard, waitingLimit: waitingLimit, now: { time.now })
        loop = try EventLoop(name: "test")
        try loop.start()
        key = try SigningKey(origin: "log.example/a", seed: [UInt8](repeating: 1, count: 32).span)
        folder = LedgerFolder(path + "/ledger")
        fakes = try FakeWitnesses(count, log: key.verifierKey, now: { clock.now })
        lines = LogLines()
    }

    /// A sequencer of a new start, which knows neither sizes nor pauses of witnesses.
    func sequencer(
        _ quorum: String, _ mode: Sequencer.WitnessFailureMode, roundMs: UInt64 = 60_000, kept: [KeptCheckpoint] = []
    ) throws -> Sequencer {
        let (fakes, lines, steady) = (fakes, lines, steady)
        let witnesses = Witnesses(
            loop: loop, policy: try fakes.policy(quorum), time: time, metrics: metrics,
            log: Logger { _, line in lines.add(line) }, roundMs: roundMs,
            steady: { steady.now }, post: { url, body, _ in try await fakes.post(url, body) })
        return Sequencer(
            loop: loop, store: store, folder: folder, key: key, resolution: 1, time: time, metrics: metrics,
            log: Logger { _, line in lines.add(line) }, witnesses: witnesses, witnessFailure: mode, kept: kept, refusals: { [] })
    }

    /// Records so many entries in a window of their own.
    func record(_ count: Int) async throws {
        clock.advance(1_000)
        try await store.record((0..<count).map { .keysRatcheted(epoch: UInt64($0), swept: 0) })
    }

    /// The size of the published head, and its cosigners.
    func published() throws -> (size: UInt64, cosigners: Set<Int>)? {
        guard let bytes = try folder.checkpoint() else { return nil }
        guard let note = SignedNote(bytes), let head = note.checkpoint(signedBy: key.verifierKey) else {
            throw LedgerFolder.Failure.foreignCheckpoint
        }
        return (head.size, try fakes.policy("quorum none\n").cosigners(of: note, dated: 0...UInt64(Int64.max)))
    }

    func end() async throws {
        await store.shutDown()
        loop.stop()
        loop.join()
        try File.removeTree(path)
    }
}
