import Foundation

/// A broker, as an app calls it. Every call can be cancelled.
public struct Client: Sendable {
    let baseURL: URL
    let environment: PushEnvironment
    let bundleID: String?
    let transport: any Transport
    private let unanswered = UnansweredCalls()
    /// How long 429 and 503 are waited out. A longer `Retry-After` is reported instead.
    var patience: Duration = .seconds(30)
    /// A broker answers a repeated create or accept for 120 s. The last try has to end within that time.
    var repeatWindow: Duration = .seconds(100)

    /// - Parameters:
    ///   - baseURL: the broker, such as `https://push.example.org`. `http` is accepted on loopback only.
    ///   - environment: which of Apple's services the app's tokens belong to.
    ///   - bundleID: the app, if the broker serves several. Without the suffix of a push type such as `.voip`.
    ///   - transport: sends the requests. Without it ``URLSessionTransport`` does.
    /// - Throws: ``MayflyError/invalidConfiguration(_:)`` if the URL can't be used.
    public init(baseURL: URL, environment: PushEnvironment, bundleID: String? = nil, transport: any Transport) throws {
        try Self.check(baseURL)
        self.baseURL = baseURL
        self.environment = environment
        self.bundleID = bundleID
        self.transport = transport
    }

    private static func check(_ url: URL) throws {
        guard let parts = URLComponents(url: url, resolvingAgainstBaseURL: true), let host = parts.host, !host.isEmpty,
            parts.user == nil, parts.password == nil, parts.query == nil, parts.fragment == nil
        else {
            throw MayflyError.invalidConfiguration("The broker's URL needs a scheme and a host, without user or query.")
        }
        let isLoopback = host == "localhost" || host == "[::1]" || host == "::1" || host.isLoopbackIPv4
        guard parts.scheme == "https" || parts.scheme == "http" && isLoopback else {
            throw MayflyError.invalidConfiguration(
                "The broker's URL must begin with https. http would show tokens to the network.")
        }
    }

    // MARK: Rooms

    /// Makes a room that waits for the other person, for as long as its code is valid.
    ///
    /// A lost answer is asked for again for 100 seconds. The app may also call again with the same code, within two minutes of the first try. If the
    /// code was used meanwhile, the refusal is ``ErrorCode/joinCodeInUse``: make a room with another code.
    /// - Parameters:
    ///   - code: lets the other person in, once.
    ///   - token: this phone's token, for pushes when the other person waits.
    ///   - lifetime: of the accepted room, 10 s to 7 days. Without it the broker's default, usually a day.
    ///   - joinLifetime: of the code, 10 s to a day. Without it the room's.
    public func createRoom(
        code: JoinCode, token: PushToken? = nil, lifetime: Duration? = nil, joinLifetime: Duration? = nil
    ) async throws -> Room {
        var body = tokenFields("client1_token", token)
        body["expiresInSeconds"] = lifetime.map { .number($0.components.seconds) }
        body["joinExpiresInSeconds"] = joinLifetime.map { .number($0.components.seconds) }
        return try await enter("api/rooms", code, body, as: .creator)
    }

    /// Accepts a room by its code. A lost answer is asked for again, as in ``createRoom(code:token:lifetime:joinLifetime:)``.
    public func acceptRoom(code: JoinCode, token: PushToken? = nil) async throws -> Room {
        try await enter("api/rooms/accept", code, tokenFields("client2_token", token), as: .joiner)
    }

    /// Creates or accepts. Every try after a lost answer has the client id of the first one.
    private func enter(_ path: String, _ code: JoinCode, _ fields: [String: Field], as side: Room.Side) async throws -> Room {
        let client = await unanswered.client(for: side, code)
        var body = fields
        body["joinid"] = .text(code.text)
        body["client\(side.rawValue)"] = .text(client.value)
        do {
            let answer: Membership = try await call("POST", path, body, isRepeatable: true)
            let room = try answer.room(client: client, side: side)
            await unanswered.remove(side, code)
            return room
        } catch let error as MayflyError {
            // After any other error a try may have worked.
            if let refusal = error.refusal, refusal.kind != .exhausted { await unanswered.remove(side, code) }
            throw error
        }
    }

    public func status(of room: Room) async throws -> RoomStatus {
        try await call("GET", "api/room", bearer: room.roomID, isRepeatable: true)
    }

    /// Gives or replaces this side's token, and returns the room with its new ``Room/ref``. The same token again changes nothing.
    public func replaceToken(_ token: PushToken, in room: Room) async throws -> Room {
        struct Answer: Decodable {
            let ref: Secret
            let expiresAt: Date
        }
        let body = sideFields(room).merging(tokenFields("token", token)) { $1 }
        let answer: Answer = try await call("PUT", "api/room/token", body, bearer: room.roomID)
        guard answer.ref.isRef else { throw MayflyError.unexpectedAnswer(status: 200) }
        var replaced = room
        replaced.ref = answer.ref
        return replaced
    }

    /// Destroys this side's token at the broker. Returns whether there was one.
    @discardableResult
    public func withdrawToken(in room: Room) async throws -> Bool {
        let answer: Purged = try await call("DELETE", "api/room/token", sideFields(room), bearer: room.roomID)
        return answer.purged > 0
    }

    /// Reports that this side is present for the next 45 seconds, and knocks at the other side if that one is away.
    ///
    /// ``RoomSession`` does this by itself. A lost report is not repeated, since the next one follows anyway.
    /// - Parameters:
    ///   - room: this side's credentials.
    ///   - leaving: reports instead that this side leaves, with all its sockets.
    @discardableResult
    public func reportPresence(in room: Room, leaving: Bool = false) async throws -> Delivery {
        var body = sideFields(room)
        if leaving { body["leaving"] = .flag(true) }
        let answer: Delivered = try await call("POST", "api/room/presence", body, bearer: room.roomID)
        return answer.delivery
    }

    /// Pushes to this side's own token, also while it is present, to see whether pushes arrive: three times in an hour's window.
    ///
    /// The answer is ``Delivery/queued``, ``Delivery/noToken``, or ``Delivery/throttled`` if the token has had too many pushes.
    /// - Throws: a refusal of the kind ``Refusal/Kind/exhausted`` for a fourth test within the hour.
    public func testPush(in room: Room) async throws -> Delivery {
        let answer: Delivered = try await call("POST", "api/push/test", sideFields(room), bearer: room.roomID)
        return answer.delivery
    }

    /// Closes the room for both sides and destroys its tokens. Returns how many there were.
    ///
    /// - Throws: a refusal of the kind ``Refusal/Kind/gone`` if the room has ended already.
    @discardableResult
    public func close(_ room: Room) async throws -> Int {
        let answer: Purged = try await call("DELETE", "api/room", bearer: room.roomID)
        return answer.purged
    }

    // MARK: Requests

    /// A value in a request's body.
    enum Field: Encodable {
        case text(String)
        case number(Int64)
        case flag(Bool)
        case object([String: Field])

        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            switch self {
            case .text(let text): try container.encode(text)
            case .number(let number): try container.encode(number)
            case .flag(let flag): try container.encode(flag)
            case .object(let fields): try container.encode(fields)
            }
        }
    }

    func tokenFields(_ name: String, _ token: PushToken?) -> [String: Field] {
        guard let token else { return [:] }
        var fields: [String: Field] = [name: .text(token.hex), "environment": .text(environment.rawValue)]
        fields["bundleId"] = bundleID.map { .text($0) }
        return fields
    }

    private func sideFields(_ room: Room) -> [String: Field] {
        ["client": .text(room.clientID.value), "member": .text(room.member.value)]
    }

    /// Sends one call, and repeats it where that can do nothing else than the first try.
    ///
    /// - Parameters:
    ///   - path: percent-encoded.
    ///   - bearer: evaluated for each try.
    ///   - isRepeatable: repeats also if the answer was lost. A refusal with `Retry-After` is always repeated, since nothing was kept.
    func call<Answer: Decodable>(
        _ method: String, _ path: String, _ fields: [String: Field]? = nil,
        bearer: @autoclosure () async throws -> Secret? = nil, isRepeatable: Bool = false
    ) async throws -> Answer {
        let started = ContinuousClock.now
        var backoff = Backoff()
        var wasSent = false
        while true {
            let bearer = try await bearer()
            do {
                return try await send(method, path, fields, bearer)
            } catch let error as MayflyError {
                let wait: Duration
                switch error {
                case .refused(let refusal):
                    guard let retryAfter = refusal.retryAfter else { throw error }
                    wait = backoff.wait(atLeast: retryAfter)
                    // After a lost answer the refusal is of the repeat. The first try may have worked.
                    let mayHaveWorked = wasSent && isRepeatable
                    if started.duration(to: .now) + wait > (mayHaveWorked ? repeatWindow : patience) {
                        throw mayHaveWorked ? MayflyError.noAnswer("the broker is busy; call again with the same values") : error
                    }
                // A proxy's 503 means that no broker got the request. Report it at once: the broker may be down for long.
                case .unexpectedAnswer(status: 503): throw error
                case .noAnswer, .unexpectedAnswer(status: 500...), .unreachable:
                    if case .unreachable = error {} else { wasSent = true }
                    guard isRepeatable, wasSent else { throw error }
                    wait = backoff.wait()
                    if started.duration(to: .now) + wait > repeatWindow {
                        guard case .unreachable(let why) = error else { throw error }
                        // Of this try only: an earlier one was sent.
                        throw MayflyError.noAnswer(why)
                    }
                default: throw error
                }
                try await Task.sleep(for: wait)
            }
        }
    }

    private func send<Answer: Decodable>(
        _ method: String, _ path: String, _ fields: [String: Field]?, _ bearer: Secret?
    ) async throws -> Answer {
        var request = TransportRequest(method: method, url: url(path), headers: [:], body: nil)
        if let bearer { request.headers["Authorization"] = "Bearer \(bearer.value)" }
        if let fields {
            request.headers["Content-Type"] = "application/json"
            request.body = try JSONEncoder().encode(fields)
        }
        let response: TransportResponse
        do {
            response = try await transport.send(request)
        } catch let error as MayflyError {
            throw error
        } catch {
            try Task.checkCancellation()
            // Only the type: a foreign error's description may repeat the request.
            throw MayflyError.noAnswer("\(type(of: error))")
        }
        guard (200..<300).contains(response.status) else { throw MayflyError(response) }
        let decoder = JSONDecoder()
        decoder.dateDecodingStrategy = .iso8601
        // Whatever can't be read is another server's.
        guard response.isOf(type: "application/json"), response.body.count <= TransportResponse.largestBody,
            // Not every decoder of JSON minds.
            String(data: response.body, encoding: .utf8) != nil,
            let answer = try? decoder.decode(Answer.self, from: response.body)
        else { throw MayflyError.unexpectedAnswer(status: response.status) }
        return answer
    }

    /// - Parameter path: percent-encoded.
    private func url(_ path: String) -> URL {
        var parts = URLComponents(url: baseURL, resolvingAgainstBaseURL: true)!
        let base = parts.percentEncodedPath
        parts.percentEncodedPath = (base.hasSuffix("/") ? base : base + "/") + path
        return parts.url!
    }

    /// Returns the URL of a WebSocket of the broker.
    func socketURL(_ path: String) -> URL {
        var parts = URLComponents(url: url(path), resolvingAgainstBaseURL: true)!
        parts.scheme = parts.scheme == "https" ? "wss" : "ws"
        return parts.url!
    }

    /// Returns a name as one segment of a path. Dots are encoded too, since a segment of dots alone names a folder.
    static func segment(_ name: String) -> String {
        let plain = Set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~".utf8)
        return name.utf8.map { plain.contains($0) ? String(UnicodeScalar($0)) : String(format: "%%%02X", Int($0)) }.joined()
    }
}

extension MayflyError {
    /// Reads an answer that is no success.
    init(_ response: TransportResponse) {
        struct Problem: Decodable {
            let code: String
            let detail: String
            let field: String?
        }
        guard response.isOf(type: "application/problem+json"), response.body.count <= TransportResponse.largestBody,
            let problem = try? JSONDecoder().decode(Problem.self, from: response.body),
            let refusal = Refusal(problem.code, problem.detail, field: problem.field, retryAfter: response.retryDelay)
        else {
            self = .unexpectedAnswer(status: response.status)
            return
        }
        self = .refused(refusal)
    }
}

extension Refusal {
    /// Returns nil if the code is no broker's.
    init?(_ code: String, _ detail: String, field: String? = nil, retryAfter: Duration?) {
        let letters = "abcdefghijklmnopqrstuvwxyz_".utf8
        guard (1...64).contains(code.utf8.count), code.utf8.allSatisfy(letters.contains) else { return nil }
        self.init(code: ErrorCode(code), detail: String(detail.prefix(1000)), field: field, retryAfter: retryAfter)
    }
}

private struct Membership: Decodable {
    let roomid: Secret
    let member: Secret?
    let ref: Secret?
    let expiresAt: Date
    let joinExpiresAt: Date?

    func room(client: Secret, side: Room.Side) throws -> Room {
        guard [roomid, member].allSatisfy({ $0?.isCapability ?? true }), ref?.isRef ?? true else {
            throw MayflyError.unexpectedAnswer(status: 200)
        }
        // A repeat after the broker's two minutes. Nobody gets this side's secret any more.
        guard let member else { throw MayflyError.noAnswer("the repeat came too late; make a room with another code") }
        return Room(
            roomID: roomid, member: member, clientID: client, side: side, ref: ref, expiresAt: expiresAt,
            joinExpiresAt: joinExpiresAt)
    }
}

private struct Purged: Decodable { let purged: Int }

private struct Delivered: Decodable { let delivery: Delivery }

extension String {
    fileprivate var isLoopbackIPv4: Bool {
        let parts = split(separator: ".", omittingEmptySubsequences: false).map { UInt8($0) }
        return parts.count == 4 && parts[0] == 127 && !parts.contains(nil)
    }
}
