import Policy
import Sealing
import Sodium
import Synchronization
import Vocabulary

/// How much is taken for one token, or for one user, in a window of time. For a token these are pushes, whichever rooms or users ask for
/// them: anyone who knows a token can put it into rooms of their own or register it, as often as they like.
///
/// Names are kept only as keyed hashes, in memory. The key is in locked memory and goes with the window.
final class KeyedBudget: Sendable {
    /// One unit that was taken. It counts until the window ends, unless it is cancelled.
    struct Reservation: Sendable {
        fileprivate let budget: KeyedBudget
        let name: UInt64
        fileprivate let end: UInt64

        /// Nothing came of it: the unit is free again.
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

        /// Makes room by forgetting at least half: those that took least. To have one token forgotten, a caller must push to half of
        /// `most` others as often as to it.
        mutating func forgetLeast() {
            let median = counts.values.sorted()[counts.count / 2]
            counts = counts.filter { $0.value > median }
        }
    }

    private let budget: Budget
    private let state = Mutex(State())
    /// Names at a time, so that memory stays bounded.
    private let most: Int

    init(_ budget: Budget, most: Int = 65_536) {
        self.budget = budget
        self.most = most
    }

    /// When the window ends, unix ms. Nil while nothing is counted.
    var end: UInt64? { state.withLock(\.end) }

    var count: Int { state.withLock(\.counts.count) }

    /// The two environments of APNs know different tokens, so each has its own count: a push to the wrong one reaches no phone.
    /// - Returns: nil if the token's budget is used up.
    func reserve(_ token: Secret, _ environment: PushEnvironment, now: UInt64) throws(SealingError) -> Reservation? {
        try reserve(now: now) { key in
            Self.name(key) { hash in
                let environment = [environment.rawValue]
                hash.update(environment.span)
                token.withBytes { hash.update($0) }
            }
        }
    }

    /// - Returns: nil if the user's budget is used up.
    func reserve(_ user: [UInt8], now: UInt64) throws(SealingError) -> Reservation? {
        try reserve(now: now) { key in Self.name(key) { $0.update(user.span) } }
    }

    private func reserve(now: UInt64, name: (Secret) -> UInt64) throws(SealingError) -> Reservation? {
        try state.withLock { state throws(SealingError) in
            state.forget(now)
            let key: Secret
            if let standing = state.key { key = standing } else { key = try Secret.random(32) }
            let end = state.end ?? now + budget.windowMs
            (state.key, state.end) = (key, end)
            let name = name(key)
            let taken = state.counts[name, default: 0]
            if taken >= budget.count { return nil }
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

    /// Forgets everything if the window is over.
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
