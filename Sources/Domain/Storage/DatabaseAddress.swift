public import Ledger
import Linux
public import Policy
import Postgres

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

    /// Returns the paths of this program's certificate for the server and of the authorities that the server is verified by, as libpq finds them:
    /// in the URI, the environment or the user's folder.
    /// - Throws: `PostgresError` if libpq is missing or can't parse the URI.
    public func certificateFiles(
        _ environment: (String) -> String?
    ) throws -> (certificate: String?, authorities: String?) {
        guard case .server(let uri) = self else { return (nil, nil) }
        let given = try PostgresConnection.options(["sslcert", "sslrootcert"], of: uri, environment: environment)
        let folder = environment("HOME").map { $0 + "/.postgresql/" }
        let usual = { (name: String) in folder.map { $0 + name }.flatMap { File.exists($0) ? $0 : nil } }
        let authorities = given["sslrootcert"] ?? usual("root.crt")
        // The word stands for the authorities that OpenSSL trusts.
        return (given["sslcert"] ?? usual("postgresql.crt"), authorities == "system" ? nil : authorities)
    }

    /// Opens the store. See `SQLiteStore.init` and `PostgresStore.init`.
    /// - Parameters:
    ///   - isBehind: called with the time of the log's latest window, unix ms, when `now` returns less.
    ///   - clock: the clock of `now`.
    public func open(
        resolution: UInt64, timing: LedgerTiming?, resumption: [Entry.Op] = [], now: @escaping @Sendable () -> UInt64,
        isBehind: @escaping @Sendable (UInt64) -> Void = { _ in }, clock: AgreedClock = AgreedClock()
    ) throws(StoreError) -> any Store {
        switch self {
        case .file(let path):
            try SQLiteStore(path: path, resolution: resolution, timing: timing, resumption: resumption, now: now)
        case .server(let uri):
            try PostgresStore(
                PostgresJournal(
                    uri: uri, resolution: resolution, resumption: resumption, now: now, isBehind: isBehind,
                    clocks: PostgresClocks(agreed: clock)), timing: timing)
        }
    }
}
