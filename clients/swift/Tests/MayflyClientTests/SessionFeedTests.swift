import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

/// The sessions' socket, against a real broker.
@Suite(.timeLimit(.minutes(1)))
struct SessionFeedTests {
    private let broker = TestBroker.shared
    private let user = "user-\(UUID().uuidString)"

    /// Collects news.
    private actor Reader {
        private var news: [SessionNews] = []

        init(_ feed: SessionFeed) async { Task { for await one in feed { add(one) } } }

        private func add(_ one: SessionNews) { news.append(one) }

        /// Waits for the oldest news.
        func next() async throws -> SessionNews {
            try await eventually("news") { news.isEmpty ? nil : news.removeFirst() }
        }

        func expectConnected(_ location: SourceLocation = #_sourceLocation) async throws {
            let one = try await next()
            guard case .connected(let end) = one else { throw Failure(description: "\(one) instead of connected") }
            #expect(end > .now.addingTimeInterval(-60), sourceLocation: location)
        }

        var unread: [SessionNews] { news }
    }

    @Test func newsOfAUser() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let feed = await accounts.followSessions()
        let reader = await Reader(feed)
        try await reader.expectConnected()

        let asked = try await backEnd.report(.approvalRequest(), in: "s", of: user)
        let first = try #require(asked.requestID)
        #expect(try await reader.next() == .approvalRequested(requestID: first, sessionID: "s", expiresAt: asked.expiresAt!))
        #expect(try await accounts.respond(to: first, approved: true))
        #expect(try await reader.next() == .approvalAnswered(requestID: first, sessionID: "s", approved: true))
        let second = try #require(try await backEnd.report(.approvalRequest(), in: "s", of: user).requestID)
        _ = try await reader.next()
        try await backEnd.clearApproval(second)
        #expect(try await reader.next() == .approvalOver(requestID: second, sessionID: "s", isWithdrawn: true))
        let todo = TodoProgress(completed: 1, total: 2)
        try await backEnd.report(.progress(elapsed: .seconds(7), todo: todo), in: "s", of: user)
        #expect(try await reader.next() == .progress(sessionID: "s", elapsed: .seconds(7), todo: todo))
        try await backEnd.report(.state(.idle, from: .processing), in: "s", of: user)
        #expect(try await reader.next() == .stateChanged(sessionID: "s", from: .processing, to: .idle))

        await feed.leave()
        #expect(try await reader.next() == .ended(.left))
        #expect(await reader.unread == [])
    }

    @Test func theBackEndThatAskedGetsTheAnswer() async throws {
        let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
        let feed = await backEnd.followSessions()
        let reader = await Reader(feed)
        try await reader.expectConnected()
        let requestID = try #require(try await backEnd.report(.approvalRequest(), in: "s", of: user).requestID)
        #expect(try await accounts.respond(to: requestID, approved: false))
        // Other tests ask as the same back end.
        try await eventually("the answer") {
            try await reader.next() == .approvalAnswered(requestID: requestID, sessionID: "s", approved: false) ? true : nil
        }
        await feed.leave()
    }

    @Test func theClientBeforeIsToldOfAHandoff() async throws {
        let accounts = try broker.accounts(user)
        let token = PushToken.random()
        let phone = try await accounts.registerDevice(token)
        let feed = SessionFeed(accounts)
        // It waits for the connection.
        await feed.claim("s", device: "my-phone", token: token)
        await feed.resume()
        let reader = await Reader(feed)
        try await reader.expectConnected()
        // News come after the claim that was sent before.
        try await accounts.report(.state(.idle), in: "s")
        #expect(try await reader.next() == .stateChanged(sessionID: "s", from: nil, to: .idle))
        await feed.claim("s", device: "my-mac", type: .desktop)
        let payload = try await broker.payload(to: token)
        let handoff = try #require(CompanionNotification(payload: payload, sessions: phone.table(.session, ["s"])))
        #expect(handoff.kind == .handoff(to: .desktop))
        #expect(handoff.sessionID == "s" && !handoff.isClearing)

        await feed.claim("s", device: "", type: .web)
        guard case .claimRefused(let refusal) = try await reader.next() else { throw Failure(description: "no refusal") }
        #expect(refusal.code == .outOfRange)
        await feed.claim("s", device: "my-mac", of: "another")
        guard case .claimRefused(let second) = try await reader.next() else { throw Failure(description: "no refusal") }
        #expect(second.code == .anotherUser)
        await feed.leave()
    }

    @Test func backgroundAndForeground() async throws {
        let accounts = try broker.accounts(user)
        let feed = await accounts.followSessions()
        let reader = await Reader(feed)
        try await reader.expectConnected()
        await feed.suspend()
        try await accounts.report(.state(.idle), in: "s")
        await feed.resume()
        try await reader.expectConnected()
        try await accounts.report(.state(.error), in: "s")
        let after = try await reader.next()
        #expect(after == .stateChanged(sessionID: "s", from: nil, to: .error))
        await feed.leave()
        await feed.resume()
        #expect(try await reader.next() == .ended(.left))
        #expect(await reader.unread == [])
    }

    @Test func aClaimThatWaitsIsDroppedInTheBackground() async throws {
        let transport = ScriptedTransport(
            connect: { number, url in
                if number == 1 { throw MayflyError.unreachable("test") }
                return try await SocketTransport().connect(url)
            },
            { _, request in try await SocketTransport().send(request) })
        let accounts = try broker.accounts(user, transport)
        let feed = await accounts.followSessions()
        let reader = await Reader(feed)
        #expect(try await reader.next() == .disconnected)
        // It would be refused.
        await feed.claim("s", device: "", type: .web)
        await feed.suspend()
        await feed.resume()
        try await reader.expectConnected()
        try await accounts.report(.state(.error), in: "s")
        #expect(try await reader.next() == .stateChanged(sessionID: "s", from: nil, to: .error))
        await feed.leave()
    }

    /// Lets claims through, holds them, or breaks them off.
    private actor Gate {
        private var isOpen = false
        private var error: (any Error)?
        /// The devices of the claims that came, also of those that wait.
        private(set) var devices: [String] = []

        func open(failing error: (any Error)? = nil) { (isOpen, self.error) = (true, error) }

        func pass(_ device: String) async throws {
            devices.append(device)
            while !isOpen { try await Task.sleep(for: .milliseconds(5)) }
            let error = self.error
            self.error = nil
            if let error { throw error }
        }
    }

    private struct GatedSocket: WebSocket {
        let socket: any WebSocket
        let gate: Gate

        func send(_ text: String) async throws {
            struct Claim: Decodable { let deviceId: String }
            let claim = try? JSONDecoder().decode(Claim.self, from: Data(text.utf8))
            if let claim { try await gate.pass(claim.deviceId) }
            try await socket.send(text)
        }

        func receive() async throws -> String { try await socket.receive() }
        func close(code: Int?) async { await socket.close(code: code) }
    }

    private func accounts(_ gate: Gate) throws -> Accounts {
        let transport = ScriptedTransport(
            connect: { _, url in GatedSocket(socket: try await SocketTransport().connect(url), gate: gate) },
            { _, request in try await SocketTransport().send(request) })
        return try broker.accounts(user, transport)
    }

    /// The socket closes under a claim.
    @Test func aClaimOnItsWayIsDroppedInTheBackground() async throws {
        let gate = Gate()
        let accounts = try accounts(gate)
        let feed = await accounts.followSessions()
        let reader = await Reader(feed)
        try await reader.expectConnected()
        // It would be refused.
        let claim = Task { await feed.claim("s", device: "", type: .web) }
        try await eventually("a claim") { await gate.devices.isEmpty ? nil : true }
        await feed.suspend()
        await gate.open(failing: MayflyError.noAnswer("test"))
        await claim.value
        await feed.resume()
        try await reader.expectConnected()
        try await accounts.report(.state(.error), in: "s")
        #expect(try await reader.next() == .stateChanged(sessionID: "s", from: nil, to: .error))
        #expect(await gate.devices == [""])
        await feed.leave()
    }

    @Test func claimsKeepTheirOrder() async throws {
        let gate = Gate()
        let feed = SessionFeed(try accounts(gate))
        for device in ["1", "2"] { await feed.claim("s", device: device) }
        await feed.resume()
        let reader = await Reader(feed)
        try await reader.expectConnected()
        try await eventually("a claim") { await gate.devices.isEmpty ? nil : true }
        let third = Task { await feed.claim("s", device: "3") }
        try await Task.sleep(for: .milliseconds(200))
        await gate.open()
        await third.value
        try await eventually("all claims") { await gate.devices.count == 3 ? true : nil }
        #expect(await gate.devices == ["1", "2", "3"])
        await feed.leave()
    }

    @Test func aBrokerThatRestartsIsJoinedAgain() async throws {
        let broker = try TestBroker()
        let reader = await Reader(try await broker.accounts(user).followSessions())
        try await reader.expectConnected()
        broker.crash()
        #expect(try await reader.next() == .disconnected)
        try broker.start()
        try await reader.expectConnected()
    }

    @Test func eachConnectionHasItsOwnJWT() async throws {
        // The broker accepts a JWT for 30 more seconds. Then it closes.
        let jwts = JWTs([nil, try broker.jwt(user)])
        let accounts = Accounts(client: try broker.client()) { [broker, user] in
            try await jwts.nextIfAny() ?? broker.jwt(user, until: .now.addingTimeInterval(-20))
        }
        let feed = await accounts.followSessions()
        let reader = await Reader(feed)
        try await reader.expectConnected()
        #expect(try await reader.next() == .disconnected)
        try await reader.expectConnected()
        await feed.leave()
    }

    @Test func aLoginThatFailsIsAskedAgain() async throws {
        let jwts = JWTs([nil, nil, try broker.jwt(user)])
        let accounts = Accounts(client: try broker.client()) { try await jwts.next() }
        let feed = await accounts.followSessions()
        let reader = await Reader(feed)
        // The app hears once of tries that fail.
        #expect(try await reader.next() == .disconnected)
        try await reader.expectConnected()
        await feed.leave()
    }

    @Test func anExpiredJWTIsReplaced() async throws {
        let jwts = JWTs([try broker.jwt(user, until: Date(timeIntervalSince1970: 1_000_000_000)), try broker.jwt(user)])
        let feed = await Accounts(client: try broker.client()) { try await jwts.next() }.followSessions()
        let reader = await Reader(feed)
        #expect(try await reader.next() == .disconnected)
        try await reader.expectConnected()
        await feed.leave()
    }

    @Test func aRefusedJWTEndsTheFeed() async throws {
        let reader = await Reader(await Accounts(client: try broker.client()) { "x.y.z" }.followSessions())
        let last = try await reader.next()
        guard case .ended(.failed(.refused(let refusal))) = last else { throw Failure(description: "\(last)") }
        #expect(refusal.code == .invalidJWT && refusal.kind == .unauthorized)
    }

    @Test func tooManySocketsAreWaitedOut() async throws {
        let accounts = try broker.accounts(user)
        var feeds: [SessionFeed] = []
        for _ in 0..<64 {
            feeds.append(await accounts.followSessions())
            try await Reader(feeds.last!).expectConnected()
        }
        let feed = await accounts.followSessions()
        let reader = await Reader(feed)
        #expect(try await reader.next() == .disconnected)
        await feeds[0].leave()
        try await reader.expectConnected()
        for feed in feeds + [feed] { await feed.leave() }
    }

    @Test func aLoopThatBreaksLeaves() async throws {
        let accounts = try broker.accounts(user)
        let feed = await accounts.followSessions()
        for await _ in feed { break }
        var last: SessionNews?
        for await news in feed { last = news }
        #expect(last == nil || last == .ended(.left))
    }
}

/// A login that returns these JWTs in turn, the last one again and again. Nil is a failure.
private actor JWTs {
    private var jwts: [String?]

    init(_ jwts: [String?]) { self.jwts = jwts }

    func nextIfAny() -> String? { jwts.count > 1 ? jwts.removeFirst() : jwts[0] }

    func next() throws -> String {
        guard let jwt = nextIfAny() else { throw Failure(description: "no network") }
        return jwt
    }
}
