/// One event in the ledger. What it may hold is closed: no token, room, code, client, user or address has a place here.
public struct Entry: Sendable, Hashable {
    /// Start of the window, unix ms; written to the second.
    public var atMs: UInt64
    public var op: Op

    public init(atMs: UInt64, _ op: Op) {
        self.atMs = atMs
        self.op = op
    }

    /// What happened. Times are unix ms, written to the second.
    public enum Op: Sendable, Hashable {
        /// `policy`: digest of the policy in force; `resolutionSeconds`: length of a window.
        case brokerStarted(node: EntryText, version: EntryText, policy: Digest, resolutionSeconds: UInt32)
        case brokerStopped(node: EntryText)
        /// `policy`: the SHA-256 that names the file in `policies/`.
        case policyLoaded(name: EntryText, policy: Digest)
        case keysGenerated(generation: UInt32)
        /// The keys of `epoch` and of all epochs before it are destroyed.
        case keysRatcheted(epoch: UInt64)
        /// `untilMs`: end of the epoch of the token's expiry.
        case tokenSealed(ref: OpaqueID, kind: TokenKind, untilMs: UInt64)
        case tokenOpened(ref: OpaqueID, job: OpaqueID, template: EntryText)
        /// `status`: APNs' HTTP status.
        case pushDelivered(ref: OpaqueID, job: OpaqueID, status: UInt16)
        /// `status`: APNs' HTTP status, 0 when there was no answer.
        case pushFailed(ref: OpaqueID, job: OpaqueID, status: UInt16, reason: PushFailureReason)
        case tokenPurged(ref: OpaqueID, cause: PurgeCause)
        /// `count`: rounded; at most one entry a window and cause.
        case requestRefused(cause: RefusalCause, count: UInt32)
        /// `next`: the origin of the log that follows.
        case ledgerClosed(next: EntryText)
    }

    public enum TokenKind: String, Sendable, CaseIterable { case alert, voip, liveactivity }

    public enum PurgeCause: String, Sendable, CaseIterable {
        case expired, deleted, replaced, unregistered, policy
        case roomClosed = "room_closed"
    }

    public enum RefusalCause: String, Sendable, CaseIterable {
        case malformed, unauthorized, forbidden, conflict, throttled, unavailable, other
        case notFound = "not_found"
        case tooLarge = "too_large"
    }

    public var ref: OpaqueID? {
        switch op {
        case .tokenSealed(let ref, _, _), .tokenOpened(let ref, _, _), .pushDelivered(let ref, _, _),
            .pushFailed(let ref, _, _, _),
            .tokenPurged(let ref, _):
            ref
        case .brokerStarted, .brokerStopped, .policyLoaded, .keysGenerated, .keysRatcheted, .requestRefused, .ledgerClosed: nil
        }
    }

    /// Bytes to order a window's entries by, each ref's own order kept: the ref, or none, which comes first.
    public var sortKey: [UInt8] { ref?.bytes ?? [] }
}
