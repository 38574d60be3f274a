import Linux
import Testing
import Vocabulary

@testable import Sealing

@Suite struct RatchetTests {
    private let room = try! RoomID.random()
    private let start = KeyFolder.startMs
    private func index(_ ring: KeyRing, _ timeMs: UInt64, _ generation: UInt32 = 1) throws -> Digest {
        try ring.client(room, slot: 1, "c", expiryMs: timeMs, generation: generation)
    }

    // Promise: indexes-die-with-their-key
    @Test func stepsDestroyThePastAndKeepTheFuture() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        #expect(try ring.step(nowMs: start) == nil)
        let epoch = Epoch(atMs: start)
        #expect(ring.nextStepMs == epoch.endMs && ring.earliestNowMs == epoch.startMs)
        let times = (0..<40).map { start + UInt64($0) * 3 * KeyFolder.epochMs }
        let before = try times.map { try index(ring, $0) }
        #expect(Set(before).count == times.count)

        let later = start + 60 * KeyFolder.epochMs
        let step = try #require(try ring.step(nowMs: later))
        #expect(step == RatchetStep(destroyed: Epoch(epoch.number + 58), newGeneration: nil, steps: 2))
        #expect(ring.baseEpoch == Epoch(epoch.number + 59))
        let loaded = try folder.load()
        for (time, was) in zip(times, before) {
            if Epoch(atMs: time) < ring.baseEpoch {
                #expect(throws: SealingError.outOfReach) { try index(ring, time) }
                #expect(throws: SealingError.outOfReach) { try index(loaded, time) }
            } else {
                #expect(try index(ring, time) == was)
                #expect(try index(loaded, time) == was)
            }
        }
        // The base, one epoch before the current one, is the oldest with keys.
        #expect(try index(ring, later - KeyFolder.epochMs) == index(loaded, later - KeyFolder.epochMs))
    }

    @Test func manySmallStepsEqualABigOne() throws {
        let folder = try KeyFolder()
        let bytes = try folder.bytes()
        let ring = try folder.load()
        for count in 1...20 as ClosedRange<UInt64> {
            let step = try ring.step(nowMs: start + count * KeyFolder.epochMs)
            #expect(step?.destroyed == Epoch(Epoch(atMs: start).number + count - 2) && step?.steps == count + 1)
        }
        let other = try KeyFolder(creating: nil)
        try other.write(bytes)
        let atOnce = try other.load()
        _ = try atOnce.step(nowMs: start + 20 * KeyFolder.epochMs)
        for ahead: UInt64 in [0, 1, 100, 2000] {
            let time = start + (20 + ahead) * KeyFolder.epochMs
            #expect(try index(ring, time) == index(atOnce, time))
        }
        #expect(try ring.codes("123456", nowMs: start) == atOnce.codes("123456", nowMs: start))
    }

    @Test func aClockGoingBackCausesNoStep() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        _ = try ring.step(nowMs: start + 10 * KeyFolder.epochMs)
        let (base, bytes) = (ring.baseEpoch, try folder.bytes())
        for back in [start, start - 30 * KeyFolder.dayMs, 0, 1] as [UInt64] {
            #expect(try ring.step(nowMs: back) == nil)
        }
        #expect(try ring.baseEpoch == base && folder.bytes() == bytes)
    }

    @Test func absurdTimesAreRefused() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        #expect(throws: KeyFileError.implausibleTime) { try ring.step(nowMs: .max) }
        #expect(throws: SealingError.outOfReach) { try index(ring, .max) }
        #expect(throws: SealingError.outOfReach) { try index(ring, 0) }
        #expect(throws: SealingError.outOfReach) { try ring.codes("123456", nowMs: .max) }
        #expect(throws: KeyFileError.implausibleTime) { try KeyRing.create(path: "/nonexistent/x", nowMs: 0) }
    }

    // Promise: daily-generation
    @Test func generationsStartDailyAndEndAfterTheLongestLife() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        #expect(ring.currentGeneration == 1)
        #expect(try ring.step(nowMs: start + KeyFolder.dayMs - KeyFolder.epochMs)?.newGeneration == nil)
        // A seal just before the second generation starts, with the longest life.
        let last = (Epoch(atMs: start).number + Epoch.perDay) * KeyFolder.epochMs - 1
        let expiry = last + KeyRing.longestLifeSeconds * 1000
        let sealed = try index(ring, expiry)
        #expect(try ring.step(nowMs: last) == nil)
        #expect(try ring.step(nowMs: last + 1)?.newGeneration == 2)
        #expect(ring.currentGeneration == 2)
        #expect(try index(ring, expiry, 2) != sealed)

        // With a step every four hours, the first generation exists until the expiry and is gone soon after.
        var now = last + 1
        while now + 14_400_000 < expiry {
            now += 14_400_000
            _ = try ring.step(nowMs: now)
            #expect(try index(ring, expiry, 1) == sealed)
        }
        _ = try ring.step(nowMs: expiry)
        #expect(try index(ring, expiry, 1) == sealed)
        #expect(try folder.bytes().count == 64 + 8 * 44 + 32)
        _ = try ring.step(nowMs: expiry + 3 * KeyFolder.epochMs)
        #expect(throws: SealingError.outOfReach) { try index(ring, expiry + KeyFolder.dayMs, 1) }
        #expect(try folder.bytes().count == 64 + 8 * 44 + 32)
        #expect(try folder.load().currentGeneration == ring.currentGeneration)
    }

    @Test func aLongPauseStartsOneGeneration() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        let step = try #require(try ring.step(nowMs: start + 400 * KeyFolder.dayMs))
        #expect(step.newGeneration == 2)
        #expect(step.destroyed == Epoch(Epoch(atMs: start).number + 400 * Epoch.perDay - 2))
        #expect(try folder.load().currentGeneration == 2)
        // The generation ends one life later.
        _ = try ring.step(nowMs: start + 408 * KeyFolder.dayMs)
        #expect(throws: SealingError.outOfReach) { try index(ring, start + 409 * KeyFolder.dayMs, 1) }
    }

    @Test func reachEndsWithTheLongestLife() throws {
        let ring = try KeyFolder().load()
        let life = KeyRing.longestLifeSeconds * 1000
        _ = try index(ring, start + life)
        _ = try index(ring, start + life + KeyFolder.dayMs)
        #expect(throws: SealingError.outOfReach) { try index(ring, start + life + KeyFolder.dayMs + 2 * KeyFolder.epochMs) }
    }

    // Promise: no-older-chain-in-the-file
    @Test func theFileHasNoOlderChain() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        var seen = Set<[UInt8]>()
        for count in 0...5 as ClosedRange<UInt64> {
            _ = try ring.step(nowMs: start + count * KeyFolder.epochMs)
            // No earlier chain may be anywhere in the file.
            let bytes = try folder.bytes()
            for old in seen { #expect(!bytes.windows(of: 32).contains(old)) }
            seen.insert(Array(bytes[76..<108]))
        }
        #expect(seen.count == 6)
    }

    @Test func codeIndexesReachTwoDaysBack() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        let today = try ring.codes("123456", nowMs: start)
        #expect(today.count == 3 && Set(today).count == 3)
        #expect(try ring.codes("123457", nowMs: start)[0] != today[0])
        // Broker time may be ahead of a held ratchet.
        #expect(try Array(ring.codes("123456", nowMs: start + KeyFolder.dayMs)[1...]) == [today[0], today[1]])

        for day in 1...2 as ClosedRange<UInt64> { _ = try ring.step(nowMs: start + day * KeyFolder.dayMs) }
        let later = try ring.codes("123456", nowMs: start + 2 * KeyFolder.dayMs)
        #expect(later.count == 3 && later[2] == today[0])
        _ = try ring.step(nowMs: start + 3 * KeyFolder.dayMs)
        #expect(try !ring.codes("123456", nowMs: start + 3 * KeyFolder.dayMs).contains(today[0]))
        // There are no older keys, whatever time is asked for.
        #expect(try !ring.codes("123456", nowMs: start).contains(today[0]))
        #expect(try folder.load().codes("123456", nowMs: start + 3 * KeyFolder.dayMs).contains(later[0]))
    }

    @Test func codeIndexesAheadMatchTheLaterDay() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        let ahead = try (0...7 as ClosedRange<UInt64>).map { try ring.codes("123456", nowMs: start + $0 * KeyFolder.dayMs) }
        for day in 1...7 as ClosedRange<UInt64> {
            _ = try ring.step(nowMs: start + day * KeyFolder.dayMs)
            #expect(try ring.codes("123456", nowMs: start + day * KeyFolder.dayMs) == ahead[Int(day)])
            #expect(ahead[Int(day)][1] == ahead[Int(day) - 1][0])
        }
    }

    /// Another node whose clock is ahead may have stored the code under the next day.
    @Test func codesAreFoundAcrossMidnightThoughClocksDiffer() throws {
        let ring = try KeyFolder().load()
        let midnight = (start / KeyFolder.dayMs + 1) * KeyFolder.dayMs
        func codes(_ now: UInt64) throws -> [Digest] {
            try ring.codeIndexes(Array("123456".utf8).span, nowMs: now, aheadMs: 120_000)
        }
        let ahead = try codes(midnight + 1)
        #expect(try codes(midnight - 119_999).last == ahead[0] && codes(midnight - 119_999).count == 4)
        #expect(try !codes(midnight - 120_001).contains(ahead[0]))
        #expect(try codes(midnight - 1)[0] == ahead[1])
    }

    @Test func sealsContinueDuringAStep() async throws {
        let folder = try KeyFolder()
        let (ring, room, expiry) = (try folder.load(), room, start + KeyFolder.dayMs)
        let expected = try index(ring, expiry)
        await withTaskGroup(of: Bool.self) { group in
            group.addTask {
                for count in 1...40 as ClosedRange<UInt64> {
                    guard (try? ring.step(nowMs: KeyFolder.startMs + count * KeyFolder.epochMs)) != nil else { return false }
                }
                return true
            }
            for _ in 0..<3 {
                group.addTask {
                    for _ in 0..<500 {
                        guard try! ring.client(room, slot: 1, "c", expiryMs: expiry) == expected else { return false }
                    }
                    return true
                }
            }
            for await isRight in group { #expect(isRight) }
        }
        #expect(ring.steps == 41)
    }
}

extension Array {
    func windows(of count: Int) -> [Array] { indices.dropLast(count - 1).map { Array(self[$0..<$0 + count]) } }
}
