import Storage
import Testing
import Vocabulary

@testable import Broker

@Suite struct OutboxQueueTests {
    private func entry(_ number: UInt8, topic: String = "") -> OutboxQueue.Entry {
        let job = JobRecord(
            job: JobID(UInt128(number)), deadline: 0, notBefore: 0, purgeID: EntryID(0), room: nil, slot: 1, kind: .alert,
            environment: .production, topic: topic,
            template: "", generation: 1, expires: 0, sealed: [])
        return OutboxQueue.Entry(job: job, reservation: nil)
    }

    @Test func theirOrderIsDrawn() {
        var orders: Set<[UInt8]> = []
        for _ in 0..<50 {
            var queue = OutboxQueue(shuffles: true)
            for number in 0..<30 as Range<UInt8> { #expect(queue.schedule(entry(number), at: 7) == (number == 0)) }
            #expect(queue.openCount == 0 && queue.startNext() == nil)
            queue.makeDue(at: 7)
            var order: [UInt8] = []
            while let started = queue.startNext() {
                order.append(UInt8(started.job.job.low))
                queue.endPreparation()
            }
            #expect(order.sorted() == Array(0..<30) && queue.openCount == 30)
            orders.insert(order)
        }
        #expect(orders.count == 50)
    }

    @Test func noMoreStartThanMayBeOpen() {
        var queue = OutboxQueue(shuffles: false)
        // The arena's places are for rooms and sockets, too.
        #expect(OutboxQueue.mostUnderWay <= 20_480)
        let count = 25_000
        for number in 0..<count { queue.makeDue(entry(UInt8(truncatingIfNeeded: number))) }
        var started = 0
        while queue.startNext() != nil { started += 1 }
        #expect(started == OutboxQueue.mostGettingReady && queue.openCount == count)
        while started < Self.mostOfOne {
            queue.endPreparation()
            #expect(queue.startNext() != nil && queue.startNext() == nil)
            started += 1
        }
        queue.endPreparation()
        for number in started..<count {
            #expect(queue.startNext() == nil)
            queue.endDelivery(of: entry(0))
            // In the order in which they came.
            #expect(queue.startNext()?.job.job == JobID(UInt128(UInt8(truncatingIfNeeded: number))))
            queue.endPreparation()
        }
        for _ in 0..<Self.mostOfOne { queue.endDelivery(of: entry(0)) }
        #expect(queue.openCount == 0 && queue.startNext() == nil)
    }

    /// Where no other app has any under way, as many as are eight times what is free.
    private static let mostOfOne = OutboxQueue.mostUnderWay / 9 * 8

    @Test func anAppWhosePushesHangLeavesOthersRoom() {
        var queue = OutboxQueue(shuffles: false)
        func startAll() -> [String] {
            var topics: [String] = []
            while let started = queue.startNext() {
                topics.append(started.job.topic)
                queue.endPreparation()
            }
            return topics
        }
        for number in 0..<25_000 { queue.makeDue(entry(UInt8(truncatingIfNeeded: number), topic: "dead")) }
        #expect(startAll().count == Self.mostOfOne)
        for app in ["a", "b"] { for number in 0..<100 as Range<UInt8> { queue.makeDue(entry(number, topic: app)) } }
        #expect(startAll().sorted() == Array(repeating: "a", count: 100) + Array(repeating: "b", count: 100))
        // Another one that hangs takes what is left, but for a rest.
        for number in 0..<25_000 { queue.makeDue(entry(UInt8(truncatingIfNeeded: number), topic: "dying")) }
        #expect(Set(startAll()) == ["dying"])
        queue.makeDue(entry(0, topic: "c"))
        #expect(startAll() == ["c"])
        #expect(queue.openCount == 50_201)
        // What was held back goes on when there is room again.
        for _ in 0..<4_000 { queue.endDelivery(of: entry(0, topic: "dead")) }
        #expect(Set(startAll()).isSuperset(of: ["dying"]))
        for _ in 0..<Self.mostOfOne - 4_000 { queue.endDelivery(of: entry(0, topic: "dead")) }
        #expect(Set(startAll()) == ["dead", "dying"])
    }

    /// Takes as many of an app as there is room for.
    private func fill(_ queue: inout OutboxQueue, _ topic: String, _ environment: PushEnvironment = .production) -> Int {
        let job = entry(0, topic: topic).job
        var taken = 0
        while !queue.isFull(topic: topic, environment: environment), taken <= OutboxQueue.mostQueued {
            queue.reserve(job)
            taken += 1
        }
        return taken
    }

    @Test func theLastPlacesOfTheQueueAreForOtherApps() {
        var queue = OutboxQueue(shuffles: false)
        // 177,778: 22,222 are left.
        #expect(fill(&queue, "dead") == OutboxQueue.mostQueued * 8 / 9 + 1)
        #expect(!queue.isFull(topic: "a", environment: .production))
        // The same app's other environment hangs or not by itself.
        #expect(!queue.isFull(topic: "dead", environment: .sandbox))
        #expect(fill(&queue, "dying") > 19_000 && !queue.isFull(topic: "a", environment: .production))
        #expect(fill(&queue, "a") > 2_000 && !queue.isFull(topic: "b", environment: .production))
        for number in 0..<100 { _ = fill(&queue, "many \(number)") }
        #expect(queue.queued == OutboxQueue.mostQueued && queue.isFull(topic: "new", environment: .production))
        // Where one goes another may come, of an app that has few.
        queue.release(entry(0, topic: "dead").job)
        #expect(
            !queue.isFull(topic: "new", environment: .production)
                && queue.isFull(topic: "dead", environment: .production))
        for _ in 0..<30_000 { queue.release(entry(0, topic: "dead").job) }
        #expect(!queue.isFull(topic: "dead", environment: .production))
    }
}
