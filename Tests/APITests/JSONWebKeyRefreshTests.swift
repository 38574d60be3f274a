import Broker
import EventLoop
import Linux
import Synchronization
import Testing

@testable import API

@Suite struct JSONWebKeyRefreshTests {
    /// A login whose answers the test gives, and the clock of the loop.
    private final class Login: Sendable {
        struct State {
            var nowMs: UInt64 = 1_000_000
            var set = ""
            var fault: String?
            /// Readings wait until the test ends them.
            var isSlow = false
            var readings: [CheckedContinuation<Void, Never>] = []
            var count = 0
            var lines: [String] = []
            var removals = 0
        }
        let state = Mutex(State())

        func set(_ change: (inout State) throws -> Void) rethrows { try state.withLock { try change(&$0) } }
        var count: Int { state.withLock { $0.count } }
        var lines: [String] { state.withLock { $0.lines } }

        func get() async throws -> [UInt8] {
            let isSlow = state.withLock { state in
                state.count += 1
                return state.isSlow
            }
            if isSlow { await withCheckedContinuation { reading in state.withLock { $0.readings.append(reading) } } }
            let (set, fault) = state.withLock { ($0.set, $0.fault) }
            if let fault { throw Unreachable(description: fault) }
            return Array(set.utf8)
        }

        func answer() {
            let readings = state.withLock { state in
                defer { state.readings = [] }
                return state.readings
            }
            for reading in readings { reading.resume() }
        }
    }

    private struct Unreachable: Error, CustomStringConvertible { let description: String }

    private final class Stage: Sendable {
        let login = Login()
        let loop: EventLoop
        let authenticator: Authenticator
        let metrics = Metrics()
        let refresh: JSONWebKeyRefresh

        init(_ authenticator: Authenticator) throws {
            self.authenticator = authenticator
            loop = try EventLoop(name: "test") { [login] in login.state.withLock { $0.nowMs } }
            refresh = JSONWebKeyRefresh(
                loop: loop, authenticator: authenticator, metrics: metrics,
                log: Logger { [login] level, text in login.set { $0.lines.append("\(level.rawValue): \(text)") } },
                get: { [login] in try await login.get() })
            try loop.start()
        }

        func start() async {
            await refresh.start { [login] in login.set { $0.removals += 1 } }
            await settle()
        }

        /// Lets all that is due run. A reading is on other threads, so this waits for its end, unless the test has to end it.
        func settle() async {
            repeat {
                for _ in 0..<50 {
                    await withCheckedContinuation { continuation in loop.submit { continuation.resume() } }
                    await Task.yield()
                }
            } while await refresh.isReading && login.state.withLock(\.readings.isEmpty)
        }

        func pass(_ ms: UInt64) async {
            login.set { $0.nowMs += ms }
            loop.submit {}
            await settle()
        }
    }

    /// Plays a story with two signers.
    private func play(_ story: (Stage, _ first: TokenMint, _ second: TokenMint) async throws -> Void) async throws {
        let (first, second) = (try TokenMint(), try TokenMint())
        let stage = try Stage(
            try Authenticator(algorithm: .rs256, source: .remote, issuer: nil, audience: nil))
        do { try await story(stage, first, second) } catch { Issue.record(error) }
        stage.login.answer()
        await stage.refresh.stop()
        await stage.settle()
        stage.loop.stop()
        stage.loop.join()
    }

    private func keys(_ keys: (TokenMint, String)...) throws -> String {
        #"{"keys":[\#(try keys.map { try $0.0.jwk(.rs256, #","kid":"\#($0.1)""#) }.joined(separator: ","))]}"#
    }

    private func token(_ mint: TokenMint, _ kid: String) throws -> String {
        try mint.token(.rs256, header: #"{"alg":"RS256","kid":"\#(kid)"}"#)
    }

    @Test func withoutASetNothingIsRefused() async throws {
        try await play { stage, first, _ in
            stage.login.set { $0.fault = "the peer refused" }
            for token in [try token(first, "a"), "no JWT", ""] {
                #expect(stage.authenticator.outcome(token).error == .keysUnavailable)
            }
            #expect(stage.refresh.fault != nil)
            await stage.start()
            #expect(stage.login.lines.count == 1 && stage.login.lines[0].hasPrefix("error: jwt: no keys yet: "))
            #expect(stage.metrics.value(.alarms) == 1)
            // It is tried again in a second, then later and later, with one alarm.
            for (ms, count) in [
                (999, 1), (1, 2), (1_999, 2), (1, 3), (4_000, 4), (8_000, 5), (16_000, 6), (30_000, 7), (30_000, 8),
            ] {
                await stage.pass(UInt64(ms))
                #expect(stage.login.count == count)
            }
            #expect(stage.metrics.value(.alarms) == 1 && stage.login.lines.count == 1)
            #expect(try stage.authenticator.outcome(token(first, "a")).error == .keysUnavailable)
            try stage.login.set { ($0.fault, $0.set) = (nil, try keys((first, "a"))) }
            await stage.pass(30_000)
            #expect(try stage.authenticator.outcome(token(first, "a")).user == "ann" && stage.refresh.fault == nil)
            #expect(stage.login.lines.last == "info: jwt: one key for RS256 from the URL")
        }
    }

    @Test func setsAreReadEveryTenMinutes() async throws {
        try await play { stage, first, second in
            try stage.login.set { $0.set = try keys((first, "a")) }
            await stage.start()
            #expect(try stage.login.count == 1 && stage.authenticator.outcome(token(first, "a")).user == "ann")
            try stage.login.set { $0.set = try keys((second, "b"), (first, "a")) }
            await stage.pass(599_999)
            #expect(stage.login.count == 1)
            await stage.pass(1)
            #expect(try stage.login.count == 2 && stage.authenticator.outcome(token(second, "b")).user == "ann")
            #expect(stage.login.state.withLock { $0.removals } == 0)
            // Nothing is logged about a set that stays the same.
            let lines = stage.login.lines
            await stage.pass(600_000)
            #expect(stage.login.count == 3 && stage.login.lines == lines)
            // A removed key ends the sockets.
            try stage.login.set { $0.set = try keys((second, "b")) }
            await stage.pass(600_000)
            #expect(stage.login.state.withLock { $0.removals } == 1)
            #expect(stage.login.lines.last?.contains("1 of 2 previous keys removed") == true)
            #expect(try stage.authenticator.outcome(token(first, "a")).error == .invalidJWT(.unknownKey))
        }
    }

    @Test func theLastGoodSetStays() async throws {
        try await play { stage, first, _ in
            try stage.login.set { $0.set = try keys((first, "a")) }
            await stage.start()
            let good = try token(first, "a")
            for set in ["", "<html>", #"{"keys":[]}"#, #"{"keys":[{"kty":"EC"}]}"#, "[]"] {
                stage.login.set { $0.set = set }
                await stage.pass(600_000)
                #expect(stage.authenticator.outcome(good).user == "ann", "\(set)")
            }
            #expect(stage.login.lines.filter { $0.hasPrefix("warning: jwt: the JWK set can't be read") }.count == 1)
            #expect(stage.login.lines.filter { $0.hasPrefix("error: jwt: the JWK set is outdated") }.count == 1)
            #expect(stage.metrics.value(.alarms) == 1 && stage.refresh.fault == "jwt: the JWK set is outdated")
            // Whether an unknown key is wrong can't be known.
            #expect(try stage.authenticator.outcome(token(first, "new")).error == .keysUnavailable)
            try stage.login.set { $0.set = try keys((first, "a")) }
            await stage.pass(30_000)
            #expect(stage.refresh.fault == nil && stage.login.lines.last == "info: jwt: the JWK set can be read again")
            #expect(try stage.authenticator.outcome(token(first, "new")).error == .invalidJWT(.unknownKey))
        }
    }

    @Test func aLoginThatIsDownForAMomentIsNoAlarm() async throws {
        try await play { stage, first, _ in
            try stage.login.set { $0.set = try keys((first, "a")) }
            await stage.start()
            stage.login.set { $0.fault = "no answer in time" }
            await stage.pass(600_000)
            await stage.pass(60_000)
            stage.login.set { $0.fault = nil }
            await stage.pass(60_000)
            #expect(stage.metrics.value(.alarms) == 0 && stage.refresh.fault == nil)
            #expect(stage.login.lines.count == 3)
        }
    }

    /// Whatever callers send, the login gets one more request in 30 seconds.
    @Test func unknownKeysCauseFewReadings() async throws {
        try await play { stage, first, second in
            try stage.login.set { $0.set = try keys((first, "a")) }
            await stage.start()
            try stage.login.set { $0.set = try keys((first, "a"), (second, "b")) }
            #expect(await stage.authenticator.isWorthRetrying(.invalidJWT(.unknownKey)))
            #expect(try stage.login.count == 2 && stage.authenticator.outcome(token(second, "b")).user == "ann")
            for _ in 0..<100 { #expect(await !stage.authenticator.isWorthRetrying(.invalidJWT(.unknownKey))) }
            await stage.pass(29_999)
            #expect(await !stage.authenticator.isWorthRetrying(.invalidJWT(.unknownKey)))
            #expect(stage.login.count == 2)
            // The set was read less than 30 seconds ago.
            #expect(try stage.authenticator.outcome(token(first, "c")).error == .invalidJWT(.unknownKey))
            await stage.pass(1)
            #expect(await stage.authenticator.isWorthRetrying(.invalidJWT(.unknownKey)) && stage.login.count == 3)
            for error in [BrokerError.noJWT, .jwtExpired, .invalidJWT(.badSignature), .invalidJWT(.namesNoKey)] {
                await stage.pass(30_000)
                #expect(await !stage.authenticator.isWorthRetrying(error))
            }
            #expect(stage.login.count == 3)
        }
    }

    @Test func callersWaitForOneReadingAndNotForLong() async throws {
        try await play { stage, first, second in
            try stage.login.set { $0.set = try keys((first, "a")) }
            await stage.start()
            try stage.login.set { ($0.set, $0.isSlow) = (try keys((first, "a"), (second, "b")), true) }
            let waiters = (0..<100).map { _ in
                Task { await stage.authenticator.isWorthRetrying(.invalidJWT(.unknownKey)) }
            }
            await stage.settle()
            #expect(stage.login.count == 2, "they share one reading")
            #expect(try stage.authenticator.outcome(token(first, "a")).user == "ann", "known keys don't wait")
            await stage.pass(5_000)
            for waiter in waiters { #expect(await waiter.value) }
            // Nobody waits any longer, and nobody is told that the key is wrong.
            #expect(await !stage.authenticator.isWorthRetrying(.invalidJWT(.unknownKey)))
            #expect(try stage.authenticator.outcome(token(second, "b")).error == .keysUnavailable)
            stage.login.answer()
            await stage.settle()
            #expect(try stage.authenticator.outcome(token(second, "b")).user == "ann")
        }
    }

    @Test func theOperatorIsToldInAnyCase() async throws {
        try await play { stage, first, _ in
            try stage.login.set { $0.set = #"{"keys":[{"kty":"RSA"},\#(try first.jwk(.rs256))]}"# }
            await stage.start()
            let told = stage.login.lines
            #expect(told.count == 2 && told[1].hasPrefix("warning: jwt: keys of the set are not used: key 1 "))
            await stage.refresh.reload()
            await stage.settle()
            #expect(stage.login.lines == told + told)
            stage.login.set { $0.fault = "no answer in time" }
            for count in 1...2 {
                await stage.refresh.reload()
                await stage.settle()
                #expect(stage.login.lines.filter { $0.contains("no answer in time") }.count == count)
            }
        }
    }
}
