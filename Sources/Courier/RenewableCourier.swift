import Synchronization
public import Vocabulary

/// The courier in use. Another takes its place when keys or certificates were replaced and Apple takes the new ones: pushes under way end on
/// the old one's connections, all others go by the new one.
public final class RenewableCourier: PushSender {
    /// What became of a candidate.
    public enum Renewal: Sendable, Equatable {
        case inUse
        /// Apple refuses it for this app, there. The courier before stays.
        case refused(topic: String, PushEnvironment, APNsReason)
        /// Apple could not be asked. The courier before stays.
        case unknown(topic: String, PushEnvironment, APNsReason)
        /// A later candidate was offered meanwhile, or this courier was stopped.
        case superseded
    }

    private struct State {
        var courier: Courier
        /// Candidates that were offered so far.
        var candidates = 0
        var isStopped = false
    }

    /// Longer than any request waits for its answer.
    private static let drainMs: UInt64 = 15_000

    private let state: Mutex<State>
    private let probeMs: UInt64

    /// - Parameter probeMs: how long Apple is asked about a candidate.
    public init(_ courier: Courier, probeMs: UInt64 = 5_000) {
        state = Mutex(State(courier: courier))
        self.probeMs = probeMs
    }

    var courier: Courier { state.withLock(\.courier) }

    /// Whom to ask what can be sent now.
    public var accounts: Accounts { courier.accounts }

    public func send(_ push: Push) async -> Outcome {
        while true {
            let courier = self.courier
            let outcome = await courier.send(push)
            // What the old one had not sent when it was stopped.
            guard case .failed(_, .stopped, _) = outcome, self.courier !== courier else { return outcome }
        }
    }

    /// Asks Apple about `candidate`, and puts it in use if Apple takes it. Until then pushes go by the present courier.
    public func replace(by candidate: Courier, after probes: [Probe]) async -> Renewal {
        let number = state.withLock { state in
            state.candidates += 1
            return state.candidates
        }
        let fault = await fault(of: candidate, probes)
        let old: Courier? = state.withLock { state in
            guard fault == nil, !state.isStopped, state.candidates == number else { return nil }
            defer { state.courier = candidate }
            return state.courier
        }
        guard let old else {
            await candidate.stop(withinMs: 0)
            return state.withLock { $0.isStopped || $0.candidates != number } ? .superseded : fault ?? .superseded
        }
        Task { await old.stop(withinMs: Self.drainMs) }
        return .inUse
    }

    /// Why `candidate` can't take the place of the present courier; nil if it can.
    private func fault(of candidate: Courier, _ probes: [Probe]) async -> Renewal? {
        let verdicts = await withTaskGroup(of: (Int, Probe.Verdict).self) { group in
            for (index, probe) in probes.enumerated() {
                group.addTask { (index, await candidate.ask(probe, withinMs: self.probeMs)) }
            }
            return await group.reduce(into: [Int: Probe.Verdict]()) { $0[$1.0] = $1.1 }
        }
        var unknown: Renewal?
        for (index, probe) in probes.enumerated() {
            switch verdicts[index] {
            case .refused(let reason):
                // Nothing is lost if Apple refuses the present one there as well.
                let isLoss = if probe.isRequired { true } else { await courier.ask(probe, withinMs: probeMs) == .taken }
                if isLoss { return .refused(topic: probe.topic, probe.environment, reason) }
            case .unknown(let reason) where probe.isRequired:
                unknown = unknown ?? .unknown(topic: probe.topic, probe.environment, reason)
            default: break
            }
        }
        return unknown
    }

    /// Takes nothing more; see `Courier.stop`.
    public func stop(withinMs: UInt64) async {
        let courier = state.withLock { state in
            state.isStopped = true
            return state.courier
        }
        await courier.stop(withinMs: withinMs)
    }
}
