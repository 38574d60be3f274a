import SQLite

/// Why an operation was not done. Nothing of it was kept.
public enum StoreError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The disk or a quota is full.
    case full
    /// The file system is read-only, or this user may not write the database.
    case readOnly
    /// The folder or file can't be read or written, or another process holds it.
    case unavailable(String)
    /// The file is no database of this version, or is damaged.
    case damaged(String)
    /// The policy's `ledger` member differs from the one that the state folder began with.
    case otherTiming(recorded: String, given: String)
    /// So many ledger entries wait to be published that only purges are taken.
    case ledgerBehind
    /// The store was closed.
    case closed

    init(_ error: SQLiteError) {
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

    public var description: String {
        switch self {
        case .full: "the disk is full, so nothing was stored. Free space and try again"
        case .readOnly:
            "the database can't be written, so nothing was stored. Its file system became read-only, as after a disk error, or its "
                + "owner or mode changed. Check the kernel's log, and make it writable again"
        case .unavailable(let text): "the database can't be used (\(text)), so nothing was stored"
        case .damaged(let text):
            "the database is damaged or of another version (\(text)); restore nothing from a backup, start with an empty state folder"
        case .otherTiming(let recorded, let given):
            "the rooms policy's ledger timing can't change: this state folder has \(recorded), the policy has \(given). Restore the old values "
                + "in the policy's member ledger, or start with an empty state folder"
        case .ledgerBehind:
            "too many ledger entries wait to be published. Only purges are accepted until the log folder can be written again"
        case .closed: "the store is closed"
        }
    }
}

extension StoreError {
    init(any error: any Error) {
        switch error {
        case let error as StoreError: self = error
        case let error as SQLiteError: self = StoreError(error)
        default: self = .unavailable("unexpected error")
        }
    }
}
