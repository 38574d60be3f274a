/// Identifies a timer. Has no effect after the timer has fired or was cancelled.
public struct TimerID: Sendable, Hashable {
    let slot: UInt32
    let generation: UInt32
}

/// Timers ordered by deadline (ms of any clock), then by creation.
///
/// A binary heap. Cancelling releases the action at once and leaves the heap's entry. The heap is rebuilt when more than half of its entries are
/// cancelled, so cancelling takes amortised constant time.
struct TimerQueue {
    private struct Entry {
        let deadline: UInt64
        let sequence: UInt64
        let id: TimerID

        func precedes(_ other: Entry) -> Bool {
            deadline != other.deadline ? deadline < other.deadline : sequence < other.sequence
        }
    }

    private struct Slot {
        var generation: UInt32 = 0
        var action: (() -> Void)?
    }

    private var heap: [Entry] = []
    private var slots: [Slot] = []
    private var free: [UInt32] = []
    private var sequence: UInt64 = 0

    /// Active timers.
    var count: Int { slots.count - free.count }
    /// Heap entries, including those of cancelled timers.
    var heapCount: Int { heap.count }

    mutating func schedule(at deadline: UInt64, _ action: @escaping () -> Void) -> TimerID {
        let slot: UInt32
        if let reused = free.popLast() {
            slot = reused
        } else {
            slot = UInt32(slots.count)
            slots.append(Slot())
        }
        slots[Int(slot)].action = action
        let id = TimerID(slot: slot, generation: slots[Int(slot)].generation)
        heap.append(Entry(deadline: deadline, sequence: sequence, id: id))
        sequence += 1
        siftUp(heap.count - 1)
        return id
    }

    mutating func cancel(_ id: TimerID) {
        guard take(id) != nil else { return }
        if heap.count > 64, heap.count > 2 * count { compact() }
    }

    /// The earliest deadline.
    mutating func nextDeadline() -> UInt64? {
        while let first = heap.first {
            if isLive(first.id) { return first.deadline }
            removeFirst()
        }
        return nil
    }

    /// A position after all timers set so far. See `nextDue`.
    var mark: UInt64 { sequence }

    /// Removes and returns the next timer that is due and was set before `mark`.
    mutating func nextDue(_ now: UInt64, before mark: UInt64) -> (() -> Void)? {
        while let first = heap.first, first.deadline <= now, first.sequence < mark {
            removeFirst()
            if let action = take(first.id) { return action }
        }
        return nil
    }

    private func isLive(_ id: TimerID) -> Bool {
        slots[Int(id.slot)].generation == id.generation
    }

    private mutating func take(_ id: TimerID) -> (() -> Void)? {
        let slot = Int(id.slot)
        guard slots[slot].generation == id.generation, let action = slots[slot].action else { return nil }
        slots[slot].action = nil
        slots[slot].generation &+= 1
        free.append(id.slot)
        return action
    }

    private mutating func compact() {
        heap = heap.filter { isLive($0.id) }
        for index in stride(from: heap.count / 2 - 1, through: 0, by: -1) { siftDown(index) }
    }

    private mutating func removeFirst() {
        let last = heap.removeLast()
        guard !heap.isEmpty else { return }
        heap[0] = last
        siftDown(0)
    }

    private mutating func siftUp(_ start: Int) {
        let entry = heap[start]
        var index = start
        while index > 0 {
            let parent = (index - 1) / 2
            guard entry.precedes(heap[parent]) else { break }
            heap[index] = heap[parent]
            index = parent
        }
        heap[index] = entry
    }

    private mutating func siftDown(_ start: Int) {
        let entry = heap[start]
        var index = start
        while true {
            var child = 2 * index + 1
            guard child < heap.count else { break }
            if child + 1 < heap.count, heap[child + 1].precedes(heap[child]) { child += 1 }
            guard heap[child].precedes(entry) else { break }
            heap[index] = heap[child]
            index = child
        }
        heap[index] = entry
    }
}
