public import Linux

/// What waits for a descriptor. Called on the loop's thread.
public protocol EventSource: AnyObject {
    func ready(_ events: Events)
}

/// Names one watched descriptor. Harmless once it was removed, also when the descriptor's number is used again.
public struct Registration: Sendable, Hashable {
    let descriptor: Int32
    let serial: UInt32

    var tag: UInt64 { UInt64(serial) << 32 | UInt64(UInt32(bitPattern: descriptor)) }
}

/// The watched descriptors, by number. A serial tells one use of a number from the next.
struct SourceTable {
    private struct Slot {
        var serial: UInt32 = 0
        var interest: Events = []
        var source: (any EventSource)?
    }

    private var slots: [Slot] = []
    private var serial: UInt32 = 0
    private(set) var count = 0

    mutating func insert(_ descriptor: Int32, _ interest: Events, _ source: any EventSource) -> Registration {
        let index = Int(descriptor)
        if index >= slots.count {
            slots.append(contentsOf: repeatElement(Slot(), count: max(index + 1, 2 * slots.count, 64) - slots.count))
        }
        // 0 marks a free slot and the loop's own wake-up.
        serial = serial == .max ? 1 : serial + 1
        // A number is only handed out again after a close, which ended its earlier registration in the kernel as well.
        if slots[index].source == nil { count += 1 }
        slots[index] = Slot(serial: serial, interest: interest, source: source)
        return Registration(descriptor: descriptor, serial: serial)
    }

    mutating func change(_ registration: Registration, _ interest: Events) -> Bool {
        guard holds(registration) else { return false }
        slots[Int(registration.descriptor)].interest = interest
        return true
    }

    mutating func remove(_ registration: Registration) -> (any EventSource)? {
        guard holds(registration) else { return nil }
        let source = slots[Int(registration.descriptor)].source
        slots[Int(registration.descriptor)] = Slot()
        count -= 1
        return source
    }

    /// Whom an event of the kernel is for, and what of it still interests; nil if it came for an earlier use of the number.
    func target(tag: UInt64, _ events: Events) -> (source: any EventSource, events: Events)? {
        let index = Int(tag & 0xffff_ffff)
        guard index < slots.count, slots[index].serial == UInt32(tag >> 32), let source = slots[index].source else { return nil }
        let wanted = events.intersection(slots[index].interest.union([.hangup, .failure]))
        return wanted.isEmpty ? nil : (source, wanted)
    }

    mutating func removeAll() {
        slots.removeAll()
        count = 0
    }

    private func holds(_ registration: Registration) -> Bool {
        let index = Int(registration.descriptor)
        return index < slots.count && slots[index].serial == registration.serial && slots[index].source != nil
    }
}
