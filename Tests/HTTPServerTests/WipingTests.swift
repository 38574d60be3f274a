import HTTP1
import Linux
import Testing

@testable import HTTPServer

extension HTTPServer {
    /// Answers the only connection, or a closed one.
    /// - Returns: the body afterwards.
    fileprivate func bodyLeft(of response: HTTPResponse, connected: Bool) -> [UInt8] {
        var response = response
        let id = connected ? slots.compactMap { $0 }.first?.id : nil
        answer(id ?? ConnectionID(slot: 0, generation: .max), &response)
        return response.body
    }

    fileprivate var parserPhases: [ParsePhase?] { slots.compactMap { $0 }.map { $0.http1?.parser.phase } }
}

/// Secrets that the server wipes.
@Suite struct WipingTests {
    static let secret = Array("a room id".utf8)

    @Test func aResponseBodyIsZeroedAfterItWasWritten() async throws {
        try await withServer { server, address, handler in
            let client = try await RawClient(address, writing: "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
            try await eventually { handler.heldCount == 1 }
            let response = HTTPResponse(status: 200, contentType: .text, body: Self.secret)
            #expect(await server.bodyLeft(of: response, connected: true) == [UInt8](repeating: 0, count: 9))
            #expect(try await client.answers(1) == ["200 a room id"])
            // A shared body is not wiped.
            #expect(response.body == Self.secret)
        }
    }

    @Test func aResponseForAClosedConnectionIsZeroed() async throws {
        try await withServer { server, _, _ in
            let response = HTTPResponse(status: 200, body: Self.secret)
            #expect(await server.bodyLeft(of: response, connected: false) == [UInt8](repeating: 0, count: 9))
        }
    }

    /// A refused client may keep its connection open while the server lingers.
    @Test(arguments: [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nsecret", "GET /secret",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n",
    ])
    func aRefusedRequestIsZeroed(_ text: String) async throws {
        try await withServer {
            $0.headerMs = 50
            $0.bodyMs = 50
            $0.lingerMs = 60_000
        } _: { server, address, _ in
            let client = try await RawClient(address)
            client.closesInTurn = false
            try await client.write(text)
            try await client.eventually { client.hasEnded }
            #expect(client.text.hasPrefix("HTTP/1.1 4"))
            #expect(await server.parserPhases == [.failed])
        }
    }

    @Test func aGrowingBufferKeepsItsBytes() {
        var bytes: [UInt8] = [1, 2, 3]
        bytes.reserveWiping(1000)
        #expect(bytes == [1, 2, 3])
        #expect(bytes.capacity >= 1003)
        let capacity = bytes.capacity
        bytes.reserveWiping(1000)
        #expect(bytes.capacity == capacity)
    }
}
