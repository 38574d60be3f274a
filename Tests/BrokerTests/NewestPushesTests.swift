import Storage
import Testing
import Vocabulary

@testable import Broker

@Suite struct NewestPushesTests {
    private let pushes = NewestPushes()
    private let place = NewestPushes.Place(token: EntryID(1), collapse: Handle(2))

    private func job(_ number: UInt8) -> JobRecord {
        JobRecord(
            job: JobID(UInt128(number)), deadline: 0, notBefore: 0, purgeID: EntryID(1), room: nil, slot: 0, kind: .liveActivity,
            environment: .production, topic: "",
            template: "", generation: 0, expires: 0, sealed: [], fields: nil)
    }

    @Test func theNewestStandsWhateverTheOrder() {
        pushes.add(job(1), at: place, stampMs: 5)
        #expect(pushes.isNewest(JobID(1), at: place))
        pushes.add(job(2), at: place, stampMs: 7)
        #expect(!pushes.isNewest(JobID(1), at: place) && pushes.isNewest(JobID(2), at: place))
        // An older one comes later, as after a restart.
        pushes.add(job(3), at: place, stampMs: 6)
        #expect(!pushes.isNewest(JobID(3), at: place) && pushes.isNewest(JobID(2), at: place))
    }

    @Test func ofOneMomentTheLaterStands() {
        pushes.add(job(1), at: place, stampMs: 5)
        pushes.add(job(2), at: place, stampMs: 5)
        #expect(!pushes.isNewest(JobID(1), at: place) && pushes.isNewest(JobID(2), at: place))
    }

    @Test func otherTokensAndOtherHandlesAreOtherPlaces() {
        pushes.add(job(1), at: place, stampMs: 5)
        pushes.add(job(2), at: NewestPushes.Place(token: EntryID(3), collapse: Handle(2)), stampMs: 9)
        pushes.add(job(3), at: NewestPushes.Place(token: EntryID(1), collapse: Handle(3)), stampMs: 9)
        #expect(pushes.isNewest(JobID(1), at: place))
    }

    /// Also when the newest has its outcome first: what it replaced is no newer for that.
    @Test func whatWasReplacedStaysSoUntilItHasItsOutcome() {
        pushes.add(job(1), at: place, stampMs: 5)
        pushes.add(job(2), at: place, stampMs: 7)
        pushes.remove(at: place)
        #expect(!pushes.isNewest(JobID(1), at: place))
        pushes.remove(at: place)
        #expect(pushes.count == 0)
    }

    @Test func nothingStaysOfWhatIsDone() {
        for number in 0..<100 {
            pushes.add(
                job(UInt8(number)), at: NewestPushes.Place(token: EntryID(UInt128(number)), collapse: Handle(0)), stampMs: 1)
        }
        #expect(pushes.count == 100)
        for number in 0..<100 { pushes.remove(at: NewestPushes.Place(token: EntryID(UInt128(number)), collapse: Handle(0))) }
        pushes.remove(at: place)
        #expect(pushes.count == 0)
        #expect(pushes.isNewest(JobID(1), at: place), "nothing is known of it any more")
    }
}
