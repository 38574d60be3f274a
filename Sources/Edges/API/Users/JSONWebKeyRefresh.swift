public import Broker
public import EventLoop
import Synchronization

/// Reads a JWK set at a URL into an authenticator.
///
/// It reads at the start, every ten minutes, at the operator's request, and for an unknown key. Unknown keys cause one reading in 30 seconds, so
/// that callers can't make the broker flood the login. Until it can read another set, the last one stays in use.
public actor JSONWebKeyRefresh: LoopActor {
    /// Returns the set's JSON text. May throw any error; its text is logged. Must end within seconds.
    public typealias Get = @Sendable () async throws -> [UInt8]

    /// The limits on the set's text, in bytes, and on the time that `Get` may take.
    public static let largestSet = 1 << 20
    public static let timeoutMs: UInt64 = 10_000

    /// The pause after a set was read.
    static let periodMs: UInt64 = 600_000
    /// The first pause after a failure. It doubles up to the longest.
    static let firstPauseMs: UInt64 = 1_000
    static let longestPauseMs: UInt64 = 30_000
    /// The least time between two readings that unknown keys cause.
    static let wantedMs: UInt64 = 30_000
    /// How long callers wait for a reading, from its start.
    static let patienceMs: UInt64 = 5_000
    /// The age of a set from which the operator is needed: two readings in a row are missing, and keys may have been replaced.
    static let outdatedMs: UInt64 = 1_800_000

    public nonisolated let loop: EventLoop
    private let authenticator: Authenticator
    private let metrics: Metrics
    private let log: Logger
    private let get: Get
    private var keysRemoved: (@Sendable () async -> Void)?

    private(set) var isReading = false
    /// True if callers still wait for the reading.
    private var hasPatience = false
    private var waiting: [CheckedContinuation<Void, Never>] = []
    private var timer: TimerID?
    private var isStopped = false
    /// Loop time before which an unknown key causes no reading.
    private var nextWantedMs: UInt64 = 0
    /// Loop time of the last set.
    private var readMs: UInt64?
    private var failures = 0
    private var hasAlarmed = false
    /// True if the operator asked. Then the result is logged, even if nothing changed.
    private var isAsked = false
    private let currentFault = Mutex<String?>("jwt: no keys yet, so apps with accounts get 503")

    public init(loop: EventLoop, authenticator: Authenticator, metrics: Metrics, log: Logger, get: @escaping Get) {
        self.loop = loop
        self.authenticator = authenticator
        self.metrics = metrics
        self.log = log
        self.get = get
    }

    /// Text for the operator while there is no set, or an outdated one. Otherwise nil.
    public nonisolated var fault: String? { currentFault.withLock(\.self) }

    /// Starts to read.
    /// - Parameter keysRemoved: called when JWTs of a previous key are no longer valid.
    public func start(keysRemoved: @escaping @Sendable () async -> Void) {
        self.keysRemoved = keysRemoved
        authenticator.use(self)
        read()
    }

    public func stop() {
        isStopped = true
        if let timer { loop.cancel(timer) }
        release()
    }

    /// Reads the set now, because the operator wants it, and logs the result.
    public func reload() {
        isAsked = true
        read()
    }

    /// Reads the set because a JWT names an unknown key, and waits for that.
    /// - Returns: false if nothing was read: the last such reading is too recent, or this one takes too long for callers to wait.
    func refreshForUnknownKey() async -> Bool {
        if !isReading {
            guard loop.now >= nextWantedMs else { return false }
            nextWantedMs = loop.now + Self.wantedMs
            read()
        }
        guard hasPatience else { return false }
        await withCheckedContinuation { waiting.append($0) }
        return true
    }

    private func read() {
        guard !isReading, !isStopped else { return }
        (isReading, hasPatience) = (true, true)
        if let timer { loop.cancel(timer) }
        timer = nil
        authenticator.markStale()
        let patience = loop.after(Self.patienceMs) { self.assumeIsolated { $0.release() } }
        Task {
            var (set, fault): (JSONWebKeySet?, String) = (nil, "")
            do {
                let text = try await get()
                set = try JSONWebKeySet(text.span, for: authenticator.algorithm)
            } catch { fault = "\(error)" }
            loop.cancel(patience)
            await end(set, fault)
        }
    }

    private func end(_ set: JSONWebKeySet?, _ fault: String) async {
        var pause = Self.periodMs
        var removed = 0
        if let set {
            removed = adopt(set)
        } else {
            failures += 1
            pause = min(Self.firstPauseMs << UInt64(min(failures - 1, 10)), Self.longestPauseMs)
            report(fault)
        }
        (isReading, isAsked) = (false, false)
        release()
        if !isStopped { timer = loop.after(pause) { self.assumeIsolated { $0.read() } } }
        if removed > 0 { await keysRemoved?() }
    }

    /// Returns how many previous keys were removed.
    private func adopt(_ set: JSONWebKeySet) -> Int {
        let isNew = authenticator.keys != set
        let (removed, before) = authenticator.replace(by: set)
        if failures > 0, readMs != nil { log.info("jwt: the JWK set can be read again") }
        if isNew || isAsked {
            log.info(authenticator.reloadText(removed: removed, of: before))
            if let warning = authenticator.warning { log.warning(warning) }
        }
        (readMs, failures, hasAlarmed) = (loop.now, 0, false)
        currentFault.withLock { $0 = nil }
        return removed
    }

    /// One alarm while there is no set, or an outdated one. A login that is down for a moment is a warning only.
    private func report(_ fault: String) {
        let age = readMs.map { loop.now - $0 }
        let text: String
        if let age, age < Self.outdatedMs {
            text = "jwt: the JWK set can't be read: \(fault). The last keys stay in use. The broker retries"
            if failures == 1 || isAsked { log.warning(text) }
            return
        } else if age != nil {
            let minutes = Self.outdatedMs / 60_000
            text =
                "jwt: the JWK set is outdated: for over \(minutes) minutes it can't be read: \(fault). JWTs signed with newer keys get 503"
            currentFault.withLock { $0 = "jwt: the JWK set is outdated" }
        } else {
            text =
                "jwt: no keys yet: the JWK set can't be read: \(fault). Until it can, apps with accounts get 503. The broker retries"
        }
        guard !hasAlarmed || isAsked else { return }
        hasAlarmed = true
        metrics.add(.alarms)
        log.error(text)
    }

    private func release() {
        hasPatience = false
        let released = waiting
        waiting = []
        for continuation in released { continuation.resume() }
    }
}
