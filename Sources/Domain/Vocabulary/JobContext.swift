/// The other columns of a job's row. If one was changed or swapped, the job can't be opened.
public struct JobContext: Sendable, Equatable {
    // The widest come first: with padding, a task that holds a job allocates another block of memory.
    public var job: JobID
    /// The token's purge id.
    public var purgeID: EntryID
    public var template: String
    /// The latest time for sending: within two minutes, and not after the expiry. Unix ms.
    public var deadlineMs: UInt64
    /// The token's expiry, unix ms.
    public var expiryMs: UInt64
    public var generation: UInt32
    public var kind: TokenKind
    /// The slot of the token's row.
    public var slot: UInt8

    public init(
        generation: UInt32, job: JobID, purgeID: EntryID, kind: TokenKind, slot: UInt8, template: String, deadlineMs: UInt64,
        expiryMs: UInt64
    ) {
        self.generation = generation
        self.job = job
        self.purgeID = purgeID
        self.kind = kind
        self.slot = slot
        self.template = template
        self.deadlineMs = deadlineMs
        self.expiryMs = expiryMs
    }
}
