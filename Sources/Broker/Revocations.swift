import Synchronization
import Vocabulary

/// Tokens, by their purge ids, that were destroyed while pushes to them may still be under way: no further attempt is made.
final class Revocations: Sendable {
    private struct State {
        var tokens: Set<EntryID> = []
        /// In the order they came, to be forgotten when no push to them can be left.
        var order = Queue<(until: UInt64, token: EntryID)>()
    }

    private let state = Mutex(State())

    func contains(_ token: EntryID) -> Bool { state.withLock { $0.tokens.contains(token) } }

    /// - Parameter until: when the last push that could have been asked for has met its deadline; times must not decrease.
    func add(_ token: EntryID, until: UInt64, now: UInt64) {
        state.withLock { state in
            while let oldest = state.order.first, oldest.until <= now {
                state.tokens.remove(oldest.token)
                _ = state.order.popFirst()
            }
            if state.tokens.insert(token).inserted { state.order.append((until, token)) }
        }
    }
}
