import Sodium
import Synchronization

/// The memory of secrets: guarded, locked slots of one size, wiped on release.
///
/// It grows in chunks up to its capacity and never shrinks. Thread-safe.
public final class Arena: Sendable {
    /// The process's arena of slots of 128 bytes. 40,960 slots are 5 MiB. Linux's default limit for locked memory is 8 MiB.
    public static let shared = Arena(capacity: 40_960, reserve: 2_560)

    /// Secrets over 128 bytes, which are Web Push addresses. Acknowledged pushes, at most 1,568, have their own arena, so requests can't use up its slots.
    static let (pushedAddresses, addresses) = (
        Arena(capacity: 1_568, slotBytes: AddressSize.largest), Arena(capacity: 1_666, slotBytes: AddressSize.largest)
    )

    /// For the plaintext of one address while it is sealed or opened. There are more slots than threads that seal or open at once.
    static let plaintexts = Arena(capacity: 1, slotBytes: AddressSize.largest)

    /// The use of a slot.
    enum Purpose {
        case anything
        /// May use the reserve.
        case acknowledgedPush
    }

    public static let slotBytes = 128
    private static let chunkBytes = 65_536

    private struct State {
        var chunks: [LockedMemory] = []
        /// Free slots. The last one released is reused first, since it is still in the CPU cache.
        var free: [UInt32] = []
    }

    private let capacity: Int
    private let reserve: Int
    fileprivate let slotBytes: Int
    /// The slots of a chunk of 64 KiB.
    fileprivate let slotsPerChunk: Int
    private let state = Mutex(State())

    /// - Parameters:
    ///   - capacity: the number of slots, rounded up to whole chunks.
    ///   - reserve: the number of slots reserved for acknowledged pushes.
    init(capacity: Int, reserve: Int = 0, slotBytes: Int = Arena.slotBytes) {
        self.reserve = reserve
        self.slotBytes = slotBytes
        slotsPerChunk = Self.chunkBytes / slotBytes
        self.capacity = (capacity + slotsPerChunk - 1) / slotsPerChunk * slotsPerChunk
    }

    /// Locks memory for the reserve, some more secrets and plaintexts. A limit that is too low is then found at the start.
    /// - Parameter webPush: true to lock all 2 MiB for Web Push addresses now. A shortage later would pause pushes to all services.
    public static func prepare(webPush: Bool) throws(SealingError) {
        try shared.prepare()
        try plaintexts.prepare()
        if webPush { for arena in [addresses, pushedAddresses] { try arena.prepare(arena.capacity) } }
    }

    /// The memory that all arenas need, without guard pages.
    public static func byteCount(webPush: Bool) -> Int {
        [shared.byteCount, plaintexts.byteCount].reduce(0, +) + (webPush ? addresses.byteCount + pushedAddresses.byteCount : 0)
    }

    /// Locks at least `count` slots. Default: the reserve and one more.
    func prepare(_ count: Int? = nil) throws(SealingError) {
        try state.withLock { state throws(SealingError) in
            while state.chunks.count * slotsPerChunk < count ?? reserve + 1 {
                try grow(&state)
            }
        }
    }

    private var byteCount: Int { capacity / slotsPerChunk * Self.chunkBytes }

    /// The number of slots in use.
    public var used: Int {
        state.withLock { $0.chunks.count * slotsPerChunk - $0.free.count }
    }

    func take(for purpose: Purpose = .anything) throws(SealingError) -> Slot {
        let (memory, index) = try state.withLock { state throws(SealingError) in
            // Lock the reserve before other uses get a slot, since the system may refuse more memory later.
            let left = purpose == .acknowledgedPush ? 0 : reserve
            while state.free.count <= left { try grow(&state) }
            let index = state.free.removeLast()
            return (state.chunks[Int(index) / slotsPerChunk], index)
        }
        return Slot(arena: self, memory: memory, index: index)
    }

    fileprivate func release(_ index: UInt32) {
        state.withLock { $0.free.append(index) }
    }

    private func grow(_ state: inout State) throws(SealingError) {
        let first = state.chunks.count * slotsPerChunk
        guard first < capacity else { throw .outOf(.exhausted) }
        do throws(LockedMemory.Unavailable) {
            state.chunks.append(try LockedMemory(count: slotsPerChunk * slotBytes))
        } catch {
            throw .outOf(.cannotLock)
        }
        state.free.reserveCapacity(first + slotsPerChunk)
        for index in (first..<first + slotsPerChunk).reversed() { state.free.append(UInt32(index)) }
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

    private var start: Int { Int(index) % arena.slotsPerChunk * arena.slotBytes }

    /// Lends the first `count` bytes.
    func withBytes<Result: ~Copyable, Failure: Error>(
        _ count: Int, _ body: (Span<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        precondition(count <= arena.slotBytes)
        return try memory.withBytes(start..<start + count, body)
    }

    /// Lends the first `count` bytes for writing. Call it before sharing the slot.
    func withMutableBytes<Result: ~Copyable, Failure: Error>(
        _ count: Int, _ body: (inout MutableSpan<UInt8>) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        precondition(count <= arena.slotBytes)
        return try memory.withMutableBytes(start..<start + count, body)
    }

    deinit {
        memory.wipe(start..<start + arena.slotBytes)
        arena.release(index)
    }
}
