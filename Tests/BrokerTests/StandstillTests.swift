import Sealing
import Testing
import Vocabulary

@testable import Ledger

/// A broker that stood still while pushes waited (SIGSTOP, a machine that slept): none of them was sent, and the log says so.
@Suite struct StandstillTests {
    enum Standstill { case process, machine }

    // Promise: unsent-is-recorded
    @Test(arguments: [Standstill.process, .machine])
    func whatWasNeverSentIsRecordedAsUnsent(_ standstill: Standstill) async throws {
        let policy = try TimedPolicy(#""sendSlotSeconds": 40,"#)
        let reasons = try await WatchedBroker.play(policy) { broker in
            // More than the sweeper takes at a time.
            let count = 600
            try await broker.makeRooms(count)
            await broker.advance(to: broker.machine.wall / 40_000 * 40_000 + 41_000)
            #expect(try await broker.knock(Array(0..<count)))
            switch standstill {
            case .process: broker.machine.pass(200_000)
            case .machine: broker.machine.sleep(200_000)
            }
            await broker.simulated.advance(200_000)
            #expect(try await broker.jobs.isEmpty)
            #expect(broker.sightings.isEmpty)
            await broker.simulated.stop()
            return try await Self.failures(broker.simulated.ledger, broker.simulated.key.verifierKey)
        }
        #expect(reasons == ["unsent": 600])
    }

    private static func failures(_ ledger: LedgerFolder, _ key: VerifierKey) async throws -> [String: Int] {
        let source = FolderSource(ledger.path)
        let report = try await Verifier(source, key: key).verify(since: [])
        #expect(report.pending == 0)
        let reader = TileReader(source, size: report.size)
        var reasons: [String: Int] = [:]
        for bundle in 0..<(report.size + 255) / 256 {
            for bytes in try await reader.entries(bundle: bundle) {
                guard case .pushFailed(_, _, let reason) = try Entry(canonical: bytes.span).op else { continue }
                reasons[reason.rawValue, default: 0] += 1
            }
        }
        return reasons
    }
}
