import EventLoop
import Linux
import TLS
import Vocabulary

/// The queue, connections and failures of one account at one endpoint. Used only on the loop's thread.
///
/// Lanes share no connections, because Apple binds a connection to the team of its first push.
final class Lane: DeliveryOwner {
    private let settings: LaneSettings
    private let loop: EventLoop
    private let timing: Timing
    private let shared: Shared
    private var pool: Pool!

    private var topics: [String: Topic] = [:]
    private var queue = PushQueue()
    private var parked: [ObjectIdentifier: (delivery: Delivery, timer: TimerID)] = [:]
    private var overdueTimer: TimerID?
    private var holds = TokenHolds()
    /// When the first push since the last response was lost or refused.
    private var unansweredSince: UInt64?
    /// Why the service refuses the authorization, until it accepts one.
    private var authorizationRefusal: PushReason?
    /// The latest date of an authorization that it called invalid, until it accepts one.
    private var refusedIssuedAtS: UInt64?
    /// When it last accepted one.
    private var admittedAt: UInt64?
    private var isStopped = false
    private var isPumping = false
    private var isPumpDue = false

    init(
        _ id: LaneID, _ settings: LaneSettings, _ target: Target, _ loop: EventLoop, _ timing: Timing, _ shared: Shared
    ) {
        self.settings = settings
        self.loop = loop
        self.timing = timing
        self.shared = shared
        pool = Pool(self, loop, timing, target) { shared.resolve(id, $0) }
    }

    /// True if nothing waits and no connection is open.
    var isUnused: Bool { isIdle && pool.isEmpty }

    var isIdle: Bool { queue.isEmpty && parked.isEmpty && pool.isIdle }

    func topic(_ name: String) -> Topic {
        if let topic = topics[name] { return topic }
        let topic = Topic(name)
        topics[name] = topic
        return topic
    }

    func enqueue(_ delivery: Delivery) {
        guard !isStopped else { return finish(delivery, .failed(status: 0, reason: .stopped, verdict: .keep)) }
        queue.append(delivery)
        // All pushes of a turn are sent by one run: the processor then keeps the code in its cache.
        pumpLater()
    }

    /// Sends no more pushes. Those in flight still end with a response, a loss or their deadline.
    func stop() {
        isStopped = true
        let waiting = queue.extract { _ in true } + parked.values.map { $0.delivery }
        for entry in parked.values { loop.cancel(entry.timer) }
        parked = [:]
        for delivery in waiting { finish(delivery, .failed(status: 0, reason: .stopped, verdict: .keep)) }
        pool.stop()
    }

    /// Closes every connection.
    func close() {
        stop()
        pool.close()
    }

    /// The endpoint's name was resolved.
    func resolved(_ addresses: [SocketAddress]) { pool.resolved(addresses) }

    // MARK: The queue

    /// Sends waiting pushes on connections with room.
    func pump() {
        // Finished and refused pushes call this again.
        guard !isPumping else { return }
        isPumping = true
        defer { isPumping = false }
        moveSilent()
        if !queue.isEmpty {
            filling: for connection in pool.connections {
                while connection.hasRoom, let delivery = queue.popFirst(trying: !connection.isAuthenticated) {
                    guard start(delivery, on: connection), !queue.isEmpty else { break filling }
                }
            }
        }
        pool.review(waiting: queue.wantsStream)
        watchQueue()
    }

    /// Queues the pushes of silent connections for their second attempt on another one, under the same `apns-id`.
    private func moveSilent() {
        for delivery in pool.takeSilent().reversed() {
            delivery.topic.isReturned()
            delivery.isSecondAttempt = true
            delivery.lastFailure = (0, .unknown)
            shared.retries += 1
            queue.prepend(delivery)
        }
    }

    /// Pumps at the end of the turn. No request can start inside a connection's events.
    func pumpLater() {
        guard !isPumpDue else { return }
        isPumpDue = true
        loop.atEndOfTurn { [self] in
            isPumpDue = false
            pump()
        }
    }

    /// - Returns: false if the authorization can't be used yet. Then nothing has changed.
    private func start(_ delivery: Delivery, on connection: PushConnection) -> Bool {
        let now = loop.now
        if now >= delivery.deadline {
            giveUp(delivery)
        } else if !delivery.push.isWanted() {
            drop(delivery)
        } else if let until = holds.until(delivery, now) {
            park(delivery, until - now)
        } else {
            return send(delivery, on: connection)
        }
        return true
    }

    private func send(_ delivery: Delivery, on connection: PushConnection) -> Bool {
        let now = loop.now
        do throws(TLSError) {
            let wallMs = shared.wallMs()
            let authorization = try settings.signer?.current(nowMs: wallMs, monotonicMs: now)
            if settings.signer != nil, authorization == nil {
                queue.prepend(delivery)
                return false
            }
            delivery.topic.isSent()
            connection.send(delivery, Attempt(startedAt: now, startedAtWallMs: wallMs, authorization: authorization))
        } catch {
            raise(.configuration(settings.service, topic: delivery.topic.name, .invalidProviderToken))
            finish(delivery, .failed(status: 0, reason: .invalidProviderToken, verdict: .configuration))
        }
        return true
    }

    /// Ends queued pushes whose deadline passes.
    private func watchQueue() {
        guard overdueTimer == nil, !queue.isEmpty else { return }
        overdueTimer = loop.after(timing.tickMs) { [self] in
            overdueTimer = nil
            let now = loop.now
            for delivery in queue.extract(where: { now >= $0.deadline || !$0.push.isWanted() }) {
                if now >= delivery.deadline { giveUp(delivery) } else { drop(delivery) }
            }
            if !queue.isEmpty { pool.retireStalled() }
            pump()
        }
    }

    private func park(_ delivery: Delivery, _ delayMs: UInt64) {
        let now = loop.now
        // If the deadline comes first, the next attempt would be too late.
        guard now + delayMs < delivery.deadline else { return giveUp(delivery) }
        let timer = loop.after(delayMs) { [self] in
            parked[ObjectIdentifier(delivery)] = nil
            enqueue(delivery)
        }
        parked[ObjectIdentifier(delivery)] = (delivery, timer)
    }

    /// Ends a push that is no longer wanted. Apple may have it if its last attempt got no response.
    private func drop(_ delivery: Delivery) {
        let last = delivery.lastFailure
        let reason: PushReason = last?.reason == .unknown ? .unknown : .revoked
        finish(delivery, .failed(status: last?.status ?? 0, reason: reason, verdict: .keep))
    }

    private func giveUp(_ delivery: Delivery) {
        let none: PushReason = pool.isReady ? .late : .unreachable
        let last = delivery.lastFailure ?? authorizationRefusal.map { (403, $0) } ?? (0, none)
        if last.status == 403 {
            raise(.configuration(settings.service, topic: delivery.topic.name, last.reason))
            return finish(delivery, .failed(status: last.status, reason: last.reason, verdict: .configuration))
        }
        // Lost pushes raise their own alarm.
        if last.status != 0 {
            raise(.givenUp(settings.service, topic: delivery.topic.name, status: last.status, last.reason))
        }
        finish(delivery, .failed(status: last.status, reason: last.reason, verdict: .keep))
    }

    private func finish(_ delivery: Delivery, _ outcome: Outcome) {
        shared.count(outcome)
        delivery.finish(outcome)
    }

    // MARK: Called by the pool

    func unreachable(_ cause: ConnectionEnd) {
        if settings.certificate != nil, cause.isAboutCertificate {
            return raise(.configuration(settings.service, topic: settings.apps, .badCertificate))
        }
        raise(.unreachable(settings.service, topic: apps, cause.description))
    }

    func poolIsIdle() { shared.laneIsIdle() }

    // MARK: Called by connections

    func connection(_ connection: PushConnection, answered delivery: Delivery, _ answer: Answer, _ attempt: Attempt) {
        pool.answered(by: connection)
        delivery.topic.isAnswered()
        unansweredSince = nil
        noteAdmission(answer, attempt)
        let now = loop.now
        let topic = delivery.topic
        let isRefusal = answer.status != 200 && answer.reaction == .purge
        let counted: PurgeBreaker.Answer? =
            answer.status == 200
            ? .taken : isRefusal ? .refused(delivery.tokenKey) : answer.reaction == .purgeIfOlder ? .gone : nil
        // Retries and our own errors would hide how many tokens are rejected.
        if let counted { topic.breaker.record(counted, nowMs: now) }
        let breaker = isRefusal ? topic.breaker.state(nowMs: now) : .closed
        let step = answer.step(
            &delivery.history, sealedAtMs: delivery.push.sealedAtMs, sentAtMs: attempt.startedAtWallMs,
            breaker: breaker)
        switch step {
        case .finish(let outcome):
            if case .failed(_, let reason, .configuration) = outcome {
                raise(
                    answer.reaction == .purge
                        ? .purgesStopped(settings.service, topic: topic.name)
                        : .configuration(settings.service, topic: topic.name, reason))
            }
            finish(delivery, outcome)
        case .retry(let retry):
            delivery.lastFailure = (answer.status, answer.reason)
            if retry.replacesConnection { connection.retire() }
            var retry = retry
            if retry.renewsAuthorization {
                let isRenewed = renewAuthorization(attempt.authorization, answer.reason, topic.name)
                if !isRenewed, delivery.push.isTrial || settings.signer == nil {
                    return finish(
                        delivery, .failed(status: answer.status, reason: answer.reason, verdict: .configuration))
                }
                retry.waits = !isRenewed
            }
            self.retry(delivery, retry)
        }
    }

    func refused(_ delivery: Delivery) {
        delivery.topic.isReturned()
        delivery.refusals += 1
        noteUnanswered()
        // A GOAWAY causes one or two refusals in a row. A peer that refuses more must not be hammered.
        self.retry(delivery, Retry(waits: delivery.refusals > 2))
    }

    func lost(_ delivery: Delivery) {
        delivery.topic.isLost()
        delivery.lastFailure = (0, .unknown)
        noteUnanswered()
        self.retry(delivery, Retry())
    }

    /// A broken connection loses many pushes at once. Only losses that continue for a second raise an alarm.
    private func noteUnanswered() {
        let since = unansweredSince ?? loop.now
        unansweredSince = since
        if loop.now - since >= 1_000 { raise(.unanswered(settings.service, topic: apps)) }
    }

    func connection(_ connection: PushConnection, receivedGoAway goAway: GoAway) {
        guard let reason = goAway.reason else { return }
        switch reason.reaction {
        case .configuration, .reconnectOnce: raise(.configuration(settings.service, topic: settings.apps, reason))
        case .renewProviderToken: _ = renewAuthorization(connection.lastAuthorization, reason, settings.apps)
        default: break
        }
    }

    /// - Returns: true if the current one differs from `refused`.
    private func renewAuthorization(_ refused: Authorization?, _ reason: PushReason, _ topic: String) -> Bool {
        if let signer = settings.signer, let refused {
            let isExpired = reason == .expiredProviderToken
            authorizationRefusal = reason
            if !isExpired { refusedIssuedAtS = max(refused.issuedAtS, refusedIssuedAtS ?? 0) }
            let isRenewed = signer.renew(
                after: refused, isExpired: isExpired, laneAdmittedAtMs: admittedAt, nowMs: shared.wallMs(), monotonicMs: loop.now)
            // We never send one that our clock calls expired. So this clock is behind, even if the service accepts the next one.
            if isRenewed, !isExpired { return true }
            raise(.configuration(settings.service, topic: topic, reason))
            return isRenewed
        }
        raise(.configuration(settings.service, topic: topic, reason))
        return false
    }

    private func noteAdmission(_ answer: Answer, _ attempt: Attempt) {
        guard answer.admission == .admitted else { return }
        let refused = refusedIssuedAtS
        (authorizationRefusal, refusedIssuedAtS, admittedAt) = (nil, nil, loop.now)
        guard let signer = settings.signer, let used = attempt.authorization else { return }
        if signer.noteAdmission(of: used, afterRefusalOf: refused, monotonicMs: loop.now) { raise(.clockAhead(settings.service)) }
    }

    private func retry(_ delivery: Delivery, _ retry: Retry) {
        guard !isStopped else {
            // The next start resumes the push if it has time left.
            guard loop.now < delivery.deadline else { return giveUp(delivery) }
            return finish(delivery, .failed(status: 0, reason: .stopped, verdict: .keep))
        }
        guard retry.waits else {
            queue.prepend(delivery)
            return pumpLater()
        }
        delivery.history.failures += 1
        shared.retries += 1
        var generator = SystemRandomNumberGenerator()
        let delay = timing.retry.delayMs(
            delivery.history.failures, leastMs: min(retry.leastMs, timing.longestWaitMs), using: &generator)
        if retry.holdsToken { holds.hold(delivery, until: loop.now + delay) }
        park(delivery, delay)
    }

    /// The lane's topics. Nil if all topics use this lane.
    private var apps: String? { shared.hasSeveralAccounts ? settings.apps : nil }

    private func raise(_ alarm: Alarm) { if !settings.isQuiet { shared.raise(alarm) } }
}

/// Tokens that Apple throttles (429 TooManyRequests), by hash. Other tokens are unaffected.
private struct TokenHolds {
    private var holds: [Int: UInt64] = [:]
    private static let most = 10_000

    var isEmpty: Bool { holds.isEmpty }

    mutating func hold(_ delivery: Delivery, until: UInt64) {
        let key = delivery.tokenKey
        holds[key] = max(holds[key] ?? 0, until)
        if holds.count > Self.most { holds.removeAll() }  // Costs one more 429 for each.
    }

    /// Returns when the token's hold ends, or nil if it isn't held.
    mutating func until(_ delivery: Delivery, _ now: UInt64) -> UInt64? {
        guard !holds.isEmpty else { return nil }
        let key = delivery.tokenKey
        guard let until = holds[key] else { return nil }
        guard until > now else {
            holds[key] = nil
            return nil
        }
        return until
    }
}
