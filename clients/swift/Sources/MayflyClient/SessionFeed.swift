import Foundation

/// What happens in a user's sessions.
public enum SessionNews: Hashable, Sendable {
    /// The feed is connected. Its JWT is valid until `until`. Sent again after each reconnection; earlier news may be missing.
    case connected(until: Date)
    case approvalRequested(requestID: String, sessionID: String, expiresAt: Date)
    case approvalAnswered(requestID: String, sessionID: String, approved: Bool)
    /// Nobody answered in time, or the back end has withdrawn the approval.
    case approvalOver(requestID: String, sessionID: String, isWithdrawn: Bool)
    case progress(sessionID: String, elapsed: Duration?, todo: TodoProgress?)
    case stateChanged(sessionID: String, from: SessionState?, to: SessionState)
    /// The broker refused a ``SessionFeed/claim(_:device:type:token:of:)``.
    case claimRefused(Refusal)
    /// The connection broke, or could not be made. The feed tries again by itself, and `connected` follows.
    case disconnected
    /// The last news.
    case ended(Ending)

    public enum Ending: Hashable, Sendable {
        /// The app called ``SessionFeed/leave()``.
        case left
        /// The broker refuses the JWT, the other end is no broker, or this system has no WebSockets. An expired JWT ends no feed: the login is asked
        /// for another one.
        case failed(MayflyError)
    }
}

/// The news of a user's sessions while the app is in the foreground, as a sequence. It lasts from ``Accounts/followSessions()`` to ``leave()``.
///
/// The newest 64 news wait for the loop. The feed reconnects by itself, each time with a new JWT; if the login returns none, it tries again later. It
/// needs WebSockets: on Linux a libcurl that has them. Call ``suspend()`` when the app goes to the background and ``resume()`` when it returns. Use
/// one loop. The feed leaves when the loop ends, also by `break`.
public struct SessionFeed: AsyncSequence, LiveConnection {
    public typealias Element = SessionNews

    private let connection: Connection<SessionDialogue>

    init(_ accounts: Accounts, timing: ConnectionTiming = ConnectionTiming()) {
        connection = Connection(SessionDialogue(accounts: accounts), timing: timing)
    }

    public func makeAsyncIterator() -> ConnectionIterator<SessionNews> { connection.makeIterator() }

    public func resume() async { await connection.resume() }

    /// Disconnects until ``resume()``, and returns when the broker knows, or after 3 seconds. Claims that wait are dropped.
    public func suspend() async { await connection.suspend() }

    public func leave() async { await connection.leave() }

    /// Makes this client the session's only active one. The device that was active before gets a push, `session_handoff`.
    ///
    /// It waits for the connection, after earlier claims. At most 64 wait; then the oldest is dropped. A refusal comes as ``SessionNews/claimRefused(_:)``.
    /// - Parameters:
    ///   - device: the client's own name for itself, 1 to 128 bytes.
    ///   - token: this device's, if it is registered. Then it gets the push of the next handoff.
    ///   - user: for back ends, whose session it is.
    public func claim(
        _ sessionID: String, device: String, type: ClientType = .ios, token: PushToken? = nil, of user: String? = nil
    ) async {
        var claim = ["sessionId": sessionID, "deviceId": device, "clientType": type.rawValue]
        claim["pushToken"] = token?.hex
        claim["userId"] = user
        guard let message = try? JSONEncoder().encode(claim) else { return }
        await connection.send(String(decoding: message, as: UTF8.self))
    }
}

/// What is said on `/ws/sessions`.
private struct SessionDialogue: Dialogue {
    let accounts: Accounts

    static var disconnected: SessionNews { .disconnected }

    static func ended(_ ending: Ending) -> SessionNews {
        switch ending {
        case .left: .ended(.left)
        case .gone(let refusal): .ended(.failed(.refused(refusal)))
        case .failed(let error): .ended(.failed(error))
        }
    }

    var transport: any Transport { accounts.client.transport }
    var url: URL { accounts.client.socketURL("ws/sessions") }
    /// Back ends may report hundreds of events at once.
    var mostMessages: Int { 5_000 }

    func opening() async throws -> String {
        struct Authentication: Encodable {
            let type = "auth"
            let token: Secret
        }
        let message = try JSONEncoder().encode(Authentication(token: try await accounts.bearer()))
        return String(decoding: message, as: UTF8.self)
    }

    func read(_ type: String, _ message: Message) throws -> Heard<SessionNews> {
        switch type {
        case "authenticated":
            struct Authenticated: Decodable { let expiresAt: Date }
            return .connected(.connected(until: try message.read(Authenticated.self).expiresAt))
        case "error": return try refused(message)
        case "approval_request":
            struct Request: Decodable { let requestId: String, sessionId: String, expiresAt: Date }
            let news = try message.read(Request.self)
            return .event(
                .approvalRequested(requestID: news.requestId, sessionID: news.sessionId, expiresAt: news.expiresAt))
        case "approval_response":
            struct Response: Decodable { let requestId: String, sessionId: String, approved: Bool }
            let news = try message.read(Response.self)
            return .event(.approvalAnswered(requestID: news.requestId, sessionID: news.sessionId, approved: news.approved))
        case "approval_timeout":
            struct Timeout: Decodable { let requestId: String, sessionId: String, withdrawn: Bool? }
            let news = try message.read(Timeout.self)
            return .event(
                .approvalOver(requestID: news.requestId, sessionID: news.sessionId, isWithdrawn: news.withdrawn ?? false))
        case "progress_update":
            struct Progress: Decodable { let elapsedSeconds: Int?, todoProgress: TodoProgress? }
            struct Update: Decodable { let sessionId: String, data: Progress }
            let news = try message.read(Update.self)
            let elapsed = news.data.elapsedSeconds.map { Duration.seconds($0) }
            return .event(.progress(sessionID: news.sessionId, elapsed: elapsed, todo: news.data.todoProgress))
        case "state_change":
            struct Change: Decodable { let previousState: SessionState?, newState: SessionState }
            struct Update: Decodable { let sessionId: String, data: Change }
            let news = try message.read(Update.self)
            return .event(
                .stateChanged(sessionID: news.sessionId, from: news.data.previousState, to: news.data.newState))
        default: return .nothing
        }
    }

    private func refused(_ message: Message) throws -> Heard<SessionNews> {
        struct Answered: Decodable { let to: String? }
        let refusal = try message.refusal()
        switch try message.read(Answered.self).to {
        case "claim": return .event(.claimRefused(refusal))
        // A caller over its share. The connection stays.
        case "ping": return .nothing
        default: throw MayflyError.refused(refusal)
        }
    }
}

extension Accounts {
    /// Follows the user's sessions, and returns their feed at once. Iterate over it for the news.
    public func followSessions() async -> SessionFeed {
        let feed = SessionFeed(self)
        await feed.resume()
        return feed
    }
}
