import Linux
import Testing

@testable import Ledger

@Suite struct WatchTests {
    static let key = PublishedLog.key.verifierKey
    static let log = VerifierTests.log
    static let heads = log.checkpoints.map { SignedNote($0)!.checkpoint(signedBy: key)! }
    static let now = VerifierTests.story.last!.atMs / 1_000 + 60

    /// The log at this checkpoint.
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

    @Test func onlyNewEntriesAreVerified() async throws {
        try await Self.withFolder { folder in
            let first = await Self.run(folder, Self.log.source)
            #expect(first.line?.hasPrefix("consistent, not compared: ") == true && first.line?.hasPrefix("good") == false)
            #expect(first.line?.hasSuffix("; last entry 1 min old; \(Self.heads.last!.size) entries verified now") == true)
            let again = await Self.run(folder, Self.log.source)
            #expect(again.line?.hasSuffix("; \(Self.heads.last!.size % 256) entries verified now") == true)
            #expect(try File.list(folder).sorted() == ["checkpoint", "checkpoints", "state"])
            #expect(try File.list("\(folder)/checkpoints").count == 1)
            // Without the state everything is verified again.
            try File.remove("\(folder)/state")
            #expect(
                await Self.run(folder, Self.log.source).line
                    == first.line?.replacing("0 older checkpoints hold", with: "1 older checkpoint holds")
                    .replacing("consistent, not compared: ", with: "good: "))
        }
    }

    @Test func silenceIsReported() async throws {
        try await Self.withFolder { folder in
            #expect(await Self.run(folder, Self.log.source, now: Self.now + 3_600).failure?.code == .stale)
        }
    }

    @Test func anotherHistoryIsStoredAsEvidence() async throws {
        var entries = VerifierTests.story
        entries.insert(Entry(atMs: entries[1].atMs, .requestRefused(cause: .throttled, count: 10)), at: 2)
        let fork = PublishedLog(entries, policies: [VerifierTests.setting.policy])
        try await Self.withFolder { folder in
            #expect(await Self.run(folder, Self.log.source).failure == nil)
            #expect(await Self.run(folder, fork.source).failure?.code == .rewritten)
            // Only once, however often it is seen.
            #expect(await Self.run(folder, fork.source, now: Self.now + 1).failure?.code == .rewritten)
            let names = try File.list(folder).filter { $0.hasPrefix("contradiction-") }
            #expect(try names.map { try File.read("\(folder)/\($0)", limit: 4_096) } == [fork.checkpoints.last!])
            #expect(await Self.run(folder, Self.log.source).failure == nil)
        }
    }

    @Test func mirrorsMustHaveTheSameHistory() async throws {
        let fork = PublishedLog(Array(VerifierTests.story.dropFirst(2).prefix(40)))
        let newest = Self.heads.count - 1
        try await Self.withFolder { folder in
            #expect(
                await Self.run(folder, Self.log.source, mirrors: [Self.log(at: 20), Self.log.source]).line?.hasPrefix("good: ")
                    == true)
            #expect(await Self.run(folder, Self.log.source, mirrors: [fork.source]).failure?.code == .rewritten)
            #expect(await Self.run(folder, Self.log.source, mirrors: [MemorySource()]).failure?.code == .missing)
        }
        // A mirror can be ahead.
        try await Self.withFolder { folder in
            let behind = Self.log(at: newest - 1)
            let seconds = Self.now
            #expect(await Self.run(folder, behind, mirrors: [Self.log.source], now: seconds).failure == nil)
        }
    }
}

@Suite struct LogCopyTests {
    static let log = VerifierTests.log
    static let limit = 64 << 20

    static func copy(_ source: MemorySource, limit: Int = limit) async throws -> [String: [UInt8]] {
        let files = try await LogCopy(source, limit: limit).files()
        return Dictionary(uniqueKeysWithValues: files.map { ($0.path, $0.bytes) })
    }

    @Test func aCopyVerifiesLikeTheLog() async throws {
        let copy = MemorySource(files: try await Self.copy(Self.log.source))
        let key = PublishedLog.key.verifierKey
        let reports = (try await Verifier(Self.log.source, key: key).verify(), try await Verifier(copy, key: key).verify())
        #expect("\(reports.0)" == "\(reports.1)")
    }

    /// The copy is incomplete in the same way, which a verifier then reports.
    @Test func aCopyOfADamagedLogIsEquallyDamaged() async throws {
        let whole = try await Self.copy(Self.log.source)
        for path in whole.keys where path != TilePath.checkpoint {
            var source = Self.log.source
            source.files[path] = nil
            let copied = try await Self.copy(source)
            #expect(copied[path] == nil && copied.allSatisfy { whole[$0.key] == $0.value }, "\(path)")
            source.files[path] = [0xff]
            #expect(try await Self.copy(source)[path] == [0xff])
        }
    }

    @Test func aLogWithoutACheckpointIsRefused() async {
        for bytes in [nil, [UInt8]("nonsense".utf8)] {
            var source = Self.log.source
            source.files[TilePath.checkpoint] = bytes
            await #expect(throws: LogCopyError.noCheckpoint) { try await Self.copy(source) }
        }
    }

    @Test func aLogBeyondTheLimitIsRefused() async throws {
        let bytes = try await Self.copy(Self.log.source).values.map(\.count).reduce(0, +)
        #expect(try await !Self.copy(Self.log.source, limit: bytes).isEmpty)
        for limit in [bytes - 1, 32] {
            let error = await #expect(throws: LogCopyError.self) { try await Self.copy(Self.log.source, limit: limit) }
            #expect(error != .noCheckpoint)
        }
    }
}
