import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

/// Collects a session's events.
actor Listener {
    private var events: [RoomEvent] = []
    private(set) var hasEnded = false
    private var task: Task<Void, Never>?

    init(_ session: RoomSession) async {
        task = Task {
            for await event in session { add(event) }
            end()
        }
    }

    private func add(_ event: RoomEvent) { events.append(event) }
    private func end() { hasEnded = true }
    func cancel() { task?.cancel() }

    /// Removes the events up to the first one that fits, and returns those before it.
    @discardableResult
    func wait(for wanted: RoomEvent) async throws -> [RoomEvent] {
        try await eventually("\(wanted) in \(events)") { take(wanted) }
    }

    private func take(_ wanted: RoomEvent) -> [RoomEvent]? {
        guard let index = events.firstIndex(of: wanted) else { return nil }
        defer { events.removeFirst(index + 1) }
        return Array(events[..<index])
    }

    var unread: [RoomEvent] { events }
}

/// Presence in a room, against a real broker.
@Suite(.timeLimit(.minutes(1)))
struct SessionTests {
    private let broker = TestBroker.shared

    private func join(_ room: Room, _ transport: any Transport = SocketTransport()) async throws -> (RoomSession, Listener) {
        // Long, so that a departure that waits for this limit fails the test.
        var timing = ConnectionTiming()
        timing.departure = .seconds(120)
        let session = RoomSession(room, client: try broker.client(transport), channel: .webSocket, timing: timing)
        await session.resume()
        return (session, await Listener(session))
    }

    @Test func eventsOfARoomFromCreateToClose() async throws {
        let client = try broker.client()
        let code = JoinCode.random()
        let created = try await client.createRoom(code: code)
        let (creator, heard) = try await join(created)
        #expect(try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken)) == [])
        let joined = try await client.acceptRoom(code: code)
        #expect(try await heard.wait(for: .peerAccepted) == [])
        let (joiner, others) = try await join(joined)
        #expect(try await others.wait(for: .joined(peerPresent: true, delivery: .peerPresent)) == [])
        #expect(try await heard.wait(for: .peerJoined) == [])
        await joiner.leave()
        #expect(try await others.wait(for: .ended(.left)) == [])
        #expect(try await heard.wait(for: .peerLeft(delivery: nil)) == [])
        try await client.close(joined)
        #expect(try await heard.wait(for: .ended(.closed)) == [])
        try await eventually { await heard.hasEnded ? true : nil }
        // Nothing follows, and nothing can be resumed.
        await creator.resume()
        await creator.leave()
        #expect(await heard.unread == [])
    }

    @Test func backgroundAndForeground() async throws {
        let token = PushToken.random()
        let (created, joined) = try await broker.room((token, nil))
        let (creator, heard) = try await join(created)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        let (_, others) = try await join(joined)
        try await others.wait(for: .joined(peerPresent: true, delivery: .peerPresent))

        await creator.suspend()
        // A deliberate leave is heard at once, and rings nobody.
        #expect(try await others.wait(for: .peerLeft(delivery: nil)) == [])
        await creator.resume()
        try await heard.wait(for: .joined(peerPresent: true, delivery: .peerPresent))
        #expect(try await others.wait(for: .peerJoined) == [])
        #expect(try await broker.pushes(to: token).isEmpty)
        // Several calls at once end as the last one says.
        async let first: Void = creator.suspend()
        async let second: Void = creator.suspend()
        _ = await (first, second)
        #expect(try await others.wait(for: .peerLeft(delivery: nil)) == [])
        await creator.resume()
        await creator.resume()
        #expect(try await others.wait(for: .peerJoined) == [])
        await creator.leave()
        try await heard.wait(for: .ended(.left))
    }

    /// The main story: iOS suspends the creator's app, whose socket stays open. The joiner comes, and the creator's phone gets a push.
    @Test func aSuspendedAppGetsAPush() async throws {
        let token = PushToken.random()
        let (created, joined) = try await broker.room((token, nil))
        let frozen = SocketTransport()
        let (creator, heard) = try await join(created, frozen)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        // A socket that joined within the last 2 s counts as alive.
        try await Task.sleep(for: .milliseconds(2_200))
        frozen.freeze(true)
        let (joiner, others) = try await join(joined)
        try await others.wait(for: .joined(peerPresent: true, delivery: .peerPresent))
        try await others.wait(for: .peerLeft(delivery: .queued))
        let push = try await broker.push(to: token)
        #expect(RoomNotification(payload: ["roomId": push.payload.roomId!], rooms: [(created, "Ben")])?.nickname == "Ben")
        // The app wakes up: the probe's answer makes it present again.
        frozen.freeze(false)
        try await others.wait(for: .peerJoined)
        await creator.leave()
        await joiner.leave()
    }

    /// A socket that answers pings is proven present, and nobody is rung.
    @Test func aPresentAppGetsNoPush() async throws {
        let token = PushToken.random()
        let (created, joined) = try await broker.room((token, nil))
        let (creator, heard) = try await join(created)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        try await Task.sleep(for: .milliseconds(2_200))
        #expect(try await broker.client().reportPresence(in: joined) == .peerPresent)
        #expect(try await broker.pushes(to: token).isEmpty)
        await creator.leave()
    }

    @Test func aBrokerThatRestartsIsJoinedAgain() async throws {
        let broker = try TestBroker()
        let (created, joined) = try await broker.room()
        let session = try await broker.client().join(created)
        let heard = await Listener(session)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        broker.crash()
        #expect(try await heard.wait(for: .disconnected) == [])
        try broker.start()
        #expect(try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken)) == [])
        #expect(try await broker.client().status(of: joined).creatorPresent)
        await session.leave()
    }

    @Test func roomsThatEndedAndStrangersAreTold() async throws {
        let client = try broker.client()
        let (created, _) = try await broker.room()
        try await client.close(created)
        let (_, heard) = try await join(created)
        #expect(try await heard.wait(for: .ended(.gone)) == [])
        let (room, _) = try await broker.room()
        let (_, stranger) = try await join(.sample(roomID: room.roomID.value))
        let refused = try await eventually { await stranger.unread.first }
        guard case .ended(.failed(.refused(let refusal))) = refused else { throw Failure(description: "\(refused)") }
        #expect(refusal.code == .notAMember)
    }

    @Test func aRoomsTimeEnds() async throws {
        let client = try broker.client()
        let code = JoinCode.random()
        let created = try await client.createRoom(code: code, lifetime: .seconds(10))
        _ = try await client.acceptRoom(code: code)
        let (_, heard) = try await join(created)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        try await heard.wait(for: .ended(.closed))
    }

    @Test func theLoopsTaskEndsThePresence() async throws {
        let (created, joined) = try await broker.room()
        let (_, heard) = try await join(created)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        let (other, others) = try await join(joined)
        try await others.wait(for: .joined(peerPresent: true, delivery: .peerPresent))
        await heard.cancel()
        #expect(try await others.wait(for: .peerLeft(delivery: nil)) == [])
        await other.leave()
    }

    /// The broker is gone without a word: nothing answers, but nothing breaks either.
    @Test func aSilentConnectionIsDropped() async throws {
        let (created, _) = try await broker.room()
        let frozen = SocketTransport()
        var timing = ConnectionTiming()
        (timing.ping, timing.pong) = (.milliseconds(200), .milliseconds(500))
        let session = RoomSession(created, client: try broker.client(frozen), channel: .webSocket, timing: timing)
        await session.resume()
        let heard = await Listener(session)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        frozen.freeze(true)
        #expect(try await heard.wait(for: .disconnected) == [])
        frozen.freeze(false)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        await session.leave()
    }

    @Test func aDeadConnectionDoesNotHoldTheAppUp() async throws {
        let (created, _) = try await broker.room()
        let frozen = SocketTransport()
        var timing = ConnectionTiming()
        timing.departure = .milliseconds(300)
        let session = RoomSession(created, client: try broker.client(frozen), channel: .webSocket, timing: timing)
        await session.resume()
        let heard = await Listener(session)
        try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken))
        frozen.freeze(true)
        await session.suspend()
        await session.leave()
        #expect(try await heard.wait(for: .ended(.left)) == [])
    }

    @Test func refusedConnectionsAreTriedAgain() async throws {
        let (created, _) = try await broker.room()
        let busy = ScriptedTransport(
            connect: { number, url in
                switch number {
                case 1: throw MayflyError.unreachable("test")
                case 2: throw WebSocketRefused(ScriptedTransport.problem(503, "too_many_connections", retryAfter: "1"))
                // `URLSession` shows no body of a refused handshake.
                case 3: throw WebSocketRefused(TransportResponse(status: 503, contentType: nil, retryAfter: "3", body: Data()))
                default: try await SocketTransport().connect(url)
                }
            },
            { _, _ in throw MayflyError.unreachable("test") })
        let started = ContinuousClock.now
        let (session, heard) = try await join(created, busy)
        // The app hears once of tries that fail.
        #expect(try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken)) == [.disconnected])
        #expect(started.duration(to: .now) >= .seconds(4))
        await session.leave()
    }

    @Test func aConnectionThatHangsDoesNotHoldTheAppUp() async throws {
        let (created, joined) = try await broker.room()
        let (opened, open) = AsyncStream.makeStream(of: Void.self)
        let slow = ScriptedTransport(
            connect: { number, url in
                // Not even cancellation ends the first one.
                if number == 1 { await Task.detached { for await _ in opened {} }.value }
                return try await SocketTransport().connect(url)
            },
            { _, _ in throw MayflyError.unreachable("test") })
        let (session, heard) = try await join(created, slow)
        await session.suspend()
        await session.resume()
        #expect(try await heard.wait(for: .joined(peerPresent: false, delivery: .noToken)) == [])
        // The late connection is closed unheard, and the other one stays.
        open.finish()
        let (other, others) = try await join(joined)
        try await others.wait(for: .joined(peerPresent: true, delivery: .peerPresent))
        #expect(try await heard.wait(for: .peerJoined) == [])
        await session.leave()
        #expect(try await others.wait(for: .peerLeft(delivery: nil)) == [])
        await other.leave()
    }

    /// As a hostile server may, or a proxy with a wrong clock. A longer sleep would trap.
    @Test func aWaitIsBounded() {
        #expect(Duration.retry(afterSeconds: .infinity) == .seconds(3600))
        #expect(Duration.retry(afterSeconds: -.infinity) == .seconds(1))
        func delay(_ said: String?) -> Duration? {
            TransportResponse(status: 503, contentType: nil, retryAfter: said, body: Data()).retryDelay
        }
        #expect(delay("9223372036854775807") == .seconds(3600) && delay(String(repeating: "9", count: 400)) == .seconds(3600))
        #expect(delay("0") == .seconds(1) && delay("7") == .seconds(7))
        #expect(delay("Wed, 02 Jan 2130 03:04:05 GMT") == .seconds(3600) && delay("Wed, 02 Jan 2019 03:04:05 GMT") == .seconds(1))
        for said in [nil, "", "soon", "-1", "1.5", "٣", "Wed, 02 Jan 2130"] { #expect(delay(said) == nil, "\(said ?? "")") }
    }

    @Test func aReturnDuringADepartureJoinsAgainAndLeavesAgain() async throws {
        let (created, joined) = try await broker.room()
        let (other, others) = try await join(created)
        try await others.wait(for: .joined(peerPresent: false, delivery: .noToken))
        let slow = ScriptedTransport(
            connect: { SlowlyClosing(socket: try await SocketTransport().connect($1)) },
            { _, _ in throw MayflyError.unreachable("test") })
        let (session, heard) = try await join(joined, slow)
        try await heard.wait(for: .joined(peerPresent: true, delivery: .peerPresent))
        async let departure: Void = session.suspend()
        try await others.wait(for: .peerLeft(delivery: nil))
        await session.resume()
        await departure
        #expect(try await heard.wait(for: .joined(peerPresent: true, delivery: .peerPresent)) == [])
        #expect(try await others.wait(for: .peerJoined) == [])
        await session.suspend()
        #expect(try await others.wait(for: .peerLeft(delivery: nil)) == [])
        await other.leave()
    }

    @Test func aLoopThatBreaksLeaves() async throws {
        let (created, joined) = try await broker.room()
        let (other, others) = try await join(created)
        try await others.wait(for: .joined(peerPresent: false, delivery: .noToken))
        for await event in try await broker.client().join(joined) {
            #expect(event == .joined(peerPresent: true, delivery: .peerPresent))
            break
        }
        try await others.wait(for: .peerLeft(delivery: nil))
        await other.leave()
    }

    @Test func reportsWithoutASocket() async throws {
        let token = PushToken.random()
        let (created, joined) = try await broker.room((nil, token))
        var timing = ConnectionTiming()
        timing.report = .milliseconds(1_100)
        let session = RoomSession(created, client: try broker.client(), channel: .reports, timing: timing)
        await session.resume()
        let heard = await Listener(session)
        #expect(try await heard.wait(for: .joined(peerPresent: false, delivery: .queued)) == [])
        _ = try await broker.push(to: token)
        let (other, others) = try await join(joined)
        try await others.wait(for: .joined(peerPresent: true, delivery: .peerPresent))
        #expect(try await heard.wait(for: .peerJoined) == [])
        // Reports without a change are no events.
        try await Task.sleep(for: .milliseconds(2_500))
        #expect(await heard.unread == [])
        await session.suspend()
        #expect(try await others.wait(for: .peerLeft(delivery: nil)) == [])
        await session.resume()
        #expect(try await others.wait(for: .peerJoined) == [])
        try await heard.wait(for: .joined(peerPresent: true, delivery: .peerPresent))
        try await broker.client().close(joined)
        try await heard.wait(for: .ended(.gone))
        await other.leave()
    }
}

/// A socket whose end shows half a second late.
private struct SlowlyClosing: WebSocket {
    let socket: any WebSocket

    func send(_ text: String) async throws { try await socket.send(text) }

    func receive() async throws -> String {
        do {
            return try await socket.receive()
        } catch {
            try? await Task.sleep(for: .milliseconds(500))
            throw error
        }
    }

    func close(code: Int?) async { await socket.close(code: code) }
}

struct BackoffTests {
    @Test func waitsDoubleToTheLongest() {
        var backoff = Backoff()
        var longest = Duration.milliseconds(500)
        for _ in 0..<10 {
            let wait = backoff.wait()
            #expect(wait >= longest / 2 && wait <= longest)
            longest = min(longest * 2, .seconds(30))
        }
        #expect(backoff.wait(atLeast: .seconds(60)) == .seconds(60))
        backoff.reset()
        #expect(backoff.wait() <= .milliseconds(500))
        // Clients that lost the same broker don't return together.
        #expect(
            Set(
                (0..<20).map { _ in
                    var each = Backoff()
                    return each.wait()
                }
            ).count > 10)
    }
}
