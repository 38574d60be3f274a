import Linux
import Synchronization
import Testing
import Vocabulary

@testable import Sealing

/// Keys travel to other nodes sealed, and a new generation before its first use.
@Suite struct KeyTransferTests {
    private let start = KeyFolder.startMs
    private let week: UInt64 = 604_800

    private func index(_ ring: KeyRing, _ timeMs: UInt64, _ generation: UInt32 = 1) throws -> Digest {
        try ring.client(
            try RoomID(base64url: Array(repeating: UInt8(ascii: "A"), count: 43).span)!, slot: 1, "c", expiryMs: timeMs,
            generation: generation)
    }

    private func copy(of ring: KeyRing) throws -> ReceivedKeys {
        let receiver = try KeyReceiver()
        return try receiver.open(try #require(ring.sealed(for: receiver.publicKey)).box)
    }

    // Promise: nodes-get-each-generation
    @Test func aCopyHasTheSameKeys() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        for days: UInt64 in 0..<10 {
            _ = try ring.step(nowMs: start + days * KeyFolder.dayMs + 7 * KeyFolder.epochMs)
            let received = try copy(of: ring)
            let other = try KeyRing(received, longestLifeSeconds: week)
            #expect(received.steps == ring.steps && received.currentGeneration == ring.currentGeneration)
            #expect(other.generations.map(\.id) == ring.generations.map(\.id) && other.baseEpoch == ring.baseEpoch)
            for (generation, _) in ring.generations {
                let time = start + days * KeyFolder.dayMs + 20 * KeyFolder.epochMs
                #expect(try index(ring, time, generation) == index(other, time, generation))
            }
        }
    }

    // Promise: nodes-get-each-generation
    @Test func aStepIsSharedBeforeItsFirstUse() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        let before = ring.edition
        let shared = Mutex<[UInt32]>([])
        let share = {
            // Seals still use the previous generation.
            guard ring.currentGeneration == 1, ring.edition != before, let received = try? copy(of: ring) else { return }
            shared.withLock { $0.append(received.currentGeneration) }
        }
        _ = try ring.step(nowMs: start + 3 * KeyFolder.epochMs, offered: share)
        #expect(shared.withLock(\.self) == [1])
        _ = try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs, offered: share)
        #expect(shared.withLock(\.self) == [1, 2] && ring.currentGeneration == 2)
        #expect(try copy(of: ring).currentGeneration == 2)
    }

    /// If the file can't be replaced, the step has not happened. Its keys must not be used by anyone.
    @Test func aFailedStepIsTakenBack() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        let (offered, path) = (Box(), folder.folder)
        #expect(throws: KeyFileError.self) {
            try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs) {
                offered.value.withLock { $0 = ring.edition }
                try? File.removeTree(path)
            }
        }
        #expect(ring.edition != offered.value.withLock(\.self) && ring.currentGeneration == 1)
        #expect(try copy(of: ring).currentGeneration == 1)
    }

    // Promise: nodes-share-keys
    @Test func aFollowerMakesTheSameSteps() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        let other = try KeyRing(try copy(of: ring), longestLifeSeconds: week)
        for epochs: UInt64 in [3, 288 + 1, 288 + 7, 2 * 288 + 1, 9 * 288 + 2] {
            _ = try ring.step(nowMs: start + epochs * KeyFolder.epochMs)
            let isNew = try other.follow(copy(of: ring))
            #expect(other.steps == ring.steps && other.baseEpoch == ring.baseEpoch)
            #expect(other.generations.map(\.id) == ring.generations.map(\.id))
            let (newest, time) = (ring.currentGeneration, start + (epochs + 20) * KeyFolder.epochMs)
            #expect(try index(ring, time, newest) == index(other, time, newest))
            // It opens the new generation's rows, and seals with the one before.
            #expect(other.currentGeneration == (isNew ? newest - 1 : newest))
            // Both look in the same slots, also for what the other has sealed.
            let now = start + epochs * KeyFolder.epochMs
            let slots = other.expirySlots(lifeMs: 86_400_000, stepMs: 3_600_000, nowMs: now)
            #expect(ring.expirySlots(lifeMs: 86_400_000, stepMs: 3_600_000, nowMs: now) == slots)
            // After six days without a step, all slots of the previous generation have expired.
            for one in [ring, other] where epochs < 9 * 288 {
                #expect(slots.contains(one.expirySlot(lifeMs: 86_400_000, stepMs: 3_600_000, nowMs: now)))
            }
            other.sealWithNewest()
            #expect(other.currentGeneration == newest)
        }
        // It can lead after that.
        _ = try other.step(nowMs: start + 11 * KeyFolder.dayMs)
        #expect(other.currentGeneration == ring.currentGeneration + 1)
    }

    // Promise: nodes-share-keys
    @Test func aNodeThatJoinsDuringAnOfferSealsWithThePreviousGeneration() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        let joined = Mutex<KeyRing?>(nil)
        _ = try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs) {
            joined.withLock { $0 = try? KeyRing(copy(of: ring), longestLifeSeconds: week) }
        }
        let found = joined.withLock { $0 }
        let other = try #require(found)
        other.beginFollowing()
        #expect(other.currentGeneration == 1 && ring.currentGeneration == 2)
        other.sealWithNewest()
        #expect(other.currentGeneration == 2)
    }

    /// The keys of the previous generation are destroyed before such seals would expire.
    @Test func aNodeThatJoinsLaterSealsWithTheNewestGeneration() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        for epochs: UInt64 in [289, 290] { _ = try ring.step(nowMs: start + epochs * KeyFolder.epochMs) }
        let other = try KeyRing(try copy(of: ring), longestLifeSeconds: week)
        other.beginFollowing()
        #expect(other.currentGeneration == 2 && ring.currentGeneration == 2)
    }

    /// A node may begin to lead while it holds back a generation.
    @Test func aStepDuringAHoldBackKeepsTheGeneration() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        let other = try KeyRing(try copy(of: ring), longestLifeSeconds: week)
        _ = try ring.step(nowMs: start + 289 * KeyFolder.epochMs)
        #expect(try other.follow(copy(of: ring)) && other.currentGeneration == 1)
        #expect(try #require(try other.step(nowMs: start + 290 * KeyFolder.epochMs)).newGeneration == nil)
        #expect(other.generations.map(\.id) == [1, 2] && other.currentGeneration == 2)
        #expect(try copy(of: other).currentGeneration == 2)
    }

    /// Here a generation's keys end minutes after its last seal.
    @Test func aGenerationThatIsHeldBackMayBeTheOnlyOneLeft() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: 300)
        let other = try KeyRing(try copy(of: ring), longestLifeSeconds: 300)
        _ = try ring.step(nowMs: start + 289 * KeyFolder.epochMs)
        #expect(try other.follow(copy(of: ring)))
        for epochs: UInt64 in [290, 291, 292, 293] { _ = try ring.step(nowMs: start + epochs * KeyFolder.epochMs) }
        #expect(ring.generations.map(\.id) == [2])
        #expect(try !other.follow(copy(of: ring)) && other.currentGeneration == 2)
    }

    @Test func aGenerationThatWasTakenBackIsDropped() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        let other = try KeyRing(try copy(of: ring), longestLifeSeconds: week)
        let (path, saved) = (folder.folder, folder.folder + "-saved")
        #expect(throws: KeyFileError.self) {
            try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs) {
                _ = try? other.follow(copy(of: ring))
                try? File.rename(path, to: saved)
            }
        }
        #expect(other.generations.map(\.id) == [1, 2] && other.currentGeneration == 1)
        #expect(try !other.follow(copy(of: ring)) && other.generations.map(\.id) == [1])
        try File.rename(saved, to: path)
        _ = try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs)
        #expect(try other.follow(copy(of: ring)))
        let time = start + KeyFolder.dayMs + 20 * KeyFolder.epochMs
        #expect(try index(ring, time, 2) == index(other, time, 2))
    }

    @Test func aGenerationThatCouldNotBeStoredStillWaits() throws {
        let folder = try KeyFolder()
        let other = try folder.load()
        let ring = try KeyRing(try copy(of: other), longestLifeSeconds: week)
        _ = try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs)
        try File.rename(folder.folder, to: folder.folder + "-saved")
        #expect(throws: KeyFileError.self) { try other.follow(copy(of: ring)) }
        try File.rename(folder.folder + "-saved", to: folder.folder)
        #expect(try other.follow(copy(of: ring)) && other.currentGeneration == 1)
        other.sealWithNewest()
        #expect(try !other.follow(copy(of: ring)) && other.currentGeneration == 2)
    }

    @Test func otherKeysUnderTheSameNamesAreRefused() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        let other = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        #expect(throws: KeyFileError.otherKeys) { try other.follow(copy(of: ring)) }
        // In use there, so it can't be replaced.
        let follower = try KeyRing(try copy(of: ring), longestLifeSeconds: week)
        let twin = try KeyRing(try copy(of: ring), longestLifeSeconds: week)
        for one in [ring, twin] { _ = try one.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs) }
        #expect(try follower.follow(copy(of: ring)))
        follower.sealWithNewest()
        #expect(throws: KeyFileError.otherKeys) { try follower.follow(copy(of: twin)) }
        // By now the twin has dropped each generation that the follower has.
        for days: UInt64 in 2..<12 { _ = try twin.step(nowMs: start + days * KeyFolder.dayMs + KeyFolder.epochMs) }
        #expect(throws: KeyFileError.otherKeys) { try follower.follow(copy(of: twin)) }
        #expect(follower.generations.map(\.id) == [1, 2])
    }

    // Promise: shortage-is-not-absence
    @Test func aGenerationThatIsOnItsWayIsAShortage() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        let other = try KeyRing(try copy(of: ring), longestLifeSeconds: week)
        other.beginFollowing()
        _ = try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs)
        let time = start + KeyFolder.dayMs + 20 * KeyFolder.epochMs
        #expect(throws: SealingError.outOf(.behind)) { try index(other, time, 2) }
        #expect(throws: SealingError.outOfReach) { try index(other, time, 3) }
        // The node that makes the steps knows that there is none.
        #expect(throws: SealingError.outOfReach) { try index(ring, time, 3) }
        _ = try other.follow(copy(of: ring))
        #expect(try index(ring, time, 2) == index(other, time, 2))
    }

    // Promise: node-certificates
    @Test func onlyTheReceiverOpensThem() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        let (receiver, other) = (try KeyReceiver(), try KeyReceiver())
        let sealed = try #require(ring.sealed(for: receiver.publicKey)).box
        #expect(throws: KeyFileError.corrupt) { try other.open(sealed) }
        for position in [0, 31, 32, 60, sealed.count - 1] {
            var changed = sealed
            changed[position] ^= 1
            #expect(throws: KeyFileError.corrupt) { try receiver.open(changed) }
        }
        #expect(throws: KeyFileError.truncated) { try receiver.open(Array(sealed[..<40])) }
        #expect(ring.sealed(for: []) == nil)
        #expect(ring.sealed(for: [UInt8](repeating: 0, count: 32)) == nil)
        #expect(try receiver.open(sealed).steps == 1)
    }

    @Test func aWrappedFileGetsAnotherNodesKeys() throws {
        let folder = try KeyFolder()
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        _ = try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs)
        let other = try KeyRing(try copy(of: ring), path: folder.path, longestLifeSeconds: week)
        #expect(try folder.load().steps == 2)
        _ = try other.step(nowMs: start + 2 * KeyFolder.dayMs + KeyFolder.epochMs)
        #expect(try folder.load().currentGeneration == 3)
        try other.destroyFile(folder.path)
        #expect(!File.exists(folder.path) && !File.exists(folder.path + ".new"))
        // From then on steps are taken in memory only.
        _ = try other.step(nowMs: start + 3 * KeyFolder.dayMs + KeyFolder.epochMs)
        #expect(other.steps == 4 && !File.exists(folder.path))
    }
}

private final class Box: Sendable {
    let value = Mutex<UInt64>(0)
}
