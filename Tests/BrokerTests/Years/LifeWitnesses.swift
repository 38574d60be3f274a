import EventLoop
import Ledger
import Synchronization

@testable import Broker

/// Three witnesses in a life, two of whom must cosign. Half of all lives have none.
final class LifeWitnesses: Sendable {
    private let chance: Chance
    private let machine: MachineClock
    private let isOn: Bool
    private let fakes = Mutex<FakeWitnesses?>(nil)

    init(seed: UInt64, _ machine: MachineClock) {
        (chance, self.machine) = (Chance(seed: seed), machine)
        isOn = chance.upTo(2) == 0
    }

    /// The witnesses follow another log from now on.
    func serve(_ log: VerifierKey) throws {
        guard isOn else { return }
        let new = try FakeWitnesses(3, log: log, now: { [machine] in machine.wall })
        fakes.withLock { $0 = new }
    }

    func start(_ loop: EventLoop, _ time: BrokerTime, _ metrics: Metrics, _ log: Logger) throws -> Witnesses? {
        guard let fakes = fakes.withLock({ $0 }) else { return nil }
        return Witnesses(
            loop: loop, policy: try fakes.policy("group most 2 w0 w1 w2\nquorum most\n"), time: time, metrics: metrics, log: log,
            steady: { [machine] in machine.monotonic }, post: { url, body, _ in try await fakes.post(url, body) })
    }

    /// Up to all of them fail or lose their answers from now on, and the first one may lie. No start is refused for one that lies.
    func misbehave() -> String {
        guard let fakes = fakes.withLock({ $0 }) else { return "there are none" }
        var texts: [String] = []
        for witness in 0..<3 where chance.upTo(2) == 0 {
            let behaviour: FakeWitnesses.Behaviour =
                switch chance.upTo(4) {
                case 0: .fails
                case 1: .loses
                case 2 where witness == 0: .answers(409, type: "text/x.tlog.size", body: "99999999\n")
                default: .answers(503, type: nil, body: "")
                }
            fakes[witness].behaviour = behaviour
            texts.append("\(witness) \(behaviour)")
        }
        return texts.joined(separator: ", ")
    }

    func end() {
        guard let fakes = fakes.withLock({ $0 }) else { return }
        for witness in 0..<3 { fakes[witness].behaviour = .honest }
    }
}
