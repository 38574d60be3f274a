import Foundation

/// Registrations of an app with accounts: companions, monitors and calls. The app's own login identifies the user.
///
/// Register at each start: the same token keeps its id and handle key. Delete at logout.
public struct Accounts: Sendable {
    private let client: Client
    private let jwt: @Sendable () async throws -> String

    /// - Parameters:
    ///   - client: the broker.
    ///   - jwt: returns a valid JWT of the app's login. It is called for each request.
    public init(client: Client, jwt: @escaping @Sendable () async throws -> String) {
        self.client = client
        self.jwt = jwt
    }

    // MARK: Companions

    /// Registers this device, or renews it.
    public func registerDevice(_ token: PushToken) async throws -> Registration {
        try await call("POST", "api/push/register", client.tokenFields("deviceToken", token))
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
        return try await call("POST", "api/push/live-activity/register", body)
    }

    /// Destroys the token of a device or an activity.
    public func deleteToken(_ registration: Registration) async throws {
        let _: Success = try await call("DELETE", "api/push/token/\(registration.id)")
    }

    // MARK: Monitors

    /// Registers this device for a printer, or renews it. Without a printer it watches none.
    public func registerMonitor(_ token: PushToken, printer: String?) async throws -> Registration {
        var body = client.tokenFields("apnsToken", token)
        body["printerPrefix"] = printer.map { .text($0) }
        return try await call("POST", "api/devices/register", body)
    }

    /// Destroys the token of a device that watches a printer.
    public func deleteMonitor(_ registration: Registration) async throws {
        let _: Success = try await call("DELETE", "api/devices/\(registration.id)")
    }

    // MARK: Calls

    /// Registers PushKit's token, so that this phone rings for `uid`.
    ///
    /// - Parameters:
    ///   - token: PushKit's, not the one for alerts.
    ///   - uid: the user of the JWT, 1 to 128 bytes.
    ///   - previous: the phone's token until now, which is destroyed.
    public func registerPhone(_ token: PushToken, uid: String, previous: PushToken? = nil) async throws -> Registration {
        var body = client.tokenFields("token", token)
        body["uid"] = .text(uid)
        body["previousToken"] = previous.map { .text($0.hex) }
        return try await call("POST", "api/voip/token", body)
    }

    /// Destroys one PushKit token, or without `token` all of the user. Returns how many there were.
    @discardableResult
    public func deletePhones(uid: String, token: PushToken? = nil) async throws -> Int {
        struct Answer: Decodable { let purged: Int }
        let target: (String, Client.Field) = if let token { ("token", .text(token.hex)) } else { ("all", .flag(true)) }
        let answer: Answer = try await call("DELETE", "api/voip/token", ["uid": .text(uid), target.0: target.1])
        return answer.purged
    }

    private struct Success: Decodable { let success: Bool }

    private func call<Answer: Decodable>(
        _ method: String, _ path: String, _ body: [String: Client.Field]? = nil
    ) async throws -> Answer {
        try await client.call(method, path, body, bearer: Secret(try await jwt()))
    }
}

/// A registered token. Keep it in the Keychain: pushes that come while the phone is locked need ``handle(_:_:)``.
public struct Registration: Hashable, Sendable, Codable {
    /// What a name in a push stands for.
    public enum Kind: String, Sendable {
        /// Sessions of companions and of calls.
        case session
        /// Printers.
        case printer
        /// Callers.
        case uid
    }

    /// The broker's name for the registration, for deleting it.
    public let id: String
    /// Finds and proves the token's entries in the public log.
    public let ref: Secret
    public let expiresAt: Date
    private let handleKey: Secret

    /// Returns what pushes to this registration call `name`, 22 characters of base64url. Compare it with the push.
    public func handle(_ kind: Kind, _ name: String) -> String? {
        Data(base64URL: handleKey.value).map { Handle.make(key: $0, kind: kind.rawValue, slot: 0, id: name) }
    }

    private enum CodingKeys: String, CodingKey {
        case id = "tokenId"
        case deviceId, ref, expiresAt, handleKey
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        id = try container.decodeIfPresent(String.self, forKey: .id) ?? container.decode(String.self, forKey: .deviceId)
        ref = try container.decode(Secret.self, forKey: .ref)
        expiresAt = try container.decode(Date.self, forKey: .expiresAt)
        handleKey = try container.decode(Secret.self, forKey: .handleKey)
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(id, forKey: .id)
        try container.encode(ref, forKey: .ref)
        try container.encode(expiresAt, forKey: .expiresAt)
        try container.encode(handleKey, forKey: .handleKey)
    }
}
