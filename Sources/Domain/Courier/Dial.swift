import EventLoop
import Linux

/// One attempt to open a connection. It tries a name's addresses one after the other and keeps the first that is ready (RFC 8305, simplified).
/// A dead address therefore costs little time, and a silent one a little more.
final class Dial {
    private let loop: EventLoop
    private let timing: Timing
    private let connect: (SocketAddress) throws(ConnectionEnd) -> PushConnection
    /// Called once with the ready connection, or with the last error.
    private let done: (Result<PushConnection, ConnectionEnd>) -> Void

    private var addresses: ArraySlice<SocketAddress> = []
    /// The same addresses, for a second round if the peers of the first one accept a connection and then hang.
    private var secondRound: ArraySlice<SocketAddress> = []
    private var candidates: [PushConnection] = []
    private var timer: TimerID?
    /// The timeout of the whole attempt. Set only if `dialsOnce`.
    private var lastTimer: TimerID?
    private var lastCause: ConnectionEnd
    private var isDone = false
    /// The number of addresses tried so far.
    private(set) var tried = 0

    /// The most addresses tried in one attempt.
    private static let mostAddresses = 8

    /// Waits for the addresses. The timeout is that of a connection.
    /// - Parameter unresolved: the error without addresses.
    init(
        _ loop: EventLoop, _ timing: Timing, unresolved: ConnectionEnd,
        connect: @escaping (SocketAddress) throws(ConnectionEnd) -> PushConnection,
        done: @escaping (Result<PushConnection, ConnectionEnd>) -> Void
    ) {
        self.loop = loop
        self.timing = timing
        self.connect = connect
        self.done = done
        lastCause = unresolved
        timer = loop.after(timing.connectMs) { [self] in finish(.failure(lastCause)) }
    }

    /// - Parameter skipping: how many addresses failed before. They are tried last.
    func start(_ found: [SocketAddress], skipping: Int) {
        let order = Self.alternating(found)
        guard !order.isEmpty else { return finish(.failure(lastCause)) }
        let first = skipping % order.count
        addresses = (order[first...] + order[..<first]).prefix(Self.mostAddresses)
        if timing.dialsOnce {
            lastTimer = loop.after(timing.connectMs) { [self] in finish(.failure(.timedOut)) }
        } else {
            secondRound = addresses
        }
        next()
    }

    func contains(_ connection: PushConnection) -> Bool { candidates.contains { $0 === connection } }

    func isReady(_ connection: PushConnection) { finish(.success(connection)) }

    func ended(_ connection: PushConnection, _ cause: ConnectionEnd) {
        candidates.removeAll { $0 === connection }
        lastCause = cause
        next()
    }

    /// Stops without calling `done`.
    func cancel() {
        isDone = true
        for timer in [timer, lastTimer] { if let timer { loop.cancel(timer) } }
        let rest = candidates
        candidates = []
        for connection in rest { connection.close() }
    }

    private func next() {
        guard !isDone else { return }
        if let timer { loop.cancel(timer) }
        timer = nil
        while let address = addresses.popFirst() {
            tried += 1
            do throws(ConnectionEnd) {
                candidates.append(try connect(address))
                return wait(timing.nextAddressMs)
            } catch { lastCause = error }
        }
        if candidates.isEmpty { finish(.failure(lastCause)) } else { waitForSecondRound() }
    }

    /// One lost packet must cost only one connection attempt.
    private func waitForSecondRound() {
        guard !secondRound.isEmpty else { return }
        timer = loop.after(timing.nextAddressConnectedMs) { [self] in
            timer = nil
            (addresses, secondRound) = (secondRound, [])
            next()
        }
    }

    private func wait(_ ms: UInt64) {
        guard !addresses.isEmpty else { return waitForSecondRound() }
        timer = loop.after(ms) { [self] in
            timer = nil
            let more = timing.nextAddressConnectedMs
            if ms < more, candidates.last?.isConnected == true { wait(more) } else { next() }
        }
    }

    private func finish(_ result: Result<PushConnection, ConnectionEnd>) {
        guard !isDone else { return }
        if case .success(let connection) = result { candidates.removeAll { $0 === connection } }
        cancel()
        done(result)
    }

    /// Alternates IPv6 and IPv4, starting with the system's first choice.
    static func alternating(_ addresses: [SocketAddress]) -> [SocketAddress] {
        var kinds: [[SocketAddress]] = [[], []]
        for address in addresses { kinds[address.isV6 == addresses.first?.isV6 ? 0 : 1].append(address) }
        var order: [SocketAddress] = []
        for index in 0..<max(kinds[0].count, kinds[1].count) {
            for kind in kinds where index < kind.count { order.append(kind[index]) }
        }
        return order
    }
}

extension SocketAddress {
    fileprivate var isV6: Bool { if case .v6 = self { true } else { false } }
}
