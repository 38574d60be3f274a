import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

#if canImport(CryptoKit)
    import CryptoKit
#endif

/// A real broker with a simulator of Apple, on free loopback ports and in a temporary folder.
final class TestBroker: @unchecked Sendable {
    /// The broker of all tests that neither stop nor flood it.
    static let shared: TestBroker = {
        atexit { TestBroker.shared.stop() }
        return try! TestBroker()
    }()

    let url: URL
    let folder: URL
    private let control: URL
    private let command: [String]
    private let environment: [String: String]
    private var wrapper = Process()
    private var pid: pid_t = 0

    /// - Parameter users: whether the broker knows users. Without them nothing is pushed either.
    init(users: Bool = true) throws {
        guard FileManager.default.isExecutableFile(atPath: Self.binary) else {
            throw Failure(description: "no broker at \(Self.binary): run `swift build` in the repository, or set MAYFLY_BINARY")
        }
        folder = FileManager.default.temporaryDirectory.appending(path: "mayfly-client-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        let ports = Self.freePorts(4)
        url = URL(string: "http://127.0.0.1:\(ports[0])")!
        control = URL(string: "http://127.0.0.1:\(ports[3])")!
        var settings = Self.cleanEnvironment
        settings["MAYFLY_STATE"] = folder.appending(path: "state").path
        settings["MAYFLY_LISTEN"] = "127.0.0.1:\(ports[0])"
        settings["MAYFLY_OPERATOR_LISTEN"] = "127.0.0.1:\(ports[1])"
        if users {
            settings["MAYFLY_APNS_SIMULATOR_LISTEN"] = "127.0.0.1:\(ports[2])"
            settings["MAYFLY_APNS_SIMULATOR_CONTROL"] = "127.0.0.1:\(ports[3])"
        } else {
            settings["APNS_BUNDLE_ID"] = "org.example.app"
        }
        environment = settings
        command = users ? ["demo", "--stay"] : ["serve"]
        if !users { _ = try Self.mayfly(["keys", "init", "--state", settings["MAYFLY_STATE"]!, "--origin", "test.example/log"]) }
        try start()
    }

    deinit { stop() }

    /// Starts the broker and waits until it answers. A shell ends it when this process ends, however that happens.
    func start() throws {
        wrapper = Process()
        wrapper.executableURL = URL(fileURLWithPath: "/bin/sh")
        wrapper.arguments =
            [
                "-c", #"log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!; cat >/dev/null; kill $! 2>/dev/null; wait"#, "sh",
                folder.appending(path: "log").path, Self.binary,
            ] + command
        wrapper.environment = environment
        let output = try Self.starting.withLock {
            let (input, output) = (Pipe(), Pipe())
            (wrapper.standardInput, wrapper.standardOutput) = (input, output)
            try wrapper.run()
            return output
        }
        pid = pid_t(String(decoding: output.fileHandleForReading.availableData, as: UTF8.self).prefix { $0.isNumber })!
        let end = Date.now.addingTimeInterval(30)
        while !Self.isListening(url.port!) {
            guard Date.now < end else {
                let log = try? String(contentsOf: folder.appending(path: "log"), encoding: .utf8)
                throw Failure(description: "the broker didn't start: \(log ?? "")")
            }
            Thread.sleep(forTimeInterval: 0.02)
        }
    }

    /// Ends the broker at once, without a chance to clean up.
    func crash() {
        kill(pid, SIGKILL)
        endWrapper()
        let end = Date.now.addingTimeInterval(10)
        while Self.isListening(url.port!), Date.now < end { Thread.sleep(forTimeInterval: 0.02) }
    }

    func stop() {
        endWrapper()
        try? FileManager.default.removeItem(at: folder)
    }

    private func endWrapper() {
        try? (wrapper.standardInput as? Pipe)?.fileHandleForWriting.close()
        let end = Date.now.addingTimeInterval(10)
        while wrapper.isRunning, Date.now < end { Thread.sleep(forTimeInterval: 0.02) }
        guard wrapper.isRunning else { return }
        print("a broker didn't end within 10 s")
        kill(pid, SIGKILL)
        kill(wrapper.processIdentifier, SIGKILL)
    }

    func client(_ transport: any Transport = SocketTransport(), bundleID: String? = nil) throws -> Client {
        try Client(baseURL: url, environment: .sandbox, bundleID: bundleID, transport: transport)
    }

    /// A room with both sides in it. Tokens are optional.
    func room(_ tokens: (PushToken?, PushToken?) = (nil, nil)) async throws -> (Room, Room) {
        let (client, code) = (try client(), JoinCode.random())
        let created = try await client.createRoom(code: code, token: tokens.0)
        return (created, try await client.acceptRoom(code: code, token: tokens.1))
    }

    struct Push: Decodable {
        struct Payload: Decodable {
            let roomId: String?
            let sessionId: String?
            let callerUid: String?
            let printerState: Printer?
        }
        struct Printer: Decodable { let prefix: String? }
        let token: String
        let payload: Payload
    }

    /// What Apple got for a token, oldest first.
    func pushes(to token: PushToken) async throws -> [Push] {
        let answer = try await SocketTransport().send(.get(control.appending(path: "pushes")))
        return try JSONDecoder().decode([Push].self, from: answer.body).filter { $0.token == token.hex }
    }

    func push(to token: PushToken) async throws -> Push {
        try await eventually { try await self.pushes(to: token).first }
    }

    /// What Apple got for a token as an app gets it, oldest first.
    func payloads(to token: PushToken) async throws -> [[AnyHashable: Any]] {
        let answer = try await SocketTransport().send(.get(control.appending(path: "pushes")))
        let pushes = try JSONSerialization.jsonObject(with: answer.body) as? [[String: Any]]
        return try #require(pushes).filter { $0["token"] as? String == token.hex }
            .map { try #require($0["payload"] as? [AnyHashable: Any]) }
    }

    /// Waits for the push of this number, counted from 0.
    func payload(_ number: Int = 0, to token: PushToken) async throws -> [AnyHashable: Any] {
        try await eventually("a push") {
            let payloads = try await self.payloads(to: token)
            return payloads.count > number ? payloads[number] : nil
        }
    }

    func accounts(_ user: String, _ transport: any Transport = SocketTransport()) throws -> Accounts {
        let jwt = try jwt(user)
        return Accounts(client: try client(transport)) { jwt }
    }

    func backEnd(_ transport: any Transport = SocketTransport()) throws -> Accounts {
        let jwt = try jwt("back-end", more: ["--scope", "broker.notify"])
        return Accounts(client: try client(transport)) { jwt }
    }

    /// A JWT of HS256 (RFC 7519) that ends at this time, perhaps in the past.
    func jwt(_ user: String, until end: Date) throws -> String {
        let head = Data(#"{"alg":"HS256","typ":"JWT"}"#.utf8).base64URL
        let signed = "\(head).\(Data(#"{"sub":"\#(user)","exp":\#(Int(end.timeIntervalSince1970))}"#.utf8).base64URL)"
        return "\(signed).\(try hmacSHA256(signed, key: "jwt").base64URL)"
    }

    /// Reports a call as a calling service does.
    func ring(_ receiver: String, from caller: String, session: String, type: String = "audio") async throws {
        let body = #"""
            {"trigger":"call_initiated","data":{"sessionId":"\#(session)","type":"\#(type)","initiator":{"uid":"\#(caller)"},
            "receiver":{"uid":"\#(receiver)"},"receiverType":"user"}}
            """#
        let signature = PushToken(try hmacSHA256(body, key: "webhook")).hex
        let request = TransportRequest(
            method: "POST", url: url.appending(path: "webhooks/call"), headers: ["X-CometChat-Signature": signature],
            body: Data(body.utf8))
        let answer = try await SocketTransport().send(request)
        try #require(answer.status == 200, "\(String(decoding: answer.body, as: UTF8.self))")
    }

    /// Signs with a secret of the broker.
    private func hmacSHA256(_ message: String, key: String) throws -> Data {
        let secret = try String(contentsOf: folder.appending(path: "state/keys/\(key).secret"), encoding: .utf8)
        let (key, message) = (Array(secret.trimmingCharacters(in: .newlines).utf8), Array(message.utf8))
        #if canImport(CryptoKit)
            return Data(HMAC<CryptoKit.SHA256>.authenticationCode(for: message, using: SymmetricKey(data: key)))
        #else
            return Data(SHA256.authenticationCode(for: message, key: key))
        #endif
    }

    func jwt(_ user: String, more: [String] = []) throws -> String {
        let key = folder.appending(path: "state/keys/jwt.secret").path
        return try Self.mayfly(["jwt", "--sub", user, "--algorithm", "HS256", "--key", key] + more)
    }

    // MARK: Processes

    static let binary: String = {
        let repository = URL(fileURLWithPath: #filePath).appending(path: "../../../../..").standardized
        return ProcessInfo.processInfo.environment["MAYFLY_BINARY"] ?? repository.appending(path: ".build/debug/mayfly").path
    }()

    /// Without the settings of the machine that runs the tests: `mayfly` refuses unknown ones.
    private static let cleanEnvironment = ProcessInfo.processInfo.environment.filter { name, _ in
        !["MAYFLY_", "APNS_", "COMETCHAT_"].contains { name.hasPrefix($0) }
    }

    /// Held while a process and its pipes are made. Another one that started meanwhile would inherit them, and with them open its end is never seen.
    static let starting = NSLock()

    static func mayfly(_ arguments: [String]) throws -> String {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: binary)
        process.arguments = arguments
        process.environment = cleanEnvironment
        let output = try starting.withLock {
            let output = Pipe()
            process.standardOutput = output
            try process.run()
            return output
        }
        let data = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else { throw Failure(description: "mayfly \(arguments[0]) failed") }
        return String(decoding: data, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
    }

    private static func freePorts(_ count: Int) -> [Int] {
        let sockets = (0..<count).map { _ in LoopbackSocket() }
        return sockets.map { $0.bound() }
    }

    private static func isListening(_ port: Int) -> Bool { LoopbackSocket().connects(to: port) }
}

struct Failure: Error, CustomStringConvertible { let description: String }

extension TransportRequest {
    static func get(_ url: URL) -> TransportRequest { TransportRequest(method: "GET", url: url, headers: [:], body: nil) }
}

extension PushToken {
    static func random() -> PushToken { PushToken(Data((0..<32).map { _ in UInt8.random(in: 0...255) })) }
}

/// Asks until there is an answer, for 20 seconds.
@discardableResult
func eventually<Answer>(
    _ what: String = "it", isolation: isolated (any Actor)? = #isolation, _ question: () async throws -> Answer?
) async throws -> Answer {
    let end = ContinuousClock.now + .seconds(20)
    while ContinuousClock.now < end {
        if let answer = try await question() { return answer }
        try await Task.sleep(for: .milliseconds(20))
    }
    throw Failure(description: "\(what) did not come true in 20 s")
}
