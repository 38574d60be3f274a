import Ledger
import Policy
import Sealing
import Storage
import Vocabulary

/// When a push leaves, how long it is tried, and from when its expiry is counted. All times are unix ms.
///
/// Apple sees when a push leaves, when it expires and when the attempts end. With slots or jitter all of these follow from the first, so that
/// none reveals more about the knock's time.
struct JobTimes {
    /// The times of one knock, which are stored with its job.
    struct Plan: Equatable {
        /// 0 for at once.
        let notBefore: UInt64
        let deadline: UInt64
        /// The knock's time as the throttle counts it.
        let knocked: UInt64
    }

    private let timing: SendTiming
    /// How long attempts go on: the template's lifetime or the deadline, whichever is shorter. With lifetime 0, it is the deadline.
    private let lifeMs: UInt64
    private let throttleMs: UInt64

    init(_ template: Template) {
        timing = template.timing
        let limits = template.jobs
        throttleMs = limits.throttleMs
        let ttl = UInt64(clamping: template.ttlSeconds) * 1_000
        // A knock that the grace after a start delays must end by its deadline, too.
        let longest = timing.isAtOnce ? limits.deadlineMs : limits.deadlineMs - limits.startGraceMs
        lifeMs = ttl == 0 ? longest : min(ttl, longest)
    }

    /// - Parameters:
    ///   - delayedUntil: nothing leaves before this time. 0 for no such time.
    ///   - tokenExpires: when the token expires, and the room with it.
    /// - Returns: nil if the token could expire before the push leaves.
    func plan(now: UInt64, delayedUntil: UInt64, tokenExpires: UInt64) -> Plan? {
        guard !timing.isAtOnce else {
            return Plan(notBefore: delayedUntil, deadline: min(now + lifeMs, tokenExpires), knocked: now)
        }
        let boundary = timing.boundary(after: max(now, delayedUntil))
        // Use the longest jitter, not the drawn one. Otherwise pushes would crowd before the end.
        guard boundary + timing.jitterMs < tokenExpires else { return nil }
        let leaves = timing.departure(boundary: boundary)
        // Count as if every push had waited the longest. The distance to `now` would reveal the knock's time.
        let counted = leaves - timing.longestWaitMs
        return Plan(
            notBefore: leaves, deadline: min(counted + lifeMs, tokenExpires),
            knocked: timing.nextKnock(after: leaves, throttleMs: throttleMs) - throttleMs)
    }

    /// The time from which the push's expiry is counted, so that each attempt carries the same headers. If the token's expiry cut the deadline short,
    /// the push may be delivered until that expiry.
    func countedFrom(deadline: UInt64, tokenExpires: UInt64) -> UInt64 {
        deadline < tokenExpires ? deadline - min(deadline, lifeMs) : tokenExpires
    }
}

/// The content of a push to an audience. It is sealed in its job, or in an activity whose window is still closed.
struct PushContent: Sendable, Equatable {
    var template: String
    /// When the event happened, unix ms.
    var stampMs: UInt64
    /// Pushes with the same handle replace each other.
    var collapse: Handle
    var fields: [String: FieldValue]

    /// The approval that this push asks for. Nil for a push that asks for none, or that clears one.
    var asks: RequestID? {
        guard fields["clearApprovalId"] == nil, case .handle(let handle)? = fields["requestId"] else { return nil }
        return RequestID(high: handle.high, low: handle.low)
    }

    /// `stamp u64be || collapse[16] || template || count u8 || (name || kind u8 || value)...`. Texts follow their length in one byte.
    var encoded: [UInt8] {
        var bytes: [UInt8] = []
        bytes.append(bigEndian: stampMs)
        bytes.append(collapse)
        bytes.append(name: template.utf8)
        bytes.append(UInt8(clamping: fields.count))
        for (name, value) in fields.sorted(by: { $0.key < $1.key }) {
            bytes.append(name: name.utf8)
            switch value {
            case .handle(let handle):
                bytes.append(1)
                bytes.append(handle)
            case .choice(let word):
                bytes.append(2)
                bytes.append(name: word.utf8)
            case .number(let number):
                bytes.append(3)
                bytes.append(bigEndian: Int64(number))
            case .flag(let flag): bytes += [4, flag ? 1 : 0]
            }
        }
        return bytes
    }

    init(template: String, stampMs: UInt64, collapse: Handle, fields: [String: FieldValue]) {
        self.template = template
        self.stampMs = stampMs
        self.collapse = collapse
        self.fields = fields
    }

    /// Returns nil if `encoded` did not write these bytes.
    init?(_ bytes: [UInt8]) {
        var rest = bytes[...]
        guard let stamp = Self.number(&rest), let collapse = Self.handle(&rest), let template = Self.text(&rest),
            let count = rest.popFirst()
        else { return nil }
        (stampMs, self.collapse, self.template, fields) = (stamp, collapse, template, [:])
        for _ in 0..<count {
            guard let name = Self.text(&rest), let kind = rest.popFirst() else { return nil }
            switch kind {
            case 1:
                guard let handle = Self.handle(&rest) else { return nil }
                fields[name] = .handle(handle)
            case 2:
                guard let word = Self.text(&rest) else { return nil }
                fields[name] = .choice(word)
            case 3:
                guard let number = Self.number(&rest) else { return nil }
                fields[name] = .number(Int(Int64(bitPattern: number)))
            case 4:
                guard let flag = rest.popFirst() else { return nil }
                fields[name] = .flag(flag != 0)
            default: return nil
            }
        }
        guard rest.isEmpty else { return nil }
    }

    private static func handle(_ rest: inout ArraySlice<UInt8>) -> Handle? {
        rest.pop(Handle.count).flatMap { Handle(bytes: $0.span) }
    }

    private static func text(_ rest: inout ArraySlice<UInt8>) -> String? {
        rest.popName().flatMap { String(validating: $0, as: UTF8.self) }
    }

    private static func number(_ rest: inout ArraySlice<UInt8>) -> UInt64? {
        rest.pop(8).map { $0.span.bigEndian64(at: 0) }
    }
}

extension KeyRing {
    /// Seals an open token into a job, which the broker can open by itself until the deadline.
    /// - Parameters:
    ///   - context: that of the token's row.
    ///   - room: nil for an audience.
    ///   - content: nil in rooms.
    ///   - size: the deployment's.
    func newJob(
        _ token: OpenedToken, _ context: TokenContext, template: String, plan: JobTimes.Plan, handle: Handle,
        room: Digest? = nil, content: PushContent? = nil, size: AddressSize
    ) throws(SealingError) -> NewJob {
        let job = JobContext(
            generation: currentGeneration, job: JobID.random(), purgeID: context.purgeID, kind: context.kind, slot: context.slot,
            template: template, deadlineMs: plan.deadline, expiryMs: context.expiryMs)
        let sealed = try sealJob(
            JobContent(address: token.address, sealedAtMs: token.sealedAtMs, handle: handle), context: job, size: size)
        let fields = try content.map { content throws(SealingError) in
            try sealNote(
                content.encoded, .fields, ExpirySlot(generation: job.generation, expiryMs: job.deadlineMs), [job.job.bytes],
                block: 64)
        }
        let record = JobRecord(job, notBefore: plan.notBefore, room: room, sealed: sealed, fields: fields)
        return NewJob(record, openedID: token.ref.openedID(job.job))
    }

    /// Returns nil in rooms, and if the row does not open.
    func content(of job: JobRecord) throws(SlotShortage) -> PushContent? {
        guard let sealed = job.fields else { return nil }
        let slot = ExpirySlot(generation: job.context.generation, expiryMs: job.deadline)
        let note = try opened { () throws(SealingError) in
            try openNote(sealed.span, .fields, slot, [job.job.bytes], block: 64)
        }
        return note.flatMap(PushContent.init)
    }
}
