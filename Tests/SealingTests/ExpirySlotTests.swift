import Linux
import Sodium
import Testing
import Vocabulary

@testable import Sealing

/// Rows of audiences can be found in their slots as long as they live.
@Suite struct ExpirySlotTests {
    private static let (hourMs, dayMs) = (UInt64(3_600_000), KeyFolder.dayMs)
    /// Life and step of a device, an activity and a session, and an unusual pair.
    private static let grids: [(life: UInt64, step: UInt64)] = [
        (30 * dayMs, dayMs), (12 * hourMs, hourMs), (24 * hourMs, 12 * hourMs), (5 * hourMs + 1, 2_100_001),
    ]
    private static let month: UInt64 = 2_592_000
    private let start = KeyFolder.startMs
    private let folder: KeyFolder

    init() throws { folder = try KeyFolder() }

    private func load(_ folder: KeyFolder) throws -> KeyRing {
        try KeyRing.load(path: folder.path, longestLifeSeconds: Self.month)
    }

    private struct Row {
        let slot: ExpirySlot
        let index: Digest
        let grid: Int
    }

    /// A ratchet without a file.
    private struct Steps {
        var image: KeyImage
        var ratchet: Ratchet

        init(_ image: KeyImage) throws {
            self.image = image
            ratchet = try Ratchet(image, longestLife: ExpirySlotTests.month / 300)
        }

        mutating func step(_ nowMs: UInt64) throws {
            guard let next = try ratchet.next(Epoch(atMs: nowMs)) else { return }
            ratchet.adopt(next, born: try ratchet.birth(in: next))
            image = next
        }

        mutating func index(_ slot: ExpirySlot) -> Digest? {
            ratchet.derivation(slot.generation, Epoch(atMs: slot.expiryMs), .ownerIndex)?.digest()
        }
    }

    /// 20 days in steps of five minutes, with pauses, restarts and clock steps.
    @Test func everyRowIsFoundUntilItExpires() throws {
        var steps = try Steps(KeyFile(path: folder.path).read())
        var chance = Chance(state: 7)
        var rows: [Row] = []
        var (now, ratchet, heldUntil) = (start, start, UInt64(0))
        var (found, holds, pauses) = (0, 0, 0)
        var shortest = Self.grids.map { _ in UInt64.max }
        var most = Self.grids.map { _ in 0 }
        while now < start + 20 * Self.dayMs {
            now += KeyFolder.epochMs
            switch chance.next() % 200 {
            case 0:
                // The broker was absent, so a generation starts late.
                now += chance.next() % (2 * Self.dayMs)
                steps = try Steps(steps.image)
                pauses += 1
            case 1:
                // Broker time steps, and the ratchet is held for a while.
                now += chance.next() % (20 * Self.hourMs)
                heldUntil = now + KeyFolder.epochMs
                holds += 1
            default: break
            }
            ratchet = now <= heldUntil ? ratchet + 60_000 : now
            try steps.step(ratchet)
            // At any time of the epoch, also if the next step is late.
            let at = now + chance.next() % KeyFolder.epochMs
            var mistakes: [String] = []
            for (number, grid) in Self.grids.enumerated() {
                let slots = steps.ratchet.expirySlots(grid.life, grid.step, at)
                let slot = steps.ratchet.expirySlot(grid.life, grid.step, at)
                most[number] = max(most[number], slots.count)
                if slots.contains(where: { $0.expiryMs <= at }) { mistakes.append("one has expired") }
                if !zip(slots, slots.dropFirst()).allSatisfy({ $0.expiryMs > $1.expiryMs }) { mistakes.append("not in order") }
                if slot.expiryMs > at + grid.life { mistakes.append("lives too long") }
                if ratchet == now { shortest[number] = min(shortest[number], slot.expiryMs - at) }
                guard slot.expiryMs > at else { continue }
                if slots.first != slot { mistakes.append("a new row is not found") }
                if chance.next().isMultiple(of: 20), let index = steps.index(slot) {
                    rows.append(Row(slot: slot, index: index, grid: number))
                }
            }
            rows.removeAll { $0.slot.expiryMs <= at }
            if chance.next().isMultiple(of: 50) {
                let slots = Self.grids.map { Set(steps.ratchet.expirySlots($0.life, $0.step, at)) }
                for row in rows {
                    if !slots[row.grid].contains(row.slot) { mistakes.append("a row is not found") }
                    if steps.index(row.slot) != row.index { mistakes.append("another index") }
                    found += 1
                }
            }
            #expect(mistakes.isEmpty, "at \(at)")
        }
        #expect(found > 2_000 && holds > 5 && pauses > 5)
        // At least the life minus a step, except for the minutes before the next step of the ratchet.
        for (number, grid) in Self.grids.enumerated() {
            #expect(shortest[number] > grid.life - min(grid.life, grid.step + 2 * KeyFolder.epochMs))
        }
        #expect(most[0] <= 31 && most[1] <= 14 && most[2] <= 4, "\(most)")
    }

    // Promise: rows-expire-together
    @Test func rowsOfAStepExpireTogether() throws {
        let ring = try load(folder)
        let born = Epoch(atMs: start).startMs
        func expiry(_ ms: UInt64, _ life: UInt64, _ step: UInt64) -> UInt64 {
            ring.expirySlot(lifeMs: life, stepMs: step, nowMs: ms).expiryMs
        }
        #expect(expiry(start, 30 * Self.dayMs, Self.dayMs) == born + 30 * Self.dayMs)
        _ = try ring.step(nowMs: born + Self.hourMs)
        #expect(expiry(born + Self.hourMs, 12 * Self.hourMs, Self.hourMs) == born + 13 * Self.hourMs)
        #expect(expiry(born + Self.hourMs + 299_999, 12 * Self.hourMs, Self.hourMs) == born + 13 * Self.hourMs)
        #expect(expiry(born + Self.hourMs, 30 * Self.dayMs, Self.dayMs) == born + 30 * Self.dayMs)
        // Shorter steps count within the epoch, but never beyond the ratchet's epoch.
        #expect(expiry(born + Self.hourMs + 25_000, 60_000, 10_000) == born + Self.hourMs + 80_000)
        #expect(expiry(born + 9 * Self.hourMs, 12 * Self.hourMs, Self.hourMs) == born + 13 * Self.hourMs)
        _ = try ring.step(nowMs: born + Self.dayMs)
        let next = ring.expirySlot(lifeMs: 30 * Self.dayMs, stepMs: Self.dayMs, nowMs: born + Self.dayMs)
        #expect(next == ExpirySlot(generation: 2, expiryMs: born + 31 * Self.dayMs))
        let slots = ring.expirySlots(lifeMs: 30 * Self.dayMs, stepMs: Self.dayMs, nowMs: born + Self.dayMs)
        #expect(slots == [next, ExpirySlot(generation: 1, expiryMs: born + 30 * Self.dayMs)])
    }

    @Test func expiredRowsAreNotLookedUp() throws {
        let ring = try load(folder)
        let slot = ring.expirySlot(lifeMs: Self.hourMs, stepMs: Self.hourMs, nowMs: start)
        func slots(_ ms: UInt64) -> [ExpirySlot] { ring.expirySlots(lifeMs: Self.hourMs, stepMs: Self.hourMs, nowMs: ms) }
        #expect(slots(slot.expiryMs - 1).contains(slot))
        #expect(!slots(slot.expiryMs).contains(slot))
        _ = try ring.step(nowMs: slot.expiryMs + 600_000)
        #expect(throws: SealingError.outOfReach) { try ring.index(.owner, slot, []) }
    }

    /// A file made for rooms keeps its generations. New seals can live for a month.
    @Test func anExistingFileSupportsALongerLife() throws {
        let rooms = try folder.load()
        for day in 1...10 as ClosedRange<UInt64> { _ = try rooms.step(nowMs: start + day * Self.dayMs) }
        #expect(rooms.generations.map(\.id) == Array(3...11))
        let room = try RoomID.random()
        let expiry = start + 12 * Self.dayMs
        let client = try rooms.client(room, slot: 1, "c", expiryMs: expiry, generation: 5)

        let ring = try load(folder)
        #expect(try ring.client(room, slot: 1, "c", expiryMs: expiry, generation: 5) == client)
        let now = start + 10 * Self.dayMs
        let slot = ring.expirySlot(lifeMs: 30 * Self.dayMs, stepMs: Self.dayMs, nowMs: now)
        let index = try ring.index(.owner, slot, [[1]])
        for day in 11...39 as ClosedRange<UInt64> {
            _ = try ring.step(nowMs: start + day * Self.dayMs)
            #expect(try ring.index(.owner, slot, [[1]]) == index)
            if day == 20 { #expect(ring.generations.map(\.id) == Array(3...21)) }
        }
        #expect(ring.generations.first?.id == 9)
        // The key is gone two epochs after the expiry, and the generation two epochs later.
        _ = try ring.step(nowMs: slot.expiryMs + 600_000)
        #expect(throws: SealingError.outOfReach) { try ring.index(.owner, slot, [[1]]) }
    }

    /// Memory has neither the chain nor the key of a past epoch.
    @Test func pastKeysAreWipedFromMemory() throws {
        let file = try folder.bytes()
        let (base, born) = (Array(file[24..<32]).reduce(0) { $0 << 8 | UInt64($1) }, Array(file[76..<108]))
        var chains = [born]
        var chain = born
        for _ in 0..<3_000 {
            chain = Derivation(chain.span, Label("chain")).digest().bytes
            chains.append(chain)
        }
        var generation = try Generation(id: 1, born: Epoch(base + 1), base: Epoch(base), reach: 9_000) { bytes in
            for index in born.indices { bytes[index] = born[index] }
        }
        func held() -> [UInt8] {
            [generation.memory, generation.ring, generation.far?.memory].compactMap(\.self).flatMap { memory in
                memory.withBytes(0..<memory.count) { $0.copy() }
            }
        }
        func count(_ epochs: Range<Int>) -> Int {
            let held = held()
            let slots = Set(stride(from: 0, to: held.count, by: 32).map { Array(held[$0..<$0 + 32]) })
            return epochs.count { epoch in
                let chain = chains[epoch]
                let key = Derivation(chain.span, Label("epoch")).digest().bytes
                return slots.contains(chain) || slots.contains(key)
            }
        }
        for ahead in [0, 100, 1_000, 2_305, 2_306, 2_320, 2_900, 2_999] as [UInt64] {
            _ = generation.derivation(Epoch(base + ahead), .ownerIndex).digest()
        }
        #expect(count(0..<2_306) == 2_306 && count(2_306..<3_000) > 20)
        for passed in [1, 32, 70, 1_000, 2_400, 2_990] as [UInt64] {
            generation.advance(to: Epoch(base + passed))
            #expect(count(0..<Int(passed)) == 0, "\(passed)")
            _ = generation.derivation(Epoch(base + 2_995), .ownerIndex).digest()
        }
        generation.releaseRing()
        #expect(generation.ring == nil)
        generation.advance(to: Epoch(base + 3_000))
        #expect(count(0..<3_000) == 0)
    }

    /// Keys far ahead aren't all kept in memory. They still match the chain, and past ones are destroyed.
    @Test func keysFarAheadMatchTheChain() throws {
        let file = try folder.bytes()
        let base = Array(file[24..<32]).reduce(0) { $0 << 8 | UInt64($1) }
        func expected(_ epoch: UInt64) throws -> Digest {
            var chain = Array(file[76..<108])
            for _ in base..<epoch { chain = Derivation(chain.span, Label("chain")).digest().bytes }
            let key = Derivation(chain.span, Label("epoch")).digest().bytes
            let digest = Derivation(key.span, Label("owner-index")).digest()
            return Digest(leading: epoch * KeyFolder.epochMs, digest)
        }
        func found(_ ring: KeyRing, _ epoch: UInt64) throws -> Digest {
            try ring.index(.owner, ExpirySlot(generation: 1, expiryMs: epoch * KeyFolder.epochMs), [])
        }
        var chance = Chance(state: 3)
        let ahead =
            (0..<60).map { _ in base + chance.next() % 8_900 } + [base, base + 2_305, base + 2_306, base + 2_307, base + 8_900]
        let right = try ahead.map(expected)
        var ring = try load(folder)
        for (step, days) in [0, 0, 1, 3, 8, 9, 12, 20, 29, 30].enumerated() {
            _ = try ring.step(nowMs: start + UInt64(days) * Self.dayMs)
            if step.isMultiple(of: 3) { ring = try load(folder) }
            for (epoch, digest) in zip(ahead, right).shuffled(using: &chance) {
                if epoch >= ring.baseEpoch.number {
                    #expect(try found(ring, epoch) == digest)
                } else {
                    #expect(throws: SealingError.outOfReach) { try found(ring, epoch) }
                }
            }
        }
    }
}

/// Reproducible random numbers (SplitMix64).
struct Chance: RandomNumberGenerator {
    var state: UInt64

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var mixed = state
        mixed = (mixed ^ mixed >> 30) &* 0xbf58_476d_1ce4_e5b9
        mixed = (mixed ^ mixed >> 27) &* 0x94d0_49bb_1331_11eb
        return mixed ^ mixed >> 31
    }
}
