import Storage
import Testing
import Vocabulary

@testable import Broker

@Suite struct OutboxQueueTests {
    private func entry(_ number: UInt8, topic: String = "") -> OutboxQueue.Entry {
        OutboxQueue.Entry(job: .dummy(number, topic: topic), reservation: nil)
    }

    @Test func jobsOfOneTimeLeaveInRandomOrder() {
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

    @Test func startsAreLimited() {
        var queue = OutboxQueue(shuffles: false)
        // Rooms and sockets need slots of the arena, too.
        #expect(OutboxQueue.maxUnderWay <= 20_480)
        let count = 25_000
        for number in 0..<count { queue.makeDue(entry(UInt8(truncatingIfNeeded: number))) }
        var started = 0
        while queue.startNext() != nil { started += 1 }
        #expect(started == OutboxQueue.maxPreparing && queue.openCount == count)
        while started < Self.mostOfOne {
            queue.endPreparation()
            #expect(queue.startNext() != nil && queue.startNext() == nil)
            started += 1
        }
        queue.endPreparation()
        for number in started..<count {
            #expect(queue.startNext() == nil)
            queue.endDelivery(of: entry(0))
            // Jobs start in their order.
            #expect(queue.startNext()?.job.job == JobID(UInt128(UInt8(truncatingIfNeeded: number))))
            queue.endPreparation()
        }
        for _ in 0..<Self.mostOfOne { queue.endDelivery(of: entry(0)) }
        #expect(queue.openCount == 0 && queue.startNext() == nil)
    }

    /// The limit of one app if no other app has jobs under way: eight times the free places.
    private static let mostOfOne = OutboxQueue.maxUnderWay / 9 * 8

    @Test func anAppWithHangingPushesLeavesRoomForOthers() {
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
        // Another app with hanging pushes gets most of the rest.
        for number in 0..<25_000 { queue.makeDue(entry(UInt8(truncatingIfNeeded: number), topic: "dying")) }
        #expect(Set(startAll()) == ["dying"])
        queue.makeDue(entry(0, topic: "c"))
        #expect(startAll() == ["c"])
        #expect(queue.openCount == 50_201)
        // Held jobs start when there is room again.
        for _ in 0..<4_000 { queue.endDelivery(of: entry(0, topic: "dead")) }
        #expect(Set(startAll()).isSuperset(of: ["dying"]))
        for _ in 0..<Self.mostOfOne - 4_000 { queue.endDelivery(of: entry(0, topic: "dead")) }
        #expect(Set(startAll()) == ["dead", "dying"])
    }

    /// Reserves all room of an app, and returns how many jobs fit.
    private func fill(_ queue: inout OutboxQueue, _ topic: String, _ environment: PushEnvironment = .production) -> Int {
        let job = entry(0, topic: topic).job
        var taken = 0
        while !queue.isFull(topic: topic, environment: environment), taken <= OutboxQueue.maxQueued {
            queue.reserve(job)
            taken += 1
        }
        return taken
    }

    @Test func theLastPlacesAreForOtherApps() {
        var queue = OutboxQueue(shuffles: false)
        // 177,778 fit, and 22,222 places are left.
        #expect(fill(&queue, "dead") == OutboxQueue.maxQueued * 8 / 9 + 1)
        #expect(!queue.isFull(topic: "a", environment: .production))
        // Environments of one app are separate.
        #expect(!queue.isFull(topic: "dead", environment: .sandbox))
        #expect(fill(&queue, "dying") > 19_000 && !queue.isFull(topic: "a", environment: .production))
        #expect(fill(&queue, "a") > 2_000 && !queue.isFull(topic: "b", environment: .production))
        for number in 0..<100 { _ = fill(&queue, "many \(number)") }
        #expect(queue.queued == OutboxQueue.maxQueued && queue.isFull(topic: "new", environment: .production))
        // A place that becomes free is for an app with few jobs.
        queue.release(entry(0, topic: "dead").job)
        #expect(
            !queue.isFull(topic: "new", environment: .production)
                && queue.isFull(topic: "dead", environment: .production))
        for _ in 0..<30_000 { queue.release(entry(0, topic: "dead").job) }
        #expect(!queue.isFull(topic: "dead", environment: .production))
    }
}

@Suite struct LimiterTests {
    /// Starts steps, and ends them when the test says so.
    private actor Steps {
        let limiter = Limiter(3)
        private(set) var begun: [Int] = []

        var count: Int { limiter.count }

        func start(_ number: Int) -> Task<Void, Never> {
            let started = Task {
                await limiter.acquire()
                begun.append(number)
            }
            return started
        }

        func end() { limiter.release() }
    }

    /// A step that ends lets the next one start, in order of arrival.
    @Test func stepsRunInOrderUpToTheLimit() async {
        let steps = Steps()
        var tasks: [Task<Void, Never>] = []
        for number in 0..<10 {
            tasks.append(await steps.start(number))
            while await steps.count <= number { await Task.yield() }
        }
        for number in 0..<3 { await tasks[number].value }
        #expect(await steps.begun == [0, 1, 2])
        for number in 3..<10 {
            await steps.end()
            await tasks[number].value
            #expect(await steps.begun == Array(0...number))
        }
        for left in [2, 1, 0] {
            await steps.end()
            #expect(await steps.count == left)
        }
    }
}

@Suite struct WantedPushesTests {
    private let pushes = WantedPushes()
    private let target = WantedPushes.Target(token: EntryID(1), collapse: Handle(2))

    private func job(_ number: UInt8) -> JobRecord { .dummy(number) }

    @Test func theLatestStampIsTheNewest() {
        pushes.add(job(1), to: target, stampMs: 5)
        #expect(pushes.isNewest(JobID(1), of: target))
        pushes.add(job(2), to: target, stampMs: 7)
        #expect(!pushes.isNewest(JobID(1), of: target) && pushes.isNewest(JobID(2), of: target))
        // An older push is added later, as after a restart.
        pushes.add(job(3), to: target, stampMs: 6)
        #expect(!pushes.isNewest(JobID(3), of: target) && pushes.isNewest(JobID(2), of: target))
    }

    @Test func theLaterPushOfOneStampIsTheNewest() {
        pushes.add(job(1), to: target, stampMs: 5)
        pushes.add(job(2), to: target, stampMs: 5)
        #expect(!pushes.isNewest(JobID(1), of: target) && pushes.isNewest(JobID(2), of: target))
    }

    @Test func otherTokensAndHandlesAreOtherTargets() {
        pushes.add(job(1), to: target, stampMs: 5)
        pushes.add(job(2), to: WantedPushes.Target(token: EntryID(3), collapse: Handle(2)), stampMs: 9)
        pushes.add(job(3), to: WantedPushes.Target(token: EntryID(1), collapse: Handle(3)), stampMs: 9)
        #expect(pushes.isNewest(JobID(1), of: target))
    }

    /// This holds even if the newest push has its outcome first.
    @Test func aReplacedPushStaysReplaced() {
        pushes.add(job(1), to: target, stampMs: 5)
        pushes.add(job(2), to: target, stampMs: 7)
        pushes.remove(from: target)
        #expect(!pushes.isNewest(JobID(1), of: target))
        pushes.remove(from: target)
        #expect(pushes.count == 0)
    }

    @Test func finishedPushesAreForgotten() {
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
