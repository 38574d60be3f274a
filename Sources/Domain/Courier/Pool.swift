import EventLoop
import HTTP2
import Linux

/// A lane's connections. The first is opened on demand and kept. More are opened one at a time while all streams are in use,
/// and closed when they are idle. Used only on the loop's thread.
final class Pool: ConnectionOwner {
    private let loop: EventLoop
    private let timing: Timing
    private let target: Target
    private let resolve: (Endpoint) -> Void
    private unowned let lane: Lane

    /// Ready connections, in the order in which they are filled. Spare ones at the end stay idle.
    private(set) var connections: [PushConnection] = []
    private var retired: [ObjectIdentifier: PushConnection] = [:]
    /// The connection attempt in progress. There is at most one.
    private var dial: Dial?
    /// A name lookup is in progress.
    private var isResolving = false
    /// The wait after a failed attempt.
    private var pause: TimerID?
    /// Consecutive attempts that failed, or whose connection ended early.
    private var failures = 0
    /// The addresses tried by those attempts.
    private var failedAddresses = 0
    /// Since when pushes have been waiting with every stream in use.
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

    /// True if a connection has been ready for at least one tick.
    var isReady: Bool { connections.contains { loop.now - ($0.readyAt ?? loop.now) >= timing.tickMs } }
    var isEmpty: Bool { connections.isEmpty && retired.isEmpty && dial == nil }
    var isIdle: Bool { retired.isEmpty && connections.allSatisfy { !$0.isBusy } }

    /// Accepts no more requests. Requests in flight continue.
    func stop() {
        isStopped = true
        dial?.cancel()
        dial = nil
        if let pause { loop.cancel(pause) }
        if let shrinkTimer { loop.cancel(shrinkTimer) }
        for connection in connections { connection.retire() }
    }

    /// Closes every connection.
    func close() {
        stop()
        for connection in retired.values { connection.close() }
    }

    // MARK: Growing

    /// Opens a connection if one is needed.
    /// - Parameter waiting: true if pushes wait though every connection is full.
    func review(waiting: Bool) {
        let waiting = waiting || connections.isEmpty && needsSecondAttempts
        if !waiting { fullSince = nil }
        guard !isStopped, dial == nil, pause == nil else { return }
        let isCalledFor =
            if connections.isEmpty {
                waiting
            } else if connections.allSatisfy(\.isDoubtful) {
                // Make one more ready for the second attempts.
                mayGrow && (waiting || connections.contains(where: \.isBusy))
            } else {
                connections.contains { $0.needsReplacement } || waiting && isDueToGrow()
            }
        if isCalledFor { open() }
    }

    private var mayGrow: Bool { connections.count < timing.connections && loop.now >= calmUntil }

    /// True if all streams have been in use for a while and the peer answers. A silent peer wouldn't answer on more connections either.
    private func isDueToGrow() -> Bool {
        let now = loop.now
        guard mayGrow, connections.allSatisfy({ $0.isAuthenticated }) else {
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

    private var needsSecondAttempts: Bool { retired.values.contains { $0.needsSecondAttempts } }

    /// Takes the requests of silent connections, once another connection has room for them. Until then their responses may still come.
    func takeSilent() -> [Delivery] {
        guard !retired.isEmpty, !isStopped, connections.contains(where: \.hasRoom) else { return [] }
        return retired.values.filter(\.isSilent).flatMap { $0.takeSilent() }
    }

    /// Retires connections that accept no request at all. Call it while pushes wait.
    func retireStalled() {
        let now = loop.now
        for connection in connections where !connection.isBusy && !connection.hasRoom && !connection.isDoubtful {
            if now - connection.lastUse >= timing.requestMs { connection.retire(.refusing) }
        }
    }

    func answered(by connection: PushConnection) {
        lastAnswer = loop.now
        if failures > 0, connection.isSteady { (failures, failedAddresses) = (0, 0) }
    }

    private func open() {
        dial = Dial(
            loop, timing, unresolved: target.firstHop == target.endpoint ? .unresolved : .proxy(.unresolved),
            connect: { [self, lane] (address) throws(ConnectionEnd) in
                guard target.limit?.take() != false else { throw .finished }
                do throws(ConnectionEnd) {
                    return try PushConnection(loop, to: address, target, timing, self, lane)
                } catch {
                    target.limit?.release()
                    throw error
                }
            }, done: { [self] in dialled($0) })
        let endpoint = target.firstHop
        if !target.checksAddresses, let address = SocketAddress(numeric: endpoint.host, port: endpoint.port) {
            resolved([address])
        } else if !isResolving {
            isResolving = true
            resolve(endpoint)
        }
    }

    /// The name was resolved. A late result is used by the next attempt if that one is waiting.
    func resolved(_ addresses: [SocketAddress]) {
        isResolving = false
        dial?.start(addresses, skipping: failedAddresses)
    }

    private func dialled(_ result: Result<PushConnection, ConnectionEnd>) {
        let tried = dial?.tried ?? 0
        dial = nil
        switch result {
        case .success(let connection):
            connections.append(connection)
            for worn in connections where worn.needsReplacement { worn.retire() }
            watchIdle()
            lane.pump()
        case .failure(let cause):
            failures += 1
            failedAddresses += tried
            guard !connections.isEmpty else { return pause(cause) }
            // The other connections continue. The peer may not allow more.
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

    // MARK: Called by connections

    func connectionIsReady(_ connection: PushConnection) { dial?.isReady(connection) }

    func connectionMayHaveRoom(_ connection: PushConnection) { lane.pump() }

    func connectionNeedsReplacement(_ connection: PushConnection) { lane.pumpLater() }

    func connectionIsInDoubt(_ connection: PushConnection) {
        for other in connections where other !== connection { other.pingIfQuiet() }
    }

    func connectionIsDoubtful() { lane.pump() }

    func connectionIsThrottled(_ connection: PushConnection) { calmUntil = loop.now + timing.calmMs }

    func connectionRetired(_ connection: PushConnection, _ cause: ConnectionEnd) {
        retired[ObjectIdentifier(connection)] = connection
        leave(connection, cause)
    }

    func connectionEnded(_ connection: PushConnection, _ cause: ConnectionEnd) {
        target.limit?.release()
        retired[ObjectIdentifier(connection)] = nil
        if let dial, dial.contains(connection) { return dial.ended(connection, cause) }
        leave(connection, cause)
        if isIdle { lane.poolIsIdle() }
    }

    /// A connection that ends early counts as a failed attempt, so that a peer that keeps closing isn't hammered. A connection that got responses
    /// doesn't lengthen the wait. The first such end has no wait, because pushes are being delivered.
    private func leave(_ connection: PushConnection, _ cause: ConnectionEnd) {
        guard let index = connections.firstIndex(where: { $0 === connection }) else { return }
        connections.remove(at: index)
        guard !isStopped, !connection.needsReplacement else { return }
        var isOurFault = false
        if case .goAway(let goAway) = cause {
            isOurFault = goAway.isOurFault
            if goAway.code == .enhanceYourCalm { calmUntil = loop.now + timing.calmMs }
        }
        let wasSpare = cause == .finished && !connections.isEmpty
        let didWork = connection.isProven && !isOurFault
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
