import Vocabulary

/// SplitMix64 (Steele, Lea, Flood 2014): keys in random order for next to nothing. Nothing here is secret.
struct FastRandom {
    var state: UInt64

    mutating func word() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return word ^ word >> 31
    }

    mutating func bytes(_ count: Int) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(count + 8)
        while bytes.count < count {
            let word = word()
            for shift in stride(from: UInt64(0), to: 64, by: 8) { bytes.append(UInt8(truncatingIfNeeded: word >> shift)) }
        }
        bytes.removeLast(bytes.count - count)
        return bytes
    }

    mutating func digest() -> Digest { Digest(bytes: bytes(32).span)! }

    mutating func id<ID: OpaqueID>() -> ID { ID(high: word(), low: word()) }
}
