import Testing
import Vocabulary

@testable import Ledger

/// Proof files: valid proofs of a log, and refused changes.
@Suite struct ProofTests {
    static let log = VerifierTests.log
    static let story = VerifierTests.story
    static let key = PublishedLog.key.verifierKey

    /// The error of making a proof. Nil if it succeeds.
    static func refusal(_ source: MemorySource, _ subject: UInt64) async -> VerificationFailure? {
        do {
            _ = try await LogProof.make(from: source, key: key, index: subject)
            return nil
        } catch { return error }
    }

    /// The error of a proof file. Nil if it is valid.
    static func verdict(_ proof: LogProof, key: VerifierKey = key) -> VerificationFailure? {
        do {
            _ = try proof.entry(signedBy: key)
            return nil
        } catch { return error }
    }

    static func proof(of index: UInt64 = 300) async throws -> LogProof {
        try await LogProof.make(from: log.source, key: key, index: index)
    }

    @Test func everyEntryIsProvedByOneFile() async throws {
        for index in stride(from: 0, to: Self.story.count, by: 21) {
            let file = try await Self.proof(of: UInt64(index)).encoded
            let (entry, head) = try #require(LogProof(file)).entry(signedBy: Self.key)
            #expect(entry == Self.story[index])
            #expect(head.size == UInt64(Self.story.count))
        }
    }

    @Test func aLogContinuesOnlyItsOwnCheckpoints() async throws {
        let heads = Self.log.checkpoints.map { SignedNote($0)!.checkpoint(signedBy: Self.key)! }
        let head = try #require(heads.last)
        #expect(heads.first?.size == 0 && heads.count > 20)
        for var old in heads {
            var tiles = TileReader(Self.log.source, size: head.size)
            #expect(try await tiles.continues(old, root: head.root))
            old.root = .leaf([UInt8]("another".utf8).span)
            #expect(try await !tiles.continues(old, root: head.root), "\(old.size) entries")
        }
        // An answer needs tiles that lead to the signed root.
        var damaged = Self.log.source
        for path in damaged.files.keys where path.hasPrefix("tile/0/") && path.contains(".p/") { damaged.files[path]![0] ^= 1 }
        var tiles = TileReader(damaged, size: head.size)
        await #expect(throws: VerificationFailure.self) { _ = try await tiles.continues(heads[heads.count - 2], root: head.root) }
    }

    static let refs = HonestBroker.refs(seed: 11, VerifierTests.setting)

    // Promise: owner-proves-its-token
    @Test func aRefIsProvedByItsPurgeOrItsLatestPush() async throws {
        var (purged, live) = (0, 0)
        for ref in Self.refs.prefix(30) {
            guard let story = try? await TokenStory.find(in: Self.log.source, key: Self.key, ref: ref) else { continue }
            let proof = try await LogProof.make(from: Self.log.source, key: Self.key, ref: ref)
            let entry = try proof.entry(signedBy: Self.key).entry
            #expect(entry == story.entryToProve?.entry && entry.isAbout(ref))
            if entry.op.rank == 4 { purged += 1 } else { live += 1 }
            #expect(story.seals.count == 1 && story.purges.count == (entry.op.rank == 4 ? 1 : 0))
            for event in story.seals + story.purges + story.pushes.map(\.opening) {
                #expect(Self.story[Int(event.index)] == event.entry)
            }
            #expect(story.description.hasSuffix("its purge waits for its batch") == story.purges.isEmpty)
        }
        #expect(purged > 2 && live > 2)
    }

    // Promise: owner-sees-its-token
    @Test func aTokensStoryIsComplete() async throws {
        let (ref, job, lost) = (Ref(7), JobID(8), JobID(9))
        let until: UInt64 = 86_400_000
        let name = EntryText("peer_waiting")!
        let ops: [Entry.Op] = [
            .tokenOpened(id: ref.openedID(job), job: job, template: name),
            .tokenOpened(id: ref.openedID(lost), job: lost, template: name),
            .pushDelivered(job: job, status: 200), .pushDelivered(job: JobID(10), status: 200),
            .tokenSealed(id: ref.sealedID(untilMs: until), untilMs: until),
            .tokenPurged(id: ref.purgeID(untilMs: until), cause: .ended),
        ]
        var log = PublishedLog()
        log.publish(ops.map { Entry(atMs: 60_000, $0).encoded })
        let story = try await TokenStory.find(in: log.source, key: Self.key, ref: ref)
        #expect(
            story.description == """
                the token was sealed some time before 1970-01-01T00:01:00Z, to be purged by 1970-01-02T00:00:00Z (entry 4)
                the token was opened at 1970-01-01T00:01:00Z for one push, peer_waiting (entry 0); the push service accepted it at \
                1970-01-01T00:01:00Z with status 200 (entry 2)
                the token was opened at 1970-01-01T00:01:00Z for one push, peer_waiting (entry 1); its outcome is not in the log yet
                the token was purged before 1970-01-01T00:01:00Z, early (ended) (entry 5)
                """)
        #expect(!ops.dropLast().contains { Entry(atMs: 60_000, $0).isAbout(Ref(8)) })
        for other in [Ref(0), Ref(8)] {
            let failure = await #expect(throws: VerificationFailure.self) {
                try await LogProof.make(from: log.source, key: Self.key, ref: other)
            }
            // The ref is the owner's secret, so messages must not contain it.
            #expect(failure?.code == .missing && failure?.id == nil)
        }
    }

    /// The ids of specs/transparency-log.md.
    // Promise: ids-derived-from-the-ref
    @Test func idsAreDerivedFromTheRef() {
        let ref = Ref(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f)
        let ids = [
            ref.sealedID(untilMs: 1_767_312_000_000), ref.purgeID(untilMs: 1_767_312_000_000),
            ref.openedID(JobID(0xffee_ddcc_bbaa_9988_7766_5544_3322_1100)),
        ]
        #expect(
            ids.map(\.description) == [
                "7dca0ae97d015541d8527ec717fa34a1", "94e9ee6563e1aeb0c665e09a67145052", "6b862ddac414e5103654e1e3fadddfbf",
            ])
    }

    @Test func nothingIsProvedBeyondTheEnd() async throws {
        for index in [UInt64(Self.story.count), .max] { #expect(await Self.refusal(Self.log.source, index)?.code == .missing) }
        #expect(await Self.refusal(PublishedLog().source, 0)?.code == .missing)
        await #expect(throws: VerificationFailure.self) {
            try await LogProof.make(from: PublishedLog().source, key: Self.key, ref: Ref(1))
        }
    }

    /// Every tile and bundle is verified against the signed root, so a changed file can't hide a purge.
    @Test func damagedBundlesAreFound() async throws {
        let last = TileLog.statePaths(size: UInt64(Self.story.count))
        for path in Self.log.source.files.keys where path.hasPrefix("tile/") && (!path.contains(".p/") || last.contains(path)) {
            await Self.expectCaught(Self.log.source, path, Ref(7))
        }
    }

    @Test func damagedTilesAreFound() async throws {
        let log = VerifierTests.largeLog.published
        let paths = log.source.files.keys.filter { $0.hasPrefix("tile/1/") || $0.hasPrefix("tile/2/") }
        #expect(paths.count == 3)
        for path in paths { await Self.expectCaught(log.source, path, Ref(7)) }
    }

    /// The entries of a token can't be linked.
    // Promise: ledger-ids-unlinkable
    @Test func idsDifferByStepDayAndJob() {
        let ids = [Ref(high: 5, low: 6), Ref(high: 5, low: 7)].flatMap { ref in
            [86_400_000, 172_800_000].flatMap { [ref.sealedID(untilMs: $0), ref.purgeID(untilMs: $0)] }
                + [86_400, 1].map { ref.openedID(JobID($0)) }
        }
        #expect(Set(ids).count == ids.count)
    }

    static func expectCaught(_ source: MemorySource, _ path: String, _ ref: Ref) async {
        let good = source.files[path]!
        var flipped = good
        flipped[good.count / 2] ^= 4
        for bytes in [flipped, Array(good.dropLast()), nil] {
            var source = source
            source.files[path] = bytes
            let damaged = source
            let failure = await #expect(throws: VerificationFailure.self, "\(path)") {
                try await LogProof.make(from: damaged, key: key, ref: ref)
            }
            #expect([.tree, .damaged, .missing].contains(failure?.code))
            // The hashes at the edge are verified together.
            #expect(failure?.file == path || path.contains(".p/") && bytes == flipped && failure?.file == "checkpoint", "\(path)")
        }
    }

    @Test func aForeignCheckpointProvesNothing() async throws {
        let proof = try await Self.proof()
        for stranger in [try signingKey("log.example/a", seed: 2), try signingKey("log.example/b")] {
            #expect(Self.verdict(proof, key: stranger.verifierKey)?.code == .signature)
            let failure = await #expect(throws: VerificationFailure.self) {
                try await LogProof.make(from: Self.log.source, key: stranger.verifierKey, index: 0)
            }
            #expect(failure?.code == .signature)
        }
        // Another log's checkpoint with the same key and size.
        var other = PublishedLog()
        other.publish((0..<Self.story.count).map(leaf))
        var mixed = proof
        mixed.checkpoint = try #require(SignedNote(other.checkpoints.last!))
        #expect(Self.verdict(mixed)?.code == .tree)
        // An older checkpoint of the same log.
        for kept in Self.log.checkpoints.dropLast() {
            mixed.checkpoint = try #require(SignedNote(kept))
            #expect(Self.verdict(mixed)?.code == .tree)
        }
    }

    @Test func aChangedListOfHashesIsRefused() async throws {
        let proof = try await Self.proof()
        #expect(proof.hashes.count > 8)
        for place in proof.hashes.indices {
            var changed = proof
            changed.hashes.remove(at: place)
            #expect(Self.verdict(changed)?.code == .tree, "without hash \(place)")
            changed = proof
            changed.hashes.insert(proof.hashes[place], at: place)
            #expect(Self.verdict(changed)?.code == .tree, "hash \(place) twice")
            changed.hashes[place] = leafHash(leaf(place))
            changed.hashes.remove(at: place + 1)
            #expect(Self.verdict(changed)?.code == .tree, "another hash \(place)")
            guard place > 0 else { continue }
            changed = proof
            changed.hashes.swapAt(place, place - 1)
            #expect(Self.verdict(changed)?.code == .tree, "hashes \(place) and \(place - 1) exchanged")
        }
    }

    @Test func anotherIndexOrEntryIsRefused() async throws {
        let proof = try await Self.proof()
        for index in [0, 299, 301, UInt64(Self.story.count), .max] {
            var moved = proof
            moved.index = index
            let failure = Self.verdict(moved)
            #expect(failure?.code == .tree && failure?.index == index)
        }
        var random = SeededGenerator(seed: 8)
        for place in proof.extra!.indices {
            var altered = proof
            altered.extra![place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            #expect(Self.verdict(altered)?.code == .tree)
        }
        var other = proof
        other.extra = Self.story[301].encoded
        #expect(Self.verdict(other)?.code == .tree)
        other.extra = nil
        #expect(Self.verdict(other)?.code == .missing)
        other.extra = []
        #expect(Self.verdict(other)?.code == .tree)
    }

    /// The log itself has an invalid entry.
    @Test func anInvalidEntryIsRefusedInAProof() async throws {
        var log = PublishedLog()
        log.publish([bytes("nonsense"), leaf(1)])
        let proof = try await LogProof.make(from: log.source, key: Self.key, index: 0)
        #expect(Self.verdict(proof)?.code == .entry)
    }

    @Test func everyChangedByteIsRefused() async throws {
        let file = try await Self.proof().encoded
        var random = SeededGenerator(seed: 9)
        for place in file.indices {
            var changed = file
            changed[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            guard let proof = LogProof(changed) else { continue }
            #expect(Self.verdict(proof) != nil, "byte \(place)")
        }
        for count in 0..<file.count { #expect(LogProof(Array(file[..<count])) == nil, "cut to \(count) bytes") }
    }

    @Test func onlyTheCanonicalSpellingIsAccepted() async throws {
        let proof = try await Self.proof()
        let file = text(proof.encoded)
        let extra = "extra "
        let spellings = [
            file.replacing("\n", with: "\r\n"), "\u{feff}" + file, " " + file, "\n" + file, file + "\n",
            file.replacing("@v1", with: "@v2"),
            file.replacing("index 300", with: "index 0300"), file.replacing("index 300", with: "index +300"),
            file.replacing("index 300", with: "index 18446744073709551916"), file.replacing(extra, with: "extra  "),
            file.replacing(extra, with: "Extra "), file.replacing("\nindex", with: "\n\nindex"),
            file.replacing("\nindex 300\n", with: "\n"), file.replacing("\nindex 300\n", with: "\nindex 300\nindex 300\n"),
            file.replacing("\n" + proof.hashes[2].base64, with: "\n" + proof.hashes[2].base64.dropLast()),
            file.replacing("\n" + proof.hashes[2].base64, with: "\n" + proof.hashes[2].base64 + " "),
        ]
        for spelling in spellings { #expect(LogProof(bytes(spelling)) == nil, "\(spelling.prefix(60))") }
        #expect(LogProof([0xff] + proof.encoded) == nil && LogProof(proof.encoded + [0xc3]) == nil)
    }

    @Test func hugeFilesAreRefused() async throws {
        var proof = try await Self.proof()
        proof.hashes += Array(repeating: .emptyRoot, count: 65)
        #expect(LogProof(proof.encoded) == nil)
        proof = try await Self.proof()
        proof.extra = Array(repeating: 0x41, count: LogProof.byteLimit)
        #expect(LogProof(proof.encoded) == nil)
        // The longest possible entry is accepted.
        proof.extra = Array(repeating: 0x41, count: EntryBundle.entryLimit)
        for _ in 0..<50 {
            proof.checkpoint.append(
                .init(name: String(repeating: "w", count: 500), keyID: 1, bytes: Array(repeating: 0, count: 72)))
        }
        #expect(LogProof(proof.encoded) == proof)
    }
}
