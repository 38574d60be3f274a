import Storage
import Testing
import Vocabulary

@testable import Broker

@Suite struct WantedPushesTests {
    private let pushes = WantedPushes()
    private let target = WantedPushes.Target(token: EntryID(1), collapse: Handle(2))

    private func job(_ number: UInt8) -> JobRecord {
        JobRecord(
            job: JobID(UInt128(number)), deadline: 0, notBefore: 0, purgeID: EntryID(1), room: nil, slot: 0, kind: .liveActivity,
            environment: .production, topic: "",
            template: "", generation: 0, expires: 0, sealed: [], fields: nil)
    }

    @Test func theNewestStandsWhateverTheOrder() {
        pushes.add(job(1), to: target, stampMs: 5)
        #expect(pushes.isNewest(JobID(1), of: target))
        pushes.add(job(2), to: target, stampMs: 7)
        #expect(!pushes.isNewest(JobID(1), of: target) && pushes.isNewest(JobID(2), of: target))
        // An older one comes later, as after a restart.
        pushes.add(job(3), to: target, stampMs: 6)
        #expect(!pushes.isNewest(JobID(3), of: target) && pushes.isNewest(JobID(2), of: target))
    }

    @Test func ofOneMomentTheLaterStands() {
        pushes.add(job(1), to: target, stampMs: 5)
        pushes.add(job(2), to: target, stampMs: 5)
        #expect(!pushes.isNewest(JobID(1), of: target) && pushes.isNewest(JobID(2), of: target))
    }

    @Test func otherTokensAndOtherHandlesAreOtherPlaces() {
        pushes.add(job(1), to: target, stampMs: 5)
        pushes.add(job(2), to: WantedPushes.Target(token: EntryID(3), collapse: Handle(2)), stampMs: 9)
        pushes.add(job(3), to: WantedPushes.Target(token: EntryID(1), collapse: Handle(3)), stampMs: 9)
        #expect(pushes.isNewest(JobID(1), of: target))
    }

    /// Also when the newest has its outcome first: what it replaced is no newer for that.
    @Test func whatWasReplacedStaysSoUntilItHasItsOutcome() {
        pushes.add(job(1), to: target, stampMs: 5)
        pushes.add(job(2), to: target, stampMs: 7)
        pushes.remove(from: target)
        #expect(!pushes.isNewest(JobID(1), of: target))
        pushes.remove(from: target)
        #expect(pushes.count == 0)
    }

    @Test func nothingStaysOfWhatIsDone() {
        for number in 0..<100 {
            pushes.add(
                job(UInt8(number)), to: WantedPushes.Target(token: EntryID(UInt128(number)), collapse: Handle(0)), stampMs: 1)
        }
        #expect(pushes.count == 100)
        for number in 0..<100 { pushes.remove(from: WantedPushes.Target(token: EntryID(UInt128(number)), collapse: Handle(0))) }
        pushes.remove(from: target)
        #expect(pushes.count == 0)
        #expect(pushes.isNewest(JobID(1), of: target), "nothing is known of it any more")
    }
}
