import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

#if canImport(CryptoKit)
    import CryptoKit
#endif

/// Registrations of companions, monitors and calls, and the handles in their pushes.
struct AccountsTests {
    private let broker = TestBroker.shared
    private let user = "user-\(UUID().uuidString)"

    private func accounts(_ user: String? = nil) throws -> Accounts {
        let jwt = try broker.jwt(user ?? self.user)
        return Accounts(client: try broker.client()) { jwt }
    }

    /// Reports an event as the app's back end.
    private func report(_ path: String, _ body: [String: Any], header: (String, String)? = nil) async throws {
        let data = try JSONSerialization.data(withJSONObject: body)
        let header = try header ?? ("Authorization", "Bearer \(broker.jwt("back-end", more: ["--scope", "broker.notify"]))")
        let request = TransportRequest(
            method: "POST", url: broker.url.appending(path: path), headers: [header.0: header.1], body: data)
        let answer = try await SocketTransport().send(request)
        try #require(answer.status < 300, "\(String(decoding: answer.body, as: UTF8.self))")
    }

    @Test func companions() async throws {
        let accounts = try accounts()
        let token = PushToken.random()
        let device = try await accounts.registerDevice(token)
        #expect(device.id.hasPrefix("tok_"))
        // Renewed, and kept in a keychain between.
        let kept = try JSONDecoder().decode(Registration.self, from: JSONEncoder().encode(device))
        #expect(kept == device)
        #expect(try await accounts.registerDevice(token).id == device.id)

        try await report(
            "api/sessions/session-1/events", ["userId": user, "type": "task_complete", "data": ["status": "success"]])
        let push = try await broker.push(to: token)
        #expect(push.payload.sessionId == device.handle(.session, "session-1"))

        let (first, second) = (PushToken.random(), PushToken.random())
        let activity = try await accounts.registerActivity(first, activityID: "a", sessionID: "s")
        let renewed = try await accounts.registerActivity(second, activityID: "a", sessionID: "s", previous: first)
        #expect(activity.id.hasPrefix("lat_"))
        #expect(renewed.id == activity.id)
        try await accounts.deleteToken(renewed)
        try await accounts.deleteToken(device)
        let error = await #expect(throws: MayflyError.self) { try await accounts.deleteToken(device) }
        #expect(error?.refusal?.code == .tokenNotFound)
        #expect(error?.refusal?.kind == .gone)
    }

    @Test func monitors() async throws {
        let accounts = try accounts()
        let token = PushToken.random()
        let printer = "printer-\(UUID().uuidString)"
        let device = try await accounts.registerMonitor(token, printer: printer)
        try await report("api/monitors/\(printer)/status", ["oldStatus": "idle", "newStatus": "running"])
        let push = try await broker.push(to: token)
        #expect(push.payload.printerState?.prefix == device.handle(.printer, printer))
        try await accounts.deleteMonitor(device)
        try await accounts.deleteMonitor(device)
    }

    @Test func calls() async throws {
        let accounts = try accounts()
        let (first, token) = (PushToken.random(), PushToken.random())
        let before = try await accounts.registerPhone(first, uid: user)
        let phone = try await accounts.registerPhone(token, uid: user, previous: first)
        #expect(phone.id == before.id)
        let call: [String: Any] = [
            "trigger": "call_initiated",
            "data": [
                "sessionId": "call-\(user)", "type": "audio", "initiator": ["uid": "alice"], "receiver": ["uid": user],
                "receiverType": "user",
            ],
        ]
        let secret = try String(contentsOf: broker.folder.appending(path: "state/keys/webhook.secret"), encoding: .utf8)
            .trimmingCharacters(in: .newlines)
        let body = try JSONSerialization.data(withJSONObject: call)
        let code = Data(hmac(key: Array(secret.utf8), Array(body)))
        let request = TransportRequest(
            method: "POST", url: broker.url.appending(path: "webhooks/call"),
            headers: ["X-CometChat-Signature": PushToken(code).hex], body: body)
        #expect(try await SocketTransport().send(request).status == 200)
        let push = try await broker.push(to: token)
        #expect(push.payload.callerUid == phone.handle(.uid, "alice"))
        #expect(push.payload.sessionId == phone.handle(.session, "call-\(user)"))

        #expect(try await accounts.deletePhones(uid: user, token: first) == 0)
        #expect(try await accounts.deletePhones(uid: user, token: token) == 1)
        _ = try await accounts.registerPhone(token, uid: user)
        _ = try await accounts.registerPhone(.random(), uid: user)
        #expect(try await accounts.deletePhones(uid: user) == 2)
    }

    @Test func refusals() async throws {
        let client = try broker.client()
        func code(_ jwt: String, _ call: (Accounts) async throws -> Void) async -> ErrorCode? {
            let error = await #expect(throws: MayflyError.self) { try await call(Accounts(client: client) { jwt }) }
            #expect(jwt.isEmpty || error?.description.contains(jwt) == false)
            return error?.refusal?.code
        }
        let mine = try broker.jwt(user)
        #expect(await code("x.y.z") { _ = try await $0.registerDevice(.random()) } == .invalidJWT)
        #expect(await code("") { _ = try await $0.registerDevice(.random()) } == .noJWT)
        #expect(await code(mine) { _ = try await $0.registerPhone(.random(), uid: "another") } == .anotherUser)
        #expect(await code(mine) { _ = try await $0.registerDevice(PushToken(Data())) } == .invalidToken)
        #expect(await code(mine) { _ = try await $0.registerActivity(.random(), activityID: "", sessionID: "s") } == .outOfRange)
        #expect(await code(try expiredJWT()) { _ = try await $0.registerDevice(.random()) } == .jwtExpired)
    }

    @Test func quotas() async throws {
        let accounts = try accounts()
        let error = await #expect(throws: MayflyError.self) {
            for _ in 0...100 { _ = try await accounts.registerDevice(.random()) }
        }
        #expect(error?.refusal?.code == .tooManyRegistrations)
        #expect(error?.refusal?.kind == .exhausted)
        #expect(error?.refusal?.retryAfter == nil)
    }

    @Test func aBrokerForRoomsOnly() async throws {
        let rooms = try TestBroker(users: false)
        let accounts = Accounts(client: try rooms.client()) { "x.y.z" }
        let error = await #expect(throws: MayflyError.self) { try await accounts.registerDevice(.random()) }
        #expect(error?.refusal?.code == .audiencesOff)
        #expect(error?.refusal?.kind == .invalid)
    }

    @Test func theLoginsErrorsAreTheApps() async throws {
        struct LoggedOut: Error {}
        let accounts = Accounts(client: try broker.client()) { throw LoggedOut() }
        await #expect(throws: LoggedOut.self) { try await accounts.registerDevice(.random()) }
    }

    /// A JWT of HS256 (RFC 7519) that ended in 2001.
    private func expiredJWT() throws -> String {
        let key = try String(contentsOf: broker.folder.appending(path: "state/keys/jwt.secret"), encoding: .utf8)
        let head = Data(#"{"alg":"HS256","typ":"JWT"}"#.utf8).base64URL
        let signed = "\(head).\(Data(#"{"sub":"\#(user)","exp":1000000000}"#.utf8).base64URL)"
        let code = hmac(key: Array(key.trimmingCharacters(in: .newlines).utf8), Array(signed.utf8))
        return "\(signed).\(Data(code).base64URL)"
    }

    private func hmac(key: [UInt8], _ message: [UInt8]) -> [UInt8] {
        #if canImport(CryptoKit)
            Array(HMAC<CryptoKit.SHA256>.authenticationCode(for: message, using: SymmetricKey(data: key)))
        #else
            SHA256.authenticationCode(for: message, key: key)
        #endif
    }
}
