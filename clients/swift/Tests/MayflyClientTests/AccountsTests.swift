import Foundation
import SocketTransport
import Testing

@testable import MayflyClient

/// What all apps with accounts share: registrations, test pushes, refusals, logout.
@Suite(.timeLimit(.minutes(1)))
struct AccountsTests {
    private let broker = TestBroker.shared
    private let user = "user-\(UUID().uuidString)"

    @Test func registrations() async throws {
        let accounts = try broker.accounts(user)
        let token = PushToken.random()
        let device = try await accounts.registerDevice(token)
        #expect(device.id.hasPrefix("tok_"))
        // Renewed, and kept in a keychain between.
        let kept = try JSONDecoder().decode(Registration.self, from: JSONEncoder().encode(device))
        #expect(kept == device)
        #expect(try await accounts.registerDevice(token).id == device.id)

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

        let phone = try await accounts.registerPhone(first, uid: user)
        #expect(try await accounts.registerPhone(second, uid: user, previous: first).id == phone.id)
        #expect(try await accounts.deletePhones(uid: user, token: first) == 0)
        #expect(try await accounts.deletePhones(uid: user, token: second) == 1)
        _ = try await accounts.registerPhone(first, uid: user)
        // A back end may name anyone.
        _ = try await broker.backEnd().registerPhone(second, uid: user)
        #expect(try await accounts.deletePhones(uid: user) == 2)
    }

    @Test func calls() async throws {
        let accounts = try broker.accounts(user)
        let token = PushToken.random()
        let phone = try await accounts.registerPhone(token, uid: user)
        try await broker.ring(user, from: "alice", session: "call-1", type: "video")
        let payload = try await broker.payload(to: token)
        let call = CallNotification(payload: payload, callers: phone.table(.uid, ["zoe", "alice", user]))
        #expect(call.caller == "alice")
        #expect(call.media == .video)
        #expect(call.isAbout("call-1", phone))
        #expect(!call.isAbout("call-2", phone))
        // An unknown caller rings too.
        let unknown = CallNotification(payload: payload, callers: phone.table(.uid, ["zoe"]))
        #expect(unknown.caller == nil)
        #expect(unknown.callerHandle == phone.handle(.uid, "alice"))
        // Another phone calls the same caller otherwise.
        let other = try await accounts.registerPhone(.random(), uid: user)
        #expect(CallNotification(payload: payload, callers: other.table(.uid, ["alice"])).caller == nil)
    }

    @Test func testPushes() async throws {
        let accounts = try broker.accounts(user)
        let (device, monitor, phone) = (PushToken.random(), PushToken.random(), PushToken.random())
        let printer = "printer-\(user)"
        #expect(try await accounts.testPush(.companion).queued == 0)
        let companion = try await accounts.registerDevice(device)
        let watching = try await accounts.registerMonitor(monitor, printer: printer)
        let ringing = try await accounts.registerPhone(phone, uid: user)

        #expect(try await accounts.testPush(.companion).queued == 1)
        let complete = try await broker.payload(to: device)
        #expect(CompanionNotification(payload: complete, sessions: companion.table(.session, []))?.kind == .complete)
        #expect(try await accounts.testPush(.monitor(printer: printer)).queued == 1)
        let printed = try await broker.payload(to: monitor)
        #expect(MonitorNotification(payload: printed, printers: watching.table(.printer, [printer]))?.event == .complete)
        #expect(try await accounts.testPush(.monitor(printer: nil)).queued == 0)
        #expect(try await accounts.testPush(.calls).queued == 1)
        let call = try await broker.payload(to: phone)
        #expect(CallNotification(payload: call, callers: ringing.table(.uid, [user])).caller == user)

        for _ in 2...3 { _ = try await accounts.testPush(.companion) }
        let error = await #expect(throws: MayflyError.self) { try await accounts.testPush(.companion) }
        #expect(error?.refusal?.kind == .exhausted)
        #expect(try await broker.payloads(to: device).count == 3)
    }

    @Test func logout() async throws {
        let accounts = try broker.accounts(user)
        let (device, monitor, phone) = (PushToken.random(), PushToken.random(), PushToken.random())
        let printer = "printer-\(user)"
        var registrations = [
            try await accounts.registerDevice(device), try await accounts.registerMonitor(monitor, printer: printer),
            try await accounts.registerActivity(.random(), activityID: "a", sessionID: "s"),
        ]
        registrations.append(try await accounts.registerPhone(phone, uid: user))
        // An error ends nothing early.
        let offline = ScriptedTransport { number, _ in throw MayflyError.unreachable("\(number)") }
        let unlucky = try broker.accounts(user, offline)
        await #expect(throws: MayflyError.unreachable("1")) { try await unlucky.logOut(registrations, phone: (user, phone)) }
        #expect(offline.requests.count == 4)
        #expect(try await accounts.companionStatus().activities.count == 1)
        // What is gone counts as deleted.
        try await accounts.logOut(registrations, phone: (user, phone))
        try await accounts.logOut(registrations, phone: (user, phone))
        #expect(try await accounts.companionStatus() == CompanionStatus(hasDevice: false, activities: []))
        #expect(try await broker.backEnd().monitors(of: printer) == [])
        #expect(try await accounts.testPush(.calls).queued == 0)
    }

    /// The broker deletes a phone by its token only.
    @Test func aLogoutOfCallsNeedsThePhone() async throws {
        let (accounts, token) = (try broker.accounts(user), PushToken.random())
        let (phone, device) = (
            try await accounts.registerPhone(token, uid: user), try await accounts.registerDevice(.random())
        )
        let error = await #expect(throws: MayflyError.self) { try await accounts.logOut([phone, device]) }
        #expect(error == .invalidConfiguration("Pass phone: to delete a registration for calls."))
        #expect(try await !accounts.companionStatus().hasDevice)
        try await accounts.logOut([phone], phone: (user, token))
        #expect(try await accounts.testPush(.calls).queued == 0)
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
        let expired = try broker.jwt(user, until: Date(timeIntervalSince1970: 1_000_000_000))
        #expect(await code(expired) { _ = try await $0.registerDevice(.random()) } == .jwtExpired)

        #expect(await code(mine) { _ = try await $0.report(.taskComplete, in: "s", of: "another") } == .anotherUser)
        #expect(await code(mine) { _ = try await $0.report(.taskComplete, in: "") } == .outOfRange)
        #expect(await code(mine) { _ = try await $0.report(.state(.unknown("dreaming")), in: "s") } == .outOfRange)
        #expect(await code(mine) { _ = try await $0.report(.progress(elapsed: .seconds(90_000)), in: "s") } == .outOfRange)
        #expect(await code(mine) { _ = try await $0.clearSession("s", of: "another") } == .anotherUser)
        #expect(await code(mine) { _ = try await $0.approval("unknown") } == .requestNotFound)
        #expect(await code(mine) { _ = try await $0.monitors(of: "p") } == .backEndOnly)
        #expect(await code(mine) { _ = try await $0.reportStatus(of: "p", from: .idle, to: .running) } == .backEndOnly)
        let others = try await broker.accounts("another-\(user)").registerMonitor(.random(), printer: nil)
        #expect(await code(mine) { _ = try await $0.updateMonitor(others, MonitorSettings()) } == .deviceNotFound)
        let backEnd = try broker.jwt("back-end", more: ["--scope", "broker.notify"])
        #expect(await code(backEnd) { _ = try await $0.report(.taskComplete, in: "s") } == .missingField)
        #expect(await code(backEnd) { _ = try await $0.reportProgress(of: "p", percent: 101) } == .outOfRange)
    }

    @Test func quotas() async throws {
        let accounts = try broker.accounts(user)
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
        for await news in await accounts.followSessions() {
            guard case .ended(.failed(.refused(let refusal))) = news else { throw Failure(description: "\(news)") }
            #expect(refusal.code == .audiencesOff)
        }
    }

    @Test func theLoginsErrorsAreTheApps() async throws {
        struct LoggedOut: Error {}
        let accounts = Accounts(client: try broker.client()) { throw LoggedOut() }
        await #expect(throws: LoggedOut.self) { try await accounts.registerDevice(.random()) }
    }
}
