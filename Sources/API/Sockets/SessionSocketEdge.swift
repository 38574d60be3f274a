public import Broker
public import EventLoop
import HTTPServer
import JSON
import Vocabulary
import WebSocket

/// The WebSocket side of the companion: who has shown which token, what each message means, whom news goes to.
public actor SessionSocketEdge: LoopActor, CompanionSockets {
    public nonisolated let loop: EventLoop
    private let companion: Companion
    private let authenticator: Authenticator
    /// Every socket, with who it is once it has said so.
    private var members: [WebSocketHandle: Member] = [:]
    private var listeners: [Listener: Set<WebSocketHandle>] = [:]

    /// Whom news is for: a user, or a back end, of that name.
    private struct Listener: Hashable {
        let name: [UInt8]
        let isBackEnd: Bool
    }

    private struct Member {
        /// Nil until it has shown a JWT.
        var principal: Principal?
        /// Ends the socket: with its JWT, or because it shows none.
        var end: TimerID
    }

    /// How long a socket may take to say who it is.
    private static let patienceMs: UInt64 = 10_000
    /// Of one user: each is told everything that the user is. Back ends are the operator's own, and may be many.
    private static let mostSockets = 64

    public init(loop: EventLoop, companion: Companion, authenticator: Authenticator) {
        self.loop = loop
        self.companion = companion
        self.authenticator = authenticator
    }

    // MARK: From the socket

    func opened(_ socket: WebSocketHandle) { members[socket] = Member(end: end(of: socket, in: Self.patienceMs)) }

    private func end(of socket: WebSocketHandle, in wait: UInt64) -> TimerID {
        loop.after(wait) {
            self.assumeIsolated { edge in _ = Task(executorPreference: edge.loop) { await socket.close(.policyViolation) } }
        }
    }

    nonisolated func received(_ message: TextMessage, on socket: WebSocketHandle) async {
        do {
            if let principal = await principal(of: socket) {
                try RequestCharges.current?.become(principal)
                let request = try message.fields { SessionRequest($0) }
                try await answer(request, of: principal, on: socket)
            } else {
                let withdrawals = authenticator.withdrawals
                let principal = try message.fields { self.principal($0) }
                try await authenticate(principal, socket, withdrawals)
            }
        } catch {
            guard let invalid = InvalidRequest(error) else { return await socket.close(.internalError) }
            await refuse(invalid, message, socket)
        }
    }

    private nonisolated func refuse(_ invalid: InvalidRequest, _ message: TextMessage, _ socket: WebSocketHandle) async {
        companion.audiences.noteRefusal(invalid.errors[0])
        await socket.send(SocketMessage.refusal(invalid, to: SessionRequest.name(of: message)))
        // An invalid message does not close an authenticated socket.
        if await principal(of: socket) == nil { await socket.close(.policyViolation) }
    }

    private func principal(of socket: WebSocketHandle) -> Principal? { members[socket]?.principal }

    /// - Returns: nil only after a fault.
    private nonisolated func principal(_ body: RequestBody) -> Principal? {
        let type = body.text("type")
        guard body.errors.isEmpty else { return nil }
        guard type == "auth" else {
            body.note(.wrongType("type", expected: "auth first, with a token"))
            return nil
        }
        return body.principal("token", authenticator, nowMs: companion.audiences.wallMs)
    }

    /// - Parameter withdrawals: the authenticator's, from before it verified the JWT.
    private func authenticate(_ principal: Principal, _ socket: WebSocketHandle, _ withdrawals: Int) async throws {
        guard let waiting = members[socket] else { return }
        // The key went meanwhile.
        guard authenticator.withdrawals == withdrawals else { return await socket.close(.goingAway) }
        let listener = Listener(name: principal.user, isBackEnd: principal.isBackEnd)
        // The new one is refused: closing the oldest, clients that come back by themselves would drive each other out for ever.
        guard principal.isBackEnd || listeners[listener, default: []].count < Self.mostSockets else {
            throw BrokerError.tooManySockets(limit: Self.mostSockets)
        }
        // A call may still be let by for the difference between clocks; a socket would end at once, and its client come back at once.
        guard principal.expiresMs > companion.audiences.wallMs else { throw BrokerError.jwtExpired }
        loop.cancel(waiting.end)
        // A timer that long is as good as none: whoever stays for a day shows a JWT again.
        let left = min(principal.expiresMs - min(principal.expiresMs, companion.audiences.wallMs), 86_400_000)
        members[socket] = Member(principal: principal, end: end(of: socket, in: left))
        listeners[listener, default: []].insert(socket)
        await socket.markJoined()
        await socket.send(SocketMessage.message("authenticated") { $0.add("expiresAt", timeMs: principal.expiresMs) })
    }

    private func answer(_ request: SessionRequest, of principal: Principal, on socket: WebSocketHandle) async throws {
        if let claim = request.claim {
            do throws(BrokerError) {
                _ = try await companion.claim(
                    principal, of: request.user, session: claim.session, device: claim.device, type: claim.type,
                    token: claim.token)
            } catch {
                // A hand-over that could not be made now does not take an answer along.
                guard error.status == 429 || error.status == 503 else { throw error }
                if case .claimOnly = request.kind { throw error }
                companion.audiences.noteRefusal(error)
            }
        }
        switch request.kind {
        case .ping: await socket.send(SocketMessage.message("pong"))
        case .claimOnly: break
        case .event(let event, let session, let eventID, let dropped):
            let receipt = try await companion.take(
                event.event, of: request.user, session: session, eventID: eventID, ownID: event.ownID, from: principal)
            await socket.send(
                SocketMessage.message("accepted") { json in
                    json.add("event", request.type)
                    json.add("sessionId", String(decoding: session, as: UTF8.self))
                    if let eventID { json.add("eventId", String(decoding: eventID, as: UTF8.self)) }
                    API.write(receipt, dropped, to: &json)
                })
        case .answer(let name, let approved, let token):
            guard
                try await companion.respond(principal, request: RequestName(name), approved: approved, excluding: token)
            else { throw BrokerError.requestNotFound }
            await socket.send(
                SocketMessage.message("accepted") { json in
                    json.add("event", request.type)
                    json.add("requestId", name)
                    json.add("success", true)
                })
        }
    }

    /// Ends every socket that has shown a JWT: its key may be gone. Clients come back with one that is good.
    public func endAll() async {
        for (socket, member) in members where member.principal != nil { await socket.close(.goingAway) }
    }

    func closed(_ socket: WebSocketHandle) {
        guard let member = members.removeValue(forKey: socket) else { return }
        loop.cancel(member.end)
        guard let principal = member.principal else { return }
        let listener = Listener(name: principal.user, isBackEnd: principal.isBackEnd)
        listeners[listener]?.remove(socket)
        if listeners[listener]?.isEmpty == true { listeners[listener] = nil }
    }

    // MARK: To the socket

    public func tell(user: [UInt8], _ message: CompanionMessage) async {
        await tell(Listener(name: user, isBackEnd: false), message)
    }

    public func tell(backEnd: [UInt8], _ message: CompanionMessage) async {
        await tell(Listener(name: backEnd, isBackEnd: true), message)
    }

    private func tell(_ listener: Listener, _ message: CompanionMessage) async {
        guard let sockets = listeners[listener] else { return }
        let text = Self.text(message)
        for socket in sockets { await socket.send(text) }
    }

    private static func text(_ message: CompanionMessage) -> [UInt8] {
        switch message {
        case .approvalResponse(let request, let session, let approved):
            SocketMessage.message("approval_response") { json in
                json.add("requestId", request.base64url)
                json.add("sessionId", String(decoding: session, as: UTF8.self))
                json.add("approved", approved)
            }
        case .approvalTimeout(let request, let session):
            SocketMessage.message("approval_timeout") { json in
                json.add("requestId", request.base64url)
                json.add("sessionId", String(decoding: session, as: UTF8.self))
                json.add("message", "Nobody answered in time")
            }
        case .approvalRequest(let request, let session, let expires):
            SocketMessage.message("approval_request") { json in
                json.add("requestId", request.base64url)
                json.add("sessionId", String(decoding: session, as: UTF8.self))
                json.add("expiresAt", timeMs: expires)
            }
        case .progress(let progress, let session):
            SocketMessage.message("progress_update") { json in
                json.add("sessionId", String(decoding: session, as: UTF8.self))
                json.add("data") { data in
                    if let elapsed = progress.elapsedSeconds { data.add("elapsedSeconds", elapsed) }
                    guard let completed = progress.completed, let total = progress.total else { return }
                    data.add("todoProgress") { todo in
                        todo.add("completed", completed)
                        todo.add("total", total)
                    }
                }
            }
        case .state(let word, let before, let session):
            SocketMessage.message("state_change") { json in
                json.add("sessionId", String(decoding: session, as: UTF8.self))
                json.add("data") { data in
                    if let before { data.add("previousState", before) }
                    data.add("newState", word)
                }
            }
        }
    }
}
