import Postgres
import SQLite

/// The broker's durable state: operations on rows (`Transaction`), and the store's own work (`Keeping.swift`).
///
/// Each call is atomic. Its changes are durable when it returns, and none are kept if it throws. The exception is a commit on PostgreSQL whose answer
/// is lost: after that call has thrown, its changes may be durable.
public protocol Store: Sendable {
    /// Runs an operation and finishes it when all of it is durable, or has failed.
    func submit(_ operation: Operation, _ access: Access)
    func submit(_ work: StoreTask, _ access: Access)

    /// Allows the store to delay operations until `release`, so that they share one commit.
    func hold()
    func release()
    func shutDown() async

    /// Removes purged rows from the write-ahead log.
    /// - Returns: false if a reader blocked it. Try again then.
    func scrub() async throws(StoreError) -> Bool
    /// How long after a purge `scrub` is due, milliseconds.
    var scrubDelayMs: UInt64 { get }
    /// Returns what the operator should know since the last call, as text for the log.
    func takeAlarms() -> [String]
}

/// How an operation uses the store.
public enum Access: Sendable {
    /// Reads durable data only.
    case read
    case write
    /// A long read, which must not delay others.
    case survey
    /// A long write of the store's own, which other writes must not wait for twice. It may be several transactions.
    case apart
}

/// An operation in a store's queue. A store calls either what `run` returned or `fail`, once.
public struct Operation: Sendable {
    /// Called once, or again if the first run was rolled back. Returns what to call when the operation is durable.
    public let run: @Sendable (Transaction) throws -> @Sendable () -> Void
    /// Called if the operation failed.
    public let fail: @Sendable (StoreError) -> Void

    @inlinable
    public init(
        run: @escaping @Sendable (Transaction) throws -> @Sendable () -> Void,
        fail: @escaping @Sendable (StoreError) -> Void
    ) {
        (self.run, self.fail) = (run, fail)
    }
}

extension Store {
    @inlinable
    public func read<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(StoreError) -> Value {
        try await perform(.read, on: self, body)
    }

    @inlinable
    public func write<Value: Sendable>(
        _ body: @escaping @Sendable (Transaction) throws -> Value
    ) async throws(StoreError) -> Value {
        try await perform(.write, on: self, body)
    }

    public func hold() {}
    public func release() {}
    public var scrubDelayMs: UInt64 { 10_000 }
    public func takeAlarms() -> [String] { [] }
}

/// Returns when an operation is done and, if it writes, durable.
///
/// This is no method of `Store`, because methods of `any Store` aren't specialised for `Value`. Looking up generic types at run time cost
/// 3 % of a request.
@inlinable
public func perform<Value: Sendable>(
    _ access: Access, on store: any Store, _ body: @escaping @Sendable (Transaction) throws -> Value
) async throws(StoreError) -> Value {
    let result: Result<Value, StoreError> = await withCheckedContinuation { continuation in
        let operation = Operation { transaction in
            let value = try body(transaction)
            return { continuation.resume(returning: .success(value)) }
        } fail: {
            continuation.resume(returning: .failure($0))
        }
        store.submit(operation, access)
    }
    return try result.get()
}

/// Why an operation failed.
public enum StoreError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The disk or a quota is full.
    case full
    /// The file system is read-only, or this user may not write the database.
    case readOnly
    /// The folder or file can't be read or written, or another process holds it.
    case unavailable(String)
    /// The database is damaged.
    case damaged(String)
    /// The database's tables are those of another release.
    case otherVersion(found: UInt64, needed: UInt64)
    /// The PostgreSQL database has no tables, or those of another version.
    case noSchema
    /// The policy's `ledger` member differs from the one recorded in the state folder.
    case otherTiming(recorded: String, given: String)
    /// Too many ledger entries wait for publication, so only purges are accepted.
    case ledgerBehind
    /// The database's clock differs from this machine's by more than a minute.
    case wrongClock
    /// The database has a smaller log than before: a failover has lost commits.
    case lostCommits
    /// Another node holds the lease. This one must stop.
    case superseded
    /// The store was closed.
    case closed

    init(any error: any Error) {
        switch error {
        case let error as StoreError: self = error
        case let error as SQLiteError: self.init(error)
        case let error as PostgresError: self.init(error)
        default: self = .unavailable("unexpected error")
        }
    }

    private init(_ error: SQLiteError) {
        if error.isFull {
            self = .full
        } else if error.isReadOnly {
            self = .readOnly
        } else if error.isDamaged {
            self = .damaged(error.description)
        } else {
            self = .unavailable(error.description)
        }
    }

    private init(_ error: PostgresError) {
        if error.isFull {
            self = .full
        } else if error.isDamaged || error.isWrongCount {
            self = .damaged(error.description)
        } else if error.isInvalidText {
            // Only the check of the lease casts a text.
            self = .superseded
        } else if error.isNoTable {
            self = .noSchema
        } else {
            self = .unavailable(error.description)
        }
    }

    public var description: String {
        switch self {
        case .full: "the disk is full, so nothing was stored. Free space and try again"
        case .readOnly:
            "the database can't be written, so nothing was stored. Its file system became read-only, as after a disk error, or its "
                + "owner or mode changed. Check the kernel's log, and make it writable again"
        case .unavailable(let text): "the database can't be used (\(text))"
        case .damaged(let text):
            "the database is damaged (\(text)); restore nothing from a backup, start with an empty state folder"
        case .otherVersion(let found, let needed):
            "its tables have version \(found), and this release reads only version \(needed). Run the release that made them, or begin anew "
                + "with an empty state folder and database"
        case .noSchema:
            "it lacks this version's tables. Make them with `mayfly migrate`, and add --move to take a SQLite broker's rows there"
        case .otherTiming(let recorded, let given):
            "the rooms policy's ledger timing can't change: this state folder has \(recorded), the policy has \(given). Restore the old values "
                + "in the policy's member ledger, or start with an empty state folder"
        case .ledgerBehind:
            "too many ledger entries wait to be published. Only purges are accepted until the log folder can be written again"
        case .wrongClock:
            "the database's clock and this machine's differ by more than a minute, so no new room, token or push is stored. Set both, e.g. "
                + "with chrony"
        case .lostCommits:
            "the database has lost commits, as after a failover to a server that lacked them. Nothing is stored or pushed. "
                + "Bring back the server that has them. If it is gone, stop all nodes and begin a new log with an empty database"
        case .superseded: "another node has ended this node's term, so it can't write"
        case .closed: "the store is closed"
        }
    }
}
