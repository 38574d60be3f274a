import Synchronization
import Vocabulary

/// Tokens, by their purge ids, that were destroyed while pushes to them may still be under way: no further attempt is made.
final class Revocations: Sendable {
    private struct State {
        var tokens: Set<EntryID> = []
        /// In the order they came, to be forgotten when no push to them can be left.
        var order: [(until: UInt64, token: EntryID)] = []
        var forgotten = 0
    }

    private let state = Mutex(State())

    func contains(_ token: EntryID) -> Bool { state.withLock { $0.tokens.contains(token) } }

    /// - Parameter until: when the last push that could have been asked for has met its deadline; times must not decrease.
    func add(_ token: EntryID, until: UInt64, now: UInt64) {
        state.withLock { state in
            while state.forgotten < state.order.count, state.order[state.forgotten].until <= now {
                state.tokens.remove(state.order[state.forgotten].token)
                state.forgotten += 1
            }
            if state.forgotten > 1_024, state.forgotten * 2 > state.order.count {
                state.order.removeFirst(state.forgotten)
                state.forgotten = 0
            }
            if state.tokens.insert(token).inserted { state.order.append((until, token)) }
        }
    }
}
