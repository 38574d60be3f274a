import EventLoop
import HTTP2
import Linux

/// A lane's connections: the first opened when it is needed and kept, more one at a time while all streams are in use, closed again when
/// they are not needed. Touched on the loop's thread only.
final class Pool: ConnectionOwner {
    private let loop: EventLoop
    private let timing: Timing
    private let target: Target
    private let resolve: (Endpoint) -> Void
    private unowned let lane: Lane

    /// Ready, in the order in which they are filled: where fewer would do, those at the end are idle.
    private(set) var connections: [Connection] = []
    private var retired: [ObjectIdentifier: Connection] = [:]
    /// The connection that is being opened: one at a time.
    private var dial: Dial?
    /// The system's resolver is asked, and may take its time.
    private var isResolving = false
    /// A failed attempt is being slept off.
    private var pause: TimerID?
    /// Attempts in a row that failed, or whose connection ended soon.
    private var failures = 0
    /// And the addresses that they tried.
    private var failedAddresses = 0
    /// Since when pushes wait and every stream is in use.
    private var fullSince: UInt64?
    private var lastAnswer: UInt64 = 0
    private var calmUntil: UInt64 = 0
    private var shrinkTimer: TimerID?
    private var isStopped = false

    init(
        _ lane: Lane, _ loop: EventLoop, _ timing: Timing, _ target: Target, resolve: @escaping (Endpoint) -> Void
    ) {
        self.lane = lane
        self.loop = loop
        self.timing = timing
        self.target = target
        self.resolve = resolve
    }

    /// There is a connection, and not just since this moment.
    var isReady: Bool { connections.contains { loop.now - ($0.readyAt ?? loop.now) >= timing.tickMs } }
    var isIdle: Bool { retired.isEmpty && connections.allSatisfy { !$0.isBusy } }

    /// Takes no more requests; those under way go on.
    func stop() {
        isStopped = true
        dial?.cancel()
        dial = nil
        if let pause { loop.cancel(pause) }
        if let shrinkTimer { loop.cancel(shrinkTimer) }
        for connection in connections { connection.retire() }
    }

    /// Drops every connection.
    func close() {
        stop()
        for connection in retired.values { connection.close() }
    }

    // MARK: Growing

    /// Opens a connection if one is called for.
    /// - Parameter waiting: pushes wait, though every connection was given what it takes.
    func review(waiting: Bool) {
        if !waiting { fullSince = nil }
        guard !isStopped, dial == nil, pause == nil else { return }
        let isCalledFor =
            connections.isEmpty ? waiting : connections.contains { $0.isWorn } || waiting && isDueToGrow()
        if isCalledFor { open() }
    }

    /// Not at the first full moment, and only while the peer answers: more connections would not make it answer.
    private func isDueToGrow() -> Bool {
        let now = loop.now
        guard connections.count < timing.connections, now >= calmUntil, connections.allSatisfy({ $0.isAuthenticated }) else {
            fullSince = nil
            return false
        }
        guard let since = fullSince else {
            fullSince = now
            return false
        }
        guard now - since >= timing.growAfterMs, lastAnswer > since else { return false }
        fullSince = nil
        return true
    }

    /// Leaves connections that let no request in at all. To be called while pushes wait.
    func leaveShut() {
        let now = loop.now
        for connection in connections
        where !connection.isBusy && !connection.hasRoom && now - connection.lastUse >= timing.requestMs {
            connection.retire(.refusing)
        }
    }

    func answered(by connection: Connection) {
        lastAnswer = loop.now
        if failures > 0, connection.isSteady { (failures, failedAddresses) = (0, 0) }
    }

    private func open() {
        dial = Dial(
            loop, timing,
            connect: { [self, lane] (address) throws(ConnectionEnd) in
                try Connection(loop, to: address, target, timing, self, lane)
            }, done: { [self] in dialled($0) })
        let endpoint = target.endpoint
        if let address = SocketAddress(numeric: endpoint.host, port: endpoint.port) {
            resolved([address])
        } else if !isResolving {
            isResolving = true
            resolve(endpoint)
        }
    }

    /// The name was looked up. An answer that came too late is the next attempt's, if that waits for it.
    func resolved(_ addresses: [SocketAddress]) {
        isResolving = false
        dial?.start(addresses, skipping: failedAddresses)
    }

    private func dialled(_ result: Result<Connection, ConnectionEnd>) {
        let tried = dial?.tried ?? 0
        dial = nil
        switch result {
        case .success(let connection):
            connections.append(connection)
            for worn in connections where worn.isWorn { worn.retire() }
            watchIdle()
            lane.pump()
        case .failure(let cause):
            failures += 1
            failedAddresses += tried
            guard !connections.isEmpty else { return pause(cause) }
            // The others carry on: perhaps the peer allows no more of them.
            calmUntil = loop.now + timing.calmMs
            pause(.finished)
        }
    }

    /// Waits before the next attempt.
    private func pause(_ cause: ConnectionEnd) {
        guard !isStopped, pause == nil else { return }
        if cause != .finished { lane.unreachable(cause) }
        var generator = SystemRandomNumberGenerator()
        pause = loop.after(timing.reconnect.delayMs(max(1, failures), using: &generator)) { [self, lane] in
            pause = nil
            lane.pump()
        }
    }

    // MARK: Shrinking

    private func watchIdle() {
        guard shrinkTimer == nil, connections.count > 1, !isStopped else { return }
        shrinkTimer = loop.after(max(1, timing.shrinkAfterMs / 4)) { [self, lane] in
            defer { withExtendedLifetime(lane) {} }
            shrinkTimer = nil
            let now = loop.now
            if let idle = connections.dropFirst().last(where: { !$0.isBusy && now - $0.lastUse >= timing.shrinkAfterMs }) {
                idle.retire()
            }
            watchIdle()
        }
    }

    // MARK: What connections tell

    func connectionIsReady(_ connection: Connection) { dial?.isReady(connection) }

    func connectionMoved(_ connection: Connection) { lane.pump() }

    func connectionIsWorn(_ connection: Connection) { lane.pumpLater() }

    func connectionIsToBeCalm(_ connection: Connection) { calmUntil = loop.now + timing.calmMs }

    func connectionRetired(_ connection: Connection, _ cause: ConnectionEnd) {
        retired[ObjectIdentifier(connection)] = connection
        leave(connection, cause)
    }

    func connectionEnded(_ connection: Connection, _ cause: ConnectionEnd) {
        retired[ObjectIdentifier(connection)] = nil
        if let dial, dial.contains(connection) { return dial.ended(connection, cause) }
        leave(connection, cause)
        if isIdle { lane.poolIsIdle() }
    }

    /// A connection that ends soon counts as a failed attempt, so that a peer that ends one connection after another is not hammered. If it got
    /// answers, the wait is the shortest, and the first time there is none: waits must not grow while pushes are delivered.
    private func leave(_ connection: Connection, _ cause: ConnectionEnd) {
        guard let index = connections.firstIndex(where: { $0 === connection }) else { return }
        connections.remove(at: index)
        guard !isStopped, !connection.isWorn else { return }
        var isRebuke = false
        if case .dismissed(let dismissal) = cause {
            isRebuke = dismissal.isRebuke
            if dismissal.code == .enhanceYourCalm { calmUntil = loop.now + timing.calmMs }
        }
        let wasSpare = cause == .finished && !connections.isEmpty
        let didWork = connection.isProven && !isRebuke
        if connection.isSteady, didWork { (failures, failedAddresses) = (0, 0) }
        if wasSpare || connection.isSteady && didWork { return lane.pumpLater() }
        failedAddresses += 1
        if didWork {
            let isFirst = failures == 0
            failures = 1
            return isFirst ? lane.pumpLater() : pause(.finished)
        }
        failures += 1
        pause(connection.isProven && failures < 3 ? .finished : cause)
    }
}
