import Linux
import TestPostgres
import Testing

/// Simulated minutes or days of several nodes, with faults and oracles. See `Deployment`.
///
/// Plays only if `MAYFLY_TEST_SEED`, the seed of the first story, is set. The seed does not decide the order of the stores' threads.
///
/// `MAYFLY_TEST_NODES` is the number of nodes, and `MAYFLY_TEST_STORIES` the most stories. The first that fails is the last. Its folders and its
/// database stay. A story lasts `MAYFLY_TEST_MINUTES`, or `MAYFLY_TEST_DAYS` if it is set, and prints a line each day. `MAYFLY_TEST_CRASHES=1`
/// adds crashes and failovers of the database.
@Suite struct DeploymentTests {
    @Test(.enabled(if: number("MAYFLY_TEST_SEED") != nil)) func severalNodesKeepTheirPromises() async throws {
        let (first, crashes) = (Self.number("MAYFLY_TEST_SEED") ?? 1, Self.number("MAYFLY_TEST_CRASHES") ?? 0)
        let (minutes, days) = (Self.number("MAYFLY_TEST_MINUTES") ?? 6, Self.number("MAYFLY_TEST_DAYS"))
        for seed in first..<first + (Self.number("MAYFLY_TEST_STORIES") ?? 1) {
            let nodes = Int(Self.number("MAYFLY_TEST_NODES") ?? 2 + seed % 2)
            let server = try crashes == 0 ? nil : PostgresServer()
            let deployment = try Deployment(seed: seed, nodes: nodes, pace: days == nil ? .minutes : .days, server: server)
            let start = Clock.monotonicMs
            let length = days.map { "MAYFLY_TEST_DAYS=\($0)" } ?? "MAYFLY_TEST_MINUTES=\(minutes)"
            let story = "MAYFLY_TEST_SEED=\(seed) MAYFLY_TEST_NODES=\(nodes) \(length) MAYFLY_TEST_CRASHES=\(crashes)"
            // Before it, so that a story that traps or hangs can be repeated, too.
            Standard.error("deployment: plays \(story)\n")
            do {
                try await deployment.play(days.map { $0 * 86_400_000 } ?? minutes * 60_000)
                print("deployment: seed \(seed), \(nodes) nodes, \(Clock.monotonicMs - start) ms; \(await deployment.summary)")
            } catch {
                await deployment.abandon()
                Issue.record("\(story): \(error)\nwhat is left of it:\n\(deployment.places)")
                return
            }
            try server?.stop()
        }
    }

    static func number(_ name: String) -> UInt64? {
        Environment.all.first { $0.name == name }.flatMap { UInt64($0.value) }
    }
}
