import EventLoop
import Linux
public import Policy
public import Shares
import Synchronization
import Vocabulary

/// The owners to which a request or a socket's message is charged, and the charges that it holds while it runs.
///
/// Calls of the rules name it as `charging`. Nil charges nobody: the broker's own tasks pass it.
public final class RequestCharges: Sendable {
    private let shares: Shares
    private let state: Mutex<(owners: Owners, held: [Charge])>

    /// Charges an operation at the store and two slots for secrets, until `end`.
    /// - Throws: `Shortage`.
    public init(_ shares: Shares, _ owners: Owners) throws {
        self.shares = shares
        state = Mutex((owners, try Self.hold(shares, owners)))
    }

    /// For a socket's message. It charges nothing: a socket's messages come one at a time, so the share of its connection bounds them.
    public init(_ shares: Shares, ofSocket owners: Owners) {
        self.shares = shares
        state = Mutex((owners, []))
    }

    public var owners: Owners { state.withLock { $0.owners } }

    /// Charges the principal of a JWT instead of the caller's network. A back end of `--backends` is still charged as before.
    public func charge(_ principal: Principal) throws {
        if owners.payer.isBackEnd { return }
        let user = principal.user
        try charge(principal.isBackEnd ? shares.backEnd(user.span) : shares.user(user.span))
    }

    /// Charges the back end that signed the request instead of the caller's network.
    public func chargeBackEnd(named name: String) throws {
        if owners.payer.isBackEnd { return }
        let name = Array(name.utf8)
        try charge(shares.backEnd(name.span))
    }

    private func charge(_ payer: Owner) throws {
        let holds = state.withLock { !$0.held.isEmpty }
        end()
        var owners = owners
        owners.payer = payer
        let held = holds ? try Self.hold(shares, owners) : []
        state.withLock { $0 = (owners, held) }
    }

    /// Charges the operation at the store to a room side as well, because the request acts for this side.
    func charge(side: Owner) throws {
        if state.withLock({ $0.held.isEmpty }) { return }
        let operation = try shares.charge(.storeOperations, to: Owners(side))
        state.withLock { $0.held.append(operation) }
    }

    /// Refunds the charges that last only while the request runs.
    public func end() {
        let held = state.withLock { state in
            defer { state.held = [] }
            return state.held
        }
        shares.refund(held)
    }

    private static func hold(_ shares: Shares, _ owners: Owners) throws -> [Charge] {
        let operation = try shares.charge(.storeOperations, to: owners)
        do {
            return [operation, try shares.charge(.arenaSlots, 2, to: owners)]
        } catch {
            shares.refund(operation)
            throw error
        }
    }
}

/// Charges callers for entries in the log and for queued pushes.
///
/// The broker's own tasks are not charged. It belongs to the engine's loop.
final class CallerCharges: Sendable {
    private struct Window {
        var end: UInt64?
        var isWatched = false
    }

    let shares: Shares
    private let loop: EventLoop
    private let time: BrokerTime
    private let window = Mutex(Window())

    init(_ shares: Shares, loop: EventLoop, time: BrokerTime) {
        self.shares = shares
        self.loop = loop
        self.time = time
    }

    /// When the last window of a charge ends. Nil if there is none.
    var windowEnd: UInt64? { window.withLock(\.end) }

    /// Admits entries to the public log. The budget of creations bounds them, and so does their share of the backlog while the log can't be
    /// published.
    func admitEntries(charging payer: RequestCharges?) throws -> Admission {
        let admission = Admission(shares)
        if let owners = payer?.owners { try chargeEntries(1, to: owners, urgency: .creation, in: admission) }
        return admission
    }

    /// Admits a room's creation. Without a payer, the network of this address is charged.
    func admitCreation(from address: SocketAddress, charging payer: RequestCharges?) throws -> Admission {
        let admission = Admission(shares)
        try chargeEntries(1, to: owners(payer, address), urgency: .creation, in: admission)
        return admission
    }

    /// Admits a creation with a short code, which reveals whether the code is free. Without a payer, the network of this address is charged.
    /// - Throws: `.tooManyRequests` if the guesses of the window are used up.
    func admitShortCreation(from address: SocketAddress, charging payer: RequestCharges?) throws -> Admission {
        let admission = Admission(shares)
        do {
            try charge(.shortCreations, to: owners(payer, address), in: admission)
        } catch Shortage.overShare(_, let seconds), Shortage.exhausted(_, let seconds) {
            throw BrokerError.tooManyRequests(retryAfterSeconds: seconds)
        }
        return admission
    }

    /// Charges a pending room with a short code. Without a payer, the network of this address is charged.
    /// - Throws: `.tooManyShortCodes` for an own share and for a shortage, since both end with a longer code.
    func chargeShortCode(from address: SocketAddress, charging payer: RequestCharges?) throws -> Charge {
        do {
            return try shares.charge(.shortCodes, to: owners(payer, address))
        } catch { throw BrokerError.tooManyShortCodes }
    }

    private func owners(_ payer: RequestCharges?, _ address: SocketAddress) -> Owners {
        payer?.owners ?? Owners(shares.network(address))
    }

    /// Admits a token's replacement, which adds to the public log as a creation does.
    /// - Parameter side: the room side whose token is replaced.
    func admitReplacement(by side: Owner, charging payer: RequestCharges?) throws -> Admission {
        let admission = Admission(shares)
        try charge(.tokenReplacements, to: Owners(side), in: admission)
        admission.add(try admitEntries(charging: payer))
        return admission
    }

    /// Admits a push to a room side, and its entries in the log. Without a payer nothing is charged.
    func admitKnock(at side: Owner, charging payer: RequestCharges?) throws -> Admission {
        let admission = Admission(shares)
        guard var owners = payer?.owners else { return admission }
        owners.side = side
        try charge(.queuedPushes, to: owners, urgency: .knock, in: admission)
        try chargeEntries(1, to: owners, urgency: .knock, in: admission)
        return admission
    }

    /// Charges pushes that are about to be queued. Without a payer nothing is charged.
    ///
    /// A back end's pushes are not charged as creations: the policy's `tokenPushes` bounds how much they add to the log.
    func charge(pushes count: Int, in admission: Admission, charging payer: RequestCharges?) throws {
        guard count > 0, let owners = payer?.owners else { return }
        try charge(.queuedPushes, count, to: owners, urgency: .knock, in: admission)
        if !owners.payer.isBackEnd { try chargeEntries(count, to: owners, urgency: .knock, in: admission) }
    }

    private func chargeEntries(_ count: Int, to owners: Owners, urgency: Urgency, in admission: Admission) throws {
        try charge(.creations, count, to: owners, in: admission)
        admission.add(try shares.charge(.ledgerBacklog, count, to: owners, urgency: urgency))
    }

    private func charge(
        _ resource: Resource, _ amount: Int = 1, to owners: Owners, urgency: Urgency = .creation, in admission: Admission
    ) throws {
        let now = time.now
        defer { extendWindow(now) }
        admission.add(try shares.charge(resource, amount, to: owners, now: now, urgency: urgency))
    }

    // MARK: Windows

    /// The resources with a window in broker time.
    private static let windowed: [Resource] = [.creations, .shortCreations, .tokenReplacements]

    /// Keeps the timer that deletes the counts of callers when their windows are over.
    private func extendWindow(_ now: UInt64) {
        let end = now + Self.windowed.reduce(0) { max($0, shares.table[$1].windowMs ?? 0) }
        let isWatched = window.withLock { window in
            defer { window = Window(end: end, isWatched: true) }
            return window.isWatched
        }
        if !isWatched { watch(end) }
    }

    private func watch(_ end: UInt64) {
        loop.after(end - min(time.now, end) + 1) { self.forget() }
    }

    private func forget() {
        let now = time.now
        shares.forget(Self.windowed, now: now)
        let next: UInt64? = window.withLock { window in
            if let end = window.end, end > now { return end }
            window = Window()
            return nil
        }
        if let next { watch(next) }
    }
}

/// The charges and reservations of one operation. `end` refunds whatever was not committed.
final class Admission: Sendable {
    private let shares: Shares
    private let held = Mutex<(charges: [Charge], reservations: [KeyedBudget.Reservation])>(([], []))

    init(_ shares: Shares) { self.shares = shares }

    /// Refunds a fan-out that failed before `apply`.
    deinit { end() }

    func add(_ charge: Charge) { held.withLock { $0.charges.append(charge) } }

    func add(_ reservation: KeyedBudget.Reservation) { held.withLock { $0.reservations.append(reservation) } }

    /// Takes over what another part of the operation was admitted for.
    func add(_ other: Admission) {
        let others = other.takeAll()
        held.withLock {
            $0.charges += others.charges
            $0.reservations += others.reservations
        }
    }

    /// Keeps everything, because the operation is stored.
    /// - Returns: the queue's charge for the operation's pushes, which lasts until they end. Nil if there is none.
    @discardableResult
    func commit() -> PushCharge? {
        takeAll().charges.first { $0.resource == .queuedPushes }.map { PushCharge(shares, $0) }
    }

    private func takeAll() -> (charges: [Charge], reservations: [KeyedBudget.Reservation]) {
        held.withLock { held in
            defer { held = ([], []) }
            return held
        }
    }

    /// Refunds everything, unless it was committed.
    func end() {
        let held = takeAll()
        shares.refund(held.charges)
        for reservation in held.reservations { reservation.cancel() }
    }
}

/// The queue's charge for pushes of one request. Each push refunds its part when it ends.
final class PushCharge: Sendable {
    private let shares: Shares
    private let charge: Mutex<Charge>

    init(_ shares: Shares, _ charge: Charge) {
        self.shares = shares
        self.charge = Mutex(charge)
    }

    func refund(_ count: Int = 1) {
        charge.withLock { shares.shrink(&$0, by: min(count, $0.amount)) }
    }
}

extension ShareTable {
    /// Returns the standard table with a policy's limits.
    /// - Parameter backEndCreations: the limit of a back end in ten minutes. Nil for the table's default.
    public static func standard(_ limits: Limits, backEndCreations: Int? = nil) -> ShareTable {
        var table = standard(limits.creations, backEndCreations: backEndCreations)
        table[.shortCodes].total = limits.pendingShortCodes
        table[.shortCreations].total = limits.shortCreations.count
        table[.shortCreations].windowMs = limits.shortCreations.windowMs
        return table
    }

    static func standard(_ creations: Budgets, backEndCreations: Int? = nil) -> ShareTable {
        let (own, all) = (creations.perAddress, creations.overall)
        var table = standard
        let total = Int(Double(all.count) * Double(own.windowMs) / Double(all.windowMs))
        let inTenMinutes = backEndCreations ?? table[.creations].backEnd?.cap ?? 0
        let backEnd = Int(Double(inTenMinutes) * Double(own.windowMs) / 600_000)
        table[.creations] = Quota(
            max(1, total), network: Share(own.count), backEnd: Share(max(own.count, backEnd)), windowMs: own.windowMs)
        return table
    }
}

extension Shares {
    /// One side of a room.
    func side(_ room: Digest, slot: UInt8) -> Owner { room.withBytes { side($0, slot: slot) } }
}
