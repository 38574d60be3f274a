/// Numbers ids in the order in which they first come, from 0. Never forgets one: that each lives once can't be checked otherwise.
///
/// An open-addressing index over one dense list: 16 bytes an id and 5 to 11 for the index.
struct IDTable {
    private(set) var ids: [UInt128] = []
    private var slots: [UInt32]
    private var mask: Int
    // The log's writer chooses the ids; secrets on both sides keep it from choosing ones that collide.
    private let seeds: (high: UInt64, low: UInt64)

    init(seeds: (high: UInt64, low: UInt64) = (.random(in: .min ... .max), .random(in: .min ... .max))) {
        self.seeds = seeds
        slots = Array(repeating: 0, count: 1024)
        mask = slots.count - 1
    }

    /// The id's number, nil if it never came.
    func number(of id: OpaqueID) -> Int? {
        var slot = start(id.value)
        while case let entry = slots[slot], entry != 0 {
            if ids[Int(entry) - 1] == id.value { return Int(entry) - 1 }
            slot = (slot + 1) & mask
        }
        return nil
    }

    /// Numbers an id; nil if it came before.
    mutating func insert(_ id: OpaqueID) -> Int? {
        var slot = start(id.value)
        while case let entry = slots[slot], entry != 0 {
            if ids[Int(entry) - 1] == id.value { return nil }
            slot = (slot + 1) & mask
        }
        ids.append(id.value)
        slots[slot] = UInt32(ids.count)
        if ids.count > slots.count / 4 * 3 { grow() }
        return ids.count - 1
    }

    private mutating func grow() {
        slots = Array(repeating: 0, count: slots.count * 2)
        mask = slots.count - 1
        for (number, id) in ids.enumerated() {
            var slot = start(id)
            while slots[slot] != 0 { slot = (slot + 1) & mask }
            slots[slot] = UInt32(number + 1)
        }
    }

    /// Where the search for an id begins.
    @inline(__always)
    func start(_ id: UInt128) -> Int {
        let (high, low) = (UInt64(truncatingIfNeeded: id >> 64) ^ seeds.high, UInt64(truncatingIfNeeded: id) ^ seeds.low)
        let product = high.multipliedFullWidth(by: low)
        // A product of a factor that ends in zero bits does so too: every bit has to reach the last ones (the finalizer of MurmurHash3).
        var mixed = product.high ^ product.low
        mixed = (mixed ^ mixed >> 33) &* 0xff51_afd7_ed55_8ccd
        mixed = (mixed ^ mixed >> 33) &* 0xc4ce_b9fe_1a85_ec53
        return Int(truncatingIfNeeded: mixed ^ mixed >> 33) & mask
    }
}
