public import Ledger
import Linux
public import Policy

/// Where a broker's database is.
public enum DatabaseAddress: Sendable {
    /// The path of a SQLite file.
    case file(String)
    /// A URI of PostgreSQL. It may have a password, so it is never shown.
    case server(String)

    /// - Parameter text: a path that ends with `.sqlite`, or a URI `postgresql://...` or `postgres://...`. Returns nil for other texts: a secret
    ///   given by mistake must not become a file's name.
    public init?(_ text: String) {
        if ["postgresql://", "postgres://"].contains(where: { text.hasPrefix($0) }) {
            self = .server(text)
        } else if text.hasSuffix(".sqlite") {
            self = .file(text)
        } else {
            return nil
        }
    }

    public var isServer: Bool { if case .server = self { true } else { false } }

    /// Returns false if there is no file yet. Nobody knows about a server before connecting.
    public func exists() throws(Errno) -> Bool {
        switch self {
        case .file(let path): try File.status(path).map { $0.size > 0 } ?? false
        case .server: true
        }
    }

    /// Opens the store. See `SQLiteStore.init` and `PostgresStore.init`.
    public func open(
        resolution: UInt64, timing: LedgerTiming?, resumption: [Entry.Op] = [], now: @escaping @Sendable () -> UInt64,
        isBehind: @escaping @Sendable (UInt64) -> Void = { _ in }, clock: AgreedClock = AgreedClock()
    ) throws(StoreError) -> any Store {
        switch self {
        case .file(let path):
            try SQLiteStore(path: path, resolution: resolution, timing: timing, resumption: resumption, now: now)
        case .server(let uri):
            try PostgresStore(
                uri: uri, resolution: resolution, timing: timing, resumption: resumption, now: now, isBehind: isBehind,
                clock: clock)
        }
    }
}
