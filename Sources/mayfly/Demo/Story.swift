import EventLoop
import HTTP1
import HTTPServer
import Ledger
import Linux
import Policy

/// The story of one room, played over real sockets and checked at each step.
struct Story {
    let service: Service
    let state: StateFolder
    let control: String
    let client: HTTPClient
    let loop: EventLoop
    let timing: LedgerTiming

    /// Longer than this nobody watches.
    private static let longestHour: UInt64 = 60

    private static let creatorToken = String(repeating: "a1", count: 32)
    private static let joinerToken = String(repeating: "b2", count: 32)

    func play() async throws {
        let api = "http://\(service.address)"
        Terminal.out("The story of one room, with throw-away keys. What leaves for Apple goes to the simulator.\n")

        step("1", "Ann makes a room and leaves her phone's push address with the broker, which seals it.")
        let made = try await call(
            .post, "\(api)/api/rooms",
            "{\"joinid\":\"482913\",\"expiresInSeconds\":600,\"client1\":\"ann\",\"client1_token\":\"\(Self.creatorToken)\"}",
            expect: 201)
        let room = try made.text("roomid")

        step("2", "Ben types the join code and leaves his.")
        let joined = try await call(
            .post, "\(api)/api/rooms/accept",
            "{\"joinid\":\"482913\",\"client2\":\"ben\",\"client2_token\":\"\(Self.joinerToken)\"}", expect: 200)
        guard try joined.text("roomid") == room else { throw CheckFailed("Ben got another room") }
        try check(try await pushes().isEmpty, "No push was sent yet.")

        step("3", "Ben opens the room; Ann is away. Ben's room id lets the broker open Ann's address, for this one push.")
        let ben = try await socket(room, "ben")
        let hello = try await ben.next()
        try check(
            hello.contains("\"type\":\"joined\"") && hello.contains("\"delivery\":\"queued\""),
            "The push is stored and on its way.")
        let arrived = try await waitForPush()
        try check(arrived.contains(Self.creatorToken), "The simulator received it for Ann's phone.")
        try check(arrived.contains("Your chat partner is waiting"), "It says: Your chat partner is waiting.")
        for secret in [room, "482913", "ann", "ben"] where arrived.contains("\"\(secret)\"") {
            throw CheckFailed("the push says too much")
        }
        Terminal.out("     Nothing in it names the room, the code or a person.")

        step("4", "Ann comes back. Ben is present, so no push is sent.")
        let ann = try await socket(room, "ann")
        try check(try await ann.next().contains("\"delivery\":\"peer_present\""), "Ann joined; Ben is present.")
        try check(try await ben.next().contains("peer_joined"), "Ben saw Ann come.")
        try check(try await pushes().components == 1, "Still one push in all.")

        step("5", "Ann ends the room: both addresses are destroyed.")
        let closed = try await call(.delete, "\(api)/api/room", nil, bearer: room, expect: 200)
        try check(closed.body.contains("\"purged\":2"), "Two addresses purged.")
        try check(try await ben.next().contains("room_closed"), "Ben was notified.")
        _ = try await call(.get, "\(api)/api/room", nil, bearer: room, expect: 404)
        Terminal.out("     The room is gone.")
        await ann.end()
        await ben.end()

        step("6", "The log is checked as an auditor would check it.")
        let hour = timing.hourSeconds
        let isWaitedFor = hour <= Self.longestHour
        Terminal.out("     Seals and purges are published together, every \(hour) s.")
        let report = try await published(within: isWaitedFor ? 2 * hour + 5 : 3)
        try check(report.delivered >= 1 && (report.purged >= 2 || !isWaitedFor), "\(report)")
        Terminal.out("\nThe ledger's verdict: good.")
    }

    /// The log with both purges, which come out in the next batch.
    private func published(within seconds: UInt64) async throws -> Report {
        let source = FolderSource(state.ledger)
        let key = try AuditCommand.verifierKey(state.verifierKey)
        let end = Clock.monotonicNs + seconds * 1_000_000_000
        while true {
            try await loop.sleep(1_000)
            let report = try await Verifier(source, key: key).verify()
            if report.purged >= 2 || Clock.monotonicNs > end { return report }
        }
    }

    // MARK: Steps

    private func step(_ number: String, _ text: String) { Terminal.out("\(number).   \(text)") }

    private func check(_ holds: Bool, _ text: String) throws {
        guard holds else { throw CheckFailed("mayfly demo: this check failed: \(text)") }
        Terminal.out("     \(text)")
    }

    /// An answer, as text, with the one look-up the story needs.
    private struct Answer {
        let body: String

        func text(_ name: String) throws -> String {
            let mark = "\"\(name)\":\""
            guard let start = body.firstRange(of: mark) else { throw CheckFailed("mayfly demo: an answer without \(name)") }
            return String(body[start.upperBound...].prefix { $0 != "\"" })
        }

        var isEmpty: Bool { body == "[]" }
        /// How many pushes a list holds.
        var components: Int { body.ranges(of: "\"headers\"").count }
    }

    private func call(
        _ method: Method, _ url: String, _ body: String?, bearer: String? = nil, expect status: UInt16
    ) async throws -> Answer {
        let answer = try await client.send(
            url, method: method, headers: bearer.map { [.init("Authorization", "Bearer \($0)")] } ?? [],
            body: Array((body ?? "").utf8))
        guard answer.status == status else {
            throw CheckFailed("mayfly demo: \(method.name) answered \(answer.status) instead of \(status)")
        }
        return Answer(body: String(decoding: answer.body, as: UTF8.self))
    }

    private func pushes() async throws -> Answer { try await call(.get, control + "/pushes", nil, expect: 200) }

    private func waitForPush() async throws -> String {
        for _ in 0..<100 {
            let list = try await pushes()
            if !list.isEmpty { return list.body }
            try await loop.sleep(20)
        }
        throw CheckFailed("mayfly demo: no push arrived within two seconds")
    }

    private func socket(_ room: String, _ name: String) async throws -> Phone {
        let socket = WebSocketClient(loop: loop)
        try await socket.connect("ws://\(service.address)/ws")
        try await socket.send(Array("{\"type\":\"join_room\",\"roomid\":\"\(room)\",\"client\":\"\(name)\"}".utf8))
        return Phone(socket: socket)
    }

    /// One side's open WebSocket.
    private struct Phone {
        let socket: WebSocketClient

        func next() async throws -> String {
            guard let message = try await socket.receive(timeoutMs: 5_000) else {
                throw CheckFailed("mayfly demo: a socket closed early")
            }
            return String(decoding: message, as: UTF8.self)
        }

        func end() async { await socket.close() }
    }
}
