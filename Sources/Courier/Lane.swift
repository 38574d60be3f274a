import EventLoop
import Linux
import TLS
import Vocabulary

/// One account in one of Apple's two environments, apart from all others because a connection belongs to the team whose push it carried
/// first: its queue, its connections and its memory of what went wrong. Touched on the loop's thread only.
final class Lane: DeliveryOwner {
    private let environment: PushEnvironment
    private let account: Account
    private let signer: Signer?
    private let loop: EventLoop
    private let timing: Timing
    private let shared: Shared
    private var pool: Pool!

    private var topics: [String: Topic] = [:]
    private var queue = Turns()
    private var parked: [ObjectIdentifier: (delivery: Delivery, timer: TimerID)] = [:]
    private var overdueTimer: TimerID?
    private var holds = TokenHolds()
    /// When the first push was lost, or refused unseen, since the last answer.
    private var unansweredSince: UInt64?
    private var isStopped = false
    private var isPumping = false
    private var isPumpDue = false

    init(
        _ id: LaneID, _ account: Account, _ signer: Signer?, _ endpoint: Endpoint, _ loop: EventLoop, _ context: TLSContext,
        _ timing: Timing, _ shared: Shared
    ) {
        environment = id.environment
        self.account = account
        self.signer = signer
        self.loop = loop
        self.timing = timing
        self.shared = shared
        pool = Pool(self, loop, timing, Target(endpoint: endpoint, context: context)) {
            shared.resolve(id, $0)
        }
    }

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

    /// Sends nothing more; what is under way is answered, lost or given up by its deadline.
    func stop() {
        isStopped = true
        let waiting = queue.extract { _ in true } + parked.values.map { $0.delivery }
        for entry in parked.values { loop.cancel(entry.timer) }
        parked = [:]
        for delivery in waiting { finish(delivery, .failed(status: 0, reason: .stopped, verdict: .keep)) }
        pool.stop()
    }

    /// Drops every connection.
    func close() {
        stop()
        pool.close()
    }

    /// The pool's name was looked up.
    func resolved(_ addresses: [SocketAddress]) { pool.resolved(addresses) }

    // MARK: The queue

    /// Gives waiting pushes to connections with room.
    func pump() {
        // Finishing and refusing lead back here.
        guard !isPumping else { return }
        isPumping = true
        defer { isPumping = false }
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

    /// From inside a connection's events, where no request may be started.
    func pumpLater() {
        guard !isPumpDue else { return }
        isPumpDue = true
        loop.atEndOfTurn { [self] in
            isPumpDue = false
            pump()
        }
    }

    /// - Returns: false where the provider token can't be used yet; nothing has changed then.
    private func start(_ delivery: Delivery, on connection: Connection) -> Bool {
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

    private func send(_ delivery: Delivery, on connection: Connection) -> Bool {
        let now = loop.now
        do throws(TLSError) {
            let wallMs = shared.wallMs()
            let issued = try signer?.current(nowMs: wallMs)
            if signer != nil, issued == nil {
                queue.prepend(delivery)
                return false
            }
            delivery.topic.isSent()
            connection.send(delivery, Attempt(startedAt: now, startedAtWallMs: wallMs, issued: issued))
        } catch {
            raise(.configuration(environment, topic: delivery.push.topic, .invalidProviderToken))
            finish(delivery, .failed(status: 0, reason: .invalidProviderToken, verdict: .configuration))
        }
        return true
    }

    /// What waits too long in the queue is told so in time.
    private func watchQueue() {
        guard overdueTimer == nil, !queue.isEmpty else { return }
        overdueTimer = loop.after(timing.tickMs) { [self] in
            overdueTimer = nil
            let now = loop.now
            for delivery in queue.extract(where: { now >= $0.deadline || !$0.push.isWanted() }) {
                if now >= delivery.deadline { giveUp(delivery) } else { drop(delivery) }
            }
            if !queue.isEmpty { pool.leaveShut() }
            pump()
        }
    }

    private func park(_ delivery: Delivery, _ delayMs: UInt64) {
        let now = loop.now
        // A deadline that comes first is the end: the next attempt would be too late.
        guard now + delayMs < delivery.deadline else { return giveUp(delivery) }
        let timer = loop.after(delayMs) { [self] in
            parked[ObjectIdentifier(delivery)] = nil
            enqueue(delivery)
        }
        parked[ObjectIdentifier(delivery)] = (delivery, timer)
    }

    /// Its token was destroyed.
    private func drop(_ delivery: Delivery) {
        finish(delivery, .failed(status: delivery.standing?.status ?? 0, reason: .revoked, verdict: .keep))
    }

    private func giveUp(_ delivery: Delivery) {
        let none: APNsReason = pool.isReady ? .late : .unreachable
        let standing = delivery.standing ?? (0, none)
        // What was lost has an alarm of its own.
        if standing.status != 0 {
            raise(.givenUp(environment, topic: delivery.topic.name, status: standing.status, standing.reason))
        }
        finish(delivery, .failed(status: standing.status, reason: standing.reason, verdict: .keep))
    }

    private func finish(_ delivery: Delivery, _ outcome: Outcome) {
        shared.count(outcome)
        delivery.finish(outcome)
    }

    // MARK: What the pool tells

    func unreachable(_ cause: ConnectionEnd) {
        if case .certificate = account.credential, cause.isAboutCertificate {
            return raise(.configuration(environment, topic: account.topicNames, .badCertificate))
        }
        raise(.unreachable(environment, topic: apps, cause.description))
    }

    func poolIsIdle() { shared.laneIsIdle() }

    // MARK: What connections tell

    func connection(_ connection: Connection, answered delivery: Delivery, _ answer: Answer, _ attempt: Attempt) {
        pool.answered(by: connection)
        delivery.topic.isAnswered()
        unansweredSince = nil
        let now = loop.now
        let topic = delivery.topic
        let isRefusal = answer.status != 200 && answer.reaction == .purge
        let counted: PurgeBreaker.Answer? =
            answer.status == 200
            ? .taken : isRefusal ? .refused(delivery.tokenKey) : answer.reaction == .purgeIfOlder ? .gone : nil
        // What will be tried again, or is our fault, would hide how many tokens are refused.
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
                        ? .purgesStopped(environment, topic: topic.name)
                        : .configuration(environment, topic: topic.name, reason))
            }
            finish(delivery, outcome)
        case .retry(let retry):
            delivery.standing = (answer.status, answer.reason)
            if retry.replacesConnection { connection.retire() }
            if retry.renewsProviderToken { renewProviderToken(attempt.issued, topic.name) }
            self.retry(delivery, retry)
        }
    }

    func refused(_ delivery: Delivery) {
        delivery.topic.isRefused()
        delivery.refusals += 1
        noteUnanswered()
        // One or two in a row are a GOAWAY and its successor; a peer that refuses on and on must not be hammered.
        self.retry(delivery, Retry(waits: delivery.refusals > 2))
    }

    func lost(_ delivery: Delivery) {
        delivery.topic.isLost()
        delivery.standing = (0, .unknown)
        noteUnanswered()
        self.retry(delivery, Retry())
    }

    /// A connection that breaks loses many pushes at one moment; that it goes on so is worth an alarm.
    private func noteUnanswered() {
        let since = unansweredSince ?? loop.now
        unansweredSince = since
        if loop.now - since >= 1_000 { raise(.unanswered(environment, topic: apps)) }
    }

    func connection(_ connection: Connection, dismissedFor dismissal: Dismissal) {
        guard let reason = dismissal.reason else { return }
        switch reason.reaction {
        case .configuration, .reconnectOnce: raise(.configuration(environment, topic: account.topicNames, reason))
        case .renewProviderToken: renewProviderToken(connection.lastIssued, account.topicNames)
        default: break
        }
    }

    private func renewProviderToken(_ refused: ProviderToken.Issued?, _ topic: String) {
        guard let signer, let refused else { return }
        // Too young to be expired: one of the two clocks is wrong.
        if !signer.renew(after: refused, nowMs: shared.wallMs()) {
            raise(.configuration(environment, topic: topic, .expiredProviderToken))
        }
    }

    private func retry(_ delivery: Delivery, _ retry: Retry) {
        guard !isStopped else {
            // What is left of its time is the next start's.
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

    /// Whom this lane is for, where not for all.
    private var apps: String? { shared.hasSeveralAccounts ? account.topicNames : nil }

    private func raise(_ alarm: Alarm) { shared.raise(alarm) }
}
