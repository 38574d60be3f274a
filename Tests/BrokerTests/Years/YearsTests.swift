import Linux
import Testing

/// Days to years of one broker, see `Life`.
///
/// `MAYFLY_TEST_DAYS` is the number of days, `MAYFLY_TEST_SEED` chooses another life. `make years` plays years of any life in a release build.
@Suite struct YearsTests {
    @Test func aBrokerLivesForYears() async throws {
        let seed = Self.number("MAYFLY_TEST_SEED") ?? 1
        let days = Self.number("MAYFLY_TEST_DAYS") ?? 2
        print("years: seed \(seed), \(days) days")
        do {
            try await MachineClock.play("years", wall: 1_800_000_000_000 + seed % 1_000 * 86_400) { loop, machine in
                let begin = Clock.monotonicMs
                let life = try Life(seed: seed, loop: loop, machine: machine)
                try await life.play(days: Int(days)) { day, life in
                    print(await life.line(day, Clock.monotonicMs - begin))
                }
                // Otherwise no person had a subscription.
                #expect(await life.figures.messages > 0)
                // Some nights are not calm.
                if days >= 14 { #expect(await life.thief.visits > 0) }
            }
        } catch { Issue.record("\(error)") }
    }

    private static func number(_ name: String) -> UInt64? {
        Environment.all.first { $0.name == name }.flatMap { UInt64($0.value) }
    }
}

extension Life {
    /// The figures up to this day, in one line.
    func line(_ day: Int, _ ms: UInt64) -> String {
        let faults = chronicle.faults.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
        return
            "day \(day): \(figures.calls) calls, \(figures.refusals) refused, \(figures.pushes) pushes (\(figures.messages) Web Push), \(runs) starts, "
            + "\(follower.size) entries; \(faults); thief \(thief.visits), \(ProcessControl.residentMemory >> 20) MiB; \(ms / UInt64(day)) ms a day"
    }
}
