public import Policy
public import Shares
import Synchronization

/// Whom a request, or a message of a socket, is charged to, and what it holds while it runs.
public final class RequestCharges: Sendable {
    /// Of the request that runs now. Nil for what the broker does by itself.
    @TaskLocal public static var current: RequestCharges?

    private let shares: Shares
    private let state: Mutex<(owners: Owners, held: [Charge])>

    /// Charges an operation at the store and two slots for secrets, until `end`.
    /// - Throws: `.tooManyRequests` if an owner is over its share, `.outOf` if all is in use.
    public init(_ shares: Shares, _ owners: Owners) throws(BrokerError) {
        self.shares = shares
        state = Mutex((owners, try Self.hold(shares, owners)))
    }

    /// For a socket's message. Holds nothing: a socket's messages come one at a time, so its connection's share bounds them.
    public init(_ shares: Shares, ofSocket owners: Owners) {
        self.shares = shares
        state = Mutex((owners, []))
    }

    public var owners: Owners { state.withLock { $0.owners } }

    /// A JWT has shown who calls: the principal is charged instead of its network. A back end of `--backends` goes on paying.
    public func become(_ principal: Principal) throws(BrokerError) {
        if owners.payer.isBackEnd { return }
        let user = principal.user
        try become(principal.isBackEnd ? shares.backEnd(user.span) : shares.user(user.span))
    }

    /// A signature has shown that a back end calls.
    public func becomeBackEnd(named name: String) throws(BrokerError) {
        if owners.payer.isBackEnd { return }
        let name = Array(name.utf8)
        try become(shares.backEnd(name.span))
    }

    private func become(_ payer: Owner) throws(BrokerError) {
        let holds = state.withLock { !$0.held.isEmpty }
        end()
        var owners = owners
        owners.payer = payer
        let held = holds ? try Self.hold(shares, owners) : []
        state.withLock { $0 = (owners, held) }
    }

    /// The request has shown that it speaks for a room side: its operation at the store counts for that side as well.
    func hold(of side: Owner) throws(BrokerError) {
        if state.withLock({ $0.held.isEmpty }) { return }
        do throws(Shortage) {
            let operation = try shares.charge(.storeOperations, to: Owners(side))
            state.withLock { $0.held.append(operation) }
        } catch { throw BrokerError(error) }
    }

    /// Refunds what was held while the request ran.
    public func end() {
        let held = state.withLock { state in
            defer { state.held = [] }
            return state.held
        }
        shares.refund(held)
    }

    private static func hold(_ shares: Shares, _ owners: Owners) throws(BrokerError) -> [Charge] {
        do throws(Shortage) {
            let operation = try shares.charge(.storeOperations, to: owners)
            do throws(Shortage) {
                return [operation, try shares.charge(.arenaSlots, 2, to: owners)]
            } catch {
                shares.refund(operation)
                throw error
            }
        } catch {
            throw BrokerError(error)
        }
    }
}

/// The queue's charge for pushes that were asked for together. Each push refunds its part when it ends.
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
    /// The standard table with the budget of creations that a policy names.
    /// - Parameter backEndCreations: how many a back end may ask for in ten minutes.
    public static func standard(_ creations: Budgets, backEndCreations: Int = defaultBackEndCreations) -> ShareTable {
        let (own, all) = (creations.perAddress, creations.overall)
        var table = standard
        let total = Int(Double(all.count) * Double(own.windowMs) / Double(all.windowMs))
        let backEnd = Int(Double(backEndCreations) * Double(own.windowMs) / 600_000)
        table[.creations] = Quota(
            max(1, total), network: Share(own.count), backEnd: Share(max(own.count, backEnd)), windowMs: own.windowMs)
        return table
    }

    public static let defaultBackEndCreations = 200_000
}
