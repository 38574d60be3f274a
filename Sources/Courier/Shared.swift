import Linux
import TLS

/// What the lanes of one courier have in common. Touched on the loop's thread only.
final class Shared {
    let wallMs: @Sendable () -> UInt64
    let hasSeveralAccounts: Bool
    weak var courier: Courier?
    private(set) var figures = Figures()
    private let onAlarm: @Sendable (Alarm) -> Void
    private var raised: [String: UInt64] = [:]

    init(_ configuration: Courier.Configuration) {
        wallMs = configuration.wallMs
        hasSeveralAccounts = configuration.accounts.count > 1
        onAlarm = configuration.onAlarm
    }

    var retries: Int {
        get { figures.retries }
        set { figures.retries = newValue }
    }

    func count(_ outcome: Outcome) {
        switch outcome {
        case .delivered: figures.delivered += 1
        case .failed: figures.failed += 1
        }
    }

    func raise(_ alarm: Alarm) {
        let now = Clock.monotonicMs
        if let last = raised[alarm.kind], now - last < 60_000 { return }
        // Many accounts have many kinds: those that are over go, and none of this minute's comes twice.
        if raised.count > 1000 { raised = raised.filter { now - $0.value < 60_000 } }
        raised[alarm.kind] = now
        onAlarm(alarm)
    }

    func resolve(_ lane: LaneID, _ endpoint: Endpoint) { courier?.resolve(lane, endpoint) }

    func store(_ issuedAtS: UInt64, of signer: String, _ store: @escaping @Sendable (UInt64) async -> Void) {
        courier?.assumeIsolated { $0.store(issuedAtS, of: signer, store) }
    }

    func laneIsIdle() { courier?.assumeIsolated { $0.laneIsIdle() } }
}
