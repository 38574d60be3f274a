import Sodium
import Synchronization

/// Where all secrets live: guarded, locked memory in slots of 128 bytes, wiped on release.
///
/// It grows by chunks up to its capacity and never shrinks. Thread-safe.
public final class Arena: Sendable {
    /// The process's arena: 40,960 slots are 5 MiB, within the 8 MiB that Linux lets a process lock by default.
    public static let shared = Arena(capacity: 40_960, reserve: 2_560)

    /// What a slot is for.
    enum Purpose {
        case anything
        /// May use the reserve.
        case acknowledgedPush
    }

    public static let slotCount = 128
    static let slotsPerChunk = 512

    private struct State {
        var chunks: [LockedMemory] = []
        /// Slots that are free, the last one released on top: it is still in the cache.
        var free: [UInt32] = []
    }

    private let capacity: Int
    private let reserve: Int
    private let state = Mutex(State())

    /// - Parameters:
    ///   - capacity: slots, rounded up to whole chunks of 512.
    ///   - reserve: so many of them are for acknowledged pushes only.
    init(capacity: Int, reserve: Int = 0) {
        self.reserve = reserve
        self.capacity = (capacity + Self.slotsPerChunk - 1) / Self.slotsPerChunk * Self.slotsPerChunk
    }

    /// Locks the reserve and the first chunk beside it, so that a system that refuses is noticed at the start.
    public func prepare() throws(SealingError) {
        try state.withLock { state throws(SealingError) in
            while state.chunks.count * Self.slotsPerChunk <= reserve {
                try grow(&state)
            }
        }
    }

    /// Slots in use, for the operator's figures.
    public var used: Int {
        state.withLock { $0.chunks.count * Self.slotsPerChunk - $0.free.count }
    }

    func take(for purpose: Purpose = .anything) throws(SealingError) -> Slot {
        let (memory, index) = try state.withLock { state throws(SealingError) in
            // The reserve is locked before anyone else gets a slot: the system may refuse more memory later.
            let left = purpose == .acknowledgedPush ? 0 : reserve
            while state.free.count <= left { try grow(&state) }
            let index = state.free.removeLast()
            return (state.chunks[Int(index) / Self.slotsPerChunk], index)
        }
        return Slot(arena: self, memory: memory, index: index)
    }

    fileprivate func giveBack(_ index: UInt32) {
        state.withLock { $0.free.append(index) }
    }

    private func grow(_ state: inout State) throws(SealingError) {
        let first = state.chunks.count * Self.slotsPerChunk
        guard first < capacity else { throw .outOf(.exhausted) }
        do throws(LockedMemory.Unavailable) {
            state.chunks.append(try LockedMemory(count: Self.slotsPerChunk * Self.slotCount))
        } catch {
            throw .outOf(.cannotLock)
        }
        state.free.reserveCapacity(first + Self.slotsPerChunk)
        for index in (first..<first + Self.slotsPerChunk).reversed() { state.free.append(UInt32(index)) }
    }
}

/// One slot of the arena, held by one owner; it goes back wiped.
struct Slot: ~Copyable, Sendable {
    private let arena: Arena
    private let memory: LockedMemory
    private let index: UInt32

    fileprivate init(arena: Arena, memory: LockedMemory, index: UInt32) {
        self.arena = arena
        self.memory = memory
        self.index = index
    }

    private var start: Int { Int(index) % Arena.slotsPerChunk * Arena.slotCount }

    /// The first `count` bytes.
    func withBytes<Result: ~Copyable, Failure: Error>(
        _ count: Int, _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        precondition(count <= Arena.slotCount)
        return try memory.withBytes(start..<start + count, body)
    }

    /// The first `count` bytes, to fill before anyone else sees the slot.
    func withMutableBytes<Result: ~Copyable, Failure: Error>(
        _ count: Int, _ body: (inout MutableSpan<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        precondition(count <= Arena.slotCount)
        return try memory.withMutableBytes(start..<start + count, body)
    }

    deinit {
        memory.wipe(start..<start + Arena.slotCount)
        arena.giveBack(index)
    }
}
