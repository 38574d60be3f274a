public import EventLoop
import Linux
import Policy
public import Sealing
import Shares
import Storage
import Vocabulary

/// The rules of rooms: who may do what, what is sealed under what, and when a peer is knocked at.
///
/// It lives on the engine's loop, so that a request reaches it without a switch. When a call returns, its changes are durable.
public actor Rooms: LoopActor {
    public nonisolated let loop: EventLoop
    let store: StoreAccess
    let keys: KeyRing
    let time: BrokerTime
    let policies: Policies
    let sweeper: Sweeper
    let settings: Broker.Settings
    let metrics: Metrics
    let charges: CallerCharges
    let presence: Presence
    let outbox: Outbox

    private var wrongCodes: AttemptBudget
    private var shortCreations: Allowance
    /// Pushes to one token, whichever rooms it is in.
    let tokenKnocks: KeyedBudget
    /// When the next window of these budgets ends, and the timer for it.
    private var windowsEnd: (at: UInt64, timer: TimerID)?
    var knockHolds: KnockHolds

    init(_ shared: Dependencies, presence: Presence, outbox: Outbox) {
        loop = shared.loop
        store = shared.store
        keys = shared.keys
        time = shared.time
        policies = shared.policies
        sweeper = shared.sweeper
        settings = shared.settings
        metrics = shared.metrics
        charges = shared.charges
        self.presence = presence
        self.outbox = outbox
        let limits = policies.rooms
        wrongCodes = AttemptBudget(limits.wrongCodes, ipv4Bits: limits.ipv4Bits, ipv6Bits: limits.ipv6Bits)
        shortCreations = Allowance(limits.shortCreations)
        tokenKnocks = KeyedBudget(limits.tokenKnocks)
        knockHolds = KnockHolds(startedAt: time.now, startGraceMs: limits.startGraceMs)
    }

    public func status(_ room: RoomID) async throws(BrokerError) -> RoomStatus {
        guard let record = try await live(keys.roomIndex(room)) else { throw .roomNotFound }
        return RoomStatus(
            expires: record.expires, accepted: record.joiner != nil,
            creatorPresent: await presence.isPresent(RoomSide(room: record.room, slot: 1)),
            joinerPresent: await presence.isPresent(RoomSide(room: record.room, slot: 2)),
            creatorHasToken: record.creator.token != nil, joinerHasToken: record.joiner?.token != nil)
    }

    /// Ends a room for both sides.
    /// - Returns: how many tokens were destroyed.
    public func close(_ room: RoomID) async throws(BrokerError) -> Int {
        let index = keys.roomIndex(room)
        // An expired room that the sweeper has not reached yet is gone to callers.
        guard let record = try await live(index),
            let purged = try await store.write({ try $0.close(room: index) })
        else { throw .roomNotFound }
        await outbox.revoke([record.creator, record.joiner].compactMap { $0?.token })
        metrics.add(.roomsClosed)
        metrics.add(.tokensPurged, purged)
        await sweeper.noteErasure()
        await presence.end(index)
        return purged
    }

    // MARK: Callers

    /// Finds out which side the caller is.
    func authorize(_ caller: Caller) async throws(BrokerError) -> (room: RoomRecord, slot: UInt8) {
        guard let room = try await live(keys.roomIndex(caller.room)) else { throw .roomNotFound }
        for slot: UInt8 in [1, 2] {
            guard let side = room[slot] else { continue }
            let client = try clientIndex(
                of: caller.client, in: caller.room, slot: slot, expires: room.expires, generation: side.generation)
            guard client == side.client else { continue }
            guard let member = caller.member else {
                if side.proven { throw .memberRequired }
                try chargeOperation(room.room, slot)
                return (room, slot)
            }
            guard keys.memberHash(member) == side.member else { throw .notAMember }
            try chargeOperation(room.room, slot)
            if !side.proven {
                let known = try await store.write { try $0.markProven(room: room.room, slot: slot) }
                guard known else { throw .roomNotFound }
                // This has deleted the sealed copy of the creator's secret.
                if slot == 1 { await sweeper.noteErasure() }
            }
            return (room, slot)
        }
        throw .notAMember
    }

    /// Why a change that was allowed a moment ago found nothing: the room has gone, or its side has used its secret meanwhile.
    func refusal(of caller: Caller) async throws(BrokerError) -> BrokerError {
        _ = try await authorize(caller)
        return .roomNotFound
    }

    private func chargeOperation(_ room: Digest, _ slot: UInt8) throws(BrokerError) {
        try RequestCharges.current?.hold(of: charges.shares.side(room, slot: slot))
    }

    /// Returns nil if the room is gone or has expired.
    func live(_ index: Digest) async throws(BrokerError) -> RoomRecord? {
        let record = try await store.read { try $0.room(index) }
        return record.flatMap { $0.ends > time.now ? $0 : nil }
    }

    /// Returns nil if the room is gone or has expired.
    func msUntilEnd(of room: Digest) async throws(BrokerError) -> UInt64? {
        try await live(room).map { $0.ends - min(time.now, $0.ends) }
    }

    func clientIndex(
        of client: [UInt8], in room: RoomID, slot: UInt8, expires: UInt64, generation: UInt32
    ) throws(BrokerError) -> Digest {
        try available { () throws(SealingError) in
            try keys.clientIndex(room, slot: slot, client: client.span, expiryMs: expires, generation: generation)
        }
    }

    // MARK: Budgets

    /// Long codes can't be guessed, so the budget of all callers together applies to short codes only. Otherwise one caller could use it up
    /// and shut out others.
    func admitGuess(_ joinid: [UInt8], _ address: SocketAddress) throws(BrokerError) {
        let isShort = policies.rooms.isShort(codeOf: joinid.count)
        if let wait = wrongCodes.refusal(address, overall: isShort, now: time.now) {
            throw .tooManyRequests(retryAfterSeconds: wait)
        }
    }

    func spendGuess(_ joinid: [UInt8], _ address: SocketAddress) {
        wrongCodes.spend(address, overall: policies.rooms.isShort(codeOf: joinid.count), now: time.now)
        watchWindows()
    }

    /// Creating a room tells whether its code is free, so a creation with a short code counts as a guess as well. It is taken before the
    /// store is asked, so that requests at the same moment don't all find room.
    func takeCreation(_ joinid: [UInt8], _ address: SocketAddress) throws(BrokerError) -> [Charge] {
        let creation = try charges.chargeCreation(from: address)
        guard policies.rooms.isShort(codeOf: joinid.count) else { return creation }
        let now = time.now
        if let wait = shortCreations.refusal(now: now) {
            charges.shares.refund(creation)
            throw .tooManyRequests(retryAfterSeconds: wait)
        }
        shortCreations.take(now: now)
        return creation
    }

    /// The caller has learned nothing of the code.
    func giveBackCreation(_ joinid: [UInt8]) {
        if policies.rooms.isShort(codeOf: joinid.count) { shortCreations.giveBack(now: time.now) }
    }

    /// Counts must not outlive their window, even if nobody asks then.
    func watchWindows() {
        let end = min(wrongCodes.end ?? .max, tokenKnocks.end ?? .max)
        guard end < .max else { return }
        if let windowsEnd {
            if windowsEnd.at <= end { return }
            loop.cancel(windowsEnd.timer)
        }
        let timer = loop.after(end - min(time.now, end) + 1) { self.assumeIsolated { $0.forgetWindows() } }
        windowsEnd = (end, timer)
    }

    private func forgetWindows() {
        windowsEnd = nil
        let now = time.now
        wrongCodes.forget(now)
        tokenKnocks.forget(now)
        watchWindows()
    }
}
