import Foundation

/// A connection to a broker that lasts until the app leaves: ``RoomSession`` or ``SessionFeed``.
public protocol LiveConnection: Sendable {
    /// Connects again after ``suspend()``. Does nothing while it is connected or has ended.
    func resume() async
    /// Disconnects until ``resume()``.
    func suspend() async
    /// Disconnects for good and ends the sequence.
    func leave() async
}

/// What one kind of connection says and hears.
protocol Dialogue: Sendable {
    associatedtype Event: Sendable

    /// The app's event after the connection broke.
    static var disconnected: Event { get }
    /// The app's last event.
    static func ended(_ ending: Ending) -> Event

    var transport: any Transport { get }
    var url: URL { get }
    /// The most messages in ten seconds that a broker sends.
    var mostMessages: Int { get }
    /// Returns the first message, which identifies the caller.
    func opening() async throws -> String
    /// The last message. The broker answers it by closing.
    var farewell: String? { get }
    /// Reads a message of a known type. A later broker may have others.
    func read(_ type: String, _ message: Message) throws -> Heard<Event>
    /// Stays connected until the connection breaks.
    func hold(_ connection: isolated Connection<Self>) async throws
    /// Reports the departure without a socket. Nil if there always is one.
    var departWithoutSocket: (@Sendable () async -> Void)? { get }
}

extension Dialogue {
    var farewell: String? { nil }
    var departWithoutSocket: (@Sendable () async -> Void)? { nil }

    func hold(_ connection: isolated Connection<Self>) async throws { try await connection.holdSocket() }
}

/// Why a connection ends for good.
enum Ending {
    case left
    /// What the connection is about has ended.
    case gone(Refusal)
    case failed(MayflyError)
}

/// What a message means.
enum Heard<Event> {
    /// The broker has accepted the first message.
    case connected(Event)
    case event(Event)
    case ended(Event)
    case nothing
}

/// A broker's message.
struct Message {
    let data: Data

    /// - Throws: ``MayflyError/unexpectedAnswer(status:)`` if no broker sends this.
    func read<Value: Decodable>(_ type: Value.Type) throws -> Value {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        guard let value = try? decoder.decode(type, from: data) else { throw MayflyError.notMayfly }
        return value
    }

    func type() throws -> String {
        struct Kind: Decodable { let type: String }
        return try read(Kind.self).type
    }

    /// Reads a message of the type `error`.
    func refusal() throws -> Refusal {
        struct Refused: Decodable {
            let code: String
            let error: String
            let retryAfterSeconds: Double?
        }
        let refused = try read(Refused.self)
        let retryAfter = refused.retryAfterSeconds.map { Duration.retry(afterSeconds: $0) }
        guard let refusal = Refusal(refused.code, refused.error, retryAfter: retryAfter) else { throw MayflyError.notMayfly }
        return refusal
    }
}

extension MayflyError {
    /// The other end of a socket is no broker.
    static let notMayfly = MayflyError.unexpectedAnswer(status: 101)
}

/// Times that tests shorten.
struct ConnectionTiming: Sendable {
    var report: Duration = .seconds(30)
    var ping: Duration = .seconds(20)
    var pong: Duration = .seconds(10)
    /// How long a departure may wait for the broker.
    var departure: Duration = .seconds(3)
}

/// Connects, reconnects and disconnects as the app wants, and tells it what the broker says.
actor Connection<Script: Dialogue> {
    private let script: Script
    private let timing: ConnectionTiming
    private nonisolated let events: AsyncStream<Script.Event>
    private let continuation: AsyncStream<Script.Event>.Continuation

    /// Whether the app wants to be connected.
    private var isWanted = false
    private(set) var hasEnded = false
    /// Whether the app's last event says that it is connected.
    private var isConnected = false
    /// Whether the app's last event says that the connection is lost.
    private var isLost = false
    private var presence: Task<Void, Never>?
    private var departure: Task<Void, Never>?
    /// Set once the first message is sent.
    private var socket: (any WebSocket)?
    /// What is to be sent once the broker has accepted the first message.
    private var unsent: [Secret] = []
    /// Counts sockets.
    private var connections = 0
    /// The socket, as counted, on which ``sendUnsent()`` runs.
    private var sendingOn: Int?
    private var messages = 0
    private var flood = (count: 0, since: ContinuousClock.now)
    private var backoff = Backoff()

    /// The most bytes of a broker's message.
    private static var largestMessage: Int { 16_384 }
    private static var mostUnsent: Int { 64 }

    init(_ script: Script, timing: ConnectionTiming) {
        self.script = script
        self.timing = timing
        (events, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(64))
        continuation.onTermination = { [weak self] reason in
            guard case .cancelled = reason else { return }
            Task { [weak self] in await self?.leave() }
        }
    }

    nonisolated func makeIterator() -> ConnectionIterator<Script.Event> {
        ConnectionIterator(events.makeAsyncIterator(), leaving: { await self.leave() })
    }

    func resume() async {
        isWanted = true
        await departure?.value
        guard isWanted, !hasEnded, presence == nil else { return }
        presence = Task { await stayConnected() }
    }

    func suspend() async {
        isWanted = false
        if departure == nil, let presence { departure = Task { await depart(presence) } }
        await departure?.value
    }

    func leave() async {
        await suspend()
        finish(Script.ended(.left))
    }

    /// Sends `text` after what waits, once the broker has accepted the first message. Over ``mostUnsent`` the oldest is dropped.
    func send(_ text: String) async {
        guard !hasEnded else { return }
        unsent = unsent.suffix(Self.mostUnsent - 1) + [Secret(text)]
        // A failure also ends `receive`, and the next connection sends what is left.
        try? await sendUnsent()
    }

    /// Sends what waits, in order.
    private func sendUnsent() async throws {
        let connection = connections
        guard let socket, sendingOn != connection else { return }
        sendingOn = connection
        defer { if sendingOn == connection { sendingOn = nil } }
        while isConnected, connections == connection, let next = unsent.first {
            try await socket.send(next.value)
            // It may have been dropped meanwhile.
            if unsent.first == next { unsent.removeFirst() }
        }
    }

    /// False once the connection is to end, even if ``resume()`` already waits for a new one.
    var isStaying: Bool { isWanted && departure == nil && !Task.isCancelled }

    private func stayConnected() async {
        while isStaying {
            let started = ContinuousClock.now
            var retryAfter: Duration?
            do {
                try await script.hold(self)
            } catch {
                guard isStaying else { break }
                retryAfter = (error as? WebSocketRefused)?.response.retryDelay
                switch (error as? WebSocketRefused).map({ MayflyError($0.response) }) ?? error as? MayflyError {
                case .refused(let refusal) where refusal.kind == .exhausted: retryAfter = refusal.retryAfter
                // iOS may suspend the app between the login's answer and the broker's.
                case .refused(let refusal) where refusal.code == .jwtExpired: break
                case .refused(let refusal):
                    finish(Script.ended(refusal.kind == .gone ? .gone(refusal) : .failed(.refused(refusal))))
                // A proxy whose broker is down for a moment.
                case .unexpectedAnswer(status: 408), .unexpectedAnswer(status: 429), .unexpectedAnswer(status: 500...): break
                case .unexpectedAnswer(let status): finish(Script.ended(.failed(.unexpectedAnswer(status: status))))
                case .invalidConfiguration(let why): finish(Script.ended(.failed(.invalidConfiguration(why))))
                case .unreachable, .noAnswer, nil: break
                }
            }
            guard isStaying else { break }
            if !isLost { continuation.yield(Script.disconnected) }
            isLost = true
            // A broker that accepts connections and drops them at once must not be called twice a second.
            if isConnected, started.duration(to: .now) > .seconds(5) { backoff.reset() }
            isConnected = false
            try? await Task.sleep(for: backoff.wait(atLeast: retryAfter))
        }
    }

    private func depart(_ presence: Task<Void, Never>) async {
        if let socket {
            // The broker answers with a close frame, so the presence ends when it knows. A dead connection is given up.
            let limit = Task {
                try await Task.sleep(for: timing.departure)
                await socket.close(code: nil)
            }
            if let farewell = script.farewell { try? await socket.send(farewell) } else { await socket.close(code: 1000) }
            await presence.value
            limit.cancel()
        } else {
            // It connects or waits. Don't wait for it: a socket that it opens after this it closes by itself.
            presence.cancel()
        }
        if let departWithoutSocket = script.departWithoutSocket {
            await presence.value
            if isConnected { await departWithoutSocket() }
        }
        isConnected = false
        unsent = []
        self.presence = nil
        departure = nil
    }

    private func finish(_ last: Script.Event) {
        guard !hasEnded else { return }
        hasEnded = true
        isWanted = false
        continuation.yield(last)
        continuation.finish()
    }

    // MARK: Over a WebSocket

    /// Connects, and reads until the connection breaks or ends.
    func holdSocket() async throws {
        let opening = try await script.opening()
        let socket = try await script.transport.connect(script.url)
        do {
            try Task.checkCancellation()
            try await socket.send(opening)
            try Task.checkCancellation()
            self.socket = socket
            connections += 1
            let keepAlive = Task { await watch(socket) }
            defer {
                self.socket = nil
                keepAlive.cancel()
            }
            while !hasEnded {
                let text = try await socket.receive()
                messages += 1
                try take(text)
                try await sendUnsent()
            }
        } catch {
            await socket.close(code: 1000)
            throw error
        }
        await socket.close(code: 1000)
    }

    private func take(_ text: String) throws {
        if flood.since.duration(to: .now) > .seconds(10) { flood = (0, .now) }
        flood.count += 1
        guard flood.count <= script.mostMessages, text.utf8.count <= Self.largestMessage else { throw MayflyError.notMayfly }
        let message = Message(data: Data(text.utf8))
        switch try script.read(message.type(), message) {
        case .connected(let event): noteConnected(event)
        case .event(let event): continuation.yield(event)
        case .ended(let event): finish(event)
        case .nothing: break
        }
    }

    /// Drops a connection on which the broker says nothing. Its own pings don't show here, since transports answer them unseen.
    private func watch(_ socket: any WebSocket) async {
        while !Task.isCancelled {
            try? await Task.sleep(for: timing.ping)
            let heard = messages
            try? await socket.send(#"{"type":"ping"}"#)
            try? await Task.sleep(for: timing.pong)
            if messages == heard, !Task.isCancelled { return await socket.close(code: nil) }
        }
    }

    // MARK: Without a socket

    /// Reports presence for a channel without a socket.
    ///
    /// - Parameters:
    ///   - event: the app's event if it was not connected.
    ///   - news: the app's event if it was connected.
    func report(_ event: Script.Event, ifConnected news: Script.Event?) {
        guard isConnected else { return noteConnected(event) }
        if let news { continuation.yield(news) }
    }

    private func noteConnected(_ event: Script.Event) {
        (isConnected, isLost) = (true, false)
        continuation.yield(event)
    }
}

/// The events of a connection. The connection leaves when the last copy of the iterator is gone.
public struct ConnectionIterator<Event: Sendable>: AsyncIteratorProtocol {
    private final class Loop: Sendable {
        private let leave: @Sendable () async -> Void

        init(_ leave: @escaping @Sendable () async -> Void) { self.leave = leave }

        deinit { Task { [leave] in await leave() } }
    }

    private var events: AsyncStream<Event>.Iterator
    private let loop: Loop

    init(_ events: AsyncStream<Event>.Iterator, leaving leave: @escaping @Sendable () async -> Void) {
        (self.events, loop) = (events, Loop(leave))
    }

    public mutating func next() async -> Event? { await events.next() }
}
