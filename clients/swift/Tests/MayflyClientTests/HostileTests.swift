import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

/// The server of `clients/hostile`, and its corpus: what a server may send that is no broker, or a broken one.
final class HostileServer: @unchecked Sendable {
    static let shared = try! HostileServer()

    struct Case: Decodable, Sendable, CustomTestStringConvertible {
        let name: String
        let calls: [String]?
        let only: String?
        let isSlow: Bool?
        /// What a client may report.
        let kinds: [String]

        var testDescription: String { name }

        private enum CodingKeys: CodingKey { case name, calls, only, isSlow, kind }

        init(from decoder: any Decoder) throws {
            let container = try decoder.container(keyedBy: CodingKeys.self)
            name = try container.decode(String.self, forKey: .name)
            calls = try container.decodeIfPresent([String].self, forKey: .calls)
            only = try container.decodeIfPresent(String.self, forKey: .only)
            isSlow = try container.decodeIfPresent(Bool.self, forKey: .isSlow)
            let one = try? container.decode(String.self, forKey: .kind)
            kinds = try one.map { [$0] } ?? container.decode([String].self, forKey: .kind)
        }
    }

    struct Corpus: Decodable, Sendable {
        let answers: [Case]
        let sockets: [Case]
        let accounts: [Case]
        let feeds: [Case]
    }

    private static let folder = URL(fileURLWithPath: #filePath).appending(path: "../../../../hostile").standardized
    static let corpus = try! JSONDecoder().decode(Corpus.self, from: Data(contentsOf: folder.appending(path: "corpus.json")))

    private let process = Process()
    private let port: Int

    private init() throws {
        let output = Pipe()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["python3", Self.folder.appending(path: "server.py").path]
        // It ends with this process, however that happens.
        (process.standardInput, process.standardOutput) = (Pipe(), output)
        try process.run()
        let line = String(decoding: output.fileHandleForReading.availableData, as: UTF8.self)
        port = Int(line.trimmingCharacters(in: .whitespacesAndNewlines))!
    }

    /// A client that neither waits nor repeats.
    func client(_ name: String, _ transport: any Transport) throws -> Client {
        let url = URL(string: "http://127.0.0.1:\(port)/\(name)")!
        var client = try Client(baseURL: url, environment: .sandbox, transport: transport)
        (client.patience, client.repeatWindow) = (.zero, .zero)
        return client
    }
}

/// The corpus's word for a failure.
private func kind(of error: any Error) -> String {
    guard let error = error as? MayflyError else { return "\(error)" }
    guard error.description.count > 20 else { return "an error without a text" }
    switch error {
    case .refused(let refusal): return "\(refusal.kind)"
    case .unreachable, .noAnswer: return "unreachable"
    case .unexpectedAnswer: return "foreign"
    case .invalidConfiguration: return "\(error)"
    }
}

/// What of the corpus this client calls alike.
private func isWanted(_ kind: String, by one: HostileServer.Case) -> Bool {
    one.kinds.contains(kind) || kind == "exhausted" && one.kinds.contains("unavailable")
}

@Suite(.timeLimit(.minutes(3)))
struct HostileAnswerTests {
    private static let calls: [String: @Sendable (Client, Room) async throws -> Void] = [
        "create": { client, _ in _ = try await client.createRoom(code: .random()) },
        "accept": { client, _ in _ = try await client.acceptRoom(code: .random()) },
        "status": { _ = try await $0.status(of: $1) },
        "replaceToken": { _ = try await $0.replaceToken(PushToken(Data([1])), in: $1) },
        "withdrawToken": { _ = try await $0.withdrawToken(in: $1) },
        "reportPresence": { _ = try await $0.reportPresence(in: $1) },
        "testPush": { _ = try await $0.testPush(in: $1) },
        "close": { _ = try await $0.close($1) },
    ]

    private static let accountCalls: [String: @Sendable (Accounts) async throws -> Void] = [
        "registerDevice": { _ = try await $0.registerDevice(PushToken(Data([1]))) },
        "registerMonitor": { _ = try await $0.registerMonitor(PushToken(Data([1])), printer: "p") },
        "companionStatus": { _ = try await $0.companionStatus() },
        "approval": { _ = try await $0.approval("r") },
        "respond": { _ = try await $0.respond(to: "r", approved: true) },
        "clearApproval": { try await $0.clearApproval("r") },
        "clearSession": { try await $0.clearSession("s") },
        "report": { try await $0.report(.approvalRequest(), in: "s") },
        "updateMonitor": { try await $0.updateMonitor(.sample(id: "AAECAwQFBgcICQoLDA0ODw"), MonitorSettings()) },
        "monitors": { _ = try await $0.monitors(of: "p") },
        "reportStatus": { try await $0.reportStatus(of: "p", from: .idle, to: .running) },
        "deletePhones": { try await $0.deletePhones(uid: "u") },
        "testPushOfUser": { _ = try await $0.testPush(.companion) },
    ]

    @Test func eachCallOfAnAccountReadsOnlyMayflysAnswers() async throws {
        let transport = URLSessionTransport(timeout: .seconds(120))
        let cases = HostileServer.corpus.accounts.flatMap { one in
            (one.calls ?? Array(Self.accountCalls.keys)).map { (one, $0) }
        }
        #expect(cases.count > 180)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (index, (one, call)) in cases.enumerated() {
                if index >= 12 { try await group.next() }
                group.addTask {
                    let accounts = Accounts(client: try HostileServer.shared.client(one.name, transport)) { "x.y.z" }
                    let made = try #require(Self.accountCalls[call])
                    var found = "ok"
                    do { try await made(accounts) } catch { found = kind(of: error) }
                    #expect(isWanted(found, by: one), "\(one.name), \(call): \(found) instead of \(one.kinds)")
                }
            }
            try await group.waitForAll()
        }
    }

    private func outcome(_ call: String, _ name: String, _ transport: any Transport) async throws -> String {
        let (client, room) = (try HostileServer.shared.client(name, transport), try Room.sample())
        do {
            try await Self.calls[call]!(client, room)
            return "ok"
        } catch {
            return kind(of: error)
        }
    }

    @Test func eachCallReadsOnlyMayflysAnswers() async throws {
        // Foundation on Linux reads all answers in one thread, and this machine may be busy.
        let transport = URLSessionTransport(timeout: .seconds(120))
        let cases = HostileServer.corpus.answers.filter { $0.isSlow != true && $0.only != "javascript" }.flatMap { one in
            (one.calls ?? Array(Self.calls.keys)).map { (one, $0) }
        }
        #expect(cases.count > 300)
        try await withThrowingTaskGroup(of: Void.self) { group in
            for (index, (one, call)) in cases.enumerated() {
                if index >= 12 { try await group.next() }
                group.addTask {
                    let found = try await outcome(call, one.name, transport)
                    #expect(isWanted(found, by: one), "\(one.name), \(call): \(found) instead of \(one.kinds)")
                }
            }
            try await group.waitForAll()
        }
    }

    #if os(Linux)
        /// The most memory that this process has had, in MiB.
        private var peak: Int {
            get throws {
                let status = try String(contentsOfFile: "/proc/self/status", encoding: .utf8)
                let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmHWM") })
                return try #require(Int(line.filter(\.isNumber))) / 1024
            }
        }

        /// Foundation on Linux reads without a limit of its own.
        @Test func endlessAnswersTakeNoMemory() async throws {
            let (before, transport) = (try peak, URLSessionTransport(timeout: .seconds(120)))
            try await withThrowingTaskGroup(of: String.self) { group in
                for call in Self.calls.keys { group.addTask { try await outcome(call, "endless", transport) } }
                for try await found in group { #expect(found == "foreign") }
            }
            let grown = try peak - before
            #expect(grown < 200, "\(grown) MiB")
        }
    #endif

    @Test(arguments: HostileServer.corpus.answers.filter { $0.isSlow == true })
    func aSlowServerIsGivenUp(one: HostileServer.Case) async throws {
        let client = try HostileServer.shared.client(one.name, URLSessionTransport(timeout: .seconds(1)))
        await #expect(throws: MayflyError.noAnswer("it took too long")) { try await client.status(of: .sample()) }
    }

    @Test func aCallCanBeCancelled() async throws {
        let client = try HostileServer.shared.client("silent", URLSessionTransport())
        let call = Task { try await client.status(of: .sample()) }
        try await Task.sleep(for: .milliseconds(100))
        call.cancel()
        await #expect(throws: CancellationError.self) { try await call.value }
        let late = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await client.status(of: .sample())
        }
        await #expect(throws: CancellationError.self) { try await late.value }
    }

    @Test func noServerIsUnreachable() async throws {
        let socket = LoopbackSocket()
        let client = try Client(baseURL: URL(string: "http://127.0.0.1:\(socket.bound())")!, environment: .sandbox)
        let error = await #expect(throws: MayflyError.self) { try await client.createRoom(code: .random()) }
        guard case .unreachable = error else { throw Failure(description: "\(error as Any)") }
    }

    /// Other transports may return what they like.
    @Test func aLargeAnswerOfAnyTransportIsRefused() async throws {
        let answer = TransportResponse(
            status: 200, contentType: "application/json", retryAfter: nil,
            body: Data(#"{"purged":0}"#.utf8) + Data(repeating: 0x20, count: TransportResponse.largestBody))
        let transport = ScriptedTransport { _, _ in answer }
        let client = try Client(baseURL: URL(string: "https://push.example.org")!, environment: .production, transport: transport)
        await #expect(throws: MayflyError.unexpectedAnswer(status: 200)) { try await client.close(.sample()) }
    }
}

@Suite(.timeLimit(.minutes(1)))
struct HostileSocketTests {
    /// What the app hears first.
    private func heard(_ name: String, isValid: Bool = false) async throws -> String {
        let session = try await HostileServer.shared.client(name, SocketTransport()).join(.sample())
        for await event in session {
            switch event {
            case .ended(.failed(let error)): return kind(of: error)
            case .ended(.gone): return "gone"
            case .disconnected: return "disconnected"
            case .joined where isValid: return "ok"
            default: continue
            }
        }
        return "the end"
    }

    @Test(arguments: HostileServer.corpus.sockets.filter { $0.only != "javascript" })
    func aSessionReadsOnlyMayflysMessages(one: HostileServer.Case) async throws {
        let found = try await heard(one.name, isValid: one.kinds == ["ok"])
        #expect(isWanted(found, by: one), "\(found) instead of \(one.kinds)")
    }

    /// What the app hears first of its sessions.
    private func heardOfSessions(_ name: String, isValid: Bool = false) async throws -> String {
        let accounts = Accounts(client: try HostileServer.shared.client(name, SocketTransport())) { "x.y.z" }
        for await news in await accounts.followSessions() {
            switch news {
            case .ended(.failed(let error)): return kind(of: error)
            case .disconnected: return "disconnected"
            case .connected where isValid: return "ok"
            default: continue
            }
        }
        return "the end"
    }

    @Test(arguments: HostileServer.corpus.feeds)
    func aFeedReadsOnlyMayflysMessages(one: HostileServer.Case) async throws {
        let found = try await heardOfSessions(one.name, isValid: one.kinds == ["ok"])
        #expect(isWanted(found, by: one), "\(found) instead of \(one.kinds)")
    }

    @Test(arguments: [
        ("page-404", "foreign"), ("redirect-302", "foreign"), ("valid", "foreign"), ("problem", "invalid"),
        ("problem-gone", "gone"), ("page-502", "disconnected"), ("page-503-later", "disconnected"),
        ("problem-unavailable", "disconnected"), ("closed", "disconnected"),
    ])
    func aRefusedHandshakeIsReported(name: String, wanted: String) async throws {
        #expect(try await heard(name) == wanted)
        #expect(try await heardOfSessions(name) == wanted)
    }

    @Test func eventsWithoutAReaderAreBounded() async throws {
        let messages = [#"{"type":"room_closed"}"#] + Array(repeating: #"{"type":"peer_joined"}"#, count: 99)
        let transport = ScriptedTransport(
            connect: { _, _ in Recited(messages: messages) },
            { _, _ in throw MayflyError.unreachable("test") })
        let client = try Client(baseURL: URL(string: "https://push.example.org")!, environment: .production, transport: transport)
        let session = await client.join(try .sample())
        try await eventually { await session.hasEnded ? true : nil }
        var events: [RoomEvent] = []
        for await event in session { events.append(event) }
        #expect(events.count == 64)
        #expect(events.last == .ended(.closed))
    }
}

/// A socket that says its messages from the last one to the first.
private actor Recited: WebSocket {
    private var messages: [String]

    init(messages: [String]) { self.messages = messages }

    func send(_ text: String) async throws {}

    func receive() async throws -> String {
        guard let next = messages.popLast() else { throw MayflyError.noAnswer("test") }
        return next
    }

    func close(code: Int?) async {}
}
