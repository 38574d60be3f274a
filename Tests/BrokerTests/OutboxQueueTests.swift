import Sealing
import Storage
import Testing
import Vocabulary

@testable import Broker

@Suite struct OutboxQueueTests {
    private func entry(_ number: UInt8) -> OutboxQueue.Entry {
        OutboxQueue.Entry(job: .dummy(number), reservation: nil)
    }

    private func destination(_ app: String, _ environment: PushEnvironment = .production) -> Destination {
        .apns(AppID(bundleID: app), environment)
    }

    @Test func jobsOfOneTimeLeaveInRandomOrder() {
        var orders: Set<[UInt8]> = []
        for _ in 0..<50 {
            var queue = OutboxQueue(limit: 200_000, shuffles: true)
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

    /// Hosts that hang must not use up the queue, or nobody's push is taken any more.
    @Test func strangersHoldAQuarterOfTheQueue() throws {
        for (group, kept) in [(SendGroup.foreignHosts, 2_000), (.webPush, .max)] {
            var (queue, refused) = (OutboxQueue(limit: 8_000, shuffles: false), 0)
            for number in 0..<8_000 { queue.makeDue(entry(UInt8(truncatingIfNeeded: number))) }
            while var started = queue.startNext() {
                queue.endPreparation()
                if queue.admit(&started, to: group) { continue }
                if !queue.hold(started) { refused += 1 }
                queue.endDelivery(of: started)
            }
            #expect(refused == max(0, 8_000 - group.mostUnderWay - min(kept, 8_000)) && queue.openCount == 8_000 - refused)
        }
    }

    @Test func startsAreLimited() {
        var queue = OutboxQueue(limit: 200_000, shuffles: false)
        // Rooms and sockets need slots of the arena, too.
        #expect(OutboxQueue.maxUnderWay <= 20_480)
        let count = 25_000
        for number in 0..<count { queue.makeDue(entry(UInt8(truncatingIfNeeded: number))) }
        var started = 0
        while queue.startNext() != nil { started += 1 }
        #expect(started == OutboxQueue.maxPreparing && queue.openCount == count)
        while started < OutboxQueue.maxUnderWay {
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
        for _ in 0..<OutboxQueue.maxUnderWay { queue.endDelivery(of: entry(0)) }
        #expect(queue.openCount == 0 && queue.startNext() == nil)
    }

    /// The limit of one app if no other app has jobs under way: eight times the free places.
    private static let mostOfOne = OutboxQueue.maxUnderWay / 9 * 8

    /// A queue whose jobs are opened once they start, as the outbox does.
    private struct OpenedQueue {
        var queue = OutboxQueue(limit: 200_000, shuffles: false)
        /// The destinations that the jobs' seals name, by the jobs' numbers.
        var sealed: [JobID: Destination] = [:]
        var underWay: [OutboxQueue.Entry] = []
        var opened = 0

        mutating func makeDue(_ count: Int, to destination: Destination) {
            for _ in 0..<count {
                let job = JobRecord.dummy(number: sealed.count)
                sealed[job.job] = destination
                queue.makeDue(OutboxQueue.Entry(job: job, reservation: nil))
            }
        }

        /// Starts what may start. Returns how many pushes leave to each destination.
        mutating func startAll() -> [Destination: Int] {
            var left: [Destination: Int] = [:]
            while var entry = queue.startNext() {
                queue.endPreparation()
                opened += 1
                let destination = sealed[entry.job.job]!
                if queue.admit(&entry, to: .app(destination)) {
                    left[destination, default: 0] += 1
                    underWay.append(entry)
                } else {
                    _ = queue.hold(entry)
                    queue.endDelivery(of: entry)
                }
            }
            return left
        }

        mutating func end(_ count: Int, to destination: Destination) {
            for _ in 0..<count {
                let index = underWay.firstIndex { $0.group == .app(destination) }!
                queue.endDelivery(of: underWay.remove(at: index))
            }
        }
    }

    // Promise: hanging-app-leaves-room
    @Test func anAppWithHangingPushesLeavesRoomForOthers() {
        var queue = OpenedQueue()
        let (dead, dying) = (destination("dead"), destination("dying"))
        queue.makeDue(25_000, to: dead)
        let most = queue.startAll()
        #expect(most.keys.elementsEqual([dead]) && abs(most[dead, default: 0] - Self.mostOfOne) <= 1)
        // Each was opened once, and none again without room.
        #expect(queue.opened == 25_000 && queue.startAll().isEmpty && queue.opened == 25_000)
        for app in ["a", "b"] { queue.makeDue(100, to: destination(app)) }
        // Environments of one app are separate.
        queue.makeDue(100, to: destination("dead", .sandbox))
        #expect(queue.startAll() == [destination("a"): 100, destination("b"): 100, destination("dead", .sandbox): 100])
        // Another app with hanging pushes gets most of the rest.
        queue.makeDue(25_000, to: dying)
        #expect(Set(queue.startAll().keys) == [dying])
        queue.makeDue(1, to: destination("c"))
        #expect(queue.startAll() == [destination("c"): 1])
        #expect(queue.queue.openCount == 50_301)
        // Held jobs start when there is room again.
        queue.end(4_000, to: dead)
        #expect(Set(queue.startAll().keys).isSuperset(of: [dying]))
        queue.end(queue.underWay.count { $0.group == .app(dead) }, to: dead)
        #expect(Set(queue.startAll().keys) == [dead, dying])
    }

    /// Of one app the jobs that wait leave in their order, also behind those that were held back.
    @Test func heldJobsKeepTheirOrder() {
        var queue = OpenedQueue()
        let app = destination("app")
        queue.makeDue(Self.mostOfOne + 500, to: app)
        _ = queue.startAll()
        queue.makeDue(500, to: app)
        while !queue.underWay.isEmpty {
            let before = queue.underWay.last?.job.job.low
            queue.end(queue.underWay.count, to: app)
            _ = queue.startAll()
            let numbers = queue.underWay.map(\.job.job.low)
            #expect(numbers == numbers.sorted() && numbers.first ?? .max > before ?? 0)
        }
        #expect(queue.queue.openCount == 0)
    }

    @Test func theQueueHasAnEnd() {
        var queue = OutboxQueue(limit: 200_000, shuffles: false)
        queue.queued = queue.limit - 1
        #expect(queue.freePlaces == 1)
        // A start resumes all jobs that it finds.
        queue.queued += 10
        #expect(queue.freePlaces == 0)
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
