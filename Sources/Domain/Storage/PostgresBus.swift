import Linux
import Synchronization

/// Short messages between the nodes of a deployment, by NOTIFY. Any of them may be lost.
///
/// The server stores a message as it is until all nodes have read it, so callers seal messages.
public final class PostgresBus: Sendable {
    private struct State {
        var waiting: [String] = []
        var isClosed = false
    }

    private let journal: PostgresJournal
    private let sending = PostgresStore.Lane()
    private let state = Mutex(State())
    private let listener = Mutex<Linux.Thread?>(nil)

    /// The longest message, in bytes. A payload of NOTIFY has fewer than 8,000.
    public static let longestMessage = 7_900
    /// Messages that wait for the server. More are dropped, the oldest first.
    private static let mostWaiting = 1_000
    private static let pollMs: UInt64 = 500

    public init(_ store: PostgresStore) { journal = store.journal }

    /// Begins to listen. Both closures are called on a thread of the bus.
    /// - Parameters:
    ///   - connected: called at the first and at each later connection. Messages sent before it are lost.
    ///   - received: called with each message, also with those of this node.
    public func start(
        connected: @escaping @Sendable () -> Void, received: @escaping @Sendable (String) -> Void
    ) throws(StoreError) {
        do {
            try sending.start(["store-notify"], journal, sendsMessages: true)
            let thread = try Linux.Thread.spawn(name: "store-listen") { [self] in
                let database = PostgresDatabase(journal)
                var wait: UInt64 = 0
                while !state.withLock(\.isClosed) {
                    do {
                        if try database.listen() { connected() }
                        for message in try database.notifications(deadlineMs: Self.pollMs) { received(message) }
                        wait = 0
                    } catch {
                        database.disconnect()
                        // This only sleeps. The first retry comes at once.
                        if wait > 0 { _ = Poll.wait(-1, .read, until: Clock.monotonicMs + wait) }
                        wait = Self.pollMs
                    }
                }
            }
            listener.withLock { $0 = thread }
        } catch { throw .unavailable(error.description) }
    }

    /// - Parameter message: text without a zero byte.
    public func post(_ message: String) {
        let isFirst = state.withLock { state in
            if state.waiting.count >= Self.mostWaiting { state.waiting.removeFirst() }
            state.waiting.append(message)
            return state.waiting.count == 1
        }
        guard isFirst else { return }
        // Senders repeat what must not be lost.
        let send = PostgresStore.Job(
            run: { [self] database in
                try database.notify(state.withLock { $0.waiting.takeAll() })
                return {}
            }, fail: { _ in })
        sending.submit(send)
    }

    public func close() {
        state.withLock { $0.isClosed = true }
        sending.close()
        listener.withLock(\.self)?.join()
    }
}
