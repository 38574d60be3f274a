import Courier
import EventLoop
import Policy
import Sealing
import Sodium
import Storage
import Synchronization
import Testing
import Vocabulary
import WebPush

@testable import Broker

/// Replaces courier and Apple. A script returns how each push ends, and after how long.
final class ScriptedCourier: PushSender {
    private struct State {
        var number = 0
        var underWay: [Int: CheckedContinuation<Outcome, Never>] = [:]
        var isStopped = false
    }

    private let loop: EventLoop
    private let script: @Sendable (Push) -> (afterMs: UInt64, Outcome)
    /// The clock for deadlines, which override the script. Nil if no push is ever late.
    private let deadlineClock: (@Sendable () -> UInt64)?
    private let webPush: SimulatedWebPush.Process?
    private let state = Mutex(State())

    init(
        loop: EventLoop, deadlineClock: (@Sendable () -> UInt64)? = nil, webPush: SimulatedWebPush.Process? = nil,
        script: @escaping @Sendable (Push) -> (afterMs: UInt64, Outcome)
    ) {
        self.loop = loop
        self.script = script
        self.deadlineClock = deadlineClock
        self.webPush = webPush
    }

    func send(_ push: Push) async -> Outcome {
        if case .webPush = push.address.destination, let webPush { return await send(push, webPush) }
        let (wait, outcome) = script(push)
        return await end(push, outcome, afterMs: wait)
    }

    /// Sends a message until its final result.
    private func send(_ push: Push, _ webPush: SimulatedWebPush.Process) async -> Outcome {
        var attempts = SimulatedWebPush.Process.Attempts(push: push)
        // The result of a wait that runs to its end.
        let over = Outcome.delivered
        while push.isWanted() {
            let (wait, next) = await webPush.attempt(&attempts)
            let answered = await end(push, over, afterMs: wait)
            if answered != over { return answered == Self.late ? attempts.late : answered }
            guard case .again(let delay) = next else {
                guard case .end(let outcome) = next else { continue }
                return outcome
            }
            let waited = await end(push, over, afterMs: delay)
            if waited != over { return waited == Self.late ? attempts.late : waited }
        }
        return Self.revoked
    }

    private func end(_ push: Push, _ outcome: Outcome, afterMs wait: UInt64) async -> Outcome {
        await withCheckedContinuation { continuation in
            let number: Int? = state.withLock { state in
                if state.isStopped { return nil }
                state.number += 1
                state.underWay[state.number] = continuation
                return state.number
            }
            guard let number else { return continuation.resume(returning: Self.stopped) }
            end(push, outcome, afterMs: wait, number)
        }
    }

    /// The deadline may pass while the machine sleeps, so it is checked every second.
    private func end(_ push: Push, _ outcome: Outcome, afterMs wait: UInt64, _ number: Int) {
        let next = deadlineClock == nil ? wait : min(wait, 1_000)
        loop.after(next) {
            var end: Outcome?
            if let clock = self.deadlineClock, clock() >= push.deadlineMs {
                end = Self.late
            } else if next == wait {
                // Like the courier, check before each attempt. The answer to an attempt that was made still counts.
                end = outcome == .delivered || push.isWanted() ? outcome : Self.revoked
            }
            guard let end else { return self.end(push, outcome, afterMs: wait - next, number) }
            self.state.withLock { $0.underWay.removeValue(forKey: number) }?.resume(returning: end)
        }
    }

    func stop() {
        let underWay = state.withLock { state in
            defer { state.underWay = [:] }
            state.isStopped = true
            return state.underWay.sorted { $0.key < $1.key }.map(\.value)
        }
        for push in underWay { push.resume(returning: Self.stopped) }
    }

    private static let late = Outcome.failed(status: 0, reason: .late, verdict: .keep)
    private static let revoked = Outcome.failed(status: 0, reason: .revoked, verdict: .keep)
    private static let stopped = Outcome.failed(status: 0, reason: .stopped, verdict: .keep)
}

/// The clocks of a machine, set by a test. All in ms.
final class MachineClock: Sendable {
    private struct State {
        var monotonic: UInt64 = 1_000_000
        /// How far the others are ahead of the monotonic clock.
        var wall: Int64
        var boot: Int64 = 0
    }

    private let state: Mutex<State>

    init(wall: UInt64) { state = Mutex(State(wall: Int64(wall) - 1_000_000)) }

    /// Runs `story` on a loop whose clock is that of a new machine, and ends the loop. The story runs on the loop only: nobody could wait for work
    /// in the pool of all threads.
    static func play<Found: Sendable>(
        _ name: String, wall: UInt64 = 1_800_000_010_000,
        _ story: @escaping @Sendable (EventLoop, MachineClock) async throws -> Found
    ) async throws -> Found {
        let machine = MachineClock(wall: wall)
        let loop = try EventLoop(name: name) { machine.monotonic }
        try loop.start()
        defer {
            loop.stop()
            loop.join()
        }
        return try await Task(executorPreference: loop) { try await story(loop, machine) }.value
    }

    var monotonic: UInt64 { state.withLock { $0.monotonic } }
    var wall: UInt64 { state.withLock { UInt64(Int64($0.monotonic) + $0.wall) } }
    var boot: UInt64 { state.withLock { UInt64(Int64($0.monotonic) + $0.boot) } }

    func pass(_ ms: UInt64) { state.withLock { $0.monotonic += ms } }
    /// Sets the wall clock.
    func step(_ ms: Int64) { state.withLock { $0.wall += ms } }
    /// The machine sleeps: nothing runs, and its monotonic clock stops.
    func sleep(_ ms: UInt64) {
        state.withLock { state in
            state.wall += Int64(ms)
            state.boot += Int64(ms)
        }
    }
    func reboot() { state.withLock { $0.boot = 5_000 - Int64($0.monotonic) } }
}

/// A clock that tests move.
final class TestClock: Sendable {
    private let time: Mutex<UInt64>

    init(_ start: UInt64) { time = Mutex(start) }

    var now: UInt64 { time.withLock { $0 } }
    func advance(_ ms: UInt64) { time.withLock { $0 += ms } }
}

/// A value of true or false for all threads.
final class Flag: Sendable {
    private let value: Mutex<Bool>

    init(_ isSet: Bool = false) { value = Mutex(isSet) }

    var isSet: Bool { value.withLock { $0 } }
    func set(_ new: Bool) { value.withLock { $0 = new } }
}

/// Lines that were logged.
final class LogLines: Sendable {
    private let lines = Mutex<[String]>([])
    private let most: Int

    /// - Parameter most: how many of the latest lines are kept at least.
    init(most: Int = .max / 2) { self.most = most }

    func add(_ line: String) {
        lines.withLock { lines in
            lines.append(line)
            if lines.count >= 2 * most { lines.removeFirst(lines.count - most) }
        }
    }
    func count(_ text: String) -> Int { lines.withLock { $0.count { $0.contains(text) } } }
    var all: [String] { lines.withLock { $0 } }
}

extension Policy {
    /// The built-in policy of this kind with other texts.
    static func builtIn(_ kind: String, replacing texts: [(old: String, new: String)]) throws -> Policy {
        var text = String(decoding: try #require(Policy.builtInBytes(kind)), as: UTF8.self)
        for (old, new) in texts {
            let place = try #require(text.firstRange(of: old), "\(kind).json does not contain \(old)")
            text.replaceSubrange(place, with: new)
        }
        return try Policy(Array(text.utf8))
    }

    /// The built-in rooms policy with another timing of the log.
    static func rooms(_ timing: LedgerTiming) throws -> Policy {
        let new = """
            "hourSeconds": \(timing.hourSeconds), "daySeconds": \(timing.daySeconds), "batchSeals": \(timing.batchSeals)
            """
        return try builtIn("rooms", replacing: [(#""hourSeconds": 3600, "daySeconds": 86400, "batchSeals": 64"#, new)])
    }

    /// The built-in rooms policy with send slot and jitter.
    /// - Parameter timing: members of the template, with a comma after each.
    static func rooms(_ timing: String, ttlSeconds: Int = 120, limits: [(old: String, new: String)] = []) throws -> Policy {
        let ttl = (old: #""ttlSeconds": 120,"#, new: "\"ttlSeconds\": \(ttlSeconds), \(timing)")
        return try builtIn("rooms", replacing: [ttl] + limits)
    }
}

extension PushAddress {
    /// An address at the app of `Broker.Settings.test`.
    static func test(_ token: Secret, _ environment: PushEnvironment = .production) -> Self {
        Self(.apns(AppID(bundleID: "com.example.app"), environment), token: token)
    }
}

extension SimulatedWebPush {
    /// Returns the address of a browser's subscription, as a request has it.
    /// - Parameter id: at least 16 bytes, which are in the endpoint as hexadecimal digits, and the first of them in `auth`.
    func address(_ id: [UInt8], at broker: Broker.Settings) throws -> PushAddress {
        let host = Self.hosts[id.reduce(0) { ($0 + Int($1)) % Self.hosts.count }]
        let endpoint = Array("https://\(host)/\(Hex.encode(id.span))".utf8)
        let (start, point) = (Array(id.prefix(16)), point)
        let auth = Array(Base64.url.encode(start.span).utf8)
        let p256dh = Array(Base64.url.encode(point.span).utf8)
        return try broker.address(endpoint: endpoint.span, p256dh: p256dh.span, auth: auth.span)
    }
}

extension Broker.Settings {
    /// The settings of a broker for one app.
    static func test(
        addressSize: AddressSize = .apnsOnly, topic: String = "com.example.app", webPush: SimulatedWebPush? = nil
    ) -> Self {
        let app = AppID(bundleID: topic)
        var settings = Self(
            topic: topic, environment: .production, addressSize: addressSize, bundleID: { $0 == app ? topic : nil },
            serves: { _, other, _ in other == topic })
        settings.webPush = webPush?.settings
        settings.subscribable = addressSize == .anyService ? settings.webPush : nil
        return settings
    }
}

extension JobRecord {
    /// A job that is never sent.
    static func dummy(_ number: UInt8 = 0) -> JobRecord { dummy(number: Int(number)) }

    static func dummy(number: Int) -> JobRecord {
        JobRecord(
            JobContext(
                generation: 1, job: JobID(UInt128(number)), purgeID: EntryID(1), kind: .alert, slot: 1, template: "",
                deadlineMs: 0,
                expiryMs: 0),
            notBefore: 0, room: nil, sealed: [])
    }
}

extension Outbox {
    /// Reserves room for jobs that are never sent, until this many more fit.
    func fill(leaving places: Int) { queue.queued = queue.limit - places }

    func empty() { queue = OutboxQueue(limit: queue.limit, shuffles: false) }
}
