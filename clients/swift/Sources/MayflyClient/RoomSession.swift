import Foundation

/// What happens in a room while this side is present.
public enum RoomEvent: Hashable, Sendable {
    /// This side is present. Comes again after each reconnection. `delivery` says what became of the knock at the other side.
    case joined(peerPresent: Bool, delivery: Delivery)
    case peerJoined
    /// The other side is away. `delivery` says what became of the push to it; nil if it left deliberately.
    case peerLeft(delivery: Delivery?)
    /// The other person has used the join code.
    case peerAccepted
    /// The connection broke, or could not be made. The session tries again by itself, and `joined` follows. ``Client/status(of:)`` says why.
    case disconnected
    /// The last event.
    case ended(Ending)

    public enum Ending: Hashable, Sendable {
        /// Either side closed the room, or its time was over.
        case closed
        /// The room had ended before this side came back.
        case gone
        /// The app called ``RoomSession/leave()``.
        case left
        /// The broker refuses this side for good, the other end is no broker, or this system has no WebSockets.
        case failed(MayflyError)
    }
}

/// This side's presence in a room, as a sequence of events. It lasts from ``Client/join(_:over:)`` to ``leave()`` or the room's end.
///
/// The newest 64 events wait for the loop. The session reconnects by itself. Call ``suspend()`` when the app goes to the background and
/// ``resume()`` when it returns; on iOS `AppLifecycle` does both. The session leaves when the loop over its events ends, also by `break`. Use one loop.
public actor RoomSession: AsyncSequence {
    public typealias Element = RoomEvent

    /// How the broker learns that this side is present.
    public enum Channel: Sendable {
        /// A WebSocket, with events at once. On Linux that needs a libcurl with WebSockets; otherwise the session ends with
        /// ``MayflyError/invalidConfiguration(_:)``.
        case webSocket
        /// A report over HTTP every 30 seconds, for apps with a realtime server of their own. Events come with the reports.
        case reports
    }

    /// Times that tests shorten.
    struct Timing: Sendable {
        var report: Duration = .seconds(30)
        var ping: Duration = .seconds(20)
        var pong: Duration = .seconds(10)
        /// How long a departure may wait for the broker.
        var departure: Duration = .seconds(3)
    }

    public nonisolated let room: Room
    private let client: Client
    private let channel: Channel
    private let timing: Timing
    private nonisolated let events: AsyncStream<RoomEvent>
    private let continuation: AsyncStream<RoomEvent>.Continuation

    /// Whether the app wants to be present.
    private var isWanted = false
    private(set) var hasEnded = false
    /// Whether the app's last event says that this side is present.
    private var isPresent = false
    /// Whether the app's last event says that the connection is lost.
    private var isLost = false
    private var isPeerPresent = false
    private var presence: Task<Void, Never>?
    private var departure: Task<Void, Never>?
    /// Set once `join_room` is sent.
    private var socket: (any WebSocket)?
    private var messages = 0
    private var flood = (count: 0, since: ContinuousClock.now)
    private var backoff = Backoff()

    /// More messages in ten seconds than a room's two sides can cause.
    private static let mostMessages = 100
    /// The most bytes of a broker's message.
    private static let largestMessage = 16_384

    init(_ room: Room, client: Client, channel: Channel, timing: Timing = Timing()) {
        self.room = room
        self.client = client
        self.channel = channel
        self.timing = timing
        (events, continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(64))
        continuation.onTermination = { [weak self] reason in
            guard case .cancelled = reason else { return }
            Task { [weak self] in await self?.leave() }
        }
    }

    public struct AsyncIterator: AsyncIteratorProtocol {
        private var events: AsyncStream<RoomEvent>.Iterator
        private let loop: Loop

        fileprivate init(_ events: AsyncStream<RoomEvent>, of session: RoomSession) {
            (self.events, loop) = (events.makeAsyncIterator(), Loop(session))
        }

        public mutating func next() async -> RoomEvent? { await events.next() }
    }

    /// Leaves when the last copy of an iterator is gone.
    private final class Loop: Sendable {
        private let session: RoomSession

        init(_ session: RoomSession) { self.session = session }

        deinit { Task { [session] in await session.leave() } }
    }

    public nonisolated func makeAsyncIterator() -> AsyncIterator { AsyncIterator(events, of: self) }

    /// Becomes present again after ``suspend()``. Does nothing while the session is present or has ended.
    public func resume() async {
        isWanted = true
        await departure?.value
        guard isWanted, !hasEnded, presence == nil else { return }
        presence = Task { await stayPresent() }
    }

    /// Leaves until ``resume()``, and returns when the broker knows, or after 3 seconds. Over reports it may take 15.
    ///
    /// The other side learns at once that this one is away, and its next arrival is followed by a push.
    public func suspend() async {
        isWanted = false
        if departure == nil, let presence { departure = Task { await depart(presence) } }
        await departure?.value
    }

    /// Leaves for good and ends the sequence. The room goes on: `join` it again whenever its chat opens.
    public func leave() async {
        await suspend()
        finish(.left)
    }

    // MARK: Presence

    /// False once the presence is to end, even if ``resume()`` already waits for a new one.
    private var isStaying: Bool { isWanted && departure == nil && !Task.isCancelled }

    private func stayPresent() async {
        while isStaying {
            let started = ContinuousClock.now
            var retryAfter: Duration?
            do {
                switch channel {
                case .webSocket: try await holdSocket()
                case .reports: try await sendReports()
                }
            } catch {
                guard isStaying else { break }
                retryAfter = (error as? WebSocketRefused)?.response.retryDelay
                switch (error as? WebSocketRefused).map({ MayflyError($0.response) }) ?? error as? MayflyError {
                case .refused(let refusal) where refusal.kind == .exhausted: retryAfter = refusal.retryAfter
                case .refused(let refusal): finish(refusal.kind == .gone ? .gone : .failed(.refused(refusal)))
                // A proxy whose broker is down for a moment.
                case .unexpectedAnswer(status: 408), .unexpectedAnswer(status: 429), .unexpectedAnswer(status: 500...): break
                case .unexpectedAnswer(let status): finish(.failed(.unexpectedAnswer(status: status)))
                case .invalidConfiguration(let why): finish(.failed(.invalidConfiguration(why)))
                case .unreachable, .noAnswer, nil: break
                }
            }
            guard isStaying else { break }
            if !isLost { continuation.yield(.disconnected) }
            isLost = true
            // A broker that takes connections and drops them at once must not be joined twice a second.
            if isPresent, started.duration(to: .now) > .seconds(5) { backoff.reset() }
            isPresent = false
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
            try? await socket.send(#"{"type":"leave_room"}"#)
            await presence.value
            limit.cancel()
        } else {
            // It connects or waits. Don't wait for it: a socket that it opens after this it closes by itself.
            presence.cancel()
        }
        if channel == .reports {
            await presence.value
            if isPresent {
                var hasty = client
                hasty.patience = timing.departure
                _ = try? await hasty.reportPresence(in: room, leaving: true)
            }
        }
        isPresent = false
        self.presence = nil
        departure = nil
    }

    private func finish(_ ending: RoomEvent.Ending) {
        guard !hasEnded else { return }
        hasEnded = true
        isWanted = false
        continuation.yield(.ended(ending))
        continuation.finish()
    }

    // MARK: Over a WebSocket

    private struct Join: Encodable {
        let type = "join_room"
        let roomid: Secret
        let client: Secret
        let member: Secret
    }

    private struct Kind: Decodable { let type: String }

    private struct Joined: Decodable {
        let expiresAt: Date
        let peerPresent: Bool
        let delivery: Delivery
    }

    private struct Left: Decodable { let delivery: Delivery? }

    private struct Refused: Decodable {
        let code: String
        let error: String
        let retryAfterSeconds: Double?
    }

    private func holdSocket() async throws {
        let socket = try await client.transport.connect(client.socketURL)
        let join = try JSONEncoder().encode(Join(roomid: room.roomID, client: room.clientID, member: room.member))
        do {
            try Task.checkCancellation()
            try await socket.send(String(decoding: join, as: UTF8.self))
            try Task.checkCancellation()
            self.socket = socket
            let keepAlive = Task { await watch(socket) }
            defer {
                self.socket = nil
                keepAlive.cancel()
            }
            while !hasEnded {
                let text = try await socket.receive()
                messages += 1
                try take(text)
            }
        } catch {
            await socket.close(code: 1000)
            throw error
        }
        await socket.close(code: 1000)
    }

    /// Reads a message of a known type. A later broker may have others.
    /// - Throws: ``MayflyError/unexpectedAnswer(status:)`` if no broker sends this.
    private func take(_ text: String) throws {
        if flood.since.duration(to: .now) > .seconds(10) { flood = (0, .now) }
        flood.count += 1
        guard flood.count <= Self.mostMessages, text.utf8.count <= Self.largestMessage else { throw Self.notMayfly }
        let message = Data(text.utf8)
        switch try read(Kind.self, message).type {
        case "joined":
            let joined = try read(Joined.self, message)
            (isPresent, isLost) = (true, false)
            continuation.yield(.joined(peerPresent: joined.peerPresent, delivery: joined.delivery))
        case "peer_joined": continuation.yield(.peerJoined)
        case "peer_left": continuation.yield(.peerLeft(delivery: try read(Left.self, message).delivery))
        case "peer_accepted": continuation.yield(.peerAccepted)
        case "room_closed": finish(.closed)
        case "error":
            let refused = try read(Refused.self, message)
            guard
                let refusal = Refusal(
                    refused.code, refused.error, retryAfter: refused.retryAfterSeconds.map { .retry(afterSeconds: $0) })
            else { throw Self.notMayfly }
            throw MayflyError.refused(refusal)
        default: break
        }
    }

    private static let notMayfly = MayflyError.unexpectedAnswer(status: 101)

    private func read<Message: Decodable>(_ type: Message.Type, _ data: Data) throws -> Message {
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        guard let message = try? decoder.decode(type, from: data) else { throw Self.notMayfly }
        return message
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

    // MARK: Over reports

    private func sendReports() async throws {
        while isStaying {
            let delivery = try await client.reportPresence(in: room)
            try Task.checkCancellation()
            let isPeerHere = delivery == .peerPresent
            if !isPresent {
                continuation.yield(.joined(peerPresent: isPeerHere, delivery: delivery))
            } else if isPeerHere != isPeerPresent {
                continuation.yield(isPeerHere ? .peerJoined : .peerLeft(delivery: delivery))
            }
            (isPresent, isPeerPresent, isLost) = (true, isPeerHere, false)
            try await Task.sleep(for: timing.report)
        }
    }
}

extension Client {
    /// Makes this side present in a room, and returns its session at once. Iterate over the session for its events.
    public func join(_ room: Room, over channel: RoomSession.Channel = .webSocket) async -> RoomSession {
        let session = RoomSession(room, client: self, channel: channel)
        await session.resume()
        return session
    }
}
