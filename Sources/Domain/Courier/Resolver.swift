import Linux
import Synchronization

/// Looks up host names on threads of its own, because the system's resolver blocks. At most one look-up runs for each name.
final class Resolver: Sendable {
    typealias Caller = @Sendable ([SocketAddress]) -> Void

    private struct State {
        var callers: [Endpoint: [Caller]] = [:]
        /// The names whose look-ups have not begun, in order.
        var waiting: [Endpoint] = []
        var threads = 0
    }

    private let state = Mutex(State())
    private let lookUp: @Sendable (Endpoint) -> [SocketAddress]
    private let mostThreads, mostWaiting: Int

    /// - Parameters:
    ///   - mostThreads: the look-ups that run at a time.
    ///   - mostWaiting: the names that may wait. Others are not looked up.
    init(mostThreads: Int = 4, mostWaiting: Int = .max, _ lookUp: @escaping @Sendable (Endpoint) -> [SocketAddress]) {
        (self.mostThreads, self.mostWaiting, self.lookUp) = (mostThreads, mostWaiting, lookUp)
    }

    /// Calls `caller` on another thread, or on this one if none can be started. Without addresses, the name can't be resolved.
    func resolve(_ name: Endpoint, _ caller: @escaping Caller) {
        let needsThread: Bool? = state.withLock { state in
            guard state.callers[name] == nil else {
                state.callers[name]?.append(caller)
                return false
            }
            guard state.waiting.count < mostWaiting else { return nil }
            state.callers[name] = [caller]
            state.waiting.append(name)
            guard state.threads < mostThreads else { return false }
            state.threads += 1
            return true
        }
        guard let needsThread else { return caller([]) }
        if needsThread, (try? Thread.spawn(name: "resolve") { self.work() }) == nil { giveUp() }
    }

    private func work() {
        while let name = next() {
            let addresses = lookUp(name)
            for caller in state.withLock({ $0.callers.removeValue(forKey: name) }) ?? [] { caller(addresses) }
        }
    }

    /// Returns nil at the end of the thread.
    private func next() -> Endpoint? {
        state.withLock { state in
            if state.waiting.isEmpty {
                state.threads -= 1
                return nil
            }
            return state.waiting.removeFirst()
        }
    }

    /// A thread could not be started. The others do its work if there are any.
    private func giveUp() {
        let callers = state.withLock { state -> [Caller] in
            state.threads -= 1
            guard state.threads == 0 else { return [] }
            defer { (state.callers, state.waiting) = ([:], []) }
            return state.callers.values.flatMap(\.self)
        }
        for caller in callers { caller([]) }
    }
}
