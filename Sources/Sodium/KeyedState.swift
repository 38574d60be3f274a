import CSodium
import Synchronization

/// Memory of its own for the C state of a keyed function, wiped when dropped: a Swift value would leave copies behind wherever it
/// moves.
@safe
struct KeyedState: ~Copyable {
    let address: UnsafeMutableRawPointer
    private let count: Int

    /// Wiped states to use again: aligned memory is slow to come by.
    private static let spare = Mutex<[UInt]>([])
    private static let largestCount = 512
    private static let mostSpare = 16

    init(count: Int) {
        precondition(count <= Self.largestCount)
        if let known = Self.spare.withLock({ $0.popLast() }) {
            unsafe address = UnsafeMutableRawPointer(bitPattern: known)!
        } else {
            // BLAKE2b's state wants 64, which Swift does not import.
            unsafe address = UnsafeMutableRawPointer.allocate(byteCount: Self.largestCount, alignment: 64)
        }
        self.count = count
    }

    deinit {
        unsafe sodium_memzero(address, count)
        let number = unsafe UInt(bitPattern: address)
        let isKept = Self.spare.withLock { spare in
            guard spare.count < Self.mostSpare else { return false }
            spare.append(number)
            return true
        }
        if !isKept { unsafe address.deallocate() }
    }
}
