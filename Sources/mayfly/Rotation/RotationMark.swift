import Ledger
import Linux
import Policy
import Storage
import Vocabulary

/// How far the change from one log to another has come, as the store keeps it: from the closing of the old log until the new one is
/// published. While it stands no broker starts.
struct RotationMark: Equatable {
    enum Stage: String {
        /// The last entry of the old log is recorded. Its head may have to be signed still.
        case closing
        /// The store knows the new log only. Folder, key and public key of the old one may still be in their places.
        case moving
    }

    var stage: Stage
    /// Origin of the log that follows.
    var next: String
    /// Where the closed log goes: an absolute path.
    var archive: String
    /// Public key of the log that is closed.
    var old: VerifierKey

    /// The store's marks: this, the origins that had a log before, the last start of a broker and the policies it loaded.
    static let name = "log.rotation"
    static let originsMark = "log.origins"
    static let startMark = "log.start"
    static let policiesMark = "log.policies"
    /// The policies of the log that was closed, until the next start.
    static let carriedMark = "log.carried"

    /// What is remembered of a start.
    /// - Parameter starts: what the log is told of it, `broker.started` first.
    static func marks(of starts: [Entry.Op]) -> [StoreMark] {
        let policies = starts.compactMap { if case .policyLoaded(_, let policy) = $0 { policy.hex } else { nil } }
        return [
            StoreMark(startMark, Entry(atMs: 0, starts[0]).encoded),
            StoreMark(policiesMark, Array(policies.joined(separator: "\n").utf8)),
            StoreMark(carriedMark, []),
        ]
    }

    /// The digests in a mark of policies.
    static func policies(_ mark: [UInt8]) -> [Digest] {
        mark.split(separator: UInt8(ascii: "\n")).compactMap { line in
            let hex = Array(line)
            return Digest(hex: hex.span)
        }
    }

    /// What the first start of a log adds to its entries. Seals that still waited when the log before was closed come out in this one, and
    /// a verifier judges their lives by the policies that this log names.
    static func carriedPolicies(_ store: any Store, _ folder: LedgerFolder, besides starts: [Entry.Op]) async throws -> [Entry.Op]
    {
        let named = starts.compactMap { if case .policyLoaded(_, let policy) = $0 { policy } else { nil } }
        return try policies(try await store.mark(carriedMark) ?? []).filter { !named.contains($0) }.map { digest in
            guard let bytes = try folder.read(TilePath.policy(digest)), let name = EntryText(try Policy(bytes).name) else {
                throw CommandFailed(
                    "ledger/\(TilePath.policy(digest)) is missing: restore it from the archive of the previous log")
            }
            return .policyLoaded(name: name, policy: digest)
        }
    }

    var mark: StoreMark { StoreMark(Self.name, Array("\(stage.rawValue)\n\(next)\n\(archive)\n\(old)\n".utf8)) }
    /// What the mark becomes when all is done.
    static let done = StoreMark(name, [])

    init(stage: Stage, next: String, archive: String, old: VerifierKey) {
        (self.stage, self.next, self.archive, self.old) = (stage, next, archive, old)
    }

    private init?(_ bytes: [UInt8]) {
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false).map(
            String.init)
        guard lines.count == 5, let stage = Stage(rawValue: lines[0]), let old = VerifierKey(lines[3]) else { return nil }
        self.init(stage: stage, next: lines[1], archive: lines[2], old: old)
    }

    /// The change that is under way, nil if none is.
    static func read(_ store: any Store) async throws -> RotationMark? {
        guard let bytes = try await store.mark(name), !bytes.isEmpty else { return nil }
        guard let mark = RotationMark(bytes) else { throw StoreError.damaged("the record of a rotation can't be read") }
        return mark
    }

    /// For a broker that is to start.
    /// - Throws: `CommandFailed` while a change is under way.
    static func refuse(_ state: StateFolder, _ store: any Store) async throws {
        if let mark = try await read(store) {
            throw unfinished(state, words: "--origin \(mark.next) --archive \(mark.archive)")
        }
    }

    /// The same before the store is open: there may be no key to open it with.
    static func refuse(_ state: StateFolder) throws {
        if File.exists(state.nextLedgerKey) {
            throw unfinished(state, words: "--origin NEW --archive DIR, with the same values as before")
        }
    }

    private static func unfinished(_ state: StateFolder, words: String) -> CommandFailed {
        CommandFailed(
            "a rotation to another log is not finished. Run `mayfly keys rotate --state \(state.shown) \(words)` again"
        )
    }
}
