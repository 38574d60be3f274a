import Vocabulary

/// The ops by their names in JSON, the keys that each has, and the values that its closed list allows.
enum OpName: String, CaseIterable {
    case tokenSealed = "token.sealed"
    case tokenPurged = "token.purged"
    case tokenOpened = "token.opened"
    case pushDelivered = "push.delivered"
    case pushFailed = "push.failed"
    case keysRatcheted = "keys.ratcheted"
    case requestRefused = "request.refused"
    case bucketClosed = "bucket.closed"
    case brokerStarted = "broker.started"
    case brokerStopped = "broker.stopped"
    case policyLoaded = "policy.loaded"
    case keysGenerated = "keys.generated"
    case ledgerClosed = "ledger.closed"
    case ledgerOpened = "ledger.opened"
    case bucketCarried = "bucket.carried"

    init?(_ bytes: Span<UInt8>, _ range: Range<Int>) {
        for (name, op) in zip(Self.names, Self.allCases) where bytes.matches(name, at: range) {
            self = op
            return
        }
        return nil
    }

    /// The bits of the keys that an entry of this op has, all of them and no other. A purge that says `expired` also has `until`.
    var keys: UInt32 {
        let own: UInt32 =
            switch self {
            case .brokerStarted: Self.bits(.binary, .node, .policy, .resolution, .version)
            case .brokerStopped: Self.bits(.node)
            case .policyLoaded: Self.bits(.name, .policy)
            case .keysGenerated: Self.bits(.generation)
            case .keysRatcheted: Self.bits(.epoch, .swept)
            case .tokenOpened: Self.bits(.id, .job, .template)
            case .pushDelivered: Self.bits(.job, .status)
            case .pushFailed: Self.bits(.job, .reason, .status)
            case .tokenSealed: Self.bits(.id, .until)
            case .tokenPurged: Self.bits(.cause, .id)
            case .bucketClosed: Self.bits(.ended, .expired, .sealed, .until)
            case .requestRefused: Self.bits(.cause, .count)
            case .ledgerClosed: Self.bits(.next)
            case .ledgerOpened: Self.bits(.jobs, .previous, .root, .size)
            case .bucketCarried: Self.bits(.live, .until)
            }
        return own | Self.bits(.at, .op)
    }

    /// The place among the entries of one window: within a run it never falls.
    var rank: UInt8 {
        switch self {
        case .brokerStarted, .brokerStopped, .policyLoaded, .keysGenerated, .keysRatcheted, .requestRefused, .ledgerOpened,
            .bucketCarried:
            0
        case .tokenOpened: 1
        case .pushDelivered, .pushFailed: 2
        case .tokenSealed: 3
        case .tokenPurged: 4
        case .bucketClosed: 5
        case .ledgerClosed: 6
        }
    }

    /// Returns whether the cause or reason in `range` is in this op's list; true for an op that has none.
    func allows(_ range: Range<Int>, in bytes: Span<UInt8>) -> Bool {
        switch self {
        case .pushFailed: Self.reasons.contains { bytes.matches($0, at: range) }
        case .tokenPurged: Self.purges.contains { bytes.matches($0, at: range) }
        case .requestRefused: Self.refusals.contains { bytes.matches($0, at: range) }
        default: true
        }
    }

    @inline(__always)
    private static func bits(_ keys: EntryFields.Key...) -> UInt32 { keys.reduce(0) { $0 | $1.bit } }

    private static let names = allCases.map { Array($0.rawValue.utf8) }
    private static let reasons = APNsReason.allRecorded.map { Array($0.rawValue.utf8) }
    private static let purges = PurgeCause.names.map { Array($0.utf8) }
    private static let refusals = Entry.RefusalCause.allCases.map { Array($0.rawValue.utf8) }
}

extension Span<UInt8> {
    /// Whether the bytes in `range` are exactly `text`.
    @inline(__always)
    func matches(_ text: [UInt8], at range: Range<Int>) -> Bool {
        guard text.count == range.count else { return false }
        for index in 0..<text.count where self[range.lowerBound + index] != text[index] { return false }
        return true
    }
}
