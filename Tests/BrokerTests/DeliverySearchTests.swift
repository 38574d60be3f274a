import Ledger
import Linux
import Sealing
import Testing
import Vocabulary

@testable import Broker

@Suite struct DeliverySearchTests {
    private static let now: UInt64 = 1_800_000_000_000

    /// Found while its epoch's key lives, by whoever has that; by nobody after two steps.
    @Test func aJobIsFoundUntilItsKeyIsGone() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        let path = folder + "/ratchet.key"
        try KeyRing.create(path: path, nowMs: Self.now)
        let keys = try KeyRing.load(path: path)
        _ = try keys.step(nowMs: Self.now)
        let job = JobID.random()
        let apnsID = try keys.apnsID(job, deadlineMs: Self.now + 120_000, generation: keys.currentGeneration)

        func isFound(_ text: String, _ id: JobID, nowMs: UInt64 = Self.now) throws -> Bool {
            try #require(DeliverySearch(text, keys: keys)).isOf(id, nowMs: nowMs)
        }
        #expect(try isFound(apnsID, job))
        #expect(try isFound(apnsID.uppercased(), job))
        #expect(try !isFound(apnsID, .random()))
        let other = try keys.apnsID(.random(), deadlineMs: Self.now + 120_000, generation: keys.currentGeneration)
        #expect(try !isFound(other, job))

        let later = Self.now + 3 * Epoch.lengthMs
        _ = try keys.step(nowMs: later)
        #expect(try !isFound(apnsID, job, nowMs: later))
        #expect(try #require(DeliverySearch(apnsID, keys: keys)).earliestMs > Self.now - 3_720_000)
    }

    @Test func onlyAUUIDIsSearchedFor() throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        try KeyRing.create(path: folder + "/ratchet.key", nowMs: Self.now)
        let keys = try KeyRing.load(path: folder + "/ratchet.key")
        for text in [
            "", "x", "4aae3d55-066a-86e7-bac6-baeeb5cbae0", "4aae3d55066a86e7bac6baeeb5cbae01",
            "4aae3d55-066a-86e7-bac6-baeeb5cbae0g",
        ] {
            #expect(DeliverySearch(text, keys: keys) == nil)
        }
    }
}
