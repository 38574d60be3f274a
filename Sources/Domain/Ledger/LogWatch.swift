import Linux
import Vocabulary

/// Verifies a log repeatedly, each time only the new entries. Keeps its state in a folder:
///
/// - `checkpoint`: the last verified checkpoint. The log must continue it.
/// - `state`: the verifier's state at that checkpoint. If it is missing, the whole log is verified again.
/// - `checkpoints/DATE`: the first checkpoint of each day, to compare with other watchers.
/// - `contradiction-DIGITS`: a signed checkpoint that contradicts `checkpoint`. With the log's entries both prove that it was rewritten. At most 16
///   are kept.
public struct LogWatch: Sendable {
    /// Another place where the log is published.
    public struct Mirror: Sendable {
        public var name: String
        public var source: any LogSource

        public init(name: String, source: any LogSource) { (self.name, self.source) = (name, source) }
    }

    private let source: any LogSource
    private let key: VerifierKey
    private let folder: String
    private let mirrors: [Mirror]
    private let demand: WitnessDemand?
    private let allowsGaps: Bool
    private let maxAge: UInt64

    /// - Parameters:
    ///   - folder: the folder of the state. It is created if necessary.
    ///   - maxAge: the greatest age of the last entry in seconds. A running broker adds one every five minutes.
    public init(
        _ source: any LogSource, key: VerifierKey, folder: String, mirrors: [Mirror] = [], demand: WitnessDemand? = nil,
        allowsGaps: Bool = false, maxAge: UInt64 = 900
    ) {
        (self.source, self.key, self.folder, self.mirrors) = (source, key, folder, mirrors)
        (self.demand, self.allowsGaps, self.maxAge) = (demand, allowsGaps, maxAge)
    }

    /// Verifies the log once.
    /// - Parameter now: unix seconds.
    /// - Returns: one line: the verdict and figures. The first run on a log has nothing to compare it with but mirrors and witnesses.
    /// - Throws: the failure. `.stale` if the log is closed or has no recent entry. `.folder` if the watch can't use its own folder.
    public func run(now: UInt64) async throws(VerificationFailure) -> String {
        try write { path throws(Errno) in try File.makeFolder("\(path)/checkpoints", mode: 0o755) }
        let lock = try await lockFolder()
        defer { extendLifetime(lock) }
        let kept = try readKept()
        let older = kept.map { [Verifier.OlderCheckpoint(name: "the kept checkpoint", bytes: $0)] } ?? []
        let note = try await LogReader(source).file(TilePath.checkpoint)
        let pinned = PinnedSource(source: source, checkpoint: note)
        let verifier = Verifier(pinned, key: key, demand: demand, allowsGaps: allowsGaps)
        let result: Verifier.Result
        do {
            result = try await verifier.verify(since: older, resuming: try read("state", limit: 1 << 30))
        } catch {
            if error.code == .rewritten { keepContradiction(note, of: kept) }
            throw error
        }
        let head = SignedNote(result.checkpoint)!.checkpoint(signedBy: key)!
        try write { path throws(Errno) in
            // The state first: after a crash in between, it is ignored for having more entries than the checkpoint.
            try File.replaceDurably("\(path)/state", result.state.span, mode: 0o644)
            try File.replaceDurably("\(path)/checkpoint", result.checkpoint.span, mode: 0o644)
            let first = "\(path)/checkpoints/\(Timestamp.text(now * 1_000).prefix(10))"
            if !File.exists(first) { try File.replaceDurably(first, result.checkpoint.span, mode: 0o644) }
        }
        if let next = result.report.next {
            throw VerificationFailure(
                .stale, "the log is closed, and \(next) continues it. Watch that log, with its own key and folder")
        }
        try result.report.checkAge(limit: maxAge, now: now)
        var verdict = result.report.verdict
        for mirror in mirrors where try await compare(mirror, with: head) { verdict = .good }
        return
            "\(verdict.words): \(result.report); \(result.report.ageText(now: now)); \(head.size - result.resumedAt) entries verified now"
            + (mirrors.isEmpty ? "" : "; \(mirrors.count) mirror\(mirrors.count == 1 ? " agrees" : "s agree")")
    }

    /// Waits up to a minute for another run on the same folder, such as a cron job.
    /// - Throws: `.folder` if the other run is still busy.
    private func lockFolder() async throws(VerificationFailure) -> OpenFile {
        do throws(Errno) {
            let file = try OpenFile(folder, .read)
            for _ in 0..<1_200 {
                if try file.tryLock() { return file }
                // A cancelled task stops waiting.
                guard (try? await Task.sleep(for: .milliseconds(50))) != nil else { break }
            }
        } catch {
            throw VerificationFailure(.folder, "the folder of the watch can't be locked: \(error.reason)")
        }
        throw VerificationFailure(.folder, "another watch is using this folder. Wait until it ends")
    }

    /// Reads the watch's own copy of the last checkpoint. A damaged one proves nothing about the log, and is never replaced silently.
    /// - Returns: nil if the watch has never kept one.
    private func readKept() throws(VerificationFailure) -> [UInt8]? {
        guard let kept = try read("checkpoint", limit: SignedNote.byteLimit) else {
            if let loss = try loss() { throw damaged("\(loss), which says nothing about the log") }
            return nil
        }
        guard let note = SignedNote(kept), Checkpoint(text: note.text) != nil else {
            throw damaged("\(kept.isEmpty ? "empty" : "cut off or damaged"), which says nothing about the log")
        }
        guard note.checkpoint(signedBy: key) != nil else {
            // A daily copy that this key has signed shows that key and folder belong together.
            if newestDaily() != nil { throw damaged("not signed with this key, but a daily copy is") }
            throw VerificationFailure(
                .folder, "the kept checkpoint is not signed with this key. Use this log's own folder, or correct --key",
                file: shown("checkpoint"))
        }
        return kept
    }

    /// How a checkpoint that can't be found was lost. Nil if there never was one: the daily copies are written after it.
    private func loss() throws(VerificationFailure) -> String? {
        do throws(Errno) {
            if try File.status("\(folder)/checkpoint", followLinks: false) != nil { return "a link to a missing file" }
            return try File.list("\(folder)/checkpoints").isEmpty ? nil : "missing"
        } catch {
            throw VerificationFailure(.folder, "the folder of the watch can't be read: \(error.reason)")
        }
    }

    private func damaged(_ fault: String) -> VerificationFailure {
        let remedy =
            newestDaily().map { "Put a copy of \(shown($0)) in its place: the log must continue that one" }
            ?? "Put a checkpoint that you kept elsewhere in its place, or delete it and the folder checkpoints to begin anew. "
            + "What was rewritten before then stays unseen"
        return VerificationFailure(.folder, "the kept checkpoint is \(fault). \(remedy)", file: shown("checkpoint"))
    }

    private func shown(_ name: String) -> String { "\(ShownPath("\(folder)/\(name)"))" }

    /// Returns the newest checkpoint in `checkpoints` that this key has signed. Nil if there is none.
    private func newestDaily() -> String? {
        // A copy that can't be read is as useless as a damaged one.
        let names = (try? File.list("\(folder)/checkpoints")) ?? []
        return names.reversed().map { "checkpoints/\($0)" }.first { name in
            let bytes = try? File.read("\(folder)/\(name)", limit: SignedNote.byteLimit)
            return bytes.flatMap { SignedNote($0)?.checkpoint(signedBy: key) } != nil
        }
    }

    /// Returns false if one of the heads has no entries, which proves nothing.
    /// - Throws: `.rewritten` if neither head continues the other.
    private func compare(_ mirror: Mirror, with head: Checkpoint) async throws(VerificationFailure) -> Bool {
        do throws(VerificationFailure) {
            let (note, other) = try await LogProof.checkpoint(of: mirror.source, key)
            let (old, new, source) = other.size <= head.size ? (other, head, self.source) : (head, other, mirror.source)
            var tiles = TileReader(source, size: new.size)
            guard try await tiles.continues(old, root: new.root) else {
                keepContradiction(note.encoded, of: nil)
                throw VerificationFailure(
                    .rewritten, "signs \(other.size) entries that differ from the watched log: there are two histories",
                    file: TilePath.checkpoint)
            }
            return old.size > 0
        } catch {
            var failure = error
            failure.detail = "the mirror \(mirror.name): \(error)"
            (failure.file, failure.index, failure.id) = (nil, nil, nil)
            throw failure
        }
    }

    /// Stores the evidence. Errors are ignored, so that the failure itself is still reported.
    /// - Parameter kept: the last verified checkpoint. If it has more entries than the note, the copy may lag and nothing is stored.
    private func keepContradiction(_ note: [UInt8], of kept: [UInt8]?) {
        let (old, new) = (kept.flatMap { SignedNote($0)?.checkpoint(signedBy: key) }, SignedNote(note)?.checkpoint(signedBy: key))
        guard let new, new.size >= old?.size ?? 0 else { return }
        let name = "contradiction-\(Digest.sha256(note.span).hex.prefix(16))"
        guard let names = try? File.list(folder) else { return }
        let others = names.filter { $0.hasPrefix("contradiction-") }
        // A file of this name may be empty or cut. Replace it: the name is the content's digest.
        guard others.count < 16 || others.contains(name) else { return }
        try? File.replaceDurably("\(folder)/\(name)", note.span, mode: 0o644)
    }

    private func read(_ name: String, limit: Int) throws(VerificationFailure) -> [UInt8]? {
        do {
            return try File.read("\(folder)/\(name)", limit: limit)
        } catch {
            if error.isMissing { return nil }
            throw VerificationFailure(.folder, "can't be read: \(error.reason)", file: shown(name))
        }
    }

    private func write(_ body: (String) throws(Errno) -> Void) throws(VerificationFailure) {
        do { try body(folder) } catch {
            throw VerificationFailure(.folder, "the watch can't write to its folder: \(error.reason)")
        }
    }
}

/// A log at one checkpoint, which a growing log may replace at any moment.
private struct PinnedSource: LogSource {
    let source: any LogSource
    let checkpoint: [UInt8]

    func read(_ path: String) async throws -> [UInt8]? {
        path == TilePath.checkpoint ? checkpoint : try await source.read(path)
    }

    func list(_ folder: String) async throws -> [String]? { try await source.list(folder) }
}
