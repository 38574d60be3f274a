import HTTP1
import Linux
import Shares
import Testing

@testable import HTTPServer

@Suite struct RequestTests {
    static let get = "GET /x?y HTTP/1.1\r\nHost: a\r\n\r\n"

    @Test func responsesHaveTheirHeaderLines() async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address, writing: Self.get)
            #expect(try await client.answers(1) == ["200 get /x?y "])
            let lines = client.text.split(separator: "\r\n", omittingEmptySubsequences: false).map(String.init)
            #expect(lines[0] == "HTTP/1.1 200 OK")
            #expect(lines[1].hasPrefix("Date: ") && lines[1].hasSuffix(" GMT") && lines[1].utf8.count == 35)
            #expect(lines[2...] == ["Content-Type: text/plain; charset=utf-8", "Content-Length: 9", "", "get /x?y "])
        }
    }

    @Test func connectionsAreReused() async throws {
        try await withServer { server, address, _ in
            let client = try await RawClient(address)
            for count in 1...5 {
                try await client.write("POST /\(count) HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
                #expect(try await client.answers(count).last == "200 post /\(count) hi")
            }
            #expect(await server.statistics.accepted == 1)
            #expect(await server.statistics.requests == 5)
        }
    }

    @Test func requestsArriveInPiecesOfAnySize() async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address)
            let text = "POST /p HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
            for byte in text.utf8 {
                try await client.write([byte])
                try await Task.sleep(for: .microseconds(200))
            }
            #expect(try await client.answers(1) == ["200 post /p hi"])
        }
    }

    @Test func pipelinedRequestsAreAnsweredInOrder() async throws {
        try await withServer { _, address, handler in
            let client = try await RawClient(address)
            let held = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n"
            let many = (0..<500).map { "GET /\($0) HTTP/1.1\r\nHost: a\r\n\r\n" }.joined()
            try await client.write(Self.get + held + many)
            try await eventually { handler.heldCount == 1 }
            #expect(try await client.answers(1) == ["200 get /x?y "])
            handler.release()
            let answers = try await client.answers(502)
            #expect(answers == ["200 get /x?y ", "200 get /held "] + (0..<500).map { "200 get /\($0) " })
        }
    }

    @Test func requestsOfOneTurnDoNotWaitForEachOther() async throws {
        try await withServer { server, address, handler in
            var clients: [RawClient] = []
            for _ in 0..<6 { clients.append(try await RawClient(address)) }
            try await eventually { await server.statistics.openConnections == 6 }
            try await atOnce(server) {
                for (number, client) in clients.enumerated() {
                    try await client.write("GET /\(number % 2 == 0 ? "held" : "x") HTTP/1.1\r\nHost: a\r\n\r\n")
                }
            }
            for number in [1, 3, 5] { #expect(try await clients[number].answers(1) == ["200 get /x "]) }
            #expect(handler.heldCount == 3)
            handler.release()
            for number in [0, 2, 4] { #expect(try await clients[number].answers(1) == ["200 get /held "]) }
        }
    }

    @Test func aSlowReaderStopsPipelining() async throws {
        try await withServer { server, address, _ in
            let client = try await RawClient(address)
            try await client.write(String(repeating: "GET /large HTTP/1.1\r\nHost: a\r\n\r\n", count: 20))
            try await eventually { await server.statistics.requests > 0 }
            try await Task.sleep(for: .milliseconds(50))
            #expect(await server.statistics.requests < 5)
            try await client.eventually { client.received.count > 80_000_000 }
            #expect(await server.statistics.requests == 20)
        }
    }

    @Test(arguments: [
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "200 get /  close"),
        ("GET / HTTP/1.0\r\n\r\n", "200 get /  close"),
    ])
    func closesConnectionsOnRequest(_ request: String, _ answer: String) async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address, writing: request + Self.get)
            #expect(try await client.answersUntilEnd() == [answer])
        }
    }

    @Test func anHTTP10ClientMayKeepItsConnection() async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address, writing: "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            #expect(try await client.answers(1) == ["200 get / "])
            #expect(client.text.contains("Connection: keep-alive\r\n"))
        }
    }

    @Test func headAnswersHaveNoBody() async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address, writing: "HEAD /abc HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            _ = try? await client.answersUntilEnd()
            #expect(client.text.contains("Content-Length: 10\r\n"))
            #expect(client.text.hasSuffix("\r\n\r\n"))
        }
    }

    @Test func anAnswer204HasNoLength() async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address, writing: "GET /none HTTP/1.1\r\nHost: a\r\n\r\n" + Self.get)
            #expect(try await client.answers(2) == ["204 ", "200 get /x?y "])
            #expect(!client.text.prefix(120).contains("Content-Length: 0"))
        }
    }

    @Test func continueIsSentOnce() async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address)
            try await client.write("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            try await client.eventually { client.text == "HTTP/1.1 100 Continue\r\n\r\n" }
            try await client.write("h")
            try await client.write("i")
            #expect(try await client.answers(1) == ["200 post / hi"])
            #expect(client.text.ranges(of: "100 Continue").count == 1)
            // A body refused by its length gets no 100 Continue.
            let other = try await RawClient(address)
            try await other.write("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 99999\r\n\r\n")
            #expect(try await other.answersUntilEnd().first?.hasPrefix("413 ") == true)
            #expect(other.text.ranges(of: "100 Continue").count == 0)
        }
    }

    @Test func aHalfClosedClientGetsItsResponse() async throws {
        try await withServer { server, address, handler in
            let client = try await RawClient(address, writing: Self.get + "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
            client.socket.finishWriting()
            try await eventually { handler.heldCount == 1 }
            handler.release()
            #expect(try await client.answersUntilEnd() == ["200 get /x?y ", "200 get /held "])
            try await eventually { await server.statistics.openConnections == 0 }
        }
    }

    @Test func aDisconnectedClientIsRemoved() async throws {
        try await withServer { server, address, handler in
            do {
                let client = try await RawClient(address, writing: "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
                try await eventually { handler.heldCount == 1 }
                client.socket.resetOnClose()
            }
            try await eventually { await server.statistics.openConnections == 0 }
            handler.release()
            let client = try await RawClient(address, writing: Self.get)
            #expect(try await client.answers(1) == ["200 get /x?y "])
        }
    }

    @Test(arguments: [
        ("GET / HTTP/1.1\r\n\r\n", 400, "malformed_request"),
        ("nonsense\r\n\r\n", 400, "malformed_request"),
        ("OPTIONS a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("QU(ERY / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET ?a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET http://a:1/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "malformed_request"),
        ("GET http://a/ HTTP/1.1\r\nHost:\r\n\r\n", 400, "malformed_request"),
        ("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nAuthorization: y\r\n\r\n", 400, "malformed_request"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n", 400, "malformed_request"),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: x\r\nContent-Length: 2\r\n\r\n{}", 417, "expectation_failed"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415, "unsupported_encoding"),
        ("GET /" + String(repeating: "x", count: 8192) + " HTTP/1.1\r\nHost: a\r\n\r\n", 414, "target_too_long"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: " + String(repeating: "x", count: 16384) + "\r\n\r\n", 431, "headers_too_large"),
        ("GET / HTTP/1.1\r\nHost: a\r\n" + String(repeating: "A: b\r\n", count: 100) + "\r\n", 431, "headers_too_large"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16385\r\n\r\n", 413, "body_too_large"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n", 413, "body_too_large"),
    ])
    func badRequestsAreAnsweredThenClosed(_ request: String, _ status: Int, _ code: String) async throws {
        try await withServer { server, address, _ in
            let client = try await RawClient(address)
            // More bytes follow, so closing at once would reset the connection before the response is read.
            try await client.write(request + String(repeating: "x", count: 60_000))
            let answers = try await client.answersUntilEnd()
            #expect(answers.count == 1)
            #expect(answers.first?.hasPrefix("\(status) {\"type\":\"about:blank\"") == true)
            #expect(answers.first?.contains("\"code\":\"\(code)\",\"success\":false,\"error\":\"") == true)
            #expect(client.text.contains("Content-Type: application/problem+json\r\n"))
            #expect(await server.statistics.refusals == 1)
        }
    }

    @Test(arguments: [("http://a.B:1/x?y", "/x?y"), ("HTTPS://A.b:1/", "/"), ("*", "*"), ("/a//b", "/a//b"), ("/?", "/?")])
    func targets(_ target: String, _ expected: String) async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address, writing: "GET \(target) HTTP/1.1\r\nHost: a.b:1\r\n\r\n")
            #expect(try await client.answers(1) == ["200 get \(expected) "])
        }
    }

    @Test func aVersion10RequestMayHaveItsHostInTheTargetOnly() async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address, writing: "GET http://a/x HTTP/1.0\r\n\r\n")
            #expect(try await client.answersUntilEnd() == ["200 get /x  close"])
        }
    }

    @Test func excessConnectionsAreRefused() async throws {
        try await withServer {
            $0.setQuota(.connections, Quota(2))
        } _: { server, address, _ in
            let first = try await RawClient(address)
            let second = try await RawClient(address)
            try await eventually { await server.statistics.openConnections == 2 }
            let third = try await RawClient(address)
            let answers = try await third.answersUntilEnd()
            #expect(answers.first?.hasPrefix("503 ") == true)
            #expect(third.text.contains("Retry-After: 5\r\n"))
            for client in [first, second] {
                try await client.write(Self.get)
                #expect(try await client.answers(1) == ["200 get /x?y "])
            }
        }
    }

    @Test func anUnknownMethodReachesTheHandler() async throws {
        try await withServer { _, address, _ in
            let client = try await RawClient(address)
            try await client.write("QUERY /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" + Self.get)
            #expect(try await client.answers(2) == ["200 other /x hi", "200 get /x?y "])
        }
    }

    @Test func servesAUnixSocket() async throws {
        let path = "/tmp/mayfly-test-\(UInt64.random(in: 0 ... .max)).sock"
        defer { try? File.remove(path) }
        try await withServer {
            $0.address = .unix(path)
        } _: { _, _, _ in
            let client = try await RawClient(.unix(path))
            try await client.write(Self.get)
            #expect(try await client.answers(1) == ["200 get /x?y "])
        }
    }

    @Test(
        arguments: [
            ("localhost", true), ("LocalHost:8788", true), ("127.0.0.1", true), ("127.0.0.1:8788", true), ("127.1.2.3:1", true),
            ("[::1]", true), ("[::1]:8788", true), ("localhost:", true),
            ("attacker.example", false), ("attacker.example:8788", false), ("localhost.attacker.example", false),
            ("127.0.0.1.attacker.example", false), ("127.0.0.1:80:80", false), ("128.0.0.1", false), ("10.0.0.1:8788", false),
            ("0.0.0.0", false), ("127.1", false), ("2130706433", false), ("[::2]", false), ("[::]", false), ("::1", false),
            ("unix", false), ("unix:1", false), ("", false), ("localhost,127.0.0.1", false),
            ("localhost@attacker.example", false),
        ])
    func recognisesLoopbackNames(_ host: String, _ isLoopback: Bool) {
        let request = HTTPRequest(method: .get, target: "/", headers: [("host", host)])
        #expect(request.namesLoopback == isLoopback)
    }

    @Test func aRequestWithoutHostIsNotLoopback() { #expect(!HTTPRequest(method: .get, target: "/").namesLoopback) }

    @Test func requestsInMemoryEqualThoseFromTheNetwork() async {
        let request = HTTPRequest(method: .put, target: "/a?b", headers: [("X-Y", "z"), ("x-y", "w")], body: [0x68, 0x69])
        #expect(
            request.path == "/a" && request.query == "b" && request.header("x-y") == "z" && request.headers("x-y") == ["z", "w"])
        #expect(await EchoHandler().respond(to: request).body == Array("put /a?b hi".utf8))
    }

    // Promise: own-share-429
    @Test func anAddressOverItsShareIsRefused() async throws {
        try await withServer {
            $0.setQuota(.connections, Quota(100, network: Share(2)))
        } _: { server, _, _ in
            var peers: [PairedClient] = []
            for last in [7, 7, 7, 8] as [UInt32] {
                peers.append(try await PairedClient(server, .v4(0xC000_0200 | last, port: 1)))
            }
            for peer in peers { try await peer.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
            for (peer, status) in zip(peers, ["200", "200", "429", "200"]) {
                #expect(try await peer.statusLine().hasPrefix("HTTP/1.1 \(status) "))
            }
            #expect(await server.overflows == 1)
            // A closed connection makes room.
            peers.removeFirst()
            peers.remove(at: 1)
            try await eventually { await server.statistics.openConnections == 2 }
            #expect(await server.overflows == 0)
            let next = try await PairedClient(server, .v4(0xC000_0207, port: 1))
            try await next.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            #expect(try await next.statusLine().hasPrefix("HTTP/1.1 200 "))
        }
    }

    @Test func refusedConnectionsAreLimited() async throws {
        try await withServer {
            $0.setQuota(.connections, Quota(100, network: Share(1)))
        } _: { server, _, _ in
            var peers: [PairedClient] = []
            for _ in 0..<HTTPServer.overflow + 2 { peers.append(try await PairedClient(server, .v4(0xC000_0207, port: 1))) }
            #expect(await server.statistics.openConnections <= HTTPServer.overflow + 1)
            #expect(await server.statistics.accepted == HTTPServer.overflow + 2)
        }
    }
}

/// The client's end of a connection for which the server sees a fake address.
private final class PairedClient {
    private let socket: Socket
    private var received = ""

    init(_ server: HTTPServer, _ remote: SocketAddress) async throws {
        let pair = try Socket.pair()
        socket = pair.first
        let other = pair.second
        await server.admit(other, from: remote)
    }

    func write(_ text: String) async throws {
        let bytes = Array(text.utf8)
        _ = try? socket.write(bytes.span)
    }

    func statusLine() async throws -> String {
        var buffer = [UInt8](repeating: 0, count: 4096)
        try await eventually {
            var span = buffer.mutableSpan
            if let count = try socket.read(into: &span) { received += String(decoding: buffer[..<count], as: UTF8.self) }
            return received.contains("\r\n")
        }
        return String(received.prefix { $0 != "\r\n" })
    }
}
