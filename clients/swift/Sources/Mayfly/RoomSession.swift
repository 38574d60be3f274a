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
    /// The connection broke. The session reconnects by itself, and `joined` follows.
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
        /// The broker doesn't let this side in.
        case refused(Refusal)
    }
}

/// This side's presence in a room, as a sequence of events. It lasts from ``Client/join(_:over:)`` to ``leave()`` or the room's end.
///
/// The session reconnects by itself. Call ``suspend()`` when the app goes to the background and ``resume()`` when it returns; on iOS
/// `AppLifecycle` does both. The session leaves when the loop over its events ends, also by `break`. Use one loop.
public actor RoomSession: AsyncSequence {
    public typealias Element = RoomEvent

    /// How the broker learns that this side is present.
    public enum Channel: Sendable {
        /// A WebSocket, with events at once.
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
    private var hasEnded = false
    /// Whether the app's last event says that this side is present.
    private var isPresent = false
    private var isPeerPresent = false
    private var presence: Task<Void, Never>?
    private var departure: Task<Void, Never>?
    /// Set once `join_room` is sent.
    private var socket: (any WebSocket)?
    private var messages = 0
    private var backoff = Backoff()

    init(_ room: Room, client: Client, channel: Channel, timing: Timing = Timing()) {
        self.room = room
        self.client = client
        self.channel = channel
        self.timing = timing
        (events, continuation) = AsyncStream.makeStream()
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
                if let refusal = Self.refusal(of: error) {
                    guard refusal.kind == .exhausted else {
                        finish(refusal.kind == .gone ? .gone : .refused(refusal))
                        break
                    }
                    retryAfter = refusal.retryAfter
                }
            }
            guard isStaying else { break }
            if isPresent { continuation.yield(.disconnected) }
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

    /// Returns nil if another try may succeed.
    private static func refusal(of error: any Error) -> Refusal? {
        switch error {
        case let error as MayflyError: error.refusal
        case let error as WebSocketRefused: MayflyError(error.response).refusal
        default: nil
        }
    }

    // MARK: Over a WebSocket

    private struct Join: Encodable {
        let type = "join_room"
        let roomid: Secret
        let client: Secret
        let member: Secret
    }

    private struct Message: Decodable {
        let type: String
        let peerPresent: Bool?
        let delivery: Delivery?
        let code: String?
        let error: String?
        let retryAfterSeconds: Int64?
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

    private func take(_ text: String) throws {
        guard let message = try? JSONDecoder().decode(Message.self, from: Data(text.utf8)) else { return }
        switch message.type {
        case "joined":
            isPresent = true
            continuation.yield(.joined(peerPresent: message.peerPresent ?? false, delivery: message.delivery ?? .none))
        case "peer_joined": continuation.yield(.peerJoined)
        case "peer_left": continuation.yield(.peerLeft(delivery: message.delivery))
        case "peer_accepted": continuation.yield(.peerAccepted)
        case "room_closed": finish(.closed)
        case "error":
            throw MayflyError.refused(
                Refusal(
                    code: ErrorCode(message.code ?? ""), detail: message.error ?? "", field: nil,
                    retryAfter: message.retryAfterSeconds.map { .retry(afterSeconds: $0) }))
        default: break
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
            (isPresent, isPeerPresent) = (true, isPeerHere)
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
