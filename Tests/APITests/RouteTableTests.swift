import Broker
import HTTP1
import HTTPServer
import Testing

@testable import API

@Suite struct RouteTableTests {
    private struct Target: Sendable {}

    private static func say(_ text: String) -> HTTPResponse {
        HTTPResponse(status: 200, contentType: .text, body: Array(text.utf8))
    }

    private static let table = RouteTable<Target>([
        Route([.get], "/a") { _, _ in say("read") },
        Route([.delete], "/a") { _, _ in say("delete") },
        Route([.get], "/a/by/:id") { say("by \($1.name)") },
        Route([.patch], "/a/:id/by") { say("of \($1.name)") },
        Route([.get, .head], "/files/*", isCharged: false) { _, _ in say("file") },
        Route(nil, "/socket") { _, _ in throw BrokerError.upgradeRequired },
    ])

    /// The answer's text, the allowed methods, or nil if no route matches.
    private func ask(_ method: HTTP1.Method, _ path: String) async throws -> String? {
        let request = HTTPRequest(method: method, target: path)
        do {
            let answer = try await Self.table.find(request.path)?.answer(request, Target())
            return answer.map { String(decoding: $0.body, as: UTF8.self) }
        } catch BrokerError.methodNotAllowed(let allowed) {
            return "only \(allowed)"
        }
    }

    private static let answers: [(HTTP1.Method, String, String?)] = [
        (.get, "/a", "read"), (.head, "/a", "read"), (.delete, "/a", "delete"), (.post, "/a", "only GET, DELETE"),
        // The first matching pattern decides, for any method.
        (.get, "/a/by/by", "by by"), (.patch, "/a/by/by", "only GET"), (.patch, "/a/x/by", "of x"),
        (.get, "/a/x/by", "only PATCH"),
        // A parameter stays encoded and may be empty.
        (.get, "/a/by/x%2Fy", "by x%2Fy"), (.get, "/a/by/", "by "), (.get, "/a/by/x/y", nil), (.get, "/a/", nil),
        (.get, "/A", nil),
        (.get, "/files/x/y", "file"), (.head, "/files/", "file"), (.get, "/files", nil), (.post, "/files/x", "only GET, HEAD"),
    ]

    @Test(arguments: answers)
    func routesAreFoundByPathAndMethod(method: HTTP1.Method, path: String, answer: String?) async throws {
        #expect(try await ask(method, path) == answer, "\(method) \(path)")
    }

    @Test(arguments: [HTTP1.Method.get, .head, .put, .other]) func socketPathsRefuseRequests(method: HTTP1.Method) async {
        await #expect(throws: BrokerError.upgradeRequired) { _ = try await ask(method, "/socket") }
    }

    private func allowsLongBody(_ method: HTTP1.Method, _ target: String) -> Bool {
        API.allowsLongBody(method, target: target.utf8.span)
    }

    @Test func onlyEventsAndWebhooksHaveLongBodies() {
        let long = [
            "/api/sessions/s/events", "/api/sessions/a%2Fb/events?x=1", "/api/monitors/p/status", "/api/monitors/p/progress",
            "/webhooks/call", "http://a.test/webhooks/call",
        ]
        for target in long {
            #expect(allowsLongBody(.post, target), "\(target)")
            for method in [HTTP1.Method.get, .put, .patch, .delete, .other] { #expect(!allowsLongBody(method, target)) }
        }
        for target in [
            "/api/rooms", "/api/rooms/accept", "/api/push/register", "/api/approval/x/respond", "/api/devices/register",
            "/ws/sessions",
            "/webhooks/call/", "/nothing", "*", "", "/api/rooms?/webhooks/call",
        ] {
            #expect(!allowsLongBody(.post, target), "\(target)")
        }
    }
}

@Suite struct AuditFilesTests {
    @Test(arguments: [
        "checkpoint", "tile/0/000", "tile/0/x001/x234/067", "tile/0/000.p/5", "tile/entries/000", "tile/entries/x001/067.p/255",
        "policies/\(String(repeating: "a0", count: 32)).json",
    ])
    func pathsOfLogFilesAreAccepted(_ path: String) { #expect(AuditFiles.isLogPath(path)) }

    // Promise: only-the-ledger-is-served
    @Test(arguments: [
        "", ".", "..", "../mayfly.sqlite", "checkpoint/", "/checkpoint", "tile", "tile/", "tile/0", "tile/../../x", "tile/0/..",
        "tile/0/000/../../../keys/ratchet.key", "tile/0/%2e%2e", "tile/entries/0000", "policies/x.json", "policies/../x.json",
        "policies/\(String(repeating: "A0", count: 32)).json", "ledger.vkey", "tile/0/000.new", "checkpoint.new",
    ])
    func otherPathsAreRefused(_ path: String) { #expect(!AuditFiles.isLogPath(path)) }
}
