import Sealing
import Synchronization
public import Vocabulary

/// The current courier, which can be replaced at run time when keys or certificates change.
///
/// Pushes in flight end on the old courier's connections. All others use the new courier, but only after Apple accepted it.
public final class RenewableCourier: PushSender {
    /// The result of offering a candidate.
    public enum Renewal: Sendable, Equatable {
        case inUse
        /// Apple rejects the candidate for this app and environment. The old courier stays.
        case refused(topic: String, PushEnvironment, PushReason)
        /// Apple couldn't be asked. The old courier stays.
        case unknown(topic: String, PushEnvironment, PushReason)
        /// A later candidate was offered, or this courier was stopped.
        case superseded
    }

    private struct State {
        var courier: Courier
        /// The number of candidates offered so far.
        var candidates = 0
        var isStopped = false
    }

    /// Longer than the timeout of any request.
    private static let drainMs: UInt64 = 15_000

    private let state: Mutex<State>
    private let probeMs: UInt64

    /// - Parameter probeMs: the timeout of each probe.
    public init(_ courier: Courier, probeMs: UInt64 = 5_000) {
        state = Mutex(State(courier: courier))
        self.probeMs = probeMs
    }

    var courier: Courier { state.withLock(\.courier) }

    /// The current courier's accounts.
    public var accounts: Accounts { courier.accounts }

    public func send(_ push: Push) async -> Outcome {
        while true {
            let courier = self.courier
            let outcome = await courier.send(push)
            // The old courier was stopped before it sent the push.
            guard case .failed(_, .stopped, _) = outcome, self.courier !== courier else { return outcome }
        }
    }

    /// Replaces the current courier if Apple accepts `candidate`. Until then, pushes use the current one.
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

    /// Returns why `candidate` can't replace the current courier, or nil if it can.
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
                // Nothing is lost if Apple rejects the current courier there as well.
                let isLoss = if probe.isRequired { true } else { await courier.ask(probe, withinMs: probeMs) == .taken }
                if isLoss { return .refused(topic: probe.topic, probe.environment, reason) }
            case .unknown(let reason) where probe.isRequired:
                unknown = unknown ?? .unknown(topic: probe.topic, probe.environment, reason)
            default: break
            }
        }
        return unknown
    }

    /// Accepts no more pushes. See `Courier.stop`.
    public func stop(withinMs: UInt64) async {
        let courier = state.withLock { state in
            state.isStopped = true
            return state.courier
        }
        await courier.stop(withinMs: withinMs)
    }
}

/// Checks whether Apple accepts this provider for an app and environment. A probe is a background push to a token of zeros, which no phone has:
/// Apple checks the provider before the token.
public struct Probe: Sendable {
    public enum Verdict: Sendable, Equatable {
        case taken
        /// Key, certificate or topic is wrong.
        case refused(PushReason)
        /// Apple couldn't be reached, or its response doesn't concern the provider.
        case unknown(PushReason)
    }

    /// The app's bundle id.
    public let topic: String
    public let environment: PushEnvironment
    /// False if the key may be for the other environment only.
    public let isRequired: Bool

    public init(topic: String, environment: PushEnvironment, isRequired: Bool) {
        (self.topic, self.environment, self.isRequired) = (topic, environment, isRequired)
    }

    /// - Parameter deadlineMs: in Unix ms, by the sender's deadline clock.
    public func push(deadlineMs: UInt64) throws -> Push {
        var push = Push(
            apnsID: Push.randomID(),
            address: PushAddress(.apns(AppID(bundleID: topic), environment), token: try Secret(count: 32) { _ in }),
            type: .background, priority: 5, expirationS: 0, payload: Array(#"{"aps":{"content-available":1}}"#.utf8),
            sealedAtMs: 0,
            deadlineMs: deadlineMs)
        push.isTrial = true
        return push
    }
}

extension Probe.Verdict {
    /// Interprets a probe's outcome.
    public init(_ outcome: Outcome) {
        switch outcome {
        case .delivered, .failed(_, .badDeviceToken, _), .failed(_, .unregistered, _), .failed(_, .expiredToken, _): self = .taken
        case .failed(_, .invalidProviderToken, _): self = .refused(.invalidProviderToken)
        case .failed(let status, let reason, .configuration) where status != 0: self = .refused(reason)
        // Apple rejected the push, so it accepted the provider.
        case .failed(400, _, _), .failed(410, _, _): self = .taken
        case .failed(_, let reason, _): self = .unknown(reason)
        }
    }
}

extension Courier {
    func ask(_ probe: Probe, withinMs: UInt64) async -> Probe.Verdict {
        // There was no memory for the token, so Apple wasn't asked.
        guard let push = try? probe.push(deadlineMs: deadlineClock() + withinMs) else { return .unknown(.other) }
        return Probe.Verdict(await send(push))
    }
}
