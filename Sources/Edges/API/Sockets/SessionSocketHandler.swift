public import Broker
public import EventLoop
import HTTPServer
import JSON
import Sealing
import Vocabulary
import WebSocket

/// The WebSockets of the companion: their users and the meaning of messages.
public actor SessionSocketHandler: LoopActor {
    public nonisolated let loop: EventLoop
    private let companion: Companion
    private let authenticator: Authenticator
    private let table: SessionSocketTable
    /// All open sockets.
    private var members: [WebSocketHandle: Member] = [:]

    private struct Member {
        /// The user, once the socket is authenticated.
        var principal: Principal?
        /// Closes the socket when its JWT expires, or if it isn't authenticated in time.
        var end: TimerID
    }

    /// Timeout of authentication.
    private static let authenticationMs: UInt64 = 10_000

    /// - Parameter table: the one that the companion sends to.
    public init(companion: Companion, authenticator: Authenticator, table: SessionSocketTable) {
        loop = companion.loop
        self.companion = companion
        self.authenticator = authenticator
        self.table = table
    }

    // MARK: From the socket

    func opened(_ socket: WebSocketHandle) { members[socket] = Member(end: end(of: socket, in: Self.authenticationMs)) }

    private func end(of socket: WebSocketHandle, in wait: UInt64) -> TimerID {
        loop.after(wait) {
            self.assumeIsolated { handler in _ = Task(executorPreference: handler.loop) { await socket.close(.policyViolation) } }
        }
    }

    nonisolated func received(_ message: TextMessage, on socket: WebSocketHandle, charging charges: RequestCharges) async {
        do {
            if let principal = await principal(of: socket) {
                try charges.charge(principal)
                let request = try message.fields { SessionRequest($0) }
                try await answer(request, of: principal, on: socket, charges)
            } else {
                let (principal, withdrawals) = try await firstPrincipal(message)
                try await authenticate(principal, socket, withdrawals)
            }
        } catch {
            guard let invalid = InvalidRequest(error) else { return await socket.close(.internalError) }
            await refuse(invalid, message, socket)
        }
    }

    private nonisolated func refuse(_ invalid: InvalidRequest, _ message: TextMessage, _ socket: WebSocketHandle) async {
        companion.audiences.recordRefusal(invalid.errors[0])
        await socket.send(SocketMessage.refusal(invalid, to: SessionRequest.name(of: message)))
        // An invalid message does not close an authenticated socket.
        guard await principal(of: socket) == nil else { return }
        // A client whose JWT could not be checked should come again, and not log in again.
        await socket.close(invalid.errors[0].status == 503 ? .goingAway : .policyViolation)
    }

    private func principal(of socket: WebSocketHandle) -> Principal? { members[socket]?.principal }

    /// Reads the first message. Waits for the login's keys to be read again if the JWT names an unknown one.
    /// - Returns: the principal, and the authenticator's count from before it verified the JWT.
    private nonisolated func firstPrincipal(_ message: TextMessage) async throws -> (Principal, withdrawals: Int) {
        let before = authenticator.withdrawals
        do throws(InvalidRequest) {
            return (try message.fields { self.principal($0) }, before)
        } catch {
            guard await authenticator.isWorthRetrying(error.errors[0]) else { throw error }
        }
        let withdrawals = authenticator.withdrawals
        return (try message.fields { self.principal($0) }, withdrawals)
    }

    /// Reads the first message, which must be `auth`. Returns nil only after noting an error.
    private nonisolated func principal(_ body: RequestBody) -> Principal? {
        let type = body.text("type")
        guard body.errors.isEmpty else { return nil }
        guard type == "auth" else {
            body.note(.wrongType("type", expected: "auth first, with a token"))
            return nil
        }
        return body.principal("token", authenticator, nowMs: companion.audiences.wallMs)
    }

    /// - Parameter withdrawals: the authenticator's count from before it verified the JWT.
    private func authenticate(_ principal: Principal, _ socket: WebSocketHandle, _ withdrawals: Int) async throws {
        guard let waiting = members[socket] else { return }
        // A reload removed a key meanwhile, perhaps the one of this JWT.
        guard authenticator.withdrawals == withdrawals else { return await socket.close(.goingAway) }
        // The same leeway as for calls.
        let (endMs, nowMs) = (principal.expiresMs + JSONWebClaims.leewayMs, companion.audiences.wallMs)
        let receiver = CompanionReceiver(principal)
        try table.add(socket, of: receiver)
        guard endMs > nowMs else {
            table.remove(socket, of: receiver)
            throw BrokerError.jwtExpired
        }
        loop.cancel(waiting.end)
        // A socket that stays for a day must authenticate again.
        members[socket] = Member(principal: principal, end: end(of: socket, in: min(endMs - nowMs, 86_400_000)))
        await socket.markJoined(maximumBytes: API.longBodyBytes)
        await socket.send(SocketMessage.message("authenticated") { $0.add("expiresAt", timeMs: principal.expiresMs) })
    }

    private func answer(
        _ request: SessionRequest, of principal: Principal, on socket: WebSocketHandle, _ charges: RequestCharges
    ) async throws {
        if let claim = request.claim {
            do {
                _ = try await companion.claim(
                    principal, of: request.user, session: claim.session, device: claim.device, type: claim.type,
                    token: claim.token, charging: charges)
            } catch {
                // A claim that fails for lack of resources doesn't stop the rest of the message.
                guard let refusal = BrokerError(thrown: error), refusal.status == 429 || refusal.status == 503 else {
                    throw error
                }
                if case .claimOnly = request.kind { throw error }
                companion.audiences.recordRefusal(refusal)
            }
        }
        switch request.kind {
        case .ping: await socket.send(SocketMessage.message("pong"))
        case .claimOnly: break
        case .event(let event, let session, let eventID, let dropped):
            let receipt = try await companion.take(
                event.event, of: request.user, session: session, eventID: eventID, ownID: event.ownID, from: principal,
                charging: charges)
            await socket.send(
                SocketMessage.message("accepted") { json in
                    json.add("event", request.type)
                    json.add("sessionId", String(decoding: session, as: UTF8.self))
                    if let eventID { json.add("eventId", String(decoding: eventID, as: UTF8.self)) }
                    API.write(receipt, to: &json)
                    json.add(dropped: dropped)
                })
        case .answer(let name, let approved, let token):
            guard
                try await companion.respond(
                    principal, request: RequestName(name), approved: approved, excluding: token, charging: charges)
            else { throw BrokerError.requestNotFound }
            await socket.send(
                SocketMessage.message("accepted") { json in
                    json.add("event", request.type)
                    json.add("requestId", name)
                    json.add("success", true)
                })
        }
    }

    /// Closes all authenticated sockets, because their key may be removed. Clients reconnect with a valid JWT.
    public func endAll() async {
        for (socket, member) in members where member.principal != nil { await socket.close(.goingAway) }
    }

    func closed(_ socket: WebSocketHandle) {
        guard let member = members.removeValue(forKey: socket) else { return }
        loop.cancel(member.end)
        if let principal = member.principal { table.remove(socket, of: CompanionReceiver(principal)) }
    }
}

/// A message from an authenticated socket of the companion.
struct SessionRequest: Sendable {
    enum Kind: Sendable {
        case event(EventBody, session: [UInt8], eventID: [UInt8]?, dropped: [String])
        case answer(request: String, approved: Bool, token: DeviceName?)
        case ping
        /// The message contains only a claim.
        case claimOnly
    }

    /// A client that claims to be active in a session.
    struct Claim: Sendable {
        let session: [UInt8]
        let device: [UInt8]
        let type: ClientType
        let token: DeviceName?
    }

    /// The `type` as sent. It may only be repeated if `kind` allows known words only.
    let type: String
    let kind: Kind
    let claim: Claim?
    /// The user on whose behalf a back end sends.
    let user: [UInt8]?

    /// Returns the message's name for an error: its `type` if that is known, `claim` if it names a client. Returns nil for other messages,
    /// so that no text of the client is echoed.
    static func name(of message: TextMessage) -> String? {
        guard let body = try? RequestBody(of: message) else { return nil }
        let type = body.text("type")
        guard body.errors.isEmpty else { return nil }
        if let type, EventBody.types.contains(type) || ["approval_response", "ping", "auth"].contains(type) { return type }
        let namesClient = body.name("deviceId") != nil || !body.errors.isEmpty
        return namesClient ? "claim" : nil
    }

    /// Returns nil only after noting an error.
    init?(_ body: RequestBody) {
        let type = body.text("type")
        let hasWrongType = type == nil && body.noted > 0
        let session = body.name("sessionId")
        user = body.name("userId")
        let before = body.noted
        let device = body.name("deviceId")
        let namesClient = device != nil || body.noted > before
        claim = device.flatMap { Self.claim(of: $0, session, body) }
        // A client that only claims may send no type.
        guard let type = type ?? (namesClient && !hasWrongType ? "claim" : nil) else {
            if !hasWrongType { body.note(.missingField("type")) }
            return nil
        }
        self.type = type
        switch type {
        case "ping": kind = .ping
        case "approval_response":
            let id = body.text("requestId", required: true)
            let approved = body.choice("approved", required: true)
            let token = body.device("pushToken")
            guard let id, let approved else { return nil }
            kind = .answer(request: id, approved: approved, token: token)
        case _ where EventBody.types.contains(type):
            if session == nil { body.note(.missingField("sessionId")) }
            let event = body.event()
            let eventID = body.name("eventId")
            guard let session, let event else { return nil }
            kind = .event(event, session: session, eventID: eventID, dropped: body.dropped)
        case _ where device != nil: kind = .claimOnly
        default:
            // An invalid `deviceId` is the only error then: the message may be a claim.
            if body.errors.isEmpty {
                body.note(
                    .outOfRange("type", allowed: "\(EventBody.types.joined(separator: ", ")), approval_response or ping"))
            }
            return nil
        }
    }

    private static func claim(of device: [UInt8], _ session: [UInt8]?, _ body: RequestBody) -> Claim? {
        if session == nil { body.note(.missingField("sessionId")) }
        let type = body.clientType()
        let token = body.device("pushToken")
        return if let session, let type { Claim(session: session, device: device, type: type, token: token) } else { nil }
    }
}
