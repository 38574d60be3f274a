import Synchronization

/// The events of a life, and the first rule that was broken.
final class Chronicle: Sendable {
    private struct State {
        var events: [String] = []
        var count = 0
        var broken: String?
        /// Faults by kind.
        var faults: [String: Int] = [:]
    }

    /// How many events are kept at least.
    private static let most = 2_000
    private let machine: MachineClock
    private let begin: UInt64
    private let state = Mutex(State())

    init(_ machine: MachineClock) { (self.machine, begin) = (machine, machine.monotonic) }

    func add(_ event: String) {
        let line = "\(stamp): \(event)"
        state.withLock { state in
            state.count += 1
            state.events.append(line)
            if state.events.count >= 2 * Self.most { state.events.removeFirst(state.events.count - Self.most) }
        }
    }

    func addFault(_ kind: String, _ text: String) {
        state.withLock { $0.faults[kind, default: 0] += 1 }
        add("FAULT \(kind): \(text)")
    }

    /// Records that a rule was broken. Only the first one is kept.
    func fail(_ rule: String) {
        let line = "\(stamp): \(rule)"
        state.withLock { if $0.broken == nil { $0.broken = line } }
    }

    var broken: String? { state.withLock { $0.broken } }
    var count: Int { state.withLock { $0.count } }
    var latest: [String] { state.withLock { $0.events } }
    var faults: [String: Int] { state.withLock { $0.faults } }

    private var stamp: String {
        let ms = machine.monotonic - begin
        let (day, second) = (ms / 86_400_000, ms / 1_000 % 86_400)
        func two(_ number: UInt64) -> String { number < 10 ? "0\(number)" : "\(number)" }
        let thousandths = String(1_000 + ms % 1_000).dropFirst()
        return
            "day \(day) \(two(second / 3_600)):\(two(second / 60 % 60)):\(two(second % 60)).\(thousandths), wall \(machine.wall)"
    }
}

/// A life broke a rule.
struct BrokenRule: Error, CustomStringConvertible {
    let seed: UInt64
    /// How many the life has. Some of its end is drawn from that.
    let days: Int
    let rule: String
    let events: [String]
    let prints: [String]
    let folder: String

    var description: String {
        "MAYFLY_TEST_SEED=\(seed) MAYFLY_TEST_DAYS=\(days): \(rule)\n  its folder: \(folder), with more events in the file events\n  the last events:\n    "
            + events.suffix(40).joined(separator: "\n    ")
            + "\n  what the broker logged last:\n    \(prints.suffix(20).joined(separator: "\n    "))"
    }
}
