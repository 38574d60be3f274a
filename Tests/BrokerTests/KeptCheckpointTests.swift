import Ledger
import Linux
import Storage
import Synchronization
import Testing
import Vocabulary

@testable import Broker

/// A start compares the log with checkpoints kept elsewhere, before it signs anything.
@Suite struct KeptCheckpointTests {
    /// A checkpoint that a test can replace. Reading it throws while it is silent.
    final class Copy: Sendable {
        struct Trouble: Error {}
        private let content: Mutex<(note: [UInt8]?, isSilent: Bool)>

        init(_ note: [UInt8]?) { content = Mutex((note, false)) }

        func set(_ note: [UInt8]?, isSilent: Bool = false) { content.withLock { $0 = (note, isSilent) } }

        var kept: KeptCheckpoint {
            KeptCheckpoint(name: "the copy") {
                let (note, isSilent) = self.content.withLock { $0 }
                if isSilent { throw Trouble() }
                return note
            }
        }
    }

    enum Outcome: Equatable { case goesOn, waits, behind, forked, foreign, other }

    /// Returns the outcome of a start, and checks that a failed start signed nothing.
    func outcome(_ fixture: WitnessFixture, _ copy: Copy) async throws -> Outcome {
        let before = (try fixture.folder.checkpoint(), try await fixture.store.logHead()?.checkpoint)
        let sequencer = try fixture.sequencer("quorum none\n", .open, kept: [copy.kept])
        do {
            try await sequencer.recover()
            if fixture.lines.all.isEmpty { return .goesOn }
            #expect(
                fixture.lines.all == [
                    "ledger: can't publish (\(reason)); entries wait in the database, trying again every window"
                ])
        } catch let failure as KeptCheckpoint.Failure {
            #expect(try fixture.folder.checkpoint() == before.0)
            #expect(try await fixture.store.logHead()?.checkpoint == before.1)
            switch failure {
            case .restored(.behind): return .behind
            case .restored(.forked): return .forked
            case .foreign: return .foreign
            case .unread: return .other
            }
        }
        #expect(try fixture.folder.checkpoint() == before.0)
        #expect(try await fixture.store.logHead()?.checkpoint == before.1)
        return .waits
    }

    private let reason = "the copy can't be read (Trouble()). Nothing is signed until this ledger is compared with it"

    func with(_ body: (WitnessFixture) async throws -> Void) async throws {
        let fixture = try WitnessFixture(0)
        try await body(fixture)
        try await fixture.end()
    }

    /// Publishes so many entries in one window each. Returns the note of each head.
    func grow(_ fixture: WitnessFixture, _ counts: [Int]) async throws -> [[UInt8]] {
        let sequencer = try fixture.sequencer("quorum none\n", .open)
        try await sequencer.recover()
        var notes = [try #require(try fixture.folder.checkpoint())]
        for count in counts {
            try await fixture.record(count)
            try await sequencer.flush()
            notes.append(try #require(try fixture.folder.checkpoint()))
        }
        return notes
    }

    func note(_ fixture: WitnessFixture, _ size: UInt64, _ root: Digest) -> [UInt8] {
        fixture.key.sign(size: size, root: root).encoded
    }

    @Test func aLogThatContinuesTheCheckpointStarts() async throws {
        try await with { fixture in
            for note in try await grow(fixture, [1, 254, 1, 1, 300]) {
                #expect(try await outcome(fixture, Copy(note)) == .goesOn)
            }
        }
    }

    @Test func aLogThatDoesNotContinueTheCheckpointIsRefused() async throws {
        try await with { fixture in
            let notes = try await grow(fixture, [3, 256, 3])
            let root = try #require(SignedNote(notes[1])?.checkpoint(signedBy: fixture.key.verifierKey)).root
            for size in [1, 2, 4, 256, 259, 262] as [UInt64] {
                #expect(try await outcome(fixture, Copy(note(fixture, size, root))) == .forked, "\(size) entries")
            }
            for size in [263, 1 << 40] as [UInt64] {
                #expect(try await outcome(fixture, Copy(note(fixture, size, root))) == .behind, "\(size) entries")
            }
            #expect(try await outcome(fixture, Copy(note(fixture, 0, root))) == .forked, "there is but one empty log")
        }
    }

    @Test func aLogWithoutAHeadIsCompared() async throws {
        try await with { fixture in
            let other = try SigningKey(origin: "log.example/a", seed: [UInt8](repeating: 2, count: 32).span)
            #expect(try await outcome(fixture, Copy(other.sign(size: 1, root: .emptyRoot).encoded)) == .foreign)
            #expect(try await outcome(fixture, Copy(note(fixture, 1, .emptyRoot))) == .behind)
            #expect(try fixture.folder.checkpoint() == nil)
            #expect(try await fixture.store.logHead() == nil, "the empty head was signed")
            #expect(try await outcome(fixture, Copy(note(fixture, 0, .emptyRoot))) == .goesOn)
        }
    }

    @Test(arguments: [nil, [], Array("no note".utf8)] as [[UInt8]?]) func anInvalidCheckpointIsRefused(bytes: [UInt8]?)
        async throws
    {
        try await with { fixture in
            _ = try await grow(fixture, [3])
            let copy = Copy(bytes)
            guard bytes == nil else {
                #expect(try await outcome(fixture, copy) == .foreign)
                return
            }
            let sequencer = try fixture.sequencer("quorum none\n", .open, kept: [copy.kept])
            try await sequencer.recover()
            #expect(fixture.lines.count("it has no checkpoint") == 1)
        }
    }

    /// The store is ahead of the folder after a crash. The copy has the entries that the folder lacks.
    @Test func aFolderThatIsBehindIsCompared() async throws {
        let fixture = try WitnessFixture(1)
        let notes = try await grow(fixture, [3])
        fixture.fakes[0].behaviour = .fails
        let closed = try fixture.sequencer("quorum w0\n", .closed)
        try await closed.recover()
        try await fixture.record(2)
        try? await closed.flush()
        #expect(try fixture.folder.checkpoint() == notes[1], "the folder was to be left behind")
        let head = try #require(try await fixture.store.logHead())
        #expect(head.size == 5)
        let before = fixture.lines.all.count
        let forked = try fixture.sequencer("quorum none\n", .open, kept: [Copy(note(fixture, 5, .emptyRoot)).kept])
        await #expect(throws: KeptCheckpoint.Failure.self) { try await forked.recover() }
        #expect(try fixture.folder.checkpoint() == notes[1])
        try await fixture.sequencer("quorum none\n", .open, kept: [Copy(Array(head.checkpoint.utf8)).kept]).recover()
        #expect(try fixture.published()?.size == 5)
        #expect(fixture.lines.all.dropFirst(before).allSatisfy { !$0.contains("the copy") })
        try await fixture.end()
    }

    /// Nothing is published while the copy can't be read. Once the copy was read, it is not read again.
    @Test func publicationWaitsForAnUnreadableCopy() async throws {
        try await with { fixture in
            let notes = try await grow(fixture, [3])
            let copy = Copy(nil)
            copy.set(nil, isSilent: true)
            #expect(try await outcome(fixture, copy) == .waits)
            let sequencer = try fixture.sequencer("quorum none\n", .open, kept: [copy.kept])
            try await sequencer.recover()
            try await fixture.record(2)
            await #expect(throws: KeptCheckpoint.Failure.self) { try await sequencer.flush() }
            #expect(try fixture.folder.checkpoint() == notes[1])
            #expect(fixture.metrics.value(.alarms) == 2)
            copy.set(notes[0])
            try await sequencer.flush()
            #expect(try fixture.published()?.size == 5)
            copy.set(nil, isSilent: true)
            try await fixture.record(1)
            try await sequencer.flush()
            #expect(try fixture.published()?.size == 6)
        }
    }

    /// One copy is enough to refuse the start, even if others can't be read.
    @Test func everyCopyIsCompared() async throws {
        try await with { fixture in
            let notes = try await grow(fixture, [3])
            let (silent, good, bad) = (Copy(nil), Copy(notes[1]), Copy(note(fixture, 9, .emptyRoot)))
            for kept in [[silent, bad], [bad, silent], [good, bad]] {
                let sequencer = try fixture.sequencer("quorum none\n", .open, kept: kept.map(\.kept))
                let failure = await #expect(throws: KeptCheckpoint.Failure.self) { try await sequencer.recover() }
                #expect(failure?.description.hasPrefix("restored_state: the copy has 9 entries") == true)
            }
        }
    }
}
