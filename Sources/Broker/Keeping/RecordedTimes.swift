import Linux
public import Sealing
public import Storage
import Vocabulary

/// The steps of the key file and the highest time that a store has recorded for its node.
public struct RecordedTimes: Sendable {
    public let steps: UInt64
    /// The highest time seen, unix ms. 0 before the first start.
    public let highestMs: UInt64
    /// The number of an epoch. No key is older. 0 unless keys were lost.
    private let birth: UInt64

    /// Read them before the key file: a running broker replaces the file first.
    public init(_ store: StoreSnapshot) throws(StoreError) {
        steps = KeyMarks.number(try store.mark(KeyMarks.step)) ?? 0
        highestMs = KeyMarks.number(try store.mark(KeyMarks.time)) ?? 0
        birth = KeyMarks.number(try store.mark(KeyMarks.birth)) ?? 0
    }

    public init(_ store: any Store) async throws(StoreError) {
        steps = try await KeyMarks.number(KeyMarks.step, in: store) ?? 0
        highestMs = try await KeyMarks.number(KeyMarks.time, in: store) ?? 0
        birth = try await KeyMarks.number(KeyMarks.birth, in: store) ?? 0
    }

    /// Returns the birth of new keys, unix ms: the latest time recorded if the clock was set back. An earlier birth could not be distinguished from that
    /// of lost keys, so the next start would refuse the new ones.
    public func birth(nowMs: UInt64) -> UInt64 { max(nowMs, highestMs, Epoch(birth).startMs) }

    /// - Throws: if the key file is an old copy.
    public func check(_ keys: KeyRing) throws(StaleKeys) {
        guard keys.generations.allSatisfy({ $0.born.number >= birth }) else {
            throw StaleKeys(reason: "was given up as lost before the present keys were made")
        }
        guard keys.steps >= steps else {
            throw StaleKeys(reason: "is older (step \(keys.steps)) than this node's last recorded step (\(steps))")
        }
    }
}

/// The key file is an old copy.
public struct StaleKeys: Error, CustomStringConvertible {
    fileprivate let reason: String

    public var description: String {
        "stale_keys: this key file \(reason). It is an old copy: its keys should no longer exist. Put the right file back, or if that is lost, "
            + "remove the copy and run `mayfly keys renew`, which forgets all rooms and tokens."
    }
}

/// The store's marks of keys and time.
enum KeyMarks {
    /// The last recorded step.
    static let step = "ratchet.steps"
    /// The highest time seen, unix ms.
    static let time = "time.highest"
    /// Set while the store has rows that were sealed under a key file that is lost.
    static let loss = "ratchet.lost"
    /// The epoch in which the first of these keys was born, once others were lost.
    static let birth = "ratchet.born"

    static func of(steps: UInt64, now: UInt64) -> [StoreMark] {
        [StoreMark(step, [UInt8](bigEndian: steps)), StoreMark(time, [UInt8](bigEndian: now))]
    }

    /// Returns nil if the mark is not set.
    static func number(_ name: String, in store: any Store) async throws(StoreError) -> UInt64? {
        number(try await store.mark(name))
    }

    static func number(_ mark: [UInt8]?) -> UInt64? {
        guard let mark, mark.count == 8 else { return nil }
        return mark.span.bigEndian64(at: 0)
    }
}
