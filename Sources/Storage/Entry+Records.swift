import Ledger

/// The ledger's words for what happens to a row.
extension Entry.Op {
    static func sealed(_ token: TokenRecord) -> Entry.Op { sealed(token.ref, kind: token.kind, expires: token.expires) }

    static func sealed(_ registration: RegistrationRecord) -> Entry.Op {
        sealed(registration.ref, kind: registration.kind, expires: registration.expires)
    }

    static func sealed(_ ref: [UInt8], kind: UInt8, expires: UInt64) -> Entry.Op {
        .tokenSealed(ref: OpaqueID(row: ref), kind: Entry.TokenKind(column: kind), untilMs: epochEnd(expires))
    }

    static func opened(_ job: JobRecord) -> Entry.Op {
        .tokenOpened(ref: OpaqueID(row: job.ref), job: OpaqueID(row: job.job), template: EntryText(column: job.template))
    }

    static func ended(_ job: JobRecord, _ outcome: JobOutcome) -> Entry.Op {
        let (ref, id) = (OpaqueID(row: job.ref), OpaqueID(row: job.job))
        guard let reason = outcome.reason else { return .pushDelivered(ref: ref, job: id, status: outcome.status) }
        return .pushFailed(ref: ref, job: id, status: outcome.status, reason: reason)
    }

    static func purged(_ ref: [UInt8], _ cause: Entry.PurgeCause) -> Entry.Op {
        .tokenPurged(ref: OpaqueID(row: ref), cause: cause)
    }

    /// The end of the five minutes whose key seals what expires at this time.
    static func epochEnd(_ expires: UInt64) -> UInt64 { epochStart(expires) + 300_000 }

    /// The start of the five minutes that a time lies in.
    static func epochStart(_ time: UInt64) -> UInt64 { time / 300_000 * 300_000 }
}

extension OpaqueID {
    /// A column of 16 bytes; this program wrote it.
    init(row bytes: [UInt8]) {
        guard let id = OpaqueID(bytes.span) else { preconditionFailure("a reference is not 16 bytes") }
        self = id
    }
}

extension Entry.TokenKind {
    init(column: UInt8) {
        self =
            switch column {
            case 2: .voip
            case 3: .liveactivity
            default: .alert
            }
    }
}

extension EntryText {
    /// A template's name, which the policy's lint has held to this alphabet.
    init(column: String) {
        guard let text = EntryText(column) else { preconditionFailure("a template's name can't stand in the ledger") }
        self = text
    }
}
