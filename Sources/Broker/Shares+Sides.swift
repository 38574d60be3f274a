import Shares
import Vocabulary

extension Shares {
    /// One side of a room.
    func side(_ room: Digest, slot: UInt8) -> Owner { room.withBytes { side($0, slot: slot) } }
}
