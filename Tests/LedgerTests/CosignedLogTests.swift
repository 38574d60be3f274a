import Testing

@testable import Ledger

/// A verifier that requires cosignatures.
@Suite struct CosignedLogTests {
    static let witnesses = WitnessPolicyTests.witnesses
    /// Unix seconds of the last entry.
    static let last: UInt64 = 1_800_000_060
    static let log: PublishedLog = {
        let node = EntryText("node-1")!
        return PublishedLog([
            PublishedLog.start((last - 60) * 1000, resolution: 60),
            Entry(atMs: last * 1000, .brokerStopped(node: node)),
        ])
    }()

    /// Verifies the log with these cosignatures on its checkpoint.
    func verify(
        _ policy: String, now: UInt64 = last + 60, _ cosignatures: (String) -> [SignedNote.Signature]
    ) async throws -> Report {
        var source = Self.log.source
        var note = SignedNote(source.files[TilePath.checkpoint]!)!
        for signature in cosignatures(note.text) { note.append(signature) }
        source.files[TilePath.checkpoint] = note.encoded
        let demand = WitnessDemand(try WitnessPolicyTests.policy(WitnessPolicyTests.definitions + policy), now: now)
        return try await Verifier(source, key: PublishedLog.key.verifierKey, demand: demand).verify()
    }

    func failure(
        _ policy: String, now: UInt64 = last + 60, _ cosignatures: (String) -> [SignedNote.Signature]
    ) async -> VerificationFailure? {
        do {
            _ = try await verify(policy, now: now, cosignatures)
            return nil
        } catch { return error as? VerificationFailure }
    }

    static let quorum = "group g 2 w0 w1 w2\nquorum g\n"

    @Test func aQuorumIsRequiredAndReported() async throws {
        let report = try await verify(Self.quorum) { text in
            [0, 2, 5].map { Self.witnesses[$0].cosign(text, at: Self.last + 30) } + [TestWitness(9).cosign(text, at: 1)]
        }
        #expect(report.cosignatures == 3)
        #expect(report.description.hasSuffix("; 0 older checkpoints hold; 3 cosignatures hold"))
        #expect(report.verdict == .good)
        let missed = await failure(Self.quorum) {
            [Self.witnesses[1].cosign($0, at: Self.last), Self.witnesses[3].cosign($0, at: Self.last)]
        }
        #expect(missed?.code == .cosignatures)
        #expect(missed?.file == TilePath.checkpoint)
        #expect(await failure(Self.quorum) { _ in [] }?.code == .cosignatures)
        #expect(try await verify("quorum none\n") { _ in [] }.cosignatures == 0)
        let undemanded = try await Verifier(Self.log.source, key: PublishedLog.key.verifierKey).verify()
        #expect(undemanded.cosignatures == nil)
        #expect(undemanded.description.hasSuffix("; 0 older checkpoints hold"))
        #expect(undemanded.verdict == .consistent)
    }

    @Test func theQuorumIsCheckedBeforeTheEntries() async throws {
        var source = Self.log.source
        source.files[TilePath.path(TilePath.entries(index: 0), width: 2)] = nil
        for (quorum, code) in [("w0", VerificationFailure.Code.cosignatures), ("none", .missing)] {
            let policy = try WitnessPolicyTests.policy(WitnessPolicyTests.definitions + "quorum \(quorum)\n")
            let verifier = Verifier(
                source, key: PublishedLog.key.verifierKey, demand: WitnessDemand(policy, now: Self.last))
            let failure = await #expect(throws: VerificationFailure.self) { try await verifier.verify() }
            #expect(failure?.code == code)
        }
    }

    /// If an entry is dated after a cosignature that covers it, one of the dates is false.
    @Test func anEntryDatedAfterItsCosignatureIsRefused() async throws {
        for (seconds, good) in [
            (Self.last, true), (Self.last - 600, true), (Self.last - 601, false), (0, false), (Self.last + 660, true),
            (Self.last + 661, false),
        ] {
            let failure = await failure("quorum w0\n") { [Self.witnesses[0].cosign($0, at: seconds)] }
            #expect(failure?.code == (good ? nil : .cosignatures), "\(seconds)")
        }
    }

    @Test func forgeriesAndOtherLogsAreRefused() async throws {
        let forged = await failure("quorum w0\n") {
            [Self.witnesses[0].cosign($0, at: Self.last), Self.witnesses[1].cosign($0 + "x\n", at: Self.last)]
        }
        #expect(forged?.code == .cosignatures)
        #expect(forged?.detail.contains("w1") == true)
        let other = try signingKey("log.example/b").verifierKey
        #expect(await failure("log \(other)\nquorum none\n") { _ in [] }?.code == .cosignatures)
        #expect(await failure("log \(other)\nlog \(PublishedLog.key.verifierKey)\nquorum none\n") { _ in [] } == nil)
        // A cosignature of another checkpoint.
        let earlier = SignedNote(Self.log.checkpoints[1])!.text
        #expect(await failure("quorum w0\n") { _ in [Self.witnesses[0].cosign(earlier, at: Self.last)] }?.code == .cosignatures)
    }
}
