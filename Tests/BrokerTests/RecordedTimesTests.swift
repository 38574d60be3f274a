import Linux
import Policy
import Sealing
import Storage
import Testing
import Vocabulary

@testable import Broker

@Suite struct RecordedTimesTests {
    /// New keys count their steps from one, so an old copy of those that were lost has more.
    // Promise: stale-keys-refused
    @Test func keysThatWereGivenUpAreRefused() async throws {
        let folder = try File.makeTemporaryFolder()
        let start: UInt64 = 1_800_000_000_000
        let store = try SQLiteStore(path: folder + "/mayfly.sqlite", resolution: 1, timing: .standard, now: { start })
        let old = try KeyRing.make(nowMs: start - 20 * 86_400_000, longestLifeSeconds: 604_800)
        for day: UInt64 in 1...15 { _ = try old.step(nowMs: start - (20 - day) * 86_400_000 + 600_000) }
        try await RecordedTimes(store).check(old)
        // The clock was set back by a month meanwhile.
        try await store.setMark("time.highest", [UInt8](bigEndian: start))
        let born = try await KeyKeeper.recordLoss(store, nowMs: start - 30 * 86_400_000)
        await #expect(throws: StaleKeys.self) { try await RecordedTimes(store).check(old) }
        try await RecordedTimes(store).check(KeyRing.make(nowMs: born, longestLifeSeconds: 604_800))
        // A clock ahead is set right between the record and the making of keys.
        _ = try await KeyKeeper.recordLoss(store, nowMs: start + 86_400_000)
        let times = try await RecordedTimes(store)
        try times.check(KeyRing.make(nowMs: times.birth(nowMs: start), longestLifeSeconds: 604_800))
        await store.shutDown()
        try File.removeTree(folder)
    }
}
