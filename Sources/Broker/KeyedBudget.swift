import Policy
import Sealing
import Sodium
import Synchronization
import Vocabulary
import WebPush

/// Limits the pushes to one token, or the events of one user, in a window of time.
///
/// Pushes to a token count in all rooms and for all users together. Otherwise anyone who knows a token could put it into many rooms of their
/// own, or register it many times.
///
/// Names are kept only as keyed hashes, in memory. The key is in locked memory and is wiped when the window ends.
final class KeyedBudget: Sendable {
    /// One unit of a budget. It counts until the window ends, unless it is cancelled.
    struct Reservation: Sendable {
        fileprivate let budget: KeyedBudget
        let name: UInt64
        fileprivate let end: UInt64

        func cancel() { budget.cancel(self) }
    }

    private struct State {
        var end: UInt64?
        var key: Secret?
        var counts: [UInt64: Int] = [:]

        mutating func forget(_ now: UInt64) {
            guard let end, now >= end else { return }
            (self.end, key, counts) = (nil, nil, [:])
        }

        /// Deletes at least half of the counts, the lowest. To get a token's count deleted, a caller must push to half of `most` other tokens
        /// as often as to this one.
        mutating func forgetLeast() {
            let median = counts.values.sorted()[counts.count / 2]
            counts = counts.filter { $0.value > median }
        }
    }

    private let budget: Budget
    private let state = Mutex(State())
    /// The limit of names, which bounds memory.
    private let most: Int
    private let nodes: @Sendable () -> Int

    /// - Parameter nodes: returns how many nodes share the budget.
    init(_ budget: Budget, most: Int = 65_536, nodes: @escaping @Sendable () -> Int = { 1 }) {
        self.budget = budget
        self.most = most
        self.nodes = nodes
    }

    /// When the window ends, unix ms. Nil while nothing is counted.
    var end: UInt64? { state.withLock(\.end) }

    var count: Int { state.withLock(\.counts.count) }

    /// Reserves a push to a token. Each environment of APNs has its own count, because a push to the wrong one reaches no phone.
    /// - Returns: nil if the token's budget is used up.
    func reserve(_ address: PushAddress, now: UInt64) throws -> Reservation? {
        try reserve(now: now) { key in
            Self.name(key) { hash in
                switch address.destination {
                case .apns(_, let environment):
                    let service = [environment.rawValue]
                    hash.update(service.span)
                    address.token.withBytes { hash.update($0) }
                case .webPush:
                    let name = [0] + (Subscription(address.token)?.budgetName ?? [])
                    hash.update(name.span)
                case .other(let service):
                    let name = [0, service]
                    hash.update(name.span)
                }
            }
        }
    }

    /// Reserves an event of a user.
    /// - Returns: nil if the user's budget is used up.
    func reserve(_ user: [UInt8], now: UInt64) throws -> Reservation? {
        try reserve(now: now) { key in Self.name(key) { $0.update(user.span) } }
    }

    private func reserve(now: UInt64, name: (Secret) -> UInt64) throws -> Reservation? {
        try state.withLock { state in
            state.forget(now)
            let key: Secret
            if let current = state.key { key = current } else { key = try Secret.random(32) }
            let end = state.end ?? now + budget.windowMs
            (state.key, state.end) = (key, end)
            let name = name(key)
            let taken = state.counts[name, default: 0]
            if taken >= budget.count(over: nodes()) { return nil }
            if taken == 0, state.counts.count >= most { state.forgetLeast() }
            state.counts[name] = taken + 1
            return Reservation(budget: self, name: name, end: end)
        }
    }

    private func cancel(_ reservation: Reservation) {
        state.withLock { state in
            guard reservation.end == state.end, let taken = state.counts[reservation.name] else { return }
            state.counts[reservation.name] = taken > 1 ? taken - 1 : nil
        }
    }

    /// Deletes the counts and the key if the window is over.
    func forget(_ now: UInt64) { state.withLock { $0.forget(now) } }

    private static func name(_ key: Secret, _ update: (inout GenericHash) -> Void) -> UInt64 {
        let digest = key.withBytes { key in
            var hash = GenericHash(key: key)
            update(&hash)
            return hash.finish()
        }
        return digest.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
}
