import CSodium

/// Memory of its own for the C state of a keyed function, wiped when dropped: a Swift value would leave copies behind wherever it
/// moves.
@safe
struct KeyedState: ~Copyable {
    let address: UnsafeMutableRawPointer
    private let count: Int

    init(count: Int) {
        // BLAKE2b's state wants 64, which Swift does not import.
        unsafe address = UnsafeMutableRawPointer.allocate(byteCount: count, alignment: 64)
        self.count = count
    }

    deinit {
        unsafe sodium_memzero(address, count)
        unsafe address.deallocate()
    }
}
