import Dispatch
import EventLoop
import HTTP1
import Linux
import Shares
import Synchronization
import Testing
import WebSocket

@testable import HTTPServer

/// Answers requests and records events of its WebSockets.
final class EchoHandler: HTTPHandler {
    private let events = Mutex<[String]>([])
    private let held = Mutex<[CheckedContinuation<Void, Never>]>([])

    /// The shared body of /shared.
    let shared = [UInt8](repeating: 0x78, count: 200_000)
    private let asked = Mutex<[String]>([])
    /// The paths of all requests.
    var paths: [String] { asked.withLock { $0 } }

    var log: [String] { events.withLock { $0 } }
    private func note(_ event: String) { events.withLock { $0.append(event) } }

    /// Continues requests for /held.
    func release() {
        let waiting = held.withLock { held in
            defer { held = [] }
            return held
        }
        for continuation in waiting { continuation.resume() }
    }

    var heldCount: Int { held.withLock { $0.count } }

    func respond(to request: HTTPRequest) async -> HTTPResponse {
        asked.withLock { $0.append(request.path) }
        if request.path == "/shared" {
            var response = HTTPResponse(status: 200, contentType: .bytes, body: shared)
            response.isBodyShared = true
            return response
        }
        if request.path == "/held" { await withCheckedContinuation { waiting in held.withLock { $0.append(waiting) } } }
        if request.path == "/large" {
            return HTTPResponse(status: 200, contentType: .bytes, body: Array(repeating: 0x78, count: 4_000_000))
        }
        if request.path == "/none" { return HTTPResponse(status: 204) }
        let body = request.withBody { String(wire: $0) }
        let text = "\(request.method) \(request.path)\(request.query.map { "?\($0)" } ?? "") \(body)"
        return HTTPResponse(status: 200, contentType: .text, body: Array(text.utf8))
    }

    func shouldUpgrade(_ request: HTTPRequest) -> Bool { request.path == "/ws" }
    func opened(_ socket: WebSocketHandle, request: HTTPRequest) async { note("opened \(request.path)") }

    func received(_ message: TextMessage, on socket: WebSocketHandle) async {
        let text = message.withText { String(wire: $0) }
        if text.hasPrefix("count") {
            await socket.send(Array("\(text.utf8.count)".utf8))
            return
        }
        note("received \(text)")
        switch text {
        case "join long":
            await socket.markJoined(maximumBytes: 262_144)
            await socket.send(Array(text.utf8))
        case "close": await socket.close(.normal)
        case "join":
            await socket.markJoined()
            await socket.send(Array(text.utf8))
        case "flood":
            for _ in 0..<100 where !(await socket.send(Array(repeating: 0x61, count: 1_000_000))) { return note("dropped") }
        case "ping": await socket.ping(7)
        case "hold": await withCheckedContinuation { waiting in held.withLock { $0.append(waiting) } }
        default: await socket.send(Array(text.utf8))
        }
    }

    func ponged(_ socket: WebSocketHandle, number: UInt64) async { note("ponged \(number)") }
    func closed(_ socket: WebSocketHandle, code: CloseCode) async { note("closed \(code.rawValue)") }
}

/// Runs a server on its own loop during `use`.
func withServer(
    _ configure: (inout ServerConfiguration) -> Void = { _ in },
    _ use: (HTTPServer, SocketAddress, EchoHandler) async throws -> Void
) async throws {
    try await withServer(clock: { Clock.monotonicMs }, configure, use)
}

func withServer(
    clock: @escaping @Sendable () -> UInt64, _ configure: (inout ServerConfiguration) -> Void,
    _ use: (HTTPServer, SocketAddress, EchoHandler) async throws -> Void
) async throws {
    let loop = try EventLoop(name: "test", clock: clock)
    try loop.start()
    var configuration = ServerConfiguration(address: .v4(0x7F00_0001, port: 0))
    configure(&configuration)
    let handler = EchoHandler()
    let server = HTTPServer(loop: loop, configuration: configuration, handler: handler)
    let address = try await server.start()
    do {
        try await use(server, address, handler)
        handler.release()
        await server.drain(deadlineMs: 0)
    } catch {
        Issue.record(error)
    }
    loop.stop()
    loop.join()
}

extension ServerConfiguration {
    mutating func setQuota(_ resource: Resource, _ quota: Quota) {
        var table = shares.table
        table[resource] = quota
        shares = Shares(table)
    }
}

/// Blocks the server's loop while `prepare` runs, so that the server sees all of its effects at once and no deadline passes in between.
func atOnce<R>(_ server: HTTPServer, _ prepare: () async throws -> R) async throws -> R {
    let gate = DispatchSemaphore(value: 0)
    let isHeld = Atomic(false)
    server.loop.submit {
        isHeld.store(true, ordering: .releasing)
        gate.wait()
    }
    defer { gate.signal() }
    try await eventually { isHeld.load(ordering: .acquiring) }
    return try await prepare()
}

struct TimedOut: Error {}

/// Waits for an effect of another thread.
func eventually(_ isTrue: () async throws -> Bool) async throws {
    let deadline = Clock.monotonicMs + 60_000
    while try await !isTrue() {
        guard Clock.monotonicMs < deadline else { throw TimedOut() }
        try await Task.sleep(for: .milliseconds(1))
    }
}

/// A peer that writes and reads raw bytes.
final class RawClient {
    let socket: Socket
    private(set) var received: [UInt8] = []
    private(set) var hasEnded = false
    /// Closes when the server closes.
    var closesInTurn = true

    init(_ address: SocketAddress) async throws {
        socket = try Socket.connect(to: address)
        try await Task.sleep(for: .milliseconds(1))
    }

    convenience init(_ address: SocketAddress, writing text: String) async throws {
        try await self.init(address)
        try await write(text)
    }

    func write(_ text: String) async throws { try await write(Array(text.utf8)) }

    func write(_ bytes: [UInt8]) async throws {
        var offset = 0
        try await HTTPServerTests.eventually {
            offset += try socket.write(bytes.span.extracting(droppingFirst: offset)) ?? 0
            return offset == bytes.count
        }
    }

    /// Reads available bytes. A reset counts as an end.
    func read() {
        var buffer = [UInt8](repeating: 0, count: 65536)
        while !hasEnded {
            var span = buffer.mutableSpan
            do throws(Errno) {
                guard let count = try socket.read(into: &span) else { return }
                if count > 0 {
                    received += buffer[..<count]
                } else {
                    hasEnded = true
                    if closesInTurn { socket.finishWriting() }
                }
            } catch {
                hasEnded = true
            }
        }
    }

    var text: String { String(decoding: received, as: UTF8.self) }

    /// Reads until `isTrue`.
    func eventually(_ isTrue: () async throws -> Bool) async throws {
        try await HTTPServerTests.eventually {
            read()
            return try await isTrue()
        }
    }

    /// The responses so far: status and body, without variable parts.
    func answers(_ count: Int) async throws -> [String] {
        var found: [String] = []
        try await eventually {
            found = parse()
            return found.count >= count || hasEnded
        }
        return found
    }

    /// Returns all responses until the server closes.
    func answersUntilEnd() async throws -> [String] {
        try await eventually { hasEnded }
        return parse()
    }

    private func parse() -> [String] {
        let parser = ResponseParser(limits: MessageLimits(bodyBytes: 100_000_000))
        var rest = received[...]
        var found: [String] = []
        while !rest.isEmpty {
            guard case .complete(let consumed) = parser.parse(Array(rest).span) else { break }
            rest = rest.dropFirst(consumed)
            let message = parser.takeMessage()
            let body = message.withBody { String(wire: $0) }
            found.append("\(message.status) \(body)\(message.keepsAlive ? "" : " close")")
        }
        return found
    }
}
