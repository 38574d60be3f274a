import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

/// What is repeated, and what isn't.
struct RepeatTests {
    private let broker = TestBroker.shared
    private let real = SocketTransport()

    /// The broker carries the first request out, and its answer is lost.
    private func losingFirst() -> ScriptedTransport {
        ScriptedTransport { [real] number, request in
            let answer = try await real.send(request)
            if number == 1 { throw MayflyError.noAnswer("test") }
            return answer
        }
    }

    @Test func aLostCreateIsRepeatedAsTheSameClient() async throws {
        let transport = losingFirst()
        let room = try await broker.client(transport).createRoom(code: .random(), token: .random())
        #expect(transport.requests.count == 2)
        #expect(try bodies(transport)[0] == bodies(transport)[1])
        // The repeat got the same room with its secrets, and they work.
        #expect(room.ref != nil)
        #expect(try await broker.client().withdrawToken(in: room))
    }

    @Test func aLostAcceptIsRepeatedAsTheSameClient() async throws {
        let code = JoinCode.random()
        let created = try await broker.client().createRoom(code: code)
        let transport = losingFirst()
        let room = try await broker.client(transport).acceptRoom(code: code, token: .random())
        #expect(try bodies(transport)[0] == bodies(transport)[1])
        #expect(room.roomID == created.roomID)
        #expect(try await broker.client().withdrawToken(in: room))
    }

    @Test func theAppsNextTryContinuesALostAccept() async throws {
        let code = JoinCode.random()
        let created = try await broker.client().createRoom(code: code)
        let transport = losingFirst()
        let client = try hasty(broker.client(transport))
        await #expect(throws: MayflyError.noAnswer("test")) { try await client.acceptRoom(code: code) }
        let room = try await client.acceptRoom(code: code)
        #expect(try bodies(transport)[0] == bodies(transport)[1])
        #expect(room.roomID == created.roomID)
        // An answered call is forgotten: a code works once.
        let error = await #expect(throws: MayflyError.self) { try await client.acceptRoom(code: code) }
        #expect(error?.refusal?.kind == .conflict || error?.refusal?.kind == .gone)
        #expect(try bodies(transport)[2] != bodies(transport)[1])
    }

    /// The client without patience.
    private func hasty(_ client: Client, repeatWindow: Duration = .zero) -> Client {
        var hasty = client
        hasty.patience = .zero
        hasty.repeatWindow = repeatWindow
        return hasty
    }

    @Test func aRefusalAfterALostAnswerEndsNothing() async throws {
        let transport = ScriptedTransport { [real] number, request in
            if number == 2 { return ScriptedTransport.problem(503, "shutting_down", retryAfter: "1") }
            let answer = try await real.send(request)
            if number == 1 { throw MayflyError.noAnswer("test") }
            return answer
        }
        let waiting = try hasty(broker.client(transport), repeatWindow: .seconds(100))
        #expect(try await waiting.createRoom(code: .random(), token: .random()).ref != nil)
        let (lost, calls) = try client { number, _ in
            if number == 1 { throw MayflyError.noAnswer("test") }
            return ScriptedTransport.problem(503, "shutting_down", retryAfter: "60")
        }
        let client = hasty(lost, repeatWindow: .seconds(5))
        let error = await #expect(throws: MayflyError.self) { try await client.createRoom(code: .random()) }
        guard case .noAnswer = error else { throw Failure(description: "\(error as Any)") }
        #expect(calls.requests.count == 2)
    }

    private func bodies(_ transport: ScriptedTransport) throws -> [[String: String]] {
        try transport.requests.map { request in
            let object = try JSONSerialization.jsonObject(with: request.body ?? Data()) as? [String: Any]
            return (object ?? [:]).mapValues { "\($0)" }
        }
    }

    @Test func aLostAnswerToAnythingElseIsReported() async throws {
        let (room, _) = try await broker.room((.random(), nil))
        let calls: [@Sendable (Client) async throws -> Void] = [
            { _ = try await $0.replaceToken(.random(), in: room) },
            { _ = try await $0.withdrawToken(in: room) },
            { _ = try await $0.reportPresence(in: room) },
            { _ = try await $0.close(room) },
        ]
        for call in calls {
            let transport = losingFirst()
            let client = try broker.client(transport)
            await #expect(throws: MayflyError.noAnswer("test")) { try await call(client) }
            #expect(transport.requests.count == 1)
        }
    }

    @Test func aRepeatThatCameTooLateHasNoRoom() async throws {
        let transport = ScriptedTransport { [real] number, request in
            let answer = try await real.send(request)
            if number == 1 {
                // Meanwhile the creator's secret was used, as if the two minutes were over.
                struct Made: Decodable { let roomid: String, member: String }
                struct Sent: Decodable { let client1: String }
                let made = try JSONDecoder().decode(Made.self, from: answer.body)
                let sent = try JSONDecoder().decode(Sent.self, from: request.body!)
                let room = try Room.sample(roomID: made.roomid, member: made.member, clientID: sent.client1)
                _ = try await TestBroker.shared.client().withdrawToken(in: room)
                throw MayflyError.noAnswer("test")
            }
            return answer
        }
        let client = try broker.client(transport)
        let error = await #expect(throws: MayflyError.self) { try await client.createRoom(code: .random()) }
        #expect(error?.description.contains("another code") == true)
    }

    private func client(_ step: @escaping ScriptedTransport.Step) throws -> (Client, ScriptedTransport) {
        let transport = ScriptedTransport(step)
        let url = URL(string: "https://push.example.org")!
        return (try Client(baseURL: url, environment: .production, transport: transport), transport)
    }

    private static let status = TransportResponse(
        status: 200, contentType: "application/json", retryAfter: nil,
        body: Data(
            """
            {"expiresAt":"2026-01-02T03:04:05Z","accepted":true,"creatorPresent":false,"joinerPresent":true,
            "creatorHasToken":true,"joinerHasToken":false}
            """.utf8))

    @Test(arguments: [(429, "too_many_requests"), (503, "storage_unavailable"), (503, "overloaded"), (503, "shutting_down")])
    func aShortageIsWaitedOut(status: Int, code: String) async throws {
        let (client, transport) = try client { number, _ in
            number == 1 ? ScriptedTransport.problem(status, code, retryAfter: "1") : Self.status
        }
        let started = ContinuousClock.now
        #expect(try await client.status(of: .sample()).joinerPresent)
        #expect(started.duration(to: .now) >= .seconds(1))
        #expect(transport.requests.count == 2)
    }

    @Test func aLongShortageIsReported() async throws {
        let (client, transport) = try client { _, _ in ScriptedTransport.problem(429, "too_many_requests", retryAfter: "600") }
        let error = await #expect(throws: MayflyError.self) { try await client.acceptRoom(code: .random()) }
        #expect(error?.refusal?.retryAfter == .seconds(600))
        #expect(error?.refusal?.kind == .exhausted)
        #expect(transport.requests.count == 1)
    }

    @Test func retryAfterMayBeADate() throws {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(secondsFromGMT: 0)
        func delay(_ text: String) -> Int64? {
            TransportResponse(status: 503, contentType: nil, retryAfter: text, body: Data()).retryDelay?.components.seconds
        }
        for format in ["EEE, dd MMM yyyy HH:mm:ss 'GMT'", "EEEE, dd-MMM-yy HH:mm:ss 'GMT'", "EEE MMM d HH:mm:ss yyyy"] {
            formatter.dateFormat = format
            let seconds = try #require(delay(formatter.string(from: Date(timeIntervalSinceNow: 120))), "\(format)")
            #expect((100...121).contains(seconds), "\(format)")
        }
        #expect(delay("Sun Nov  6 08:49:37 1994") == 1)
        #expect(delay("Sunday, 06-Nov-94 08:49:37 GMT") == 1)
        #expect(delay("Fri, 06 Nov 2099 08:49:37 GMT") == 3600)
        #expect(delay("99999999999999999999") == 3600)
        for nonsense in ["", "-1", "+5", "1.5", "soon", "2099-01-01T00:00:00Z", "Fri, 06 Xyz 2099 08:49:37 GMT"] {
            #expect(delay(nonsense) == nil, "\(nonsense)")
        }
    }

    @Test func aRefusalIsNotRepeated() async throws {
        let (client, transport) = try client { _, _ in ScriptedTransport.problem(400, "something_new") }
        let error = await #expect(throws: MayflyError.self) { try await client.createRoom(code: .random()) }
        #expect(error?.refusal?.code == .unknown("something_new"))
        #expect(error?.refusal?.kind == .invalid)
        #expect(transport.requests.count == 1)
    }

    @Test func withoutNetworkNothingIsRepeated() async throws {
        let (client, transport) = try client { _, _ in throw MayflyError.unreachable("test") }
        await #expect(throws: MayflyError.unreachable("test")) { try await client.createRoom(code: .random()) }
        #expect(transport.requests.count == 1)
    }

    @Test func aLostAnswerIsAskedForUntilTheNetworkIsBack() async throws {
        let (client, transport) = try client { number, _ in
            switch number {
            case 1: throw MayflyError.noAnswer("test")
            case 2: throw MayflyError.unreachable("test")
            case 3: return TransportResponse(status: 502, contentType: "text/html", retryAfter: nil, body: Data())
            default: return Self.status
            }
        }
        #expect(try await client.status(of: .sample()).accepted)
        #expect(transport.requests.count == 4)
    }

    /// The first try was sent, so the call may have been carried out.
    @Test func aLostAnswerIsNotUnreachableLater() async throws {
        let (base, _) = try client { number, _ in
            throw number == 1 ? MayflyError.noAnswer("test") : MayflyError.unreachable("test")
        }
        var client = base
        client.repeatWindow = .milliseconds(700)
        let error = await #expect(throws: MayflyError.self) { try await client.createRoom(code: .random()) }
        guard case .noAnswer = error else { throw Failure(description: "\(error as Any)") }
    }

    @Test func repeatsEndWithTheirWindow() async throws {
        let (base, transport) = try client { _, _ in throw MayflyError.noAnswer("test") }
        var client = base
        client.repeatWindow = .seconds(2)
        await #expect(throws: MayflyError.noAnswer("test")) { try await client.createRoom(code: .random()) }
        #expect((2...5).contains(transport.requests.count))
    }

    @Test func aProxyWithoutABrokerIsReportedAtOnce() async throws {
        let (client, transport) = try client { _, _ in
            TransportResponse(status: 503, contentType: "text/html", retryAfter: nil, body: Data())
        }
        await #expect(throws: MayflyError.unexpectedAnswer(status: 503)) { try await client.createRoom(code: .random()) }
        #expect(transport.requests.count == 1)
    }

    @Test func aWebServerIsNoBroker() async throws {
        let page = TransportResponse(status: 200, contentType: "text/html", retryAfter: nil, body: Data("<html>".utf8))
        let (client, _) = try client { _, _ in page }
        await #expect(throws: MayflyError.unexpectedAnswer(status: 200)) { try await client.createRoom(code: .random()) }
        let (other, _) = try self.client { _, _ in
            TransportResponse(status: 301, contentType: nil, retryAfter: nil, body: Data())
        }
        await #expect(throws: MayflyError.unexpectedAnswer(status: 301)) { try await other.createRoom(code: .random()) }
    }

    @Test func aCallCanBeCancelled() async throws {
        let (client, _) = try client { _, _ in throw MayflyError.noAnswer("test") }
        let call = Task { try await client.createRoom(code: .random()) }
        try await Task.sleep(for: .milliseconds(50))
        call.cancel()
        await #expect(throws: CancellationError.self) { try await call.value }
    }

    @Test func noServerIsUnreachable() async throws {
        let socket = LoopbackSocket()
        let url = URL(string: "http://127.0.0.1:\(socket.bound())")!
        let client = try Client(baseURL: url, environment: .sandbox, transport: real)
        let error = await #expect(throws: MayflyError.self) { try await client.createRoom(code: .random()) }
        guard case .unreachable = error else { throw Failure(description: "\(error as Any)") }
    }

    // MARK: Apps with accounts

    private let user = "user-\(UUID().uuidString)"

    /// The broker takes the first report, and its answer is lost.
    @Test func aLostReportIsRepeatedAndPushedOnce() async throws {
        let token = PushToken.random()
        _ = try await broker.accounts(user).registerDevice(token)
        let transport = losingFirst()
        let receipt = try await broker.backEnd(transport).report(.approvalRequest(), in: "s", of: user)
        #expect(transport.requests.count == 2)
        #expect(try bodies(transport)[0] == bodies(transport)[1])
        // The app can still answer it.
        #expect(receipt.isRepeated && receipt.expiresAt != nil)
        let requestID = try #require(receipt.requestID)
        #expect(try await broker.accounts(user).respond(to: requestID, approved: true, from: token))
        #expect(try await broker.payloads(to: token).count == 1)

        let (monitor, printer) = (PushToken.random(), "printer-\(user)")
        _ = try await broker.accounts(user).registerMonitor(monitor, printer: printer)
        let status = losingFirst()
        #expect(try await broker.backEnd(status).reportStatus(of: printer, from: .idle, to: .running).isRepeated)
        let progress = losingFirst()
        #expect(try await broker.backEnd(progress).reportProgress(of: printer, percent: 25).isRepeated)
        #expect(status.requests.count == 2 && progress.requests.count == 2)
        _ = try await broker.payload(1, to: monitor)
        #expect(try await broker.payloads(to: monitor).count == 2)
    }

    @Test func whatPushesNothingIsRepeated() async throws {
        let user = user
        let accounts = try broker.accounts(user)
        let (token, monitor) = (PushToken.random(), try await accounts.registerMonitor(.random(), printer: nil))
        let requestID = try #require(try await broker.backEnd().report(.approvalRequest(), in: "s", of: user).requestID)
        let calls: [@Sendable (Accounts) async throws -> Void] = [
            { _ = try await $0.registerDevice(token) },
            { _ = try await $0.registerActivity(.random(), activityID: "a", sessionID: "s", previous: .random()) },
            { _ = try await $0.registerMonitor(.random(), printer: nil) },
            { _ = try await $0.registerPhone(.random(), uid: user) },
            { _ = try await $0.companionStatus() },
            { _ = try await $0.approval(requestID) },
            { try await $0.updateMonitor(monitor, MonitorSettings()) },
            { try await $0.deleteMonitor(monitor) },
        ]
        for (index, call) in calls.enumerated() {
            let transport = losingFirst()
            try await call(broker.accounts(user, transport))
            #expect(transport.requests.count == 2, "call \(index)")
        }
        let transport = losingFirst()
        #expect(try await broker.backEnd(transport).monitors(of: "p-\(user)") == [])
        #expect(transport.requests.count == 2)
    }

    /// A new registration of a Live Activity whose first answer was lost goes on with the old one.
    @Test func aLostRenewalKeepsItsHandles() async throws {
        let accounts = try broker.accounts(user)
        let (old, new) = (PushToken.random(), PushToken.random())
        let first = try await accounts.registerActivity(old, activityID: "a", sessionID: "s")
        let lost = try broker.accounts(user, losingFirst())
        let renewed = try await lost.registerActivity(new, activityID: "a", sessionID: "s", previous: old)
        #expect(renewed.id == first.id)
        #expect(renewed.handle(.session, "s") == first.handle(.session, "s"))
        #expect(try await accounts.companionStatus().activities.count == 1)
    }

    @Test func otherCallsThrowNoAnswer() async throws {
        let user = user
        let accounts = try broker.accounts(user)
        let device = try await accounts.registerDevice(.random())
        // Its token stays, so each push to it is counted.
        let counted = PushToken.random()
        _ = try await accounts.registerDevice(counted)
        let requestID = try #require(try await broker.backEnd().report(.approvalRequest(), in: "s", of: user).requestID)
        let calls: [@Sendable (Accounts) async throws -> Void] = [
            { _ = try await $0.clearApproval(requestID) },
            { _ = try await $0.clearSession("s") },
            { _ = try await $0.respond(to: requestID, approved: true) },
            { _ = try await $0.testPush(.companion) },
            { try await $0.deleteToken(device) },
            { _ = try await $0.deletePhones(uid: user) },
        ]
        for (index, call) in calls.enumerated() {
            let transport = losingFirst()
            let accounts = try broker.accounts(user, transport)
            await #expect(throws: MayflyError.noAnswer("test"), "call \(index)") { try await call(accounts) }
            #expect(transport.requests.count == 1, "call \(index)")
        }
        #expect(try await accounts.approval(requestID).status == .approved)
        // The approval, a clearing push of each of the first three calls, and the test push.
        _ = try await broker.payload(4, to: counted)
        #expect(try await broker.payloads(to: counted).count == 5)
    }

    @Test func eachTryHasAValidJWT() async throws {
        let (jwt, counter) = (try broker.jwt(user), Counter())
        let accounts = Accounts(client: try broker.client(losingFirst())) {
            // Each try must ask for its own JWT.
            await counter.next() == 1 ? try TestBroker.shared.jwt("another") : jwt
        }
        _ = try await accounts.companionStatus()
        #expect(await counter.count == 2)
    }

    private actor Counter {
        private(set) var count = 0

        func next() -> Int {
            count += 1
            return count
        }
    }
}
