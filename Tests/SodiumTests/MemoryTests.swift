import Glibc
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

    /// libsodium leaves words of the message and the digest in its frames.
    @Test func aHashLeavesNothingOnTheStack() {
        // Read as a file, since the address sanitizer refuses to read the stack of calls that have returned.
        let memory = unsafe open("/proc/self/mem", O_RDONLY)
        defer { close(memory) }
        let stack = UnsafeMutableRawBufferPointer.allocate(byteCount: 4_096, alignment: 8)
        defer { unsafe stack.deallocate() }
        var end: UInt8 = 0
        let start = unsafe withUnsafePointer(to: &end) { Int(bitPattern: $0) } - stack.count
        let key = [UInt8](repeating: 7, count: 32)
        // The first call of each C function is bound then, which saves all registers on the stack. So the first round doesn't count.
        for isBound in [false, true] {
            let message = (0..<400).map { _ in UInt8.random(in: 0...255) }
            var hash = GenericHash(key: key.span)
            hash.update(message.span)
            // At once, since each further call overwrites some of it.
            let first = unsafe pread(memory, stack.baseAddress, stack.count, start)
            let afterUpdate = unsafe Array(stack)
            let digest: [UInt8] = hash.finish()
            let second = unsafe pread(memory, stack.baseAddress, stack.count, start)
            let afterFinish = unsafe Array(stack)
            guard isBound else { continue }
            #expect(first == stack.count && second == stack.count)
            #expect(!isPart(of: message, in: afterUpdate))
            #expect(!isPart(of: message, in: afterFinish) && !isPart(of: digest, in: afterFinish))
        }
    }

    /// Returns true if `bytes` contain two adjacent words of `text`.
    private func isPart(of text: [UInt8], in bytes: [UInt8]) -> Bool {
        stride(from: 0, through: text.count - 16, by: 8).contains { bytes.firstRange(of: text[$0..<$0 + 16]) != nil }
    }

    @Test func equality() {
        #expect(equal([], []))
        #expect(equal([1, 2], [1, 2]))
        #expect(!equal([1, 2], [1, 3]))
        #expect(!equal([1, 2], [1, 2, 3]))
    }

    /// Pages are mapped when they are first read, so they show how far a comparison reads. Secrets compare by `Sodium.equal` alone.
    // Promise: constant-time
    @Test func aComparisonReadsAllBytesWhereverTheyDiffer() throws {
        let page = sysconf(Int32(_SC_PAGESIZE))
        let count = 16 * page
        /// Returns how many pages of two buffers `compare` reads. Their first bytes differ.
        func pagesRead(_ compare: (UnsafeRawBufferPointer, UnsafeRawBufferPointer) -> Bool) throws -> Int {
            let memory = unsafe mmap(nil, 2 * count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            let isMade = unsafe memory != MAP_FAILED
            try #require(isMade)
            let all = unsafe UnsafeMutableRawBufferPointer(start: memory, count: 2 * count)
            defer { unsafe munmap(memory, 2 * count) }
            unsafe all[0] = 1
            let (left, right) = unsafe (
                UnsafeRawBufferPointer(rebasing: all[..<count]), UnsafeRawBufferPointer(rebasing: all[count...])
            )
            let isEqual = unsafe compare(left, right)
            var isMapped = [UInt8](repeating: 0, count: 32)
            let status = unsafe mincore(memory, 2 * count, &isMapped)
            #expect(!isEqual && status == 0)
            return isMapped.count { $0 & 1 == 1 }
        }
        let all = try unsafe pagesRead { left, right in
            unsafe Sodium.equal(
                Span(_unsafeElements: left.bindMemory(to: UInt8.self)), Span(_unsafeElements: right.bindMemory(to: UInt8.self)))
        }
        #expect(all == 32)
        let first = try unsafe pagesRead { left, right in unsafe memcmp(left.baseAddress!, right.baseAddress!, count) == 0 }
        #expect(first < 32)
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
