import Linux
import TestPostgres
import Testing

/// Simulated minutes or days of several nodes, with faults and oracles that never look into the code under test. See `Deployment`.
///
/// Plays only if `MAYFLY_TEST_SEED`, the seed of the first story, is set, since some runs stand still, and why has still to be found.
/// `MAYFLY_TEST_NODES` is the number of nodes, `MAYFLY_TEST_MINUTES` the length of a story, `MAYFLY_TEST_STORIES` the number of stories.
/// `MAYFLY_TEST_CRASHES=1` adds crashes and failovers of the database.
@Suite struct DeploymentTests {
    @Test(.enabled(if: number("MAYFLY_TEST_SEED") != nil)) func severalNodesKeepTheirPromises() async throws {
        let first = try #require(Self.number("MAYFLY_TEST_SEED"))
        let (minutes, crashes) = (Self.number("MAYFLY_TEST_MINUTES") ?? 3, Self.number("MAYFLY_TEST_CRASHES") ?? 0)
        for seed in first..<first + (Self.number("MAYFLY_TEST_STORIES") ?? 1) {
            let nodes = Int(Self.number("MAYFLY_TEST_NODES") ?? 2 + seed % 2)
            let server = try crashes == 0 ? nil : PostgresServer()
            let deployment = try Deployment(seed: seed, nodes: nodes, server: server)
            let start = Clock.monotonicMs
            do {
                try await deployment.play(minutes * 60_000)
                let faults = await deployment.faults.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
                print(
                    "deployment: seed \(seed), \(nodes) nodes, \(Clock.monotonicMs - start) ms; \(deployment.life.summary); faults: "
                        + faults.joined(separator: ", "))
            } catch {
                let length = "MAYFLY_TEST_NODES=\(nodes) MAYFLY_TEST_MINUTES=\(minutes) MAYFLY_TEST_CRASHES=\(crashes)"
                Issue.record("MAYFLY_TEST_SEED=\(seed) \(length): \(error)")
                try? await deployment.remove()
            }
            try server?.stop()
        }
    }

    private static func number(_ name: String) -> UInt64? {
        Environment.all.first { $0.name == name }.flatMap { UInt64($0.value) }
    }
}
