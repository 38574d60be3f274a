import Foundation
import MayflyClient
import Testing

/// The first line of the tutorial, which an app has in a file for Apple's systems only.
private struct PrintedApp {
    private let client = try! Client(baseURL: URL(string: "https://push.example.org")!, environment: .production)
}

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
        _ = PrintedApp()
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
