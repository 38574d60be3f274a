import EventLoop
import Linux
import TLS

/// One of Apple's two environments: its queue, its connection and its memory of what went wrong. Touched on the loop's thread only.
final class Lane: ConnectionOwner {
    let environment: Push.Environment
    private let endpoint: Endpoint
    private let loop: EventLoop
    private let context: TLSContext
    private let timing: Timing
    private let shared: Shared

    private var queue = Queue<Delivery>()
    private var parked: [ObjectIdentifier: (delivery: Delivery, timer: TimerID)] = [:]
    private var current: Connection?
    private var retired: [ObjectIdentifier: Connection] = [:]
    /// A name is being looked up, or a failed attempt is being slept off.
    private var connects = false
    private var connectFailures = 0
    private var overdueTimer: TimerID?
    private var breakers: [String: PurgeBreaker] = [:]
    private var holds = TokenHolds()
    private var isStopped = false
    private var isPumping = false

    init(
        _ environment: Push.Environment, _ endpoint: Endpoint, _ loop: EventLoop, _ context: TLSContext, _ timing: Timing,
        _ shared: Shared
    ) {
        self.environment = environment
        self.endpoint = endpoint
        self.loop = loop
        self.context = context
        self.timing = timing
        self.shared = shared
    }

    var isIdle: Bool { queue.isEmpty && parked.isEmpty && current?.isBusy != true && retired.isEmpty }

    func enqueue(_ delivery: Delivery) {
        guard !isStopped else { return finish(delivery, .failed(status: 0, reason: .stopped, verdict: .keep)) }
        queue.append(delivery)
        pump()
    }

    /// Sends nothing more; what is under way is answered, lost or given up by its deadline.
    func stop() {
        isStopped = true
        let waiting = queue.extract { _ in true } + parked.values.map { $0.delivery }
        for entry in parked.values { loop.cancel(entry.timer) }
        parked = [:]
        for delivery in waiting { finish(delivery, .failed(status: 0, reason: .stopped, verdict: .keep)) }
        current?.retire()
    }

    /// Drops every connection.
    func close() {
        stop()
        current?.close()
        for connection in retired.values { connection.close() }
    }

    // MARK: The queue

    private func pump() {
        // Finishing and refusing lead back here.
        guard !isPumping else { return }
        isPumping = true
        defer { isPumping = false }
        guard let connection = current else { return connect() }
        while connection.hasRoom, let delivery = queue.popFirst() { start(delivery, on: connection) }
        if current == nil, !queue.isEmpty { connect() }
        watchQueue()
    }

    private func start(_ delivery: Delivery, on connection: Connection) {
        let now = loop.now
        guard now < delivery.deadline else { return giveUp(delivery) }
        guard delivery.push.isWanted() else { return drop(delivery) }
        if let until = holds.until(delivery, now) { return park(delivery, until - now) }
        do throws(TLSError) {
            let issued = try shared.providerToken.current(nowMs: shared.wallMs())
            connection.send(delivery, Attempt(startedAt: now, startedAtWallMs: shared.wallMs(), issued: issued))
        } catch {
            raise(.configuration(environment, .invalidProviderToken))
            finish(delivery, .failed(status: 0, reason: .invalidProviderToken, verdict: .configuration))
        }
    }

    /// What waits too long in the queue is told so in time.
    private func watchQueue() {
        guard overdueTimer == nil, !queue.isEmpty else { return }
        overdueTimer = loop.after(timing.tickMs) { [self] in
            overdueTimer = nil
            let now = loop.now
            for delivery in queue.extract(where: { now >= $0.deadline }) { giveUp(delivery) }
            for delivery in queue.extract(where: { !$0.push.isWanted() }) { drop(delivery) }
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
        let none: Reason = current?.isReady == true ? .late : .unreachable
        let standing = delivery.standing ?? (0, none)
        finish(delivery, .failed(status: standing.status, reason: standing.reason, verdict: .keep))
    }

    private func finish(_ delivery: Delivery, _ outcome: Outcome) {
        shared.count(outcome)
        delivery.finish(outcome)
    }

    // MARK: Connecting

    private func connect() {
        guard current == nil, !connects, !queue.isEmpty, !isStopped else { return watchQueue() }
        connects = true
        watchQueue()
        if let address = SocketAddress(numeric: endpoint.host, port: endpoint.port) {
            resolved([address])
        } else {
            shared.resolve(environment, endpoint)
        }
    }

    func resolved(_ addresses: [SocketAddress]) {
        guard connects, !isStopped else { return }
        guard !addresses.isEmpty else { return connectLater("its name can't be resolved") }
        let address = addresses[connectFailures % addresses.count]
        do throws(ConnectionEnd) {
            current = try Connection(loop, to: address, host: endpoint.host, context, timing, self)
            connects = false
        } catch {
            connectLater(error.description)
        }
    }

    private func connectLater(_ cause: String?) {
        connectFailures += 1
        if let cause { raise(.unreachable(environment, cause)) }
        var generator = SystemRandomNumberGenerator()
        connects = true
        loop.after(timing.reconnect.delayMs(connectFailures, using: &generator)) { [self] in
            connects = false
            pump()
        }
    }

    // MARK: What connections tell

    func connectionIsReady(_ connection: Connection) {
        if connection === current { pump() }
    }

    func connection(_ connection: Connection, answered delivery: Delivery, _ answer: Answer, _ attempt: Attempt) {
        // Not for 403: reconnecting for a provider token that is refused again and again must slow down.
        if answer.status != 403 { connectFailures = 0 }
        let now = loop.now
        let topic = delivery.push.topic
        breakers[topic, default: PurgeBreaker()].record(refused: answer.reaction == .purge && answer.status != 200, nowMs: now)
        let purgesStopped = breakers[topic]!.isOpen(nowMs: now)
        let step = answer.step(
            &delivery.history, sealedAtMs: delivery.push.sealedAtMs, sentAtMs: attempt.startedAtWallMs,
            purgesStopped: purgesStopped)
        switch step {
        case .finish(let outcome):
            if case .failed(_, let reason, .configuration) = outcome {
                raise(answer.reaction == .purge ? .purgesStopped(environment, topic: topic) : .configuration(environment, reason))
            }
            finish(delivery, outcome)
        case .retry(let retry):
            delivery.standing = (answer.status, answer.reason)
            if retry.replacesConnection { connection.retire() }
            if retry.renewsProviderToken { renewProviderToken(attempt.issued) }
            self.retry(delivery, retry)
        }
    }

    func connection(_ connection: Connection, refused delivery: Delivery) {
        delivery.refusals += 1
        // One or two in a row are a GOAWAY and its successor; a peer that refuses on and on must not be hammered.
        self.retry(delivery, Retry(waits: delivery.refusals > 2))
    }

    func connection(_ connection: Connection, lost delivery: Delivery) {
        delivery.standing = (0, .unknown)
        self.retry(delivery, Retry())
    }

    func connectionRetired(_ connection: Connection) {
        retired[ObjectIdentifier(connection)] = connection
        guard connection === current else { return }
        current = nil
        connectAgain(after: connection, nil)
    }

    func connectionEnded(_ connection: Connection, _ cause: ConnectionEnd) {
        let wasCurrent = connection === current
        retired[ObjectIdentifier(connection)] = nil
        if wasCurrent { current = nil }
        guard wasCurrent, cause != .finished, !isStopped else { return shared.laneIsIdle() }
        connectAgain(after: connection, cause.description)
    }

    /// A connection that never did any work counts as a failed attempt, so that the next one waits.
    private func connectAgain(after connection: Connection, _ cause: String?) {
        guard !isStopped else { return }
        guard connection.isAuthenticated else { return connectLater(cause) }
        loop.atEndOfTurn { [self] in pump() }
    }

    private func renewProviderToken(_ refused: ProviderToken.Issued) {
        let renewed = (try? shared.providerToken.renew(after: refused, nowMs: shared.wallMs())) ?? false
        // Too young to be expired: one of the two clocks is wrong.
        if !renewed { raise(.configuration(environment, .expiredProviderToken)) }
    }

    private func retry(_ delivery: Delivery, _ retry: Retry) {
        guard !isStopped else { return giveUp(delivery) }
        guard retry.waits else {
            queue.prepend(delivery)
            // From inside a connection's events: the pump must not start a request there.
            loop.atEndOfTurn { [self] in pump() }
            return
        }
        delivery.history.failures += 1
        shared.retries += 1
        var generator = SystemRandomNumberGenerator()
        let delay = timing.retry.delayMs(delivery.history.failures, leastMs: retry.leastMs, using: &generator)
        if retry.holdsToken { holds.hold(delivery, until: loop.now + delay) }
        park(delivery, delay)
    }

    private func raise(_ alarm: Alarm) { shared.raise(alarm) }
}
