import Ledger
import Linux
import Policy
import Storage
import Vocabulary

/// The progress of a rotation, kept in the store from the closing of the old log until the new one is published. Meanwhile no broker
/// starts.
struct RotationMark {
    enum Stage: String {
        /// The old log's last entry is recorded. Its head may not be signed yet.
        case closing
        /// The store contains only the new log. Folder, key and public key of the old one may not be moved yet.
        case moving
    }

    var stage: Stage
    /// Origin of the new log.
    var next: String
    /// Absolute path of the closed log.
    var archive: String
    /// Public key of the closed log.
    var old: VerifierKey

    /// Names of marks in the store: the rotation, the origins of earlier logs, the last start of a broker, and its policies.
    static let name = "log.rotation"
    static let originsMark = "log.origins"
    static let startMark = "log.start"
    static let policiesMark = "log.policies"
    /// The policies of the closed log, until the next start.
    static let carriedMark = "log.carried"

    /// Returns the marks to store at a start.
    /// - Parameter starts: the log entries of the start, `broker.started` first.
    static func marks(of starts: [Entry.Op]) -> [StoreMark] {
        let policies = starts.compactMap { if case .policyLoaded(_, let policy) = $0 { policy.hex } else { nil } }
        return [
            StoreMark(startMark, Entry(atMs: 0, starts[0]).encoded),
            StoreMark(policiesMark, Array(policies.joined(separator: "\n").utf8)),
            StoreMark(carriedMark, []),
        ]
    }

    /// Parses the digests in a mark of policies.
    static func policies(_ mark: [UInt8]) -> [Digest] {
        mark.split(separator: UInt8(ascii: "\n")).compactMap { line in
            let hex = Array(line)
            return Digest(hex: hex.span)
        }
    }

    /// Returns the additional entries of a log's first start: the previous log's policies. Seals that waited at the rotation appear in the
    /// new log, and verifiers need their policies.
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
    /// The mark after a completed rotation.
    static let done = StoreMark(name, [])

    /// Returns the rotation under way, or nil if there is none.
    static func read(_ store: any Store) async throws -> RotationMark? {
        try read(try await store.mark(name))
    }

    /// Parses the store's mark.
    static func read(_ bytes: [UInt8]?) throws -> RotationMark? {
        guard let bytes, !bytes.isEmpty else { return nil }
        guard let mark = RotationMark(bytes) else { throw StoreError.damaged("the record of a rotation can't be read") }
        return mark
    }

    /// - Throws: `CommandFailed` if a rotation is under way.
    static func refuse(_ state: StateFolder, _ store: any Store) async throws {
        if let mark = try await read(store) { throw mark.unfinished(state) }
    }

    func unfinished(_ state: StateFolder) -> CommandFailed {
        Self.unfinished(state, words: "--origin \(next) --archive \(archive)")
    }

    /// The same check without the store, which can't be opened if the key is missing.
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

extension RotationMark {
    private init?(_ bytes: [UInt8]) {
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n", omittingEmptySubsequences: false).map(
            String.init)
        guard lines.count == 5, let stage = Stage(rawValue: lines[0]), let old = VerifierKey(lines[3]) else { return nil }
        self.init(stage: stage, next: lines[1], archive: lines[2], old: old)
    }
}
