import Synchronization
import Testing

@testable import Courier

@Suite struct ResolverTests {
    private struct State {
        var running = 0
        var most = 0
        var lookUps = 0
        var answers = 0
        var isOpen = false
    }

    /// A resolver that hangs costs neither a thread for each lane, nor more than four.
    @Test func fewThreadsLookUpEachNameOnce() async throws {
        let state = Mutex(State())
        let resolver = Resolver { _ in
            state.withLock { state in
                state.running += 1
                state.lookUps += 1
                state.most = max(state.most, state.running)
            }
            while !state.withLock({ $0.isOpen }) {}
            state.withLock { $0.running -= 1 }
            return []
        }
        for number in 0..<30 {
            resolver.resolve(Endpoint(host: "host-\(number % 10)", port: 443)) { _ in state.withLock { $0.answers += 1 } }
        }
        for _ in 0..<5_000 where state.withLock({ $0.running }) < 4 { try await Task.sleep(for: .milliseconds(1)) }
        state.withLock { $0.isOpen = true }
        for _ in 0..<5_000 where state.withLock({ $0.answers }) < 30 { try await Task.sleep(for: .milliseconds(1)) }
        #expect(state.withLock { $0.answers } == 30)
        #expect(state.withLock { $0.most } == 4)
        #expect(state.withLock { $0.lookUps } == 10)
    }

    /// Strangers can name any number of hosts whose servers never answer.
    @Test func aFullQueueAnswersAtOnce() async throws {
        let state = Mutex(State())
        let resolver = Resolver(mostThreads: 1, mostWaiting: 2) { _ in
            state.withLock { $0.running += 1 }
            while !state.withLock({ $0.isOpen }) {}
            return []
        }
        func ask(_ number: Int) {
            resolver.resolve(Endpoint(host: "host-\(number)", port: 443)) { _ in state.withLock { $0.answers += 1 } }
        }
        ask(0)
        for _ in 0..<5_000 where state.withLock({ $0.running }) < 1 { try await Task.sleep(for: .milliseconds(1)) }
        for number in 1..<6 { ask(number) }
        #expect(state.withLock { $0.answers } == 3)
        state.withLock { $0.isOpen = true }
        for _ in 0..<5_000 where state.withLock({ $0.answers }) < 6 { try await Task.sleep(for: .milliseconds(1)) }
        #expect(state.withLock { $0.answers } == 6)
    }
}
