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

    // Promise: standby-gets-each-generation
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

    // Promise: standby-gets-each-generation
    @Test func aGenerationIsSharedBeforeItsFirstUse() throws {
        let ring = try KeyRing.make(nowMs: start, longestLifeSeconds: week)
        let before = ring.edition
        let shared = Mutex<[UInt32]>([])
        ring.beforeGeneration {
            // Seals still use the previous generation.
            guard ring.currentGeneration == 1, ring.edition != before, let received = try? copy(of: ring) else { return }
            shared.withLock { $0.append(received.currentGeneration) }
        }
        // A step without a new generation waits for nobody.
        _ = try ring.step(nowMs: start + 3 * KeyFolder.epochMs)
        #expect(shared.withLock(\.self).isEmpty)
        _ = try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs)
        #expect(shared.withLock(\.self) == [2] && ring.currentGeneration == 2)
        #expect(try copy(of: ring).currentGeneration == 2)
    }

    /// If the file can't be replaced, the step has not happened. Its keys must not be used by anyone.
    @Test func aFailedStepIsTakenBack() throws {
        let folder = try KeyFolder()
        let ring = try folder.load()
        let (offered, path) = (Box(), folder.folder)
        ring.beforeGeneration {
            offered.value.withLock { $0 = ring.edition }
            try? File.removeTree(path)
        }
        #expect(throws: KeyFileError.self) { try ring.step(nowMs: start + KeyFolder.dayMs + KeyFolder.epochMs) }
        #expect(ring.edition != offered.value.withLock(\.self) && ring.currentGeneration == 1)
        #expect(try copy(of: ring).currentGeneration == 1)
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
