/// The ops by their names in JSON, the keys that each has, and the values that its closed list allows.
enum OpName: String, CaseIterable {
    case brokerStarted = "broker.started"
    case brokerStopped = "broker.stopped"
    case policyLoaded = "policy.loaded"
    case keysGenerated = "keys.generated"
    case keysRatcheted = "keys.ratcheted"
    case tokenSealed = "token.sealed"
    case tokenOpened = "token.opened"
    case pushDelivered = "push.delivered"
    case pushFailed = "push.failed"
    case tokenPurged = "token.purged"
    case requestRefused = "request.refused"
    case ledgerClosed = "ledger.closed"

    init?(_ bytes: Span<UInt8>, _ range: Range<Int>) {
        for (name, op) in zip(Self.names, Self.allCases) where bytes.matches(name, at: range) {
            self = op
            return
        }
        return nil
    }

    /// The bits of the keys that an entry of this op has, all of them and no other.
    var keys: UInt32 {
        let own: UInt32 =
            switch self {
            case .brokerStarted: Self.bits(.node, .policy, .resolution, .version)
            case .brokerStopped: Self.bits(.node)
            case .policyLoaded: Self.bits(.name, .policy)
            case .keysGenerated: Self.bits(.generation)
            case .keysRatcheted: Self.bits(.epoch)
            case .tokenSealed: Self.bits(.kind, .ref, .until)
            case .tokenOpened: Self.bits(.job, .ref, .template)
            case .pushDelivered: Self.bits(.job, .ref, .status)
            case .pushFailed: Self.bits(.job, .reason, .ref, .status)
            case .tokenPurged: Self.bits(.cause, .ref)
            case .requestRefused: Self.bits(.cause, .count)
            case .ledgerClosed: Self.bits(.next)
            }
        return own | Self.bits(.at, .op)
    }

    /// Whether entries of this op are about one token.
    var hasRef: Bool { keys & Self.bits(.ref) != 0 }

    /// Whether the cause, kind or reason in `range` is in this op's list; true for an op that has none.
    func allows(_ range: Range<Int>, in bytes: Span<UInt8>) -> Bool {
        switch self {
        case .tokenSealed: Self.kinds.contains { bytes.matches($0, at: range) }
        case .pushFailed: Self.reasons.contains { bytes.matches($0, at: range) }
        case .tokenPurged: Self.purges.contains { bytes.matches($0, at: range) }
        case .requestRefused: Self.refusals.contains { bytes.matches($0, at: range) }
        default: true
        }
    }

    @inline(__always)
    private static func bits(_ keys: EntryFields.Key...) -> UInt32 { keys.reduce(0) { $0 | $1.bit } }

    private static let names = allCases.map { Array($0.rawValue.utf8) }
    private static let kinds = Entry.TokenKind.allCases.map { Array($0.rawValue.utf8) }
    private static let reasons = Entry.PushFailureReason.allCases.map { Array($0.rawValue.utf8) }
    private static let purges = Entry.PurgeCause.allCases.map { Array($0.rawValue.utf8) }
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
