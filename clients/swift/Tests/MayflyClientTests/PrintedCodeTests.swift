import Foundation
import MayflyClient
import Testing

/// What README prints for Linux, against a real broker on the transport that every client has.
@Suite(.timeLimit(.minutes(1)))
struct PrintedCodeTests {
    private let broker = TestBroker.shared

    private func printed(broker: URL, code: JoinCode) async throws {
        let client = try Client(baseURL: broker, environment: .sandbox)
        let room = try await client.acceptRoom(code: code)
        let session = await client.join(room, over: .reports)
        for await event in session {
            print(event)
        }
    }

    /// The function above has README's lines and no others.
    @Test func theProgramIsTheOneInREADME() throws {
        let text = try String(contentsOf: repository.appending(path: "clients/swift/README.md"), encoding: .utf8)
        let section = try #require(text.range(of: "\n## On Linux\n"))
        let start = try #require(text.range(of: "\n```swift\n", range: section.upperBound..<text.endIndex))
        let end = try #require(text.range(of: "\n```\n", range: start.upperBound..<text.endIndex))
        let lines = text[start.upperBound..<end.lowerBound].split(separator: "\n").map { "        \($0)\n" }
        let own = try String(contentsOf: URL(filePath: #filePath), encoding: .utf8)
        let isTested = own.contains("async throws {\n\(lines.joined())    }\n")
        #expect(isTested)
    }

    @Test func theProgramForLinuxKnocks() async throws {
        let (code, token) = (JoinCode.random(), PushToken.random())
        let client = try Client(baseURL: broker.url, environment: .sandbox)
        let room = try await client.createRoom(code: code, token: token)
        let program = Task { try await printed(broker: broker.url, code: code) }
        #expect(try await broker.push(to: token).payload.roomId == room.handle)
        program.cancel()
        try await program.value
        #expect(try await client.close(room) == 1)
        let error = await #expect(throws: MayflyError.self) { try await client.status(of: room) }
        #expect(error?.refusal?.code == .roomNotFound)
    }

    /// Few systems on Linux have a libcurl with WebSockets. The session says so, and what to do.
    @Test func aSocketOrARemedy() async throws {
        let client = try Client(baseURL: broker.url, environment: .sandbox)
        let session = await client.join(try await client.createRoom(code: .random()))
        for await event in session {
            switch event {
            case .joined(peerPresent: false, delivery: .noToken): break
            case .ended(.failed(.invalidConfiguration(let why))): #expect(why.contains("over: .reports"))
            default: Issue.record("\(event)")
            }
            break
        }
    }
}

/// The lines in Swift that README and the guides print for apps with accounts, against a real broker.
@Suite(.timeLimit(.minutes(1)))
struct PrintedAccountsTests {
    private let broker = TestBroker.shared
    private let token = PushToken.random()

    /// An app's login.
    private struct Login {
        let user: String

        func jwt() async throws -> String { try TestBroker.shared.jwt(user) }
    }

    private func readme(client: Client, login: Login) async throws -> (Accounts, Registration, HandleTable) {
        let accounts = Accounts(client: client) { try await login.jwt() }
        let device = try await accounts.registerDevice(token)
        let sessions = device.table(.session, ["session-1"])
        return (accounts, device, sessions)
    }

    private func companion(_ accounts: Accounts, requestID: String) async throws -> Bool {
        let isInTime = try await accounts.respond(to: requestID, approved: true, from: token)
        for await news in await accounts.followSessions() { print(news) }
        return isInTime
    }

    private func monitor(_ accounts: Accounts) async throws {
        let device = try await accounts.registerMonitor(token, printer: "p1s_01")
        var settings = MonitorSettings()
        settings.onPaused = false
        try await accounts.updateMonitor(device, settings)
    }

    private func calls(_ accounts: Accounts, _ payload: [AnyHashable: Any], oldToken: PushToken) async throws -> CallNotification
    {
        let contacts = ["alice"]
        let phone = try await accounts.registerPhone(token, uid: "bob", previous: oldToken)
        let call = CallNotification(payload: payload, callers: phone.table(.uid, contacts))
        try await accounts.deletePhones(uid: "bob", token: token)
        return call
    }

    /// The functions above have the printed lines and no others.
    @Test(arguments: [
        ("clients/swift/README.md", "\n## Apps with accounts\n"), ("docs/companion.md", "\nIn Swift, "),
        ("docs/monitor.md", "\nIn Swift, "), ("docs/calls.md", "\nIn Swift, "),
    ])
    func theProgramIsThePrintedOne(page: String, place: String) throws {
        let text = try String(contentsOf: repository.appending(path: page), encoding: .utf8)
        let section = try #require(text.range(of: place))
        let start = try #require(text.range(of: "\n```swift\n", range: section.upperBound..<text.endIndex))
        let end = try #require(text.range(of: "\n```\n", range: start.upperBound..<text.endIndex))
        let lines = text[start.upperBound..<end.lowerBound].split(separator: "\n").map { "        \($0)\n" }
        let own = try String(contentsOf: URL(filePath: #filePath), encoding: .utf8)
        let isTested = own.contains(lines.joined())
        #expect(isTested)
    }

    @Test func theProgramsWork() async throws {
        let user = "user-\(UUID().uuidString)"
        let (accounts, _, sessions) = try await readme(client: broker.client(), login: Login(user: user))
        let asked = try await broker.backEnd().report(.approvalRequest(), in: "session-1", of: user)
        let push = try await broker.payload(to: token)
        #expect(CompanionNotification(payload: push, sessions: sessions)?.sessionID == "session-1")
        let app = Task { try await companion(accounts, requestID: asked.requestID!) }
        try await eventually { try await accounts.approval(asked.requestID!).status == .approved ? true : nil }
        app.cancel()
        #expect(try await app.value)
        try await monitor(accounts)
        let bob = try broker.accounts("bob")
        #expect(try await calls(bob, [:], oldToken: .random()).caller == nil)
    }
}
