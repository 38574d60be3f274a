import Policy
import Sealing
import Sodium
import Vocabulary

/// How much one token, or one user, is taken for in a window of time. Of a token: pushes, whichever rooms or users ask for them, since who
/// knows a token can put it into rooms of its own or register it, as often as it likes.
///
/// Whom it counts is kept only as keyed hashes, in memory, under a key in locked memory that goes with the window.
struct KeyedBudget {
    /// What one of them took, once.
    struct Place: Sendable {
        let name: UInt64
        let end: UInt64
    }

    private let budget: Budget
    /// When the window ends, unix ms; nil while nothing is counted.
    private(set) var end: UInt64?
    private var key: Secret?
    private var counts: [UInt64: Int] = [:]
    /// Names at a time, so that memory stays bounded.
    private let most: Int

    init(_ budget: Budget, most: Int = 65_536) {
        self.budget = budget
        self.most = most
    }

    var count: Int { counts.count }

    /// - Returns: nil when this token has had its share.
    mutating func take(_ token: Secret, _ environment: PushEnvironment, now: UInt64) throws(SealingError) -> Place? {
        try take(now: now) { Self.name(token, environment, $0) }
    }

    /// - Returns: nil when this user has had its share.
    mutating func take(_ user: [UInt8], now: UInt64) throws(SealingError) -> Place? {
        try take(now: now) { key in Self.name(key) { $0.update(user.span) } }
    }

    private mutating func take(now: UInt64, name: (Secret) -> UInt64) throws(SealingError) -> Place? {
        forget(now)
        let key: Secret
        if let standing = self.key { key = standing } else { key = try Secret.random(32) }
        let end = end ?? now + budget.windowMs
        (self.key, self.end) = (key, end)
        let name = name(key)
        let taken = counts[name, default: 0]
        if taken >= budget.count { return nil }
        if taken == 0, counts.count >= most { forgetLeast() }
        counts[name] = taken + 1
        return Place(name: name, end: end)
    }

    /// Nothing came of it after all.
    mutating func giveBack(_ place: Place) {
        guard place.end == end, let taken = counts[place.name] else { return }
        counts[place.name] = taken > 1 ? taken - 1 : nil
    }

    /// Forgets everything when the window is over.
    mutating func forget(_ now: UInt64) {
        guard let end, now >= end else { return }
        (self.end, key, counts) = (nil, nil, [:])
    }

    /// Makes room: at least half, those that took least. Who wants one token forgotten must push to half of `most` others as often as to
    /// it.
    private mutating func forgetLeast() {
        let median = counts.values.sorted()[counts.count / 2]
        counts = counts.filter { $0.value > median }
    }

    /// The two environments of APNs know different tokens: a push to the wrong one reaches no phone, and must use up nothing of the right
    /// one's share.
    private static func name(_ token: Secret, _ environment: PushEnvironment, _ key: Secret) -> UInt64 {
        let environment = [environment.rawValue]
        return Self.name(key) { hash in
            hash.update(environment.span)
            token.withBytes { hash.update($0) }
        }
    }

    private static func name(_ key: Secret, _ update: (inout GenericHash) -> Void) -> UInt64 {
        let digest = key.withBytes { key in
            var hash = GenericHash(key: key)
            update(&hash)
            return hash.finish()
        }
        return digest.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }
}
