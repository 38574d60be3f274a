import CLinux
import Glibc

/// Events of a descriptor. `hangup` and `failure` are always reported.
public struct Events: OptionSet, Sendable, Hashable {
    public let rawValue: UInt32
    public init(rawValue: UInt32) { self.rawValue = rawValue }

    public static let read = Events(rawValue: EPOLLIN.rawValue)
    public static let write = Events(rawValue: EPOLLOUT.rawValue)
    /// The peer will write no more.
    public static let peerFinished = Events(rawValue: EPOLLRDHUP.rawValue)
    /// Both directions are closed.
    public static let hangup = Events(rawValue: EPOLLHUP.rawValue)
    public static let failure = Events(rawValue: EPOLLERR.rawValue)
    /// Edge-triggered: an event is reported once per change instead of as long as it lasts.
    public static let onChange = Events(rawValue: EPOLLET.rawValue)
}

/// The kernel's list of watched descriptors. Only one thread may call `wait` and `event`.
@safe public struct Epoll: ~Copyable {
    private let descriptor: Descriptor
    private let batch: UnsafeMutableBufferPointer<epoll_event>

    private static let batchSize = 256

    public init() throws(Errno) {
        let raw = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard raw >= 0 else { throw .last("epoll_create1") }
        descriptor = Descriptor(owning: raw)
        unsafe batch = .allocate(capacity: Self.batchSize)
        unsafe batch.initialize(repeating: epoll_event())
    }

    deinit { unsafe batch.deallocate() }

    /// - Parameter tag: returned with each event.
    public func add(_ watched: Int32, _ interest: Events, tag: UInt64) throws(Errno) {
        try control(EPOLL_CTL_ADD, watched, interest, tag)
    }

    public func modify(_ watched: Int32, _ interest: Events, tag: UInt64) throws(Errno) {
        try control(EPOLL_CTL_MOD, watched, interest, tag)
    }

    /// A descriptor that is closed already is no error.
    public func remove(_ watched: Int32) {
        var event = unsafe epoll_event()
        _ = unsafe epoll_ctl(descriptor.raw, EPOLL_CTL_DEL, watched, &event)
    }

    /// Waits for events and returns their number, or 0 after `timeoutMs` or a signal. -1 waits without a timeout.
    public func wait(timeoutMs: Int32) -> Int {
        let (start, count) = unsafe (batch.baseAddress!, Int32(batch.count))
        mayfly_clear_vectors()
        return unsafe max(0, Int(epoll_wait(descriptor.raw, start, count, timeoutMs)))
    }

    /// Returns an event of the last wait.
    public func event(_ index: Int) -> (tag: UInt64, events: Events) {
        let event = unsafe batch[index]
        return unsafe (event.data.u64, Events(rawValue: event.events))
    }

    private func control(_ operation: Int32, _ watched: Int32, _ interest: Events, _ tag: UInt64) throws(Errno) {
        var event = unsafe epoll_event()
        unsafe event.events = interest.rawValue
        unsafe event.data.u64 = tag
        guard unsafe epoll_ctl(descriptor.raw, operation, watched, &event) == 0 else { throw .last("epoll_ctl") }
    }
}

/// An eventfd that wakes a thread waiting for it with `.onChange`. It is written and never read.
public struct WakeUp: ~Copyable, Sendable {
    public let descriptor: Descriptor

    public init() throws(Errno) {
        let raw = eventfd(0, Int32(EFD_NONBLOCK | EFD_CLOEXEC))
        guard raw >= 0 else { throw .last("eventfd") }
        descriptor = Descriptor(owning: raw)
    }

    /// Can be called from any thread.
    public func signal() {
        var one: UInt64 = 1
        _ = unsafe Glibc.write(descriptor.raw, &one, 8)
    }
}
