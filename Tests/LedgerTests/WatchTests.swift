import Linux
import Testing

@testable import Ledger

@Suite struct WatchTests {
    static let key = PublishedLog.key.verifierKey
    static let log = VerifierTests.log
    static let heads = log.checkpoints.map { SignedNote($0)!.checkpoint(signedBy: key)! }
    static let now = VerifierTests.story.last!.atMs / 1_000 + 60

    /// The log as it was when it had this checkpoint.
    static func log(at checkpoint: Int) -> MemorySource {
        var source = log.source
        source.files[TilePath.checkpoint] = log.checkpoints[checkpoint]
        return source
    }

    static func run(
        _ folder: String, _ source: MemorySource, mirrors: [MemorySource] = [], now: UInt64 = now
    ) async -> (line: String?, failure: VerificationFailure?) {
        do {
            let mirrors = mirrors.map { LogWatch.Mirror(name: "copy", source: $0) }
            return (try await LogWatch(source, key: key, folder: folder, mirrors: mirrors).run(now: now), nil)
        } catch { return (nil, error) }
    }

    static func withFolder(_ body: (String) async throws -> Void) async throws {
        let folder = try File.makeTemporaryFolder()
        defer { try? File.removeTree(folder) }
        try await body("\(folder)/watch")
    }

    @Test func onlyWhatIsNewIsVerified() async throws {
        try await Self.withFolder { folder in
            let first = await Self.run(folder, Self.log.source)
            #expect(first.line?.hasSuffix("; last entry 1 min old; \(Self.heads.last!.size) entries verified now") == true)
            let again = await Self.run(folder, Self.log.source)
            #expect(again.line?.hasSuffix("; \(Self.heads.last!.size % 256) entries verified now") == true)
            #expect(try File.list(folder).sorted() == ["checkpoint", "checkpoints", "state"])
            #expect(try File.list("\(folder)/checkpoints").count == 1)
            // Without its state it begins anew.
            try File.remove("\(folder)/state")
            #expect(await Self.run(folder, Self.log.source).line == first.line?.replacing("0 older", with: "1 older"))
        }
    }

    @Test func silenceIsReported() async throws {
        try await Self.withFolder { folder in
            #expect(await Self.run(folder, Self.log.source, now: Self.now + 3_600).failure?.code == .stale)
        }
    }

    @Test func anotherHistoryIsKeptAsEvidence() async throws {
        var entries = VerifierTests.story
        entries.insert(Entry(atMs: entries[1].atMs, .requestRefused(cause: .throttled, count: 10)), at: 2)
        let fork = PublishedLog(entries, policies: [VerifierTests.setting.policy])
        try await Self.withFolder { folder in
            #expect(await Self.run(folder, Self.log.source).failure == nil)
            #expect(await Self.run(folder, fork.source).failure?.code == .rewritten)
            // Once, however often it is seen.
            #expect(await Self.run(folder, fork.source, now: Self.now + 1).failure?.code == .rewritten)
            let names = try File.list(folder).filter { $0.hasPrefix("contradiction-") }
            #expect(try names.map { try File.read("\(folder)/\($0)", limit: 4_096) } == [fork.checkpoints.last!])
            #expect(await Self.run(folder, Self.log.source).failure == nil)
        }
    }

    @Test func mirrorsMustShowOneHistory() async throws {
        let fork = PublishedLog(Array(VerifierTests.story.dropFirst(2).prefix(40)))
        let newest = Self.heads.count - 1
        try await Self.withFolder { folder in
            #expect(await Self.run(folder, Self.log.source, mirrors: [Self.log(at: 20), Self.log.source]).failure == nil)
            #expect(await Self.run(folder, Self.log.source, mirrors: [fork.source]).failure?.code == .rewritten)
            #expect(await Self.run(folder, Self.log.source, mirrors: [MemorySource()]).failure?.code == .missing)
        }
        // A mirror may be ahead.
        try await Self.withFolder { folder in
            let behind = Self.log(at: newest - 1)
            let seconds = Self.now
            #expect(await Self.run(folder, behind, mirrors: [Self.log.source], now: seconds).failure == nil)
        }
    }
}
