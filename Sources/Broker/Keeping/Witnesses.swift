public import EventLoop
public import Ledger
import Linux
import Vocabulary

/// Asks the witnesses of a policy to cosign the log's heads: all at once, within one deadline.
///
/// A witness that fails is not asked again during a pause, which doubles with each failure. So a witness that stalls does not delay every
/// window. A contradiction by a witness stays until the witness cosigns again; a later silence does not clear it.
public actor Witnesses: LoopActor {
    /// The HTTP answer of a witness.
    public struct Answer: Sendable {
        public var status: UInt16
        public var contentType: String?
        public var body: [UInt8]

        public init(status: UInt16, contentType: String?, body: [UInt8]) {
            (self.status, self.contentType, self.body) = (status, contentType, body)
        }
    }

    /// Sends a POST and waits for the whole answer, at most `answerLimit` bytes. May throw any error; its text is logged.
    public typealias Post = @Sendable (_ url: String, _ body: [UInt8], _ timeoutMs: UInt64) async throws -> Answer

    /// The largest accepted answer, in bytes.
    public static let answerLimit = 64 << 10

    /// A head that the store has committed, and the log to prove that it continues earlier heads.
    struct Head: Sendable {
        let note: SignedNote
        let size: UInt64
        let root: Digest
        /// Unix seconds of the window of the last entry.
        let window: UInt64
        let source: any LogSource
    }

    /// The result of a round.
    struct Round: Sendable {
        /// The head with all its cosignatures.
        var note: SignedNote
        var isSatisfied: Bool
        /// True if all witnesses have cosigned.
        var isComplete: Bool
        /// The witnesses' contradictions, if the other witnesses can't reach the quorum.
        var contradiction: String?
    }

    private struct WitnessState {
        /// The size of the last head that it has cosigned, as far as known.
        var knownSize: UInt64 = 0
        var failures = 0
        /// Steady ms before which it is not asked.
        var dueMs: UInt64 = 0
        /// True while a request is under way.
        var isAsked = false
        /// True if the request's round is over.
        var isOverdue = false
        var contradiction: WitnessFailure?
    }

    public nonisolated let loop: EventLoop
    private let policy: WitnessPolicy
    private let time: BrokerTime
    private let metrics: Metrics
    private let log: Logger
    private let post: Post
    private let roundMs: UInt64
    /// The clock for pauses, in milliseconds.
    private let steady: @Sendable () -> UInt64

    private var states: [WitnessState]
    /// The current head, and its cosignatures by the witnesses' positions in the policy.
    private var text = ""
    private var collected: [Int: SignedNote.Signature] = [:]
    private let sleeper: WakeableSleep

    /// The first pause after a failure, and the longest.
    private static let firstPauseMs: UInt64 = 1_000
    private static let longestPauseMs: UInt64 = 60_000

    /// - Parameters:
    ///   - policy: a witness without a URL is never asked.
    ///   - roundMs: how long a round may take.
    public init(
        loop: EventLoop, policy: WitnessPolicy, time: BrokerTime, metrics: Metrics, log: Logger,
        roundMs: UInt64 = 5_000, steady: @escaping @Sendable () -> UInt64 = { Clock.monotonicMs }, post: @escaping Post
    ) {
        self.loop = loop
        sleeper = WakeableSleep(loop)
        self.policy = policy
        self.time = time
        self.metrics = metrics
        self.log = log
        self.roundMs = roundMs
        self.steady = steady
        self.post = post
        states = Array(repeating: WitnessState(), count: policy.witnesses.count)
    }

    /// Loads the cosignatures of the published checkpoint. They stay valid as long as it is the head, and show which size each witness knows.
    func adopt(_ published: SignedNote, size: UInt64) {
        begin(published.text)
        for (index, witness) in policy.witnesses.enumerated() {
            let own = published.signatures.first { line in
                witness.key.isNamed(by: line) && witness.key.isValid(line.bytes, text: text)
            }
            guard let own else { continue }
            collected[index] = own
            states[index].knownSize = max(states[index].knownSize, size)
        }
    }

    /// Asks the witnesses whose cosignature of this head is missing and whose pause is over.
    /// - Parameter asksAll: true to also ask witnesses that have cosigned it already: one may have seen a newer head since.
    func cosign(_ head: Head, asksAll: Bool = false) async -> Round {
        begin(head.note.text)
        let deadlineMs = Clock.monotonicMs + roundMs
        for (index, state) in states.enumerated() {
            guard policy.witnesses[index].url != nil, asksAll || collected[index] == nil, !state.isAsked,
                state.dueMs <= steady()
            else { continue }
            states[index].isAsked = true
            Task { end(index, of: head, await ask(index, head, deadlineMs)) }
        }
        await wait(until: deadlineMs)
        for (index, state) in states.enumerated() where state.isAsked && !state.isOverdue {
            states[index].isOverdue = true
            recordFailure(index, .silent("no answer in time"))
        }
        return round(head)
    }

    private func begin(_ text: String) {
        guard text != self.text else { return }
        self.text = text
        collected = [:]
    }

    private func round(_ head: Head) -> Round {
        var note = SignedNote(text: head.note.text, signatures: head.note.signatures)
        for (_, signature) in collected.sorted(by: { $0.key < $1.key }) { note.append(signature) }
        let against = states.indices.filter { states[$0].contradiction != nil }
        let others = Set(states.indices).subtracting(against)
        return Round(
            note: note, isSatisfied: policy.isSatisfied(by: Set(collected.keys)), isComplete: collected.count == states.count,
            contradiction: policy.isSatisfied(by: others)
                ? nil
                : against.map { "\(policy.witnesses[$0].name): \(states[$0].contradiction!)" }.joined(separator: "; "))
    }

    // MARK: One witness

    private enum Ending: Sendable {
        case cosigned(SignedNote.Signature)
        case failed(WitnessFailure)
        /// The request failed or had no answer.
        case silent(String)
    }

    private func ask(_ index: Int, _ head: Head, _ deadlineMs: UInt64) async -> Ending {
        let witness = policy.witnesses[index]
        guard let prefix = witness.url else { return .silent("it has no URL") }
        let url = prefix + (prefix.hasSuffix("/") ? "" : "/") + "add-checkpoint"
        var exchange = WitnessExchange(
            key: witness.key, head: head.note, size: head.size, knownSize: states[index].knownSize)
        var tiles = TileReader(head.source, size: head.size)
        do {
            while true {
                let proof = try await tiles.consistencyProof(oldSize: exchange.oldSize, leadingTo: head.root)
                let now = Clock.monotonicMs
                guard now < deadlineMs else { return .silent("no answer in time") }
                let answer = try await post(url, exchange.body(proof: proof), deadlineMs - now)
                let dates = WitnessPolicy.dates(lastEntry: head.window, now: time.now / 1_000)
                switch exchange.take(status: answer.status, contentType: answer.contentType, body: answer.body, dates: dates) {
                case .ask: states[index].knownSize = exchange.oldSize
                case .cosigned(let signature): return .cosigned(signature)
                case .failed(let failure): return .failed(failure)
                }
            }
        } catch { return .silent("\(error)") }
    }

    private func end(_ index: Int, of head: Head, _ ending: Ending) {
        let wasOverdue = states[index].isOverdue
        states[index].isAsked = false
        states[index].isOverdue = false
        switch ending {
        case .cosigned(let signature):
            // A cosignature that is too late for its round may still be in time for its head. The witness's pause stays, since a slow witness would
            // delay each round.
            if head.note.text == text { collected[index] = signature }
            metrics.add(.cosignatures)
            states[index].knownSize = head.size
            states[index].contradiction = nil
            if wasOverdue { break }
            if states[index].failures > 0 { log.info("witness \(policy.witnesses[index].name): cosigns again") }
            states[index].failures = 0
            states[index].dueMs = 0
        case .failed, .silent:
            if !wasOverdue { recordFailure(index, ending) }
        }
        if !states.contains(where: { $0.isAsked && !$0.isOverdue }) { sleeper.wake() }
    }

    private func recordFailure(_ index: Int, _ ending: Ending) {
        let name = policy.witnesses[index].name
        metrics.add(.witnessFailures)
        let isFirst = states[index].failures == 0
        states[index].failures += 1
        let doublings = UInt64(min(states[index].failures - 1, 10))
        let pause = min(Self.firstPauseMs << doublings, Self.longestPauseMs)
        states[index].dueMs = steady() + pause
        if case .failed(let failure) = ending, failure.isContradiction {
            let isNew = states[index].contradiction == nil
            states[index].contradiction = failure
            if isNew {
                metrics.add(.alarms)
                log.error("witness \(name): contradicts this log: \(failure)")
            }
        } else if isFirst {
            metrics.add(.alarms)
            log.error("witness \(name): did not cosign: \(Self.reason(ending)); asking again within a minute")
        }
    }

    private static func reason(_ ending: Ending) -> String {
        switch ending {
        case .cosigned: ""
        case .failed(let failure): failure.description
        case .silent(let reason): reason
        }
    }

    // MARK: Waiting

    private func wait(until deadlineMs: UInt64) async {
        let now = Clock.monotonicMs
        guard now < deadlineMs, states.contains(where: { $0.isAsked && !$0.isOverdue }) else { return }
        await sleeper.sleep(deadlineMs - now)
    }
}
