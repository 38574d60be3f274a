import Synchronization
import Testing

@testable import EventLoop

@Suite struct TimerQueueTests {
    /// Runs the next timer that is due at `now`.
    /// - Returns: false if none is.
    private func due(_ queue: inout TimerQueue, _ now: UInt64) -> Bool {
        let mark = queue.mark
        guard let action = queue.nextDue(now, before: mark) else { return false }
        action()
        return true
    }

    @Test func firesByDeadlineThenByCreation() {
        var queue = TimerQueue()
        let log = Log()
        for (name, deadline) in [("c", 30), ("a", 10), ("b1", 20), ("b2", 20), ("late", 31)] as [(String, UInt64)] {
            _ = queue.schedule(at: deadline) { log.add(name) }
        }
        #expect(queue.nextDeadline() == 10)
        #expect(!due(&queue, 9))
        while due(&queue, 30) {}
        #expect(log.entries == ["a", "b1", "b2", "c"])
        #expect(queue.nextDeadline() == 31)
    }

    @Test func aCancelledTimerNeverFiresAndReleasesItsAction() {
        var queue = TimerQueue()
        weak var held: Log?
        let id: TimerID
        do {
            let log = Log()
            held = log
            id = queue.schedule(at: 5) { log.add("fired") }
        }
        #expect(held != nil)
        queue.cancel(id)
        #expect(held == nil)
        #expect(queue.nextDeadline() == nil)
        #expect(!due(&queue, 100))
    }

    @Test func anOldIDDoesNotCancelATimerInItsSlot() {
        var queue = TimerQueue()
        let log = Log()
        let old = queue.schedule(at: 5) {}
        queue.cancel(old)
        _ = queue.schedule(at: 6) { log.add("new") }
        queue.cancel(old)
        #expect(due(&queue, 6))
        #expect(log.entries == ["new"])
    }

    @Test func cancelledTimersAreCompacted() {
        var queue = TimerQueue()
        let kept = queue.schedule(at: 1) {}
        for index in 0..<10_000 { queue.cancel(queue.schedule(at: 1000 + UInt64(index)) {}) }
        #expect(queue.count == 1)
        #expect(queue.heapCount <= 65)
        queue.cancel(kept)
        #expect(queue.nextDeadline() == nil)
    }

    @Test func staysOrderedThroughRandomUse() {
        var queue = TimerQueue()
        var random = SystemRandomNumberGenerator()
        let log = Log()
        var live: [TimerID: UInt64] = [:]
        for _ in 0..<5000 {
            if Bool.random(using: &random), let victim = live.keys.randomElement(using: &random) {
                queue.cancel(victim)
                live[victim] = nil
            } else {
                let deadline = UInt64.random(in: 0..<1000, using: &random)
                live[queue.schedule(at: deadline) { log.add("\(deadline)") }] = deadline
            }
        }
        while due(&queue, 1000) {}
        #expect(log.entries == live.values.sorted().map { "\($0)" })
        #expect(queue.count == 0)
    }

    @Test func aTimerSetWhileOthersFireWaitsForTheNextTurn() {
        var queue = TimerQueue()
        _ = queue.schedule(at: 5) {}
        let mark = queue.mark
        _ = queue.schedule(at: 5) {}
        #expect(queue.nextDue(5, before: mark) != nil)
        #expect(queue.nextDue(5, before: mark) == nil)
        #expect(queue.nextDue(5, before: queue.mark) != nil)
    }
}

final class Log: Sendable {
    private let list = Mutex<[String]>([])
    func add(_ entry: String) { list.withLock { $0.append(entry) } }
    var entries: [String] { list.withLock { $0 } }
}
