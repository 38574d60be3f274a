import Linux
import Policy
import Testing
import Vocabulary

@testable import Ledger

@Suite struct VerifierTests {
    static let setting = HonestBroker.Setting(seals: 20, tokens: 200, days: 1, starts: 2)
    static let story = HonestBroker.story(seed: 11, setting)
    static let log = PublishedLog(story, policies: [setting.policy])

    static func verify(_ source: some LogSource, since: [[UInt8]] = [], key: VerifierKey = PublishedLog.key.verifierKey)
        async throws(VerificationFailure) -> Report
    {
        try await Verifier(source, key: key).verify(since: since.map { .init(name: "kept", bytes: $0) })
    }

    /// The failure of damaged files. Nil if the log verifies.
    static func verdict(_ source: MemorySource, since: [[UInt8]] = []) async -> VerificationFailure? {
        do {
            _ = try await verify(source, since: since)
            return nil
        } catch { return error }
    }

    @Test func anHonestLogVerifies() async throws {
        #expect(Self.story.count > 600)
        let report = try await Self.verify(Self.log.source, since: Self.log.checkpoints)
        #expect(report.size == UInt64(Self.story.count))
        #expect(report.sealed > 150 && report.live + report.purged == report.sealed)
        #expect(report.compared == Self.log.checkpoints.count && report.verdict == .good)
        // The first checkpoint has no entries, so it proves nothing.
        for older in [[], [Self.log.checkpoints[0]]] {
            #expect(try await Self.verify(Self.log.source, since: older).verdict == .consistent)
        }
        #expect(report.fromMs == Self.story.first?.atMs && report.toMs == Self.story.last?.atMs)
    }

    // Promise: verifier-prints-totals
    @Test func theLineOfFiguresIsStable() async throws {
        var report = Report()
        report.origin = "log.example/a"
        #expect(
            report.description
                == "log.example/a: 0 entries, empty; 0 sealed, 0 live, 0 purged; 0 opened, 0 delivered, 0 failed, 0 pending; 0 days' totals balance; 0 s without a broker; 0 older checkpoints hold"
        )
        (report.size, report.sealed, report.live, report.purged, report.pending) = (9, 3, 1, 2, 1)
        (report.bucketsClosed, report.gapSeconds, report.isUnique) = (7, 90, true)
        (report.opened, report.delivered, report.failed, report.compared) = (4, 2, 1, 5)
        (report.fromMs, report.toMs) = (0, 60_000)
        #expect(
            report.description
                == "log.example/a: 9 entries, 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z; 3 sealed, 1 live, 2 purged; 4 opened, 2 delivered, 1 failed, 1 pending; 7 days' totals balance; 90 s without a broker; 5 older checkpoints hold; no id twice"
        )
        (report.size, report.bucketsClosed, report.compared, report.cosignatures) = (1, 1, 1, 1)
        report.timing = LedgerTiming(hourSeconds: 10, daySeconds: 10, batchSeals: 1)
        let line = report.description
        #expect(line.contains(": 1 entry, ") && line.contains("; 1 day's total balances; "))
        let end =
            "; 1 older checkpoint holds; trial timing: an hour lasts 10 s, a day 10 s, and 1 seal makes a batch; no id twice; "
            + "1 cosignature holds"
        #expect(line.hasSuffix(end))
        #expect(try await Self.verify(PublishedLog().source).size == 0)
    }

    @Test(
        arguments: [
            (60_000, 60, 0, "last entry 0 s old"), (60_000, 119, 59, "last entry 59 s old"),
            (60_999, 3_720, 3_660, "last entry 1 h 1 min old"),
            (0, 86_400, 86_400, "last entry 1 d old"), (0, 90_061, 90_061, "last entry 1 d 1 h old"),
            (60_000, 0, -60, "last entry dated 1 min ahead of this clock"),
        ] as [(UInt64, UInt64, Int64, String)])
    func theAgeIsMeasuredFromTheLastEntry(toMs: UInt64, now: UInt64, age: Int64, text: String) throws {
        var report = Report()
        #expect(report.age(now: now) == nil && report.ageText(now: now) == "no entry yet")
        #expect(throws: VerificationFailure.self) { try report.checkAge(limit: .max, now: now) }
        report.toMs = toMs
        #expect(report.age(now: now) == age && report.ageText(now: now) == text)
        try report.checkAge(limit: age.magnitude, now: now)
        guard age != 0 else { return }
        let failure = try #require(throws: VerificationFailure.self) { try report.checkAge(limit: age.magnitude - 1, now: now) }
        #expect(failure.code == .stale && failure.detail.hasPrefix(text))
    }

    @Test func everyPublishedCheckpointVerifies() async throws {
        var log = PublishedLog(policies: [Self.setting.policy])
        var start = 0
        for index in Self.story.indices
        where index + 1 == Self.story.count || Self.story[index + 1].atMs != Self.story[index].atMs {
            log.publish(Self.story[start...index].map(\.encoded))
            start = index + 1
            if index % 23 == 0 { #expect(await Self.verdict(log.source) == nil, "\(index + 1) entries") }
        }
        #expect(log.source.files == Self.log.source.files)
    }

    @Test func everyMissingFileIsFound() async {
        for path in Self.log.source.files.keys {
            var source = Self.log.source
            source.files[path] = nil
            // A partial file of an earlier checkpoint may be missing.
            let isOld = path.contains(".p/") && !TileLog.statePaths(size: UInt64(Self.story.count)).contains(path)
            let failure = await Self.verdict(source)
            #expect(failure?.code == (isOld ? nil : .missing), "\(path)")
            #expect(failure?.file == (isOld ? nil : path))
        }
    }

    /// Returns true if a failure names the damaged file, or one that must match it (a bundle and its hash tile).
    static func names(_ path: String, _ failure: VerificationFailure) -> Bool {
        guard let file = failure.file else { return false }
        return file == path || file == path.replacing("tile/0/", with: "tile/entries/")
            || file == path.replacing("tile/entries/", with: "tile/0/")
    }

    @Test func everyFlippedBitIsFound() async {
        var random = SeededGenerator(seed: 6)
        for path in Self.log.source.files.keys.sorted() {
            for _ in 0..<6 {
                var source = Self.log.source
                let place = Int.random(in: 0..<source.files[path]!.count, using: &random)
                source.files[path]![place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
                let failure = await Self.verdict(source)
                #expect(failure.map { Self.names(path, $0) } == true, "\(path), byte \(place): \(failure?.description ?? "good")")
            }
        }
    }

    @Test func truncatedAndPaddedFilesAreFound() async {
        for path in Self.log.source.files.keys.sorted() {
            let old = Self.log.source.files[path]!
            let zeros = [UInt8](repeating: 0, count: 32)
            let changed: [[UInt8]] = [
                Array(old.dropLast()), Array(old.dropLast(32)), [], Array(old.prefix(old.count / 2)), old + [0], old + zeros,
            ]
            for new in changed {
                var source = Self.log.source
                source.files[path] = new
                let failure = await Self.verdict(source)
                #expect(
                    failure.map { Self.names(path, $0) } == true, "\(path), \(new.count) bytes: \(failure?.description ?? "good")"
                )
            }
        }
    }

    /// Garbage of any length up to the largest file of a log.
    @Test func garbageIsFound() async {
        var random = SeededGenerator(seed: 7)
        for path in Self.log.source.files.keys.sorted() where !path.contains(".p/") {
            for count in [1, 8192, 20_000] {
                var source = Self.log.source
                source.files[path] = (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
                let failure = await Self.verdict(source)
                #expect(failure.map { Self.names(path, $0) } == true, "\(path), \(count) bytes")
            }
        }
    }

    /// A file that is too large is not read completely.
    @Test func aSparseGibibyteIsRefused() async throws {
        let path = try File.makeTemporaryFolder()
        defer { try? File.removeTree(path) }
        for (place, bytes) in Self.log.source.files {
            try File.makeFolder(File.folder(of: "\(path)/\(place)"), mode: 0o755)
            try File.write("\(path)/\(place)", bytes.span, mode: 0o644)
        }
        for place in ["checkpoint", "tile/0/000", "tile/entries/001"]
            + TileLog.statePaths(size: UInt64(Self.story.count)).suffix(1)
        {
            let good = try #require(Self.log.source.files[place])
            try OpenFile("\(path)/\(place)", .readWrite).truncate(to: 1 << 30)
            let failure = await #expect(throws: VerificationFailure.self) { try await Self.verify(FolderSource(path)) }
            #expect(failure?.code == .unreadable && failure?.file == place)
            try File.write("\(path)/\(place)", good.span, mode: 0o644)
        }
        #expect(try await Self.verify(FolderSource(path)).size == UInt64(Self.story.count))
    }

    @Test func swappedFilesAreFound() async {
        var source = Self.log.source
        func exchange(_ one: String, _ other: String) {
            let bytes = source.files[one]
            source.files[one] = source.files[other]
            source.files[other] = bytes
        }
        exchange("tile/0/000", "tile/0/001")
        #expect(await Self.verdict(source)?.code == .tree)
        exchange("tile/entries/000", "tile/entries/001")
        #expect(await Self.verdict(source) != nil, "entries and leaves agree, but not with the tree")
    }

    @Test func anotherKeyIsRefused() async throws {
        for key in [try signingKey("log.example/a", seed: 2), try signingKey("log.example/b")] {
            let failure = await #expect(throws: VerificationFailure.self) {
                try await Self.verify(Self.log.source, key: key.verifierKey)
            }
            #expect(failure?.code == .signature)
        }
    }

    /// The holder of the key can sign another history. A kept checkpoint reveals this.
    // Promise: edited-ledger-is-caught
    @Test func aRewrittenHistoryIsCaughtByAKeptCheckpoint() async throws {
        var entries = Self.story
        let place = try #require(entries.firstIndex { $0.op.rank == 1 })
        entries.insert(Entry(atMs: entries[place].atMs, .requestRefused(cause: .throttled, count: 10)), at: place)
        let rewritten = PublishedLog(entries, policies: [Self.setting.policy])
        #expect(await Self.verdict(rewritten.source) == nil, "alone it is a good log")
        let sizes = try Self.log.checkpoints.map { try #require(SignedNote($0).flatMap { Checkpoint(text: $0.text) }).size }
        let edge = try #require(sizes.lastIndex { $0 <= UInt64(place) })
        // A sample, and the entries around the change.
        for (number, kept) in Self.log.checkpoints.enumerated()
        where number.isMultiple(of: 5) || [edge, edge + 1, sizes.count - 1].contains(number) {
            let size = sizes[number]
            let failure = await Self.verdict(rewritten.source, since: [kept])
            #expect(failure?.code == (size <= UInt64(place) ? nil : .rewritten), "checkpoint \(number)")
            #expect(failure == nil || failure?.file == "kept")
        }
    }

    @Test func aTruncatedLogIsCaught() async throws {
        let count = try #require(Self.story.indices.last { Self.story[$0].atMs != Self.story.last!.atMs })
        let cut = PublishedLog(Array(Self.story[...count]), policies: [Self.setting.policy])
        #expect(await Self.verdict(cut.source) == nil)
        #expect(await Self.verdict(cut.source, since: [Self.log.checkpoints.last!])?.code == .rewritten)
    }

    @Test func keptCheckpointsMustBeSigned() async throws {
        for kept in [[], bytes("nonsense"), try signingKey("log.example/a", seed: 2).sign(size: 0, root: .emptyRoot).encoded] {
            #expect(await Self.verdict(Self.log.source, since: [kept])?.code == .signature)
        }
        let fork = PublishedLog.key.sign(size: 0, root: leafHash(leaf(0))).encoded
        #expect(await Self.verdict(Self.log.source, since: [fork])?.code == .rewritten)
    }

    @Test func aSignedRootMustMatchTheEntries() async throws {
        var source = Self.log.source
        source.files["checkpoint"] = PublishedLog.key.sign(size: UInt64(Self.story.count), root: .emptyRoot).encoded
        #expect(await Self.verdict(source)?.code == .tree)
    }

    @Test func aLogThatGrowsWhileItIsReadVerifies() async throws {
        var log = PublishedLog(Array(Self.story.prefix { $0.atMs == Self.story[0].atMs }), policies: [Self.setting.policy])
        let checkpoint = log.checkpoints.last!
        log.publish(Array(repeating: Entry(atMs: Self.story[0].atMs, .keysGenerated(generation: 1)).encoded, count: 600))
        log.source.files["checkpoint"] = checkpoint
        #expect(await Self.verdict(log.source) == nil)
        log.source.files["tile/0/000"]![3] ^= 1
        #expect(await Self.verdict(log.source)?.code == .tree)
    }

    static let badEntries: [(String, VerificationFailure.Code)] = [
        (#"{"at":"2026-01-02T03:04:05Z","op":"token.copied"}"#, .entry),
        (#"{"at":"2026-01-02T03:04:05Z","generation":1,"op":"keys.generated"}"# + "\n", .entry),
        (#"{"at":"2026-01-02T03:04:05Z","generation":01,"op":"keys.generated"}"#, .entry),
        (#"{"at":"2026-01-02T03:04:05+00:00","generation":1,"op":"keys.generated"}"#, .entry),
        (#"{"at":"2026-01-02T03:04:05Z", "generation":1,"op":"keys.generated"}"#, .entry),
        (#"{"generation":1,"at":"2026-01-02T03:04:05Z","op":"keys.generated"}"#, .entry),
        (#"{"at":"2020-01-02T03:04:05Z","generation":1,"op":"keys.generated"}"#, .time),
        (
            #"{"at":"2026-01-02T03:04:05Z","job":"00000000000000000000000000000001","op":"push.delivered","status":200}"#,
            .jobUnknown
        ),
        ("", .entry),
    ]

    @Test(arguments: badEntries) func signedInvalidEntriesAreRefused(json: String, code: VerificationFailure.Code) async {
        var log = PublishedLog()
        log.publish([PublishedLog.start(EntryTests.at).encoded])
        #expect(await Self.verdict(log.source) == nil)
        log.publish([bytes(json)])
        let failure = await Self.verdict(log.source)
        #expect(failure?.code == code)
        #expect(failure?.index == 1)
        #expect(failure?.file == "tile/entries/000")
    }

    @Test func missingPoliciesAreFound() async {
        var log = PublishedLog()
        log.publish([
            PublishedLog.start().encoded,
            Entry(atMs: 0, .policyLoaded(name: EntryText("calls")!, policy: EntryTests.policy)).encoded,
        ])
        let failure = await Self.verdict(log.source)
        #expect(failure?.code == .missing)
        #expect(failure?.file == "policies/\(EntryTests.policy.hex).json")
    }

    @Test func damagedPoliciesAreFound() async {
        for (policy, isGood) in [
            ("{}", true), ("[]", false), ("{", false), (#"{"ledger":{"hourSeconds":10}}"#, false),
            (#"{"limits":{"roomLifeSeconds":{"max":0}}}"#, false), (#"{"limits":[]}"#, false),
        ] {
            let policy = bytes(policy)
            let log = PublishedLog([PublishedLog.start(policy: policy)], policies: [policy])
            #expect(await Self.verdict(log.source)?.code == (isGood ? nil : .damaged), "\(text(policy))")
        }
    }

    /// A continued verification has the same report as a complete one.
    @Test func verifiedEntriesAreNotReadAgain() async throws {
        var log = PublishedLog(policies: [Self.setting.policy])
        var (start, state) = (0, [UInt8]?.none)
        for index in Self.story.indices
        where index + 1 == Self.story.count || Self.story[index + 1].atMs != Self.story[index].atMs {
            log.publish(Self.story[start...index].map(\.encoded))
            start = index + 1
            guard index % 23 == 0 || start == Self.story.count else { continue }
            let verifier = Verifier(log.source, key: PublishedLog.key.verifierKey)
            let older = [Verifier.OlderCheckpoint(name: "kept", bytes: log.checkpoints.dropLast().last!)]
            let result = try await verifier.verify(since: older, resuming: state)
            #expect(try await result.report == verifier.verify(since: older))
            if let state, state.count > 1_000 { #expect(result.resumedAt > 0) }
            state = result.state
        }
        // Nothing before the last full bundle is read.
        for path in log.source.files.keys where path.hasPrefix("tile/entries/") && !path.contains(".p/") {
            log.source.files[path] = nil
        }
        let verifier = Verifier(log.source, key: PublishedLog.key.verifierKey)
        #expect(try await verifier.verify(since: [], resuming: state).resumedAt == UInt64(Self.story.count / 256 * 256))
        // A damaged state, or one of another key or other rules, is ignored.
        var damaged = state!
        damaged[damaged.count / 2] ^= 1
        for (bytes, gaps) in [(damaged, false), (state!, true), ([], false)] {
            let verifier = Verifier(log.source, key: PublishedLog.key.verifierKey, allowsGaps: gaps)
            let failure = await #expect(throws: VerificationFailure.self) {
                try await verifier.verify(since: [], resuming: bytes)
            }
            #expect(failure?.code == .missing)
        }
    }

    @Test func aRepeatedIDIsFound() async throws {
        let key = PublishedLog.key.verifierKey
        #expect(try await Verifier(Self.log.source, key: key, unique: true).verify().isUnique)
        var story = Self.story
        let seals = story.indices.filter { story[$0].op.rank == 3 }
        // In another batch, so that the order of both is correct.
        story[seals.last!].op = .tokenSealed(id: EntryID(.max), untilMs: story[seals.last!].op.untilMs!)
        let batch = seals.filter { story[$0].atMs == story[seals[0]].atMs }
        story[batch.last!].op = .tokenSealed(id: EntryID(.max), untilMs: story[batch.last!].op.untilMs!)
        let log = PublishedLog(story, policies: [Self.setting.policy])
        #expect(await Self.verdict(log.source) == nil)
        let failure = await #expect(throws: VerificationFailure.self) {
            try await Verifier(log.source, key: key, unique: true).verify()
        }
        #expect(failure?.code == .idTwice && failure?.id == "\(EntryID(.max))")
    }

    @Test(arguments: [1, 7, 64, 100_000]) func runsOfAnyLengthAreMerged(limit: Int) throws {
        var random = SeededGenerator(seed: 3)
        var ids = (0..<5_000).map { _ in EntryID(UInt128.random(in: .min ... .max, using: &random)) }
        func isUnique() throws -> Bool {
            let unique = try Uniqueness(limit: max(limit, ids.count / 300))
            for id in ids { try unique.add(id) }
            do { try unique.check() } catch {
                #expect(error.code == .idTwice && error.id == ids.last?.description)
                return false
            }
            return true
        }
        #expect(try isUnique())
        ids.append(ids[77])
        #expect(try !isUnique())
    }

    /// A crash interrupted the tidying after a publication.
    @Test func partialFilesBesideAFullOneAreCheckedToo() async {
        var source = Self.log.source
        source.files["tile/0/000.p/3"] = Array(source.files["tile/0/000"]![..<96])
        #expect(await Self.verdict(source) == nil)
        source.files["tile/0/000.p/3"]![7] ^= 1
        #expect(await Self.verdict(source)?.file == "tile/0/000.p/3")
    }

    @Test(arguments: ["-5", "0", "+3", "007", "256", "9999999999999999999999", "x"])
    func otherFilesBesidePartialOnesAreIgnored(name: String) async {
        var source = Self.log.source
        for folder in ["tile/0/000.p", "tile/entries/000.p"] { source.files["\(folder)/\(name)"] = [1] }
        #expect(await Self.verdict(source) == nil)
    }

    /// A growing log deletes such folders, and other files may exist there.
    @Test func aMissingFolderHasNoFiles() async throws {
        let path = try File.makeTemporaryFolder()
        defer { try? File.removeTree(path) }
        try File.write("\(path)/000.p", bytes("x").span, mode: 0o644)
        for name in ["000.p", "001.p", "000.p/more"] { #expect(try await FolderSource(path).list(name) == []) }
    }

    @Test func anUnreadableSourceIsReported() async {
        struct Refused: Error {}
        let source = FunctionSource { _ in throw Refused() }
        let failure = await #expect(throws: VerificationFailure.self) { try await Self.verify(source) }
        #expect(failure?.code == .unreadable)
        #expect(failure?.file == "checkpoint")
    }

    /// A log with a full tile at level 1 and a start of level 2.
    static let largeLog: (entries: [[UInt8]], published: PublishedLog) = {
        let entries =
            [PublishedLog.start().encoded] + (1..<66_000).map { Entry(atMs: 0, .keysGenerated(generation: UInt32($0))).encoded }
        var log = PublishedLog()
        log.publish(Array(entries[..<1000]))
        log.publish(Array(entries[1000...]))
        return (entries, log)
    }()

    @Test func aLargeLogVerifiesAndProves() async throws {
        let (entries, log) = Self.largeLog
        #expect(log.source.files["tile/2/000.p/1"] != nil)
        let report = try await Self.verify(log.source, since: log.checkpoints)
        #expect(report.size == 66_000)
        for path in ["tile/1/000", "tile/2/000.p/1", "tile/1/001.p/1"] {
            var source = log.source
            source.files[path]![9] ^= 1
            let failure = await Self.verdict(source)
            #expect(failure?.code == .tree)
            #expect(failure?.file == path)
        }
        let note = try #require(SignedNote(log.checkpoints.last!))
        let head = try #require(note.checkpoint(signedBy: PublishedLog.key.verifierKey))
        var tiles = TileReader(log.source, size: head.size)
        for index in [0, 255, 256, 65_535, 65_536, 65_999] as [UInt64] {
            let proof = try await tiles.inclusionProof(index: index)
            #expect(proof.isValid(leaf: leafHash(entries[Int(index)]), root: head.root))
            let bundle = try await tiles.entries(bundle: index / 256)
            #expect(bundle[Int(index % 256)] == entries[Int(index)])
            let file = LogProof(index: index, hashes: proof.hashes, checkpoint: note)
            #expect(LogProof(file.encoded)?.isValid(entry: bundle[Int(index % 256)], key: PublishedLog.key.verifierKey) == true)
        }
        let old = try #require(SignedNote(log.checkpoints[1])?.checkpoint(signedBy: PublishedLog.key.verifierKey))
        let proof = try await tiles.consistencyProof(oldSize: old.size)
        #expect(proof.isValid(oldRoot: old.root, newRoot: head.root))
    }

    @Test func aFolderVerifies() async throws {
        let path = try File.makeTemporaryFolder()
        defer { try? File.removeTree(path) }
        let folder = LedgerFolder(path + "/ledger")
        _ = try folder.writePolicy(Self.setting.policy)
        var log = TileLog()
        for batch in [0..<100, 100..<300, 300..<Self.story.count] {
            let plan = log.append(Self.story[batch].map(\.encoded))
            try folder.publish(plan, checkpoint: PublishedLog.key.sign(size: plan.newSize, root: plan.root))
            log = plan.log
        }
        let report = try await Self.verify(FolderSource(folder.path), since: [Self.log.checkpoints.last!])
        #expect(report.size == UInt64(Self.story.count))
        let failure = await #expect(throws: VerificationFailure.self) { try await Self.verify(FolderSource(path + "/nowhere")) }
        #expect(failure?.code == .missing)
    }

    @Test func specialFilesCountAsMissing() async throws {
        let path = try File.makeTemporaryFolder()
        defer { try? File.removeTree(path) }
        let source = FolderSource(path)
        // A device never ends, and a pipe may block.
        try File.symbolicLink(path + "/checkpoint", to: "/dev/zero")
        #expect(try await source.read("checkpoint") == nil)
        try File.makeFolder(path + "/tile")
        #expect(try await source.read("tile") == nil)
        #expect(try await source.read("checkpoint/000") == nil)
        try File.symbolicLink(path + "/loop", to: "loop")
        await #expect(throws: Errno.self) { try await source.read("loop") }
    }
}

extension Entry.Op {
    var untilMs: UInt64? { if case .tokenSealed(_, let until) = self { until } else { nil } }
}
