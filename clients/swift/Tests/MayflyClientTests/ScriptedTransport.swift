import Foundation
import MayflyClient
import SocketTransport

/// A transport that does what a test says with each request, counted from 1.
final class ScriptedTransport: Transport, @unchecked Sendable {
    typealias Step = @Sendable (Int, TransportRequest) async throws -> TransportResponse
    typealias Connect = @Sendable (Int, URL) async throws -> any WebSocket

    private let lock = NSLock()
    private let step: Step
    private let connect: Connect
    private var sent: [TransportRequest] = []
    private var connections = 0

    init(connect: @escaping Connect = { try await SocketTransport().connect($1) }, _ step: @escaping Step) {
        self.step = step
        self.connect = connect
    }

    var requests: [TransportRequest] { lock.withLock { sent } }

    func send(_ request: TransportRequest) async throws -> TransportResponse {
        let number = lock.withLock {
            sent.append(request)
            return sent.count
        }
        return try await step(number, request)
    }

    func connect(_ url: URL) async throws -> any WebSocket {
        let number = lock.withLock {
            connections += 1
            return connections
        }
        return try await connect(number, url)
    }

    static func problem(_ status: Int, _ code: String, retryAfter: String? = nil) -> TransportResponse {
        let body = #"{"type":"about:blank","status":\#(status),"code":"\#(code)","detail":"Why.","title":"T","success":false}"#
        return TransportResponse(
            status: status, contentType: "application/problem+json", retryAfter: retryAfter, body: Data(body.utf8))
    }
}
