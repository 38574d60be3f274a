import Sodium
import Testing

@Suite struct MemoryTests {
    @Test func lockedMemoryStartsEmptyAndKeepsBytes() throws {
        let memory = try LockedMemory(count: 300)
        let sum = memory.withBytes(0..<300) { bytes in
            var sum = 0
            for index in bytes.indices { sum += Int(bytes[index]) }
            return sum
        }
        #expect(sum == 0)
        memory.withMutableBytes(100..<102) {
            $0[0] = 1
            $0[1] = 2
        }
        #expect(memory.withBytes(99..<103) { [$0[0], $0[1], $0[2], $0[3]] } == [0, 1, 2, 0])
        memory.wipe(100..<101)
        #expect(memory.withBytes(100..<102) { [$0[0], $0[1]] } == [0, 2])
    }

    @Test func wipeReachesTheWholeArray() {
        var bytes: [UInt8] = [1, 2, 3]
        Sodium.wipe(&bytes)
        #expect(bytes.isEmpty)
        var more: [UInt8] = [9, 9, 9, 9]
        var span = more.mutableSpan
        Sodium.wipe(&span)
        #expect(more == [0, 0, 0, 0])
    }

    @Test func equality() {
        #expect(equal([], []))
        #expect(equal([1, 2], [1, 2]))
        #expect(!equal([1, 2], [1, 3]))
        #expect(!equal([1, 2], [1, 2, 3]))
    }

    @Test func publicRandomBytesAreUsedOnce() {
        // Several blocks, in lengths that do not divide a block.
        var seen: Set<[UInt8]> = []
        for _ in 0..<500 {
            var bytes = [UInt8](repeating: 0, count: 24)
            var span = bytes.mutableSpan
            Sodium.fillPublicRandom(&span)
            for start in [0, 8, 16] { #expect(seen.insert(Array(bytes[start..<start + 8])).inserted) }
        }
    }

    @Test func randomBytesDiffer() {
        #expect(Sodium.randomBytes(32) != Sodium.randomBytes(32))
        #expect(Sodium.randomBytes(0) == [])
        for _ in 0..<100 { #expect(Sodium.random(below: 3) < 3) }
    }
}
