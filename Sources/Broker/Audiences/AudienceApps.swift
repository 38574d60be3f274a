import Policy

/// The apps with accounts that a broker serves: each for which a policy is in force.
public struct AudienceApps: Sendable {
    public let companion: Companion?
    public let monitor: Monitor?
    public let calls: Calls?

    /// - Parameter sockets: receives the companion's messages.
    /// - Throws: what the store throws.
    public init(_ broker: Broker, sockets: any CompanionSockets) async throws {
        companion = try await Self.audiences(.companion, broker).map { Companion(audiences: $0, sockets: sockets) }
        monitor = try await Self.audiences(.monitor, broker).map { Monitor(audiences: $0) }
        calls = try await Self.audiences(.calls, broker).map { Calls(audiences: $0) }
    }

    private static func audiences(_ kind: Policy.Kind, _ broker: Broker) async throws -> Audiences? {
        guard let (policy, limits) = broker.policies.audience(kind) else { return nil }
        let audiences = Audiences(broker: broker, policy: policy, limits: limits)
        try await audiences.learnSlots()
        return audiences
    }

    /// Derives the keys of all slots before the first requests need them. Runs on another thread, because nothing waits for the result.
    public func prepare() {
        let all = [companion?.audiences, monitor?.audiences, calls?.audiences].compactMap(\.self)
        Task.detached { for audiences in all { audiences.prepare() } }
    }

    /// Does what falls due without a caller, until the task is cancelled.
    public func run() async { await companion?.run() }

    public func stop() async { await companion?.audiences.stop() }
}
