import Sodium
import Synchronization

/// The memory of all secrets: guarded, locked slots of 128 bytes, wiped on release.
///
/// It grows in chunks up to its capacity and never shrinks. Thread-safe.
public final class Arena: Sendable {
    /// The process's arena. 40,960 slots are 5 MiB. Linux's default limit for locked memory is 8 MiB.
    public static let shared = Arena(capacity: 40_960, reserve: 2_560)

    /// The use of a slot.
    enum Purpose {
        case anything
        /// May use the reserve.
        case acknowledgedPush
    }

    public static let slotBytes = 128
    static let slotsPerChunk = 512

    private struct State {
        var chunks: [LockedMemory] = []
        /// Free slots. The last one released is reused first, since it is still in the CPU cache.
        var free: [UInt32] = []
    }

    private let capacity: Int
    private let reserve: Int
    private let state = Mutex(State())

    /// - Parameters:
    ///   - capacity: the number of slots, rounded up to chunks of 512.
    ///   - reserve: the number of slots reserved for acknowledged pushes.
    init(capacity: Int, reserve: Int = 0) {
        self.reserve = reserve
        self.capacity = (capacity + Self.slotsPerChunk - 1) / Self.slotsPerChunk * Self.slotsPerChunk
    }

    /// Locks the reserve and one more chunk. A limit that is too low is then found at the start.
    public func prepare() throws(SealingError) {
        try state.withLock { state throws(SealingError) in
            while state.chunks.count * Self.slotsPerChunk <= reserve {
                try grow(&state)
            }
        }
    }

    /// The memory that all slots need, without guard pages.
    public var byteCount: Int { capacity * Self.slotBytes }

    /// The number of slots in use.
    public var used: Int {
        state.withLock { $0.chunks.count * Self.slotsPerChunk - $0.free.count }
    }

    func take(for purpose: Purpose = .anything) throws(SealingError) -> Slot {
        let (memory, index) = try state.withLock { state throws(SealingError) in
            // Lock the reserve before other uses get a slot, since the system may refuse more memory later.
            let left = purpose == .acknowledgedPush ? 0 : reserve
            while state.free.count <= left { try grow(&state) }
            let index = state.free.removeLast()
            return (state.chunks[Int(index) / Self.slotsPerChunk], index)
        }
        return Slot(arena: self, memory: memory, index: index)
    }

    fileprivate func release(_ index: UInt32) {
        state.withLock { $0.free.append(index) }
    }

    private func grow(_ state: inout State) throws(SealingError) {
        let first = state.chunks.count * Self.slotsPerChunk
        guard first < capacity else { throw .outOf(.exhausted) }
        do throws(LockedMemory.Unavailable) {
            state.chunks.append(try LockedMemory(count: Self.slotsPerChunk * Self.slotBytes))
        } catch {
            throw .outOf(.cannotLock)
        }
        state.free.reserveCapacity(first + Self.slotsPerChunk)
        for index in (first..<first + Self.slotsPerChunk).reversed() { state.free.append(UInt32(index)) }
    }
}

/// One slot of the arena with a single owner. It is wiped and released at its end.
struct Slot: ~Copyable, Sendable {
    private let arena: Arena
    private let memory: LockedMemory
    private let index: UInt32

    fileprivate init(arena: Arena, memory: LockedMemory, index: UInt32) {
        self.arena = arena
        self.memory = memory
        self.index = index
    }

    private var start: Int { Int(index) % Arena.slotsPerChunk * Arena.slotBytes }

    /// Lends the first `count` bytes.
    func withBytes<Result: ~Copyable, Failure: Error>(
        _ count: Int, _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        precondition(count <= Arena.slotBytes)
        return try memory.withBytes(start..<start + count, body)
    }

    /// Lends the first `count` bytes for writing. Call it before sharing the slot.
    func withMutableBytes<Result: ~Copyable, Failure: Error>(
        _ count: Int, _ body: (inout MutableSpan<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        precondition(count <= Arena.slotBytes)
        return try memory.withMutableBytes(start..<start + count, body)
    }

    deinit {
        memory.wipe(start..<start + Arena.slotBytes)
        arena.release(index)
    }
}
