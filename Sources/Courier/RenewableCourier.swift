import Synchronization

/// The courier in use, which another takes the place of when keys or certificates were replaced: what is under way ends on the old one's
/// connections, everything else goes by the new one.
public final class RenewableCourier: PushSender {
    private struct State {
        var courier: Courier
        var isStopped = false
    }

    /// Longer than any request waits for its answer.
    private static let drainMs: UInt64 = 15_000

    private let state: Mutex<State>

    public init(_ courier: Courier) { state = Mutex(State(courier: courier)) }

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

    /// From now on pushes go by `courier`.
    public func replace(by courier: Courier) {
        let old: Courier? = state.withLock { state in
            if state.isStopped { return nil }
            defer { state.courier = courier }
            return state.courier
        }
        if let old { Task { await old.stop(withinMs: Self.drainMs) } }
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
