import EventLoop
import HTTP2
import Linux
import Sodium
import TLS

/// One connection over TLS to a push service, directly or in a proxy's tunnel: HTTP/2, or HTTP/1.1 where the service has no HTTP/2. Used only on its loop's thread.
final class PushConnection: EventSource {
    private enum Phase { case connecting, tunnelling, handshaking, settling, ready, ended }

    private let loop: EventLoop
    private let timing: Timing
    private let owner: any ConnectionOwner
    private let deliveries: any DeliveryOwner
    private let target: Target
    /// Host and port in the CONNECT request.
    private let tunnelEnd: String
    private let firstAddress: SocketAddress
    private let socket: Socket
    private let tls: TLSSession
    private var session: PushSession
    private var registration: Registration?
    private var interest: Events = [.read, .write]
    private var phase = Phase.connecting
    /// The proxy's answer to CONNECT.
    private lazy var tunnel = TunnelAnswer()
    private let requestWriter: any RequestWriter
    /// By stream.
    private var flights: [Int32: Flight] = [:]
    /// The last stream named by a GOAWAY. The peer didn't process later ones (RFC 9113, 6.8).
    private var lastServed = Int32.max

    private let startedAt: UInt64
    private var lastTraffic: UInt64
    private var liveness: Liveness
    private var timer: TimerID?
    private var flushes = false

    private var incoming = [UInt8](repeating: 0, count: 32 * 1024)
    private var plaintext: [UInt8] = []
    private var requests: [UInt8] = []
    private var outgoing: [UInt8] = []
    private var sent = 0

    /// The connection accepts no more requests.
    private(set) var isRetired = false
    /// The peer has accepted the provider, and hasn't rejected it since. Until then, only one stream is used at a time.
    private(set) var isAuthenticated = false
    /// The lower of the peer's limit and ours.
    private var allowedStreams = 1
    /// When the last request was sent, or else when the connection was created.
    private(set) var lastUse: UInt64
    /// The authorization of the last request.
    private(set) var lastAuthorization: Authorization?
    /// The stream ids are nearly used up.
    private(set) var needsReplacement = false
    /// No frame has followed a PING for half of its time.
    private(set) var isDoubtful = false
    /// No frame has followed a PING in time.
    private(set) var isSilent = false

    private(set) var readyAt: UInt64?
    /// Responses that show an accepted provider.
    private var answers = 0
    private var refusalsInARow = 0
    private var timeoutsInARow = 0
    private var bytesSinceAnswer = 0

    /// Starts connecting.
    /// - Throws: `.unreachable`, `.untrusted`, `.protocolFailure` or `.proxy`.
    init(
        _ loop: EventLoop, to address: SocketAddress, _ target: Target, _ timing: Timing, _ owner: any ConnectionOwner,
        _ deliveries: any DeliveryOwner
    ) throws(ConnectionEnd) {
        self.loop = loop
        self.timing = timing
        self.owner = owner
        self.deliveries = deliveries
        self.target = target
        requestWriter = target.adapter.requestWriter(to: target.endpoint)
        startedAt = loop.now
        lastTraffic = loop.now
        liveness = Liveness(timing, now: loop.now)
        lastUse = loop.now
        tunnelEnd = target.proxyAddress == nil ? target.endpoint.authorityWithPort : address.description
        let first = target.proxyAddress.map(\.current) ?? address
        guard let first else { throw .proxy(.unresolved) }
        firstAddress = first
        do { socket = try Socket.connect(to: first) } catch {
            target.proxyAddress?.failed(first)
            throw target.proxy == nil ? .unreachable(error) : .proxy(.unreachable(error))
        }
        do { tls = try TLSSession(connecting: target.context, to: target.endpoint.host) } catch { throw .untrusted(error) }
        do { session = try .http2() } catch { throw .protocolFailure }
        requests.reserveCapacity(Self.requestBytes + 32 * 1024)
        do { registration = try loop.add(socket.raw, interest, self) } catch { throw .unreachable(error) }
        setTimer()
    }

    /// True once TCP is connected.
    var isConnected: Bool { phase != .connecting && phase != .ended }
    /// True after the first response from an accepted provider.
    var isProven: Bool { answers > 0 }
    /// True if the connection lived long enough, or answered enough, to count as a success.
    var isSteady: Bool {
        guard let readyAt, isProven else { return false }
        return loop.now - readyAt >= timing.steadyMs || answers >= timing.steadyAnswers
    }

    // MARK: Requests

    /// True if another request can be sent now.
    var hasRoom: Bool {
        guard phase == .ready, !isRetired, outgoing.count - sent < 1 << 20, !isDoubtful else { return false }
        return session.openStreams < (isAuthenticated ? allowedStreams : 1)
    }

    var isBusy: Bool { !flights.isEmpty }

    /// Sends one request. Call it only if `hasRoom`.
    func send(_ delivery: Delivery, _ attempt: consuming Attempt) {
        do throws(HTTP2Error) {
            let stream = try requestWriter.submit(delivery, attempt.authorization, to: session)
            lastUse = loop.now
            lastAuthorization = attempt.authorization
            flights[stream] = Flight(delivery: delivery, attempt: attempt)
            if stream >= timing.lastStream, !needsReplacement {
                needsReplacement = true
                owner.connectionNeedsReplacement(self)
            }
        } catch {
            // Stream ids are used up, or a GOAWAY was received.
            retire()
            deliveries.refused(delivery)
            return
        }
        if session.hasPings, liveness.isIdle(now: loop.now) { doubt() }
        flushSoon()
        if flights.count == 1 { setTimer() }
    }

    /// Removes and returns the requests that get a second attempt. Their responses are ignored from now on.
    func takeSilent() -> [Delivery] {
        guard isSilent, phase == .ready else { return [] }
        var taken: [Delivery] = []
        for (stream, flight) in flights.sorted(by: { $0.key < $1.key }) where !flight.delivery.isSecondAttempt {
            flights[stream] = nil
            session.reset(stream: stream)
            taken.append(flight.delivery)
        }
        endIfDone()
        return taken
    }

    /// True if the connection is silent and some requests have had no second attempt.
    var needsSecondAttempts: Bool { isSilent && flights.values.contains { !$0.delivery.isSecondAttempt } }

    /// Accepts no more requests, and ends once those in flight are answered.
    func retire(_ cause: ConnectionEnd = .finished) {
        guard !isRetired, phase != .ended else { return }
        isRetired = true
        owner.connectionRetired(self, cause)
        endIfDone()
    }

    /// Ends now. Requests in flight are lost.
    func close() { end(.finished) }

    private func endIfDone() {
        guard isRetired, flights.isEmpty, phase != .ended else { return }
        if phase == .ready {
            session.terminate()
            flush()
            tls.close()
            tls.takeCiphertext(into: &outgoing)
            _ = try? write()
        }
        end(.finished)
    }

    // MARK: Events

    func ready(_ events: Events) {
        do throws(ConnectionEnd) {
            if phase == .connecting {
                guard !events.isDisjoint(with: [.write, .hangup, .failure]) else { return }
                if let error = socket.pendingError() { throw .unreachable(error) }
                target.proxy?.writeRequest(for: tunnelEnd, to: &outgoing)
                phase = target.proxy == nil ? .handshaking : .tunnelling
            } else if !events.isDisjoint(with: [.read, .peerFinished, .hangup, .failure]) {
                try read()
            }
            switch phase {
            case .ended: return
            // All requests that follow these responses are written together.
            case .ready where events.isDisjoint(with: .write): flushSoon()
            default: flush()
            }
        } catch {
            end(error)
        }
    }

    /// Reads in one turn, so that one connection doesn't block the loop.
    private static let readsATurn = 8
    /// Turns of reading after the peer closed its end.
    private static let lastReads = 8
    /// About ten responses. Their memory is reused for the next ten while it is in the processor's cache.
    private static let bytesAtOnce = 512
    /// The most bytes without a response or PING acknowledgement. A peer that sends more is flooding.
    private static let bytesPerAnswer = 1 << 20

    private func read() throws(ConnectionEnd) {
        for _ in 0..<Self.readsATurn {
            var span = incoming.mutableSpan
            let count: Int?
            do { count = try socket.read(into: &span) } catch { throw phase == .ready ? .closedByPeer : .unreachable(error) }
            guard let count else { return }
            if count == 0, !session.hasPings, phase == .ready {
                // An old server ends its answer by closing TCP.
                session.peerClosed()
                handleEvents()
                if phase == .ended || endedAsUsual() { return }
            }
            guard count > 0 else { throw .closedByPeer }
            lastTraffic = loop.now
            liveness.read(now: loop.now)
            (isDoubtful, isSilent) = (false, false)
            bytesSinceAnswer += count
            try receive(count)
            if bytesSinceAnswer > Self.bytesPerAnswer { throw .flooding }
            if phase == .ended || count < incoming.count { return }
        }
    }

    /// Handles the first `count` bytes of `incoming`.
    private func receive(_ count: Int) throws(ConnectionEnd) {
        guard phase == .tunnelling else { return try decrypt(0..<count) }
        let answered: Int?
        let bytes = Array(incoming[..<count])
        do { answered = try tunnel.parse(bytes.span) } catch { throw .proxy(error) }
        guard let answered else { return }
        phase = .handshaking
        if answered < count { try decrypt(answered..<count) }
    }

    private func decrypt(_ range: Range<Int>) throws(ConnectionEnd) {
        plaintext.removeAll(keepingCapacity: true)
        var failure: ConnectionEnd?
        do { try tls.receive(incoming.span.extracting(range), into: &plaintext) } catch { failure = .untrusted(error) }
        if phase == .handshaking, tls.state == .established {
            switch (tls.negotiatedProtocol, target.allowsHTTP1) {
            case ("h2", _), (nil, false): break
            case ("http/1.1", true), (nil, true): session = .http1()
            default: throw .protocolFailure
            }
            phase = .settling
            // HTTP/1.1 has no settings to wait for.
            if !session.hasPings { handleEvents() }
        }
        // Plaintext received before a failure or the end still counts.
        var received = 0
        while received < plaintext.count, phase != .ended {
            let end = min(received + Self.bytesAtOnce, plaintext.count)
            do { try session.receive(plaintext.span.extracting(received..<end)) } catch {
                failure = .protocolFailure
                received = plaintext.count
            }
            handleEvents()
            received = max(received, end)
        }
        guard phase != .ended else { return }
        if let failure { throw failure }
        if tls.state == .closed {
            session.peerClosed()
            handleEvents()
            guard phase != .ended else { return }
        }
        if endedAsUsual() { return }
        if tls.state == .closed || session.isFinished { throw isRetired && flights.isEmpty ? .finished : .closedByPeer }
    }

    /// HTTP/1.1 ends connections in its normal course. Returns true if this one is retired therefore.
    private func endedAsUsual() -> Bool {
        guard !session.hasPings, session.isFinished, phase == .ready, flights.isEmpty else { return false }
        needsReplacement = true
        owner.connectionNeedsReplacement(self)
        retire()
        return true
    }

    private func handleEvents() {
        for event in session.takeEvents() where phase != .ended {
            switch event {
            case .settings:
                allowedStreams = min(session.remoteConcurrentStreams, timing.streams)
                if phase == .settling {
                    phase = .ready
                    readyAt = loop.now
                    setTimer()
                    owner.connectionIsReady(self)
                }
            case .headers(let stream, let headers):
                guard let index = flights.index(forKey: stream) else { break }
                let status = headers.status
                flights.values[index].status = status
                if status != 200 { flights.values[index].retryAfter = headers["retry-after"] }
                if let field = target.adapter.remarkField { flights.values[index].remark = headers[field] }
                let delivery = flights.values[index].delivery
                if delivery.isTraced {
                    delivery.uniqueID = target.adapter.traceField.flatMap { headers[$0] }.flatMap { Self.isPlain($0) ? $0 : nil }
                }
            case .data(let stream, let bytes): flights[stream]?.body += bytes.bytes
            // The body is truncated, so it must not parse as complete.
            case .tooLarge(let stream, _): flights[stream]?.body = [UInt8(ascii: "{")]
            case .end(let stream): answered(stream)
            case .closed(let stream, let code): closed(stream, code)
            case .goAway(let last, let code, let debugData):
                lastServed = min(lastServed, last)
                let goAway = GoAway(code, debugData: debugData)
                deliveries.connection(self, receivedGoAway: goAway)
                retire(.goAway(goAway))
            case .pingAcknowledged:
                liveness.acknowledged(whileBusy: !flights.isEmpty)
                bytesSinceAnswer = 0
            }
        }
        guard phase != .ended else { return }
        endIfDone()
        if phase == .ready { owner.connectionMayHaveRoom(self) }
    }

    private func answered(_ stream: Int32) {
        guard let flight = flights.removeValue(forKey: stream) else { return }
        guard let status = flight.status else { return deliveries.lost(flight.delivery) }
        let nowMs = flight.attempt.startedAtWallMs + (loop.now - flight.attempt.startedAt)
        let answer = target.adapter.answer(flight, status: status, nowMs: nowMs)
        (bytesSinceAnswer, refusalsInARow, timeoutsInARow) = (0, 0, 0)
        liveness.answered()
        switch answer.admission {
        case .admitted:
            isAuthenticated = true
            answers += 1
        case .turnedAway: isAuthenticated = false
        case .unclear: break
        }
        deliveries.connection(self, answered: flight.delivery, answer, flight.attempt)
    }

    /// Returns true if an id can be printed unchanged.
    private static func isPlain(_ id: String) -> Bool { id.utf8.count <= 64 && id.utf8.allSatisfy { (0x21...0x7e).contains($0) } }

    private static let mostInARow = (refusals: 20, timeouts: 3)

    private func closed(_ stream: Int32, _ code: HTTP2ErrorCode) {
        guard let delivery = flights.removeValue(forKey: stream)?.delivery else { return }
        switch code {
        case .refusedStream:
            deliveries.refused(delivery)
            // Streams after a GOAWAY's last stream are always refused.
            guard !isRetired else { return }
            isAuthenticated = false
            refusalsInARow += 1
            if refusalsInARow >= Self.mostInARow.refusals { retire(.refusing) }
        case .enhanceYourCalm:
            isAuthenticated = false
            owner.connectionIsThrottled(self)
            deliveries.lost(delivery)
        default: deliveries.lost(delivery)
        }
    }

    // MARK: Sending

    /// Flushes at the end of the turn, so that all requests of the turn share one write.
    private func flushSoon() {
        guard !flushes else { return }
        flushes = true
        loop.atEndOfTurn { [self] in
            flushes = false
            flush()
        }
    }

    private func flush() {
        guard phase != .ended else { return }
        do throws(ConnectionEnd) { try writeAll() } catch {
            readLastAnswers(error)
            end(error)
        }
    }

    /// Reads responses that the peer sent before it closed. An unread response would send its push twice.
    private func readLastAnswers(_ cause: ConnectionEnd) {
        guard cause == .closedByPeer, !flights.isEmpty else { return }
        retire(cause)
        do throws(ConnectionEnd) {
            for _ in 0..<Self.lastReads where phase != .ended { try read() }
        } catch { return }
    }

    private static let requestBytes = 32 * 1024

    private func writeAll() throws(ConnectionEnd) {
        while true {
            if speaksHTTP { try encrypt() }
            if phase != .connecting, phase != .tunnelling { tls.takeCiphertext(into: &outgoing) }
            guard try write() else { return setInterest([.read, .write]) }
            guard speaksHTTP, session.wantsWrite, tls.state == .established else { break }
        }
        // nghttp2 detected a protocol error and has sent a GOAWAY.
        if speaksHTTP, session.isFinished, session.hasPings { throw isRetired && flights.isEmpty ? .finished : .protocolFailure }
        setInterest(.read)
    }

    private var speaksHTTP: Bool { phase == .settling || phase == .ready }

    /// Moves HTTP's output into TLS. The buffer in between contains tokens and is wiped.
    private func encrypt() throws(ConnectionEnd) {
        guard tls.state == .established else { return }
        defer {
            var span = requests.mutableSpan
            Sodium.wipe(&span)
            requests.removeAll(keepingCapacity: true)
        }
        do { try session.takeOutbound(into: &requests, limit: Self.requestBytes) } catch { throw .protocolFailure }
        guard !requests.isEmpty else { return }
        do { try tls.send(requests.span) } catch { throw .untrusted(error) }
    }

    /// Returns true if everything was written.
    private func write() throws(ConnectionEnd) -> Bool {
        while sent < outgoing.count {
            let count: Int?
            do { count = try socket.write(outgoing.span.extracting(sent..<outgoing.count)) } catch {
                throw phase == .ready ? .closedByPeer : .unreachable(error)
            }
            guard let count else { return false }
            lastTraffic = loop.now
            sent += count
        }
        // The request for a tunnel may contain a password.
        if phase == .tunnelling { Sodium.wipe(&outgoing) }
        outgoing.removeAll(keepingCapacity: outgoing.capacity <= 1 << 18)
        sent = 0
        return true
    }

    private func setInterest(_ wanted: Events) {
        guard wanted != interest, let registration else { return }
        interest = wanted
        loop.modify(registration, wanted)
    }

    // MARK: Time-outs

    private func setTimer() {
        if let timer { loop.cancel(timer) }
        let now = loop.now
        var due = timing.tickMs
        if phase == .ready, flights.isEmpty, liveness.pingedAt == nil {
            due = lastTraffic + timing.idleMs - min(now, lastTraffic + timing.idleMs)
        } else if let verdict = liveness.nextVerdict(now: now), !isSilent {
            due = min(due, verdict - min(now, verdict))
        }
        timer = loop.after(max(1, due)) { [unowned self] in tick() }
    }

    private func tick() {
        timer = nil
        let now = loop.now
        switch phase {
        case .ended: return
        case .connecting, .tunnelling, .handshaking, .settling:
            if now - startedAt >= timing.connectMs { return end(.timedOut) }
        case .ready:
            if liveness.isDoubtful(now: now) { judgePeer(now) }
            guard phase == .ready else { return }
            giveUpOverdue(now)
            guard phase == .ready else { return }
            if flights.isEmpty, liveness.pingedAt == nil, now - lastTraffic >= timing.idleMs {
                if timing.closesIdle { return retire() }
                ping(now)
            }
        }
        setTimer()
    }

    /// The peer is doubtful or silent by the clock.
    private func judgePeer(_ now: UInt64) {
        // If this process was stopped, the peer's frames wait in the socket.
        do throws(ConnectionEnd) { try read() } catch { return end(error) }
        guard phase == .ready, !isSilent, liveness.isDoubtful(now: now) else { return }
        isDoubtful = true
        guard liveness.isSilent(now: now) else { return owner.connectionIsDoubtful() }
        isSilent = true
        retire(.silent)
        // A connection that was retired before needs the call.
        if phase == .ready { owner.connectionMayHaveRoom(self) }
    }

    /// Sends a PING if requests are late, and gives up overdue ones. Their pushes are retried.
    private func giveUpOverdue(_ now: UInt64) {
        for (stream, flight) in flights {
            let waited = now - flight.attempt.startedAt
            if session.hasPings, liveness.isLate(waitedMs: waited, now: now) { doubt() }
            let late = waited >= timing.requestMs
            guard late || now >= flight.delivery.deadline else { continue }
            flights[stream] = nil
            session.reset(stream: stream)
            if late { timeoutsInARow += 1 }
            deliveries.lost(flight.delivery)
            guard phase == .ready else { return }
        }
        // The peer answers PINGs but no requests. Another connection may work.
        if timeoutsInARow >= Self.mostInARow.timeouts || session.isFinished { retire(.unanswering) }
        flushSoon()
        endIfDone()
    }

    /// Sends a PING. A network that drops one connection without a word usually drops all of them.
    private func doubt() {
        ping(loop.now)
        owner.connectionIsInDoubt(self)
    }

    /// Sends a PING if nothing has been read for a while.
    func pingIfQuiet() {
        guard phase == .ready, session.hasPings, liveness.isQuiet(now: loop.now) else { return }
        ping(loop.now)
        setTimer()
    }

    private func ping(_ now: UInt64) {
        liveness.pinged(now: now)
        session.submitPing(now)
        flushSoon()
    }

    // MARK: The end

    private func end(_ cause: ConnectionEnd) {
        guard phase != .ended else { return }
        let isBeforeTunnel = target.proxy != nil && (phase == .connecting || phase == .tunnelling)
        if isBeforeTunnel { Sodium.wipe(&outgoing) }
        if phase == .connecting, cause != .finished { target.proxyAddress?.failed(firstAddress) }
        phase = .ended
        isRetired = true
        if let registration { loop.remove(registration) }
        if let timer { loop.cancel(timer) }
        let unanswered = flights
        flights = [:]
        owner.connectionEnded(self, isBeforeTunnel ? cause.ofProxy : cause)
        for (stream, flight) in unanswered {
            if stream > lastServed { deliveries.refused(flight.delivery) } else { deliveries.lost(flight.delivery) }
        }
    }
}
