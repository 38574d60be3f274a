import Ledger

/// A checkpoint of this log that is kept outside the state folder, e.g. under a published copy. The log must continue it.
///
/// Database, keys and ledger folder that come from one snapshot agree with each other. Only something outside shows that there was more.
public struct KeptCheckpoint: Sendable {
    let name: String
    private let read: @Sendable () async throws -> [UInt8]?

    /// - Parameters:
    ///   - name: names the place in errors and in the log.
    ///   - read: returns nil if nothing is published there. May throw any error; its text is logged.
    public init(name: String, read: @escaping @Sendable () async throws -> [UInt8]?) {
        (self.name, self.read) = (name, read)
    }

    /// Compares the log under `head` with this checkpoint.
    /// - Throws: `.unread` if the checkpoint can't be read now, `.foreign` if another key signed it, `.restored` if the log does not
    ///   continue it.
    func check(_ head: Checkpoint, of key: VerifierKey, _ source: any LogSource) async throws {
        let bytes: [UInt8]?
        do { bytes = try await read() } catch { throw Failure.unread(name: name, reason: "\(error)") }
        guard let bytes else { throw Failure.unread(name: name, reason: "it has no checkpoint") }
        guard let kept = SignedNote(bytes)?.checkpoint(signedBy: key) else { throw Failure.foreign(name: name, origin: key.name) }
        guard kept.size <= head.size else { throw Failure.restored(.behind(name: name, kept: kept.size, own: head.size)) }
        var tiles = TileReader(source, size: head.size)
        guard try await tiles.continues(kept, root: head.root) else {
            throw Failure.restored(.forked(name: name, size: kept.size))
        }
    }

    public enum Failure: Error, Sendable, CustomStringConvertible {
        case unread(name: String, reason: String)
        case foreign(name: String, origin: String)
        case restored(Contradiction)

        public var description: String {
            switch self {
            case .unread(let name, let reason):
                "\(name) can't be read (\(reason)). Nothing is signed until this ledger is compared with it"
            case .foreign(let name, let origin):
                "\(name) has no checkpoint signed by the key of \(origin): it belongs to another log, or is damaged. "
                    + "Name a copy of this log"
            case .restored(let contradiction):
                "restored_state: \(contradiction). To continue would fork the log, so nothing was signed or published. Restore the newer state "
                    + "folder; if it is lost, start with an empty one under another origin"
            }
        }

        /// True if waiting can't help. The start is then refused.
        var isFinal: Bool {
            if case .unread = self { false } else { true }
        }
    }

    /// How a log fails to continue a checkpoint.
    public enum Contradiction: Sendable, CustomStringConvertible {
        case behind(name: String, kept: UInt64, own: UInt64)
        case forked(name: String, size: UInt64)

        public var description: String {
            switch self {
            case .behind(let name, let kept, let own):
                "\(name) has \(kept) entries of this log, and the state folder has only \(own): the state folder is an old copy"
            case .forked(let name, let size):
                "\(name) has \(size) entries of this log, and the state folder has different ones: the state folder is an old copy that was continued"
            }
        }
    }
}
