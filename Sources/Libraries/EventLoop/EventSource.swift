public import Linux

/// An object that waits for a descriptor. Called on the loop's thread.
public protocol EventSource: AnyObject {
    func ready(_ events: Events)
}

/// Identifies a watched descriptor. Has no effect after its removal, even if the descriptor's number is reused.
public struct Registration: Sendable, Hashable {
    let descriptor: Int32
    let serial: UInt32

    var tag: UInt64 { UInt64(serial) << 32 | UInt64(UInt32(bitPattern: descriptor)) }
}

/// The watched descriptors by number. A serial distinguishes uses of the same number.
struct SourceTable {
    private struct Slot {
        var serial: UInt32 = 0
        var interest: Events = []
        var source: (any EventSource)?
    }

    private var slots: [Slot] = []
    private var serial: UInt32 = 0

    mutating func insert(_ descriptor: Int32, _ interest: Events, _ source: any EventSource) -> Registration {
        let index = Int(descriptor)
        if index >= slots.count {
            slots.append(contentsOf: repeatElement(Slot(), count: max(index + 1, 2 * slots.count, 64) - slots.count))
        }
        // 0 marks a free slot and the loop's own wake-up.
        serial = serial == .max ? 1 : serial + 1
        // The kernel reuses a number only after a close, which has also ended the earlier watch.
        slots[index] = Slot(serial: serial, interest: interest, source: source)
        return Registration(descriptor: descriptor, serial: serial)
    }

    mutating func change(_ registration: Registration, _ interest: Events) -> Bool {
        guard holds(registration) else { return false }
        slots[Int(registration.descriptor)].interest = interest
        return true
    }

    mutating func remove(_ registration: Registration) -> Bool {
        guard holds(registration) else { return false }
        slots[Int(registration.descriptor)] = Slot()
        return true
    }

    /// Returns the source of a kernel event and the requested part of the events. Returns nil if the event belongs to an earlier use of the number.
    func target(tag: UInt64, _ events: Events) -> (source: any EventSource, events: Events)? {
        let index = Int(tag & 0xffff_ffff)
        guard index < slots.count, slots[index].serial == UInt32(tag >> 32), let source = slots[index].source else { return nil }
        let wanted = events.intersection(slots[index].interest.union([.hangup, .failure]))
        return wanted.isEmpty ? nil : (source, wanted)
    }

    mutating func removeAll() { slots.removeAll() }

    private func holds(_ registration: Registration) -> Bool {
        let index = Int(registration.descriptor)
        return index < slots.count && slots[index].serial == registration.serial && slots[index].source != nil
    }
}

extension EventLoop {
    /// Calls `action` on the loop whenever the process gets `signal`. Blocks the signal for the calling thread and threads it starts. Every other
    /// thread must have blocked it too (`Signal.block` first in `main`), otherwise the default action remains.
    public func onSignal(_ signal: Signal, _ action: @escaping () -> Void) throws(Errno) {
        let source = SignalSource(queue: try SignalQueue([signal]), action: action)
        _ = try add(source.queue.descriptor.raw, .read, source)
    }
}

private final class SignalSource: EventSource {
    let queue: SignalQueue
    private let action: () -> Void

    init(queue: consuming SignalQueue, action: @escaping () -> Void) {
        self.queue = queue
        self.action = action
    }

    func ready(_ events: Events) {
        while queue.next() != nil { action() }
    }
}
