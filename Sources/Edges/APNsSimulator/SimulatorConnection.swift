import EventLoop
import HTTP2
import Linux
import TLS

/// The connection of a client: its socket, TLS, HTTP and incomplete requests.
final class SimulatorConnection: EventSource {
    private let socket: Socket
    unowned let service: PushService
    let tls: TLSSession
    let http: HTTP2Session
    /// The state of an HTTP/1.1 connection. Nil for HTTP/2.
    var http1: HTTP1State?
    var session = Rules.Session()
    var requests = ArrivingRequests()

    /// Streams whose answers are being dribbled.
    var shaped: Set<Int32> = []
    /// Streams whose resets must not be sent. Their answers bypassed nghttp2.
    var quietResets: Set<Int32> = []
    /// Whole frames to send before the session's next output.
    var staged: [UInt8] = []
    /// Ids of accepted pushes whose answers aren't written yet. Only used for the record.
    var unanswered: [[UInt8]] = []

    private var registration: Registration?
    /// The last stream of a GOAWAY. Later ones are ignored.
    var lastStream = Int32.max
    /// The client's limit of open streams, and whether a fault has set it.
    var streams: UInt32 = 1
    var isPinned = false
    var isGreeted = false
    /// Closes the connection after the pending output.
    var ends = false
    /// An endless header block is being sent. Nothing else may be sent before its end.
    var isFlooding = false
    private(set) var isStalled = false
    private var isPaused = false
    private var interest = Events.read
    private var handshakeTimer: TimerID?
    private var ciphertext: [UInt8] = []
    /// How many bytes of `ciphertext` are written.
    private var written = 0
    private var isLingering = false
    private(set) var isClosed = false

    /// Ours: Apple documents no timeout.
    private static let handshakeMs: UInt64 = 10_000
    private static let lingerMs: UInt64 = 2000

    init(_ socket: consuming Socket, service: PushService) throws {
        self.socket = socket
        self.service = service
        tls = try TLSSession(accepting: service.tls)
        // One stream until a provider token is verified.
        var limits = HTTP2Limits(bodyBytes: PushType.voip.payloadLimit, concurrentStreams: 1)
        // Faults reset thousands of streams and cause as many acknowledgements. The client isn't to blame.
        limits.wastedStreams = .max
        limits.controlFrames = .max
        http = try HTTP2Session(.server, limits: limits)
    }

    func start() {
        do throws(Errno) {
            registration = try service.loop.add(socket.raw, .read, self)
        } catch {
            close()
            return
        }
        handshakeTimer = service.loop.after(Self.handshakeMs) { [weak self] in self?.close() }
    }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        if let registration { service.loop.remove(registration) }
        if let handshakeTimer { service.loop.cancel(handshakeTimer) }
        service.forget(self)
    }

    func ready(_ events: Events) {
        if isStalled || isPaused {
            // epoll reports these events always and repeatedly.
            if !events.isDisjoint(with: [.hangup, .failure]) { close() }
            return
        }
        do {
            if !events.isDisjoint(with: [.read, .hangup, .failure]) { try receive() }
            try flush()
        } catch {
            // A pending TLS alert or GOAWAY may still be written.
            try? writeOut()
            close()
        }
    }

    private func receive() throws {
        // A span must not outlive the access to a class's property, so the buffers become locals.
        var input = exchange(&service.input, with: [])
        defer { service.input = input }
        var plaintext = exchange(&service.plaintext, with: [])
        defer { service.plaintext = plaintext }

        var room = input.mutableSpan
        guard let count = try socket.read(into: &room) else { return }
        guard count > 0 else { return close() }
        if isLingering { return }
        plaintext.removeAll(keepingCapacity: true)
        try tls.receive(input.span.extracting(0..<count), into: &plaintext)
        if tls.state != .handshaking, let timer = handshakeTimer {
            service.loop.cancel(timer)
            handshakeTimer = nil
        }
        if tls.state == .established, !isGreeted { greet() }
        if http1 != nil {
            receiveHTTP1(plaintext)
        } else if !plaintext.isEmpty {
            try http.receive(plaintext.span)
            handleEvents()
        }
        if tls.state == .closed { close() }
    }

    /// Writes the session's output until the socket would block. Reading continues when everything is written.
    private func flush() throws {
        guard !isClosed, !isStalled, !isPaused else { return }
        // The record must be written before the answers.
        try service.record?.write()
        var outbound = exchange(&service.plaintext, with: [])
        defer { service.plaintext = outbound }
        repeat {
            outbound.removeAll(keepingCapacity: true)
            if tls.state == .established {
                if staged.isEmpty { try takeOutbound(into: &outbound, limit: 1 << 16) } else { swap(&outbound, &staged) }
                if !outbound.isEmpty { try tls.send(outbound.span) }
                if http.isFinished, staged.isEmpty { tls.close() }
            }
            tls.takeCiphertext(into: &ciphertext)
            try writeOut()
        } while ciphertext.isEmpty && !outbound.isEmpty
        guard ciphertext.isEmpty else { return wait(for: .write) }
        if !unanswered.isEmpty { recordAnswered() }
        if ends || tls.state == .established && http.isFinished { linger() }
        wait(for: .read)
    }

    /// Returns the session's output without the resets of `quietResets`.
    func takeOutbound(into buffer: inout [UInt8], limit: Int = .max) throws {
        guard http1 == nil, !isFlooding else { return }
        try http.takeOutbound(into: &buffer, limit: limit)
        if !quietResets.isEmpty { AnswerFrames.dropResets(of: &quietResets, from: &buffer) }
    }

    /// True if everything that was staged is written.
    var isDrained: Bool { staged.isEmpty && ciphertext.isEmpty }

    private func recordAnswered() {
        for id in unanswered { service.record?.answered(id) }
        unanswered = []
        try? service.record?.write()
    }

    /// Waits for the client to close. Closing with unread bytes would reset the connection and could lose the last output.
    private func linger() {
        guard !isLingering else { return }
        isLingering = true
        socket.finishWriting()
        service.loop.after(Self.lingerMs) { [weak self] in self?.close() }
    }

    private func writeOut() throws {
        var bytes = exchange(&ciphertext, with: [])
        defer { ciphertext = bytes }
        while written < bytes.count {
            guard let count = try socket.write(bytes.span.extracting(written..<bytes.count)) else { return }
            written += count
        }
        bytes.removeAll(keepingCapacity: true)
        written = 0
    }

    /// Reads and writes nothing more.
    func stall() {
        isStalled = true
        if let registration { service.loop.modify(registration, []) }
    }

    /// Reads and writes nothing for a while.
    func pause(_ ms: UInt64) {
        guard !isPaused, !isStalled, let registration else { return }
        isPaused = true
        interest = []
        service.loop.modify(registration, [])
        service.loop.after(ms) { [weak self] in
            guard let self, !isClosed, !isStalled else { return }
            isPaused = false
            wait(for: .read)
            ready([])
        }
    }

    private func wait(for events: Events) {
        guard events != interest, let registration else { return }
        interest = events
        service.loop.modify(registration, events)
    }
}
