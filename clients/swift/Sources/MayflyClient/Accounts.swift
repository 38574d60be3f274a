import Foundation

/// An app with accounts: a companion, a monitor or calls. The app's own login identifies the user.
///
/// Register at each start: the same token keeps its id and handle key. Call ``logOut(_:phone:)`` at logout.
///
/// A call is repeated after a lost answer only if the repeat returns the same answer and pushes nothing twice. Reports have an event id for that.
/// Other calls throw ``MayflyError/noAnswer(_:)``.
public struct Accounts: Sendable {
    let client: Client
    private let jwt: @Sendable () async throws -> String

    /// - Parameters:
    ///   - client: the broker.
    ///   - jwt: returns a valid JWT of the app's login. It is called for each request and connection. Its errors are thrown unchanged.
    ///     A ``SessionFeed`` reports them as ``SessionNews/disconnected`` and asks again.
    public init(client: Client, jwt: @escaping @Sendable () async throws -> String) {
        self.client = client
        self.jwt = jwt
    }

    // MARK: Companions

    /// Registers this device, or renews it.
    public func registerDevice(_ token: PushToken) async throws -> Registration {
        try await call("POST", "api/push/register", client.tokenFields("deviceToken", token), isRepeatable: true)
    }

    /// Registers the token of a Live Activity.
    ///
    /// - Parameters:
    ///   - token: from the activity's `pushTokenUpdates`.
    ///   - activityID: the app's own id, 1 to 128 bytes.
    ///   - sessionID: the session that the activity shows, 1 to 128 bytes.
    ///   - previous: the activity's token until now. It is destroyed, and waiting updates move to the new one.
    public func registerActivity(
        _ token: PushToken, activityID: String, sessionID: String, previous: PushToken? = nil
    ) async throws -> Registration {
        var body = client.tokenFields("activityToken", token)
        body["activityId"] = .text(activityID)
        body["sessionId"] = .text(sessionID)
        body["previousToken"] = previous.map { .text($0.hex) }
        return try await call("POST", "api/push/live-activity/register", body, isRepeatable: true)
    }

    /// Destroys the token of a device or an activity.
    public func deleteToken(_ registration: Registration) async throws {
        let _: Success = try await call("DELETE", "api/push/token/\(Client.segment(registration.id))")
    }

    // MARK: Monitors

    /// Registers this device for a printer, or renews it. Without a printer it watches none.
    public func registerMonitor(_ token: PushToken, printer: String?) async throws -> Registration {
        var body = client.tokenFields("apnsToken", token)
        body["printerPrefix"] = printer.map { .text($0) }
        return try await call("POST", "api/devices/register", body, isRepeatable: true)
    }

    /// Destroys the token of a device that watches a printer.
    public func deleteMonitor(_ registration: Registration) async throws {
        // The second try has the same answer.
        let _: Success = try await call("DELETE", "api/devices/\(Client.segment(registration.id))", isRepeatable: true)
    }

    // MARK: Calls

    /// Registers PushKit's token, so that this phone rings for `uid`.
    ///
    /// - Parameters:
    ///   - token: PushKit's, not the one for alerts.
    ///   - uid: the user of the JWT, 1 to 128 bytes. A back end may name any.
    ///   - previous: the phone's token until now, which is destroyed.
    public func registerPhone(_ token: PushToken, uid: String, previous: PushToken? = nil) async throws -> Registration {
        var body = client.tokenFields("token", token)
        body["uid"] = .text(uid)
        body["previousToken"] = previous.map { .text($0.hex) }
        return try await call("POST", "api/voip/token", body, isRepeatable: true)
    }

    /// Destroys one PushKit token, or without `token` all of the user. Returns how many there were.
    @discardableResult
    public func deletePhones(uid: String, token: PushToken? = nil) async throws -> Int {
        struct Answer: Decodable { let purged: Int }
        let target: (String, Client.Field) = if let token { ("token", .text(token.hex)) } else { ("all", .flag(true)) }
        let answer: Answer = try await call("DELETE", "api/voip/token", ["uid": .text(uid), target.0: target.1])
        return answer.purged
    }

    // MARK: All apps

    /// Deletes what this phone has registered. What is gone already counts as deleted.
    ///
    /// Call it before the app forgets the login or another user logs in, and again if it throws: the next user of the phone would get this user's
    /// pushes. With another user's JWT each registration seems gone.
    /// - Parameters:
    ///   - registrations: those of ``registerDevice(_:)``, ``registerActivity(_:activityID:sessionID:previous:)`` and
    ///     ``registerMonitor(_:printer:)``.
    ///   - phone: what ``registerPhone(_:uid:previous:)`` registered.
    /// - Throws: the first error, after all were tried. ``MayflyError/invalidConfiguration(_:)`` for a registration of calls without `phone`.
    public func logOut(_ registrations: [Registration], phone: (uid: String, token: PushToken)? = nil) async throws {
        var failure: (any Error)?
        func attempt(_ delete: () async throws -> Void) async {
            do {
                try await delete()
            } catch let error as MayflyError where error.refusal?.kind == .gone {
            } catch {
                failure = failure ?? error
            }
        }
        for registration in registrations {
            await attempt {
                switch registration.service {
                case .companion: try await deleteToken(registration)
                case .monitor: try await deleteMonitor(registration)
                // The broker deletes phones by their token.
                case .calls where phone == nil:
                    throw MayflyError.invalidConfiguration("Pass phone: to delete a registration for calls.")
                case .calls: break
                }
            }
        }
        if let phone { await attempt { try await deletePhones(uid: phone.uid, token: phone.token) } }
        if let failure { throw failure }
    }

    /// Sends a test push to the user's own devices. Each device accepts three an hour.
    ///
    /// - Throws: a refusal of the kind ``Refusal/Kind/exhausted`` for a fourth test within the hour.
    public func testPush(_ app: TestedApp) async throws -> PushCounts {
        try await call("POST", "api/push/test", app.fields)
    }

    struct Success: Decodable { let success: Bool }

    func call<Answer: Decodable>(
        _ method: String, _ path: String, _ body: [String: Client.Field]? = nil, isRepeatable: Bool = false
    ) async throws -> Answer {
        try await client.call(method, path, body, bearer: await bearer(), isRepeatable: isRepeatable)
    }

    func bearer() async throws -> Secret { Secret(try await jwt()) }
}

/// Which of the user's devices get a test push.
public enum TestedApp: Hashable, Sendable {
    /// The devices of a companion. The push is that of a completed task.
    case companion
    /// The devices that watch `printer` and have notifications on. The push is that of a completed print.
    case monitor(printer: String?)
    /// The phones. They ring, and the caller is the user.
    case calls

    fileprivate var fields: [String: Client.Field] {
        switch self {
        case .companion: ["app": .text("companion")]
        case .monitor(nil): ["app": .text("monitor")]
        case .monitor(let printer?): ["app": .text("monitor"), "printerPrefix": .text(printer)]
        case .calls: ["app": .text("calls")]
        }
    }
}

/// What became of the pushes of a call.
public struct PushCounts: Hashable, Sendable, Decodable {
    /// Pushes that leave, and updates of Live Activities that wait for their turn.
    public let queued: Int
    /// Tokens over their limit of pushes or tests.
    public let throttled: Int
    /// Browsers that get no push because it would show nothing there.
    public let skipped: Int

    private enum CodingKeys: String, CodingKey {
        case queued = "pushes"
        case throttled, skipped
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        queued = try container.decode(Int.self, forKey: .queued)
        throttled = try container.decodeIfPresent(Int.self, forKey: .throttled) ?? 0
        skipped = try container.decodeIfPresent(Int.self, forKey: .skipped) ?? 0
    }
}
