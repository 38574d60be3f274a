import EventLoop
import HTTP2
import Linux
import Sodium
import TLS

/// Whom a connection tells how it stands.
protocol ConnectionOwner: AnyObject {
    /// The peer has said hello: it takes a request.
    func connectionIsReady(_ connection: Connection)
    /// It may have room again.
    func connectionMoved(_ connection: Connection)
    /// Its stream ids will be used up soon.
    func connectionIsWorn(_ connection: Connection)
    /// The peer asks for fewer requests.
    func connectionIsToBeCalm(_ connection: Connection)
    /// It takes no more requests; those under way go on.
    func connectionRetired(_ connection: Connection, _ cause: ConnectionEnd)
    func connectionEnded(_ connection: Connection, _ cause: ConnectionEnd)
}

/// Whom a connection tells what became of the pushes it was given.
protocol DeliveryOwner: AnyObject {
    func connection(_ connection: Connection, answered delivery: Delivery, _ answer: Answer, _ attempt: Attempt)
    /// The peer has not looked at it: it may be sent again at once.
    func refused(_ delivery: Delivery)
    /// It was sent and no answer came: the peer may have it.
    func lost(_ delivery: Delivery)
    /// A GOAWAY has come; the second of two may be the one with a reason.
    func connection(_ connection: Connection, dismissedFor dismissal: Dismissal)
}

/// An attempt that is under way, and what has come of its answer.
private struct Flight {
    let delivery: Delivery
    let attempt: Attempt
    var status: Int?
    var retryAfter: String?
    var body: [UInt8] = []
}

/// One attempt of one push.
struct Attempt {
    let startedAt: UInt64
    let startedAtWallMs: UInt64
    /// Nil where a certificate speaks for the provider.
    let issued: ProviderToken.Issued?
}

/// Whom connections are made to, and how.
struct Target {
    let endpoint: Endpoint
    let context: TLSContext
}

/// One HTTP/2 connection over TLS to APNs. Touched on its loop's thread only.
final class Connection: EventSource {
    private enum Phase { case connecting, handshaking, settling, ready, ended }

    private let loop: EventLoop
    private let timing: Timing
    private let owner: any ConnectionOwner
    private let deliveries: any DeliveryOwner
    private let socket: Socket
    private let tls: TLSSession
    private let http2: HTTP2Session
    private var registration: Registration?
    private var interest: Events = [.read, .write]
    private var phase = Phase.connecting
    private var requestHeaders: RequestHeaders
    /// By stream.
    private var flights: [Int32: Flight] = [:]
    /// By a GOAWAY the peer has processed no stream above this one (RFC 9113, 6.8).
    private var lastServed = Int32.max

    private let startedAt: UInt64
    private var lastTraffic: UInt64
    private var lastRead: UInt64
    private var pingedAt: UInt64?
    private var timer: TimerID?
    private var flushes = false

    private var incoming = [UInt8](repeating: 0, count: 32 * 1024)
    private var plaintext: [UInt8] = []
    private var requests: [UInt8] = []
    private var outgoing: [UInt8] = []
    private var sent = 0

    /// Takes no more requests.
    private(set) var isRetired = false
    /// The peer has let a request in, and has refused none for its provider since; without that one stream at a time.
    private(set) var isAuthenticated = false
    /// By the peer's settings, and by ours.
    private var allowedStreams = 1
    /// When the last request was sent, or the connection made.
    private(set) var lastUse: UInt64
    /// The provider token it sent last.
    private(set) var lastIssued: ProviderToken.Issued?
    /// Its stream ids are nearly used up.
    private(set) var isWorn = false

    private(set) var readyAt: UInt64?
    /// Answers that let a request in.
    private var answers = 0
    private var refusalsInARow = 0
    private var timeoutsInARow = 0
    private var bytesSinceAnswer = 0

    /// Starts to connect.
    init(
        _ loop: EventLoop, to address: SocketAddress, _ target: Target, _ timing: Timing, _ owner: any ConnectionOwner,
        _ deliveries: any DeliveryOwner
    ) throws(ConnectionEnd) {
        self.loop = loop
        self.timing = timing
        self.owner = owner
        self.deliveries = deliveries
        requestHeaders = RequestHeaders(target.endpoint)
        startedAt = loop.now
        lastTraffic = loop.now
        lastRead = loop.now
        lastUse = loop.now
        do { socket = try Socket.connect(to: address) } catch { throw .unreachable(error) }
        do { tls = try TLSSession(connecting: target.context, to: target.endpoint.host) } catch { throw .untrusted(error) }
        do { http2 = try HTTP2Session(.client, limits: HTTP2Limits(bodyBytes: 16 * 1024)) } catch { throw .protocolFailure }
        requests.reserveCapacity(Self.requestBytes + 32 * 1024)
        do { registration = try loop.add(socket.raw, interest, self) } catch { throw .unreachable(error) }
        setTimer()
    }

    /// TCP has connected.
    var isConnected: Bool { phase != .connecting && phase != .ended }
    /// Whether it did any work.
    var isProven: Bool { answers > 0 }
    /// Whether it did enough work for its cost.
    var isSteady: Bool {
        guard let readyAt, isProven else { return false }
        return loop.now - readyAt >= timing.steadyMs || answers >= timing.steadyAnswers
    }

    // MARK: Requests

    /// Whether another request may be sent now.
    var hasRoom: Bool {
        guard phase == .ready, !isRetired, outgoing.count - sent < 1 << 20 else { return false }
        return http2.openStreams < (isAuthenticated ? allowedStreams : 1)
    }

    var isBusy: Bool { !flights.isEmpty }

    /// Sends one request; call it only with room.
    func send(_ delivery: Delivery, _ attempt: consuming Attempt) {
        let body = delivery.push.payload
        do throws(HTTP2Error) {
            let stream = try requestHeaders.with(delivery.push, attempt.issued) { (headers) throws(HTTP2Error) in
                try http2.submitRequest(headers, body: body)
            }
            lastUse = loop.now
            lastIssued = attempt.issued
            flights[stream] = Flight(delivery: delivery, attempt: attempt)
            if stream >= timing.lastStream, !isWorn {
                isWorn = true
                owner.connectionIsWorn(self)
            }
        } catch {
            // Stream ids are used up, or a GOAWAY has come.
            retire()
            deliveries.refused(delivery)
            return
        }
        flushSoon()
        if flights.count == 1 { setTimer() }
    }

    /// Takes no more requests and ends when those under way are answered.
    func retire(_ cause: ConnectionEnd = .finished) {
        guard !isRetired, phase != .ended else { return }
        isRetired = true
        owner.connectionRetired(self, cause)
        endIfDone()
    }

    /// Ends now; requests under way are lost.
    func close() { end(.finished) }

    private func endIfDone() {
        guard isRetired, flights.isEmpty, phase != .ended else { return }
        if phase == .ready {
            http2.terminate(.noError)
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
                phase = .handshaking
            } else if !events.isDisjoint(with: [.read, .peerFinished, .hangup, .failure]) {
                try read()
            }
            switch phase {
            case .ended: return
            // What comes of these answers, the next requests among it, is written together.
            case .ready where events.isDisjoint(with: .write): flushSoon()
            default: flush()
            }
        } catch {
            end(error)
        }
    }

    /// At most this much a turn, so that one connection does not hold the loop.
    private static let readsATurn = 8
    /// How many turns of reading follow after the peer has closed its end.
    private static let lastReads = 8
    /// About ten answers: their memory is used again for the next ten, while it is in the processor's cache.
    private static let bytesAtOnce = 512
    /// Without an answer to a request or a PING among them: more is a peer that makes work for nothing.
    private static let bytesPerAnswer = 1 << 20

    private func read() throws(ConnectionEnd) {
        for _ in 0..<Self.readsATurn {
            var span = incoming.mutableSpan
            let count: Int?
            do { count = try socket.read(into: &span) } catch { throw phase == .ready ? .closedByPeer : .unreachable(error) }
            guard let count else { return }
            guard count > 0 else { throw .closedByPeer }
            lastTraffic = loop.now
            lastRead = loop.now
            bytesSinceAnswer += count
            try decrypt(count)
            if bytesSinceAnswer > Self.bytesPerAnswer { throw .flooding }
            if phase == .ended || count < incoming.count { return }
        }
    }

    private func decrypt(_ count: Int) throws(ConnectionEnd) {
        plaintext.removeAll(keepingCapacity: true)
        var failure: ConnectionEnd?
        do { try tls.receive(incoming.span.extracting(first: count), into: &plaintext) } catch { failure = .untrusted(error) }
        if phase == .handshaking, tls.state == .established {
            guard tls.negotiatedProtocol ?? "h2" == "h2" else { throw .protocolFailure }
            phase = .settling
        }
        // What came before a failure or the end still counts.
        var received = 0
        while received < plaintext.count, phase != .ended {
            let end = min(received + Self.bytesAtOnce, plaintext.count)
            do { try http2.receive(plaintext.span.extracting(received..<end)) } catch {
                failure = .protocolFailure
                received = plaintext.count
            }
            handleEvents()
            received = max(received, end)
        }
        guard phase != .ended else { return }
        if let failure { throw failure }
        if tls.state == .closed || http2.isFinished { throw isRetired && flights.isEmpty ? .finished : .closedByPeer }
    }

    private func handleEvents() {
        for event in http2.takeEvents() where phase != .ended {
            switch event {
            case .settings:
                allowedStreams = min(http2.remoteConcurrentStreams, timing.streams)
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
                let delivery = flights.values[index].delivery
                if delivery.isTraced { delivery.uniqueID = headers["apns-unique-id"].flatMap { Self.isPlain($0) ? $0 : nil } }
            case .data(let stream, let bytes): flights[stream]?.body += bytes.bytes
            // Not whole, whatever came of it.
            case .tooLarge(let stream, _): flights[stream]?.body = [UInt8(ascii: "{")]
            case .end(let stream): answered(stream)
            case .closed(let stream, let code): closed(stream, code)
            case .goAway(let last, let code, let debugData):
                lastServed = min(lastServed, last)
                let dismissal = Dismissal(code, debugData: debugData)
                deliveries.connection(self, dismissedFor: dismissal)
                retire(.dismissed(dismissal))
            case .pingAcknowledged:
                pingedAt = nil
                bytesSinceAnswer = 0
            }
        }
        guard phase != .ended else { return }
        endIfDone()
        if phase == .ready { owner.connectionMoved(self) }
    }

    private func answered(_ stream: Int32) {
        guard let flight = flights.removeValue(forKey: stream) else { return }
        guard let status = flight.status else { return deliveries.lost(flight.delivery) }
        let answer = Answer(status: status, body: flight.body, retryAfter: flight.retryAfter)
        (bytesSinceAnswer, refusalsInARow, timeoutsInARow) = (0, 0, 0)
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
            // Those above the last stream of a GOAWAY are no sign of anything.
            guard !isRetired else { return }
            isAuthenticated = false
            refusalsInARow += 1
            if refusalsInARow >= Self.mostInARow.refusals { retire(.refusing) }
        case .enhanceYourCalm:
            isAuthenticated = false
            owner.connectionIsToBeCalm(self)
            deliveries.lost(delivery)
        default: deliveries.lost(delivery)
        }
    }

    // MARK: Sending

    /// Once a turn, so that requests made in one turn share a record and a write.
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

    /// A peer that has closed its end may have answered first. An answer left unread would send its push a second time.
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
            if speaksHTTP2 { try encrypt() }
            tls.takeCiphertext(into: &outgoing)
            guard try write() else { return setInterest([.read, .write]) }
            guard speaksHTTP2, http2.wantsWrite, tls.state == .established else { break }
        }
        // nghttp2 found fault with the peer, and has told it so.
        if speaksHTTP2, http2.isFinished { throw isRetired && flights.isEmpty ? .finished : .protocolFailure }
        setInterest(.read)
    }

    private var speaksHTTP2: Bool { phase == .settling || phase == .ready }

    /// Moves what HTTP/2 has to say into TLS; the bytes in between hold tokens and are wiped.
    private func encrypt() throws(ConnectionEnd) {
        guard tls.state == .established else { return }
        defer {
            var span = requests.mutableSpan
            Sodium.wipe(&span)
            requests.removeAll(keepingCapacity: true)
        }
        do { try http2.takeOutbound(into: &requests, limit: Self.requestBytes) } catch { throw .protocolFailure }
        guard !requests.isEmpty else { return }
        do { try tls.send(requests.span) } catch { throw .untrusted(error) }
    }

    /// Whether everything was taken.
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
        let idle = phase == .ready && flights.isEmpty && pingedAt == nil
        timer = loop.after(idle ? timing.idleMs : timing.tickMs) { [unowned self] in tick() }
    }

    private func tick() {
        timer = nil
        let now = loop.now
        switch phase {
        case .ended: return
        case .connecting, .handshaking, .settling:
            if now - startedAt >= timing.connectMs { return end(.timedOut) }
        case .ready:
            if let pingedAt, now - max(pingedAt, lastRead) >= timing.pingMs {
                // The peer may only be slow. A request that is sent elsewhere now could arrive twice, so all keep their deadlines.
                retire(.silent)
                guard phase == .ready else { return }
            }
            giveUpOverdue(now)
            guard phase == .ready else { return }
            if flights.isEmpty, pingedAt == nil, now - lastTraffic >= timing.idleMs { ping(now) }
        }
        setTimer()
    }

    /// Requests without an answer: the peer may be dead, which a PING tells; the push is tried again, here or elsewhere.
    private func giveUpOverdue(_ now: UInt64) {
        for (stream, flight) in flights {
            let waited = now - flight.attempt.startedAt
            if waited >= timing.lateMs, now - lastRead >= timing.lateMs, pingedAt == nil { ping(now) }
            let late = waited >= timing.requestMs
            guard late || now >= flight.delivery.deadline else { continue }
            flights[stream] = nil
            try? http2.reset(stream: stream, .cancel)
            if late { timeoutsInARow += 1 }
            deliveries.lost(flight.delivery)
            guard phase == .ready else { return }
        }
        // It answers PINGs, or does not open its window: another connection may fare better.
        if timeoutsInARow >= Self.mostInARow.timeouts { retire(.unanswering) }
        flushSoon()
        endIfDone()
    }

    private func ping(_ now: UInt64) {
        pingedAt = now
        try? http2.submitPing(now)
        flushSoon()
    }

    // MARK: The end

    private func end(_ cause: ConnectionEnd) {
        guard phase != .ended else { return }
        phase = .ended
        isRetired = true
        if let registration { loop.remove(registration) }
        if let timer { loop.cancel(timer) }
        let unanswered = flights
        flights = [:]
        owner.connectionEnded(self, cause)
        for (stream, flight) in unanswered {
            if stream > lastServed { deliveries.refused(flight.delivery) } else { deliveries.lost(flight.delivery) }
        }
    }
}
