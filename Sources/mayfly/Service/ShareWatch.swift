import Broker
import EventLoop
import HTTPServer
import Linux
import Shares

/// Reports to the operator what is exhausted, and that one address which is no trusted proxy sends most requests. Never which.
struct ShareWatch {
    private static let roundMs: UInt64 = 10_000
    /// Rounds of a window of requests, and windows between two warnings of the same kind.
    private static let roundsAWindow = 30
    private static let windowsBetween = 288

    private let shares: Shares
    private let server: HTTPServer
    private let metrics: Metrics
    private var reported = Resource.allCases.map { _ in 0 }

    init(_ shares: Shares, _ server: HTTPServer, _ metrics: Metrics) {
        self.shares = shares
        self.server = server
        self.metrics = metrics
    }

    mutating func run() async {
        var quietWindows = Self.windowsBetween
        for round in 1... {
            do { try await server.loop.sleep(Self.roundMs) } catch { return }
            shares.forget([.presenceChanges], now: Clock.monotonicMs)
            reportExhausted()
            guard round % Self.roundsAWindow == 0 else { continue }
            quietWindows += 1
            guard await server.endRequestWindow(), quietWindows > Self.windowsBetween else { continue }
            quietWindows = 0
            Terminal.log(
                "warning: most requests come from one address and use up its share. If that is a proxy, name it in \(Key.trustedProxies.named)"
            )
        }
    }

    private mutating func reportExhausted() {
        for resource in Resource.allCases {
            let count = shares.refusals(resource).exhausted
            defer { reported[resource.rawValue] = count }
            guard count > reported[resource.rawValue] else { continue }
            metrics.add(.alarms)
            Terminal.log("shares: \(resource.name) ran out, and callers that used none of it were refused")
        }
    }
}
