#if MAYFLY_APPLE_STUBS
    import ActivityKit
    import CallKit
    import ExampleSupport
    import Foundation
    import MayflyApple
    import PushKit
    import SocketTransport
    import Testing
    import UIKit
    import UserNotifications

    @testable import CallsSkeleton
    @testable import CompanionSkeleton
    @testable import MayflyClient
    @testable import MonitorSkeleton

    extension AppleTests {
        /// What an example has registered is found by its logout, also after lost calls and relaunches.
        @MainActor
        struct ExampleLogoutTests {
            private let broker = TestBroker.shared
            private let user = "user-\(UUID().uuidString)"
            private let network = Network()
            private let phone: Phone
            private let storage: FolderStorage
            private let lines = Lines()

            init() throws {
                phone = try Phone()
                storage = try FolderStorage(phone.folder)
            }

            /// A network on which the calls of one method wait or are lost.
            private final class Network: @unchecked Sendable {
                private let lock = NSLock()
                private var held: String?
                private var lost: String?
                private var unanswered: String?
                private var waiting = 0

                var hasWaiting: Bool { lock.withLock { waiting > 0 } }
                func hold(_ method: String?) { lock.withLock { held = method } }
                func lose(_ method: String?) { lock.withLock { lost = method } }
                /// The broker carries the calls out, and their answers are lost.
                func loseAnswers(_ method: String?) { lock.withLock { unanswered = method } }

                var transport: ScriptedTransport {
                    ScriptedTransport { [self] _, request in
                        lock.withLock { waiting += 1 }
                        while lock.withLock({ held == request.method }) { try await Task.sleep(for: .milliseconds(5)) }
                        let isLost = lock.withLock {
                            waiting -= 1
                            return lost == request.method
                        }
                        if isLost { throw MayflyError.unreachable("test") }
                        let answer = try await SocketTransport().send(request)
                        if lock.withLock({ unanswered == request.method }) { throw MayflyError.noAnswer("test") }
                        return answer
                    }
                }
            }

            /// What the app shows.
            private final class Lines: @unchecked Sendable {
                private let lock = NSLock()
                private var lines: [String] = []
                func add(_ line: String) { lock.withLock { lines.append(line) } }
                func count(_ line: String) -> Int { lock.withLock { lines.count { $0 == line } } }
            }

            private func client() throws -> Client {
                var client = try broker.client(network.transport)
                client.repeatWindow = .zero
                return client
            }

            private func companion() throws -> Companion { Companion(client: try client(), storage: storage, show: lines.add) }

            private func monitor() throws -> PrinterMonitor {
                PrinterMonitor(client: try client(), storage: storage, show: lines.add)
            }

            private func calls() throws -> Calls {
                Calls(client: try client(), storage: storage, waiting: { [] }, show: lines.add)
            }

            /// Logs out while a registration waits for the network.
            private func logOutMeanwhile(
                _ register: @escaping @MainActor () async throws -> Void, _ logOut: @escaping @MainActor () async throws -> Void
            ) async throws {
                network.hold("POST")
                let registering = Task { try await register() }
                try await eventually("the registration") { network.hasWaiting ? true : nil }
                let leaving = Task { try await logOut() }
                try await Task.sleep(for: .milliseconds(300))
                network.hold(nil)
                try await registering.value
                try await leaving.value
                try await Task.sleep(for: .milliseconds(300))
            }

            @Test func aCompanionsRegistrationBeforeTheLogout() async throws {
                let companion = try companion()
                try await companion.logIn(user, Secret(try broker.jwt(user)))
                try await logOutMeanwhile({ try await companion.register(.random()) }, { try await companion.logOut() })
                #expect(try await !broker.accounts(user).companionStatus().hasDevice)
            }

            @Test func aLiveActivitysRegistrationBeforeTheLogout() async throws {
                let (session, companion, accounts) = ("session-\(user)", try companion(), try broker.accounts(user))
                try await companion.logIn(user, Secret(try broker.jwt(user)))
                try await companion.startActivity(session)
                try await logOutMeanwhile(
                    {
                        let token = SimulatedPhone.bytes(PushToken.random().hex)
                        stubActivityToken(token, of: SessionAttributes.self) { $0.sessionID == session }
                    }, { try await companion.logOut() })
                #expect(try await accounts.companionStatus().activities.isEmpty)
                #expect(lines.count("activity registered") == 0 && lines.count("logged out") == 1)
            }

            @Test func aMonitorsRegistrationBeforeTheLogout() async throws {
                let monitor = try monitor()
                try await monitor.watch("p-\(user)", name: "Workshop")
                try await monitor.logIn(user, Secret(try broker.jwt(user)))
                try await logOutMeanwhile({ try await monitor.register(.random()) }, { try await monitor.logOut() })
                #expect(try await broker.backEnd().monitors(of: "p-\(user)") == [])
            }

            @Test func aPhonesRegistrationBeforeTheLogout() async throws {
                let client = try broker.client(network.transport)
                let calls = Calls(client: client, storage: storage, waiting: { [] }, show: lines.add)
                try await calls.logIn(user, Secret(try broker.jwt(user)))
                let registry = try #require(PKPushRegistry.stubLast)
                let token = PKPushCredentials(stub: SimulatedPhone.bytes(PushToken.random().hex))
                try await logOutMeanwhile(
                    { registry.delegate?.pushRegistry(registry, didUpdate: token, for: .voIP) }, { try await calls.logOut() })
                #expect(try await broker.accounts(user).testPush(.calls).queued == 0)
            }

            /// Apple changes the token, and the next call is lost. The next launch does what is left.
            @Test(arguments: ["PATCH", "DELETE"])
            func aMonitorsNewTokenAndALostCall(_ method: String) async throws {
                let (backEnd, printer, token) = (try broker.backEnd(), "p-\(user)", PushToken.random())
                var settings = MonitorSettings()
                settings.onPaused = false
                let first = try monitor()
                try await first.logIn(user, Secret(try broker.jwt(user)))
                try await first.watch(printer, name: "Workshop")
                try await first.register(.random())
                try await first.change(settings)
                network.lose(method)
                await #expect(throws: MayflyError.unreachable("test")) { try await first.register(token) }
                network.lose(nil)
                let second = try monitor()
                try await second.register(token)
                #expect(try await backEnd.monitors(of: printer).map(\.settings) == [settings])
                try await second.logOut()
                #expect(try await backEnd.monitors(of: printer) == [])
            }

            /// The same, and the user logs out before the next launch.
            @Test(arguments: ["PATCH", "DELETE"])
            func aMonitorsLogoutAfterALostCall(_ method: String) async throws {
                let monitor = try monitor()
                try await monitor.logIn(user, Secret(try broker.jwt(user)))
                try await monitor.watch("p-\(user)", name: "Workshop")
                try await monitor.register(.random())
                network.lose(method)
                await #expect(throws: MayflyError.unreachable("test")) { try await monitor.register(.random()) }
                network.lose(nil)
                try await monitor.logOut()
                #expect(try await broker.backEnd().monitors(of: "p-\(user)") == [])
            }

            @Test func aCompanionsNewTokenAndALostCall() async throws {
                let token = PushToken.random()
                let first = try companion()
                try await first.logIn(user, Secret(try broker.jwt(user)))
                try await first.register(.random())
                network.lose("DELETE")
                await #expect(throws: MayflyError.unreachable("test")) { try await first.register(token) }
                network.lose(nil)
                let second = try companion()
                try await second.register(token)
                try await second.logOut()
                #expect(try await !broker.accounts(user).companionStatus().hasDevice)
            }

            /// Apple changes the token of a Live Activity while the app doesn't run.
            @Test func aLiveActivityAfterARelaunch() async throws {
                let (session, accounts) = ("session-\(user)", try broker.accounts(user))
                func give(_ token: PushToken) {
                    stubActivityToken(SimulatedPhone.bytes(token.hex), of: SessionAttributes.self) { $0.sessionID == session }
                }
                let first = try companion()
                try await first.logIn(user, Secret(try broker.jwt(user)))
                try await first.startActivity(session)
                give(.random())
                try await eventually("a registration") { lines.count("activity registered") == 1 ? true : nil }
                // The first app can't end within this process, and a stub has one reader: so the activity is another one.
                await SessionActivities.end(session)
                #expect(try SessionActivities.start(SessionAttributes(sessionID: session, name: "Build")))
                let second = try companion()
                try await second.launched()
                give(.random())
                try await eventually("a registration") { lines.count("activity registered") == 2 ? true : nil }
                #expect(try await accounts.companionStatus().activities.map(\.sessionID) == [session])
                try await second.logOut()
                #expect(try await accounts.companionStatus().activities.isEmpty)
            }

            /// Answers to registrations are lost, also when Apple has changed the token. The next launch has the last one, or the logout comes first.
            @Test(arguments: [true, false])
            func aCompanionsLostAnswers(isLaunchedAgain: Bool) async throws {
                let first = try companion()
                try await first.logIn(user, Secret(try broker.jwt(user)))
                network.loseAnswers("POST")
                for _ in 0..<2 { try? await first.register(.random()) }
                network.loseAnswers(nil)
                let second = try companion()
                if isLaunchedAgain { try await second.register(.random()) }
                try await second.logOut()
                #expect(try await !broker.accounts(user).companionStatus().hasDevice)
            }

            @Test(arguments: [true, false])
            func aMonitorsLostAnswers(isLaunchedAgain: Bool) async throws {
                let first = try monitor()
                try await first.logIn(user, Secret(try broker.jwt(user)))
                try await first.watch("p-\(user)", name: "Workshop")
                network.loseAnswers("POST")
                for _ in 0..<2 { try? await first.register(.random()) }
                network.loseAnswers(nil)
                let second = try monitor()
                if isLaunchedAgain { try await second.register(.random()) }
                try await second.logOut()
                #expect(try await broker.backEnd().monitors(of: "p-\(user)") == [])
            }

            /// Also between the answers to two other tokens.
            @Test(arguments: [false, true])
            func aPhonesLostAnswer(isBetweenOthers: Bool) async throws {
                let calls = try calls()
                try await calls.logIn(user, Secret(try broker.jwt(user)))
                let registry = try #require(PKPushRegistry.stubLast)
                func give(_ token: PushToken) {
                    registry.delegate?.pushRegistry(
                        registry, didUpdate: PKPushCredentials(stub: SimulatedPhone.bytes(token.hex)), for: .voIP)
                }
                if isBetweenOthers {
                    give(.random())
                    try await eventually("a registration") { lines.count("registered") == 1 ? true : nil }
                }
                network.loseAnswers("POST")
                give(.random())
                let failure = "failed: \(MayflyError.noAnswer("test"))"
                try await eventually("the lost answer") { lines.count(failure) == 1 ? true : nil }
                network.loseAnswers(nil)
                if isBetweenOthers {
                    give(.random())
                    try await eventually("a registration") { lines.count("registered") == 2 ? true : nil }
                }
                try await calls.logOut()
                #expect(try await broker.accounts(user).testPush(.calls).queued == 0)
            }

            /// A refused token is no registration, so nothing keeps the user from leaving.
            @Test func aCompanionsLogoutAfterARefusedToken() async throws {
                let companion = try companion()
                try await companion.logIn(user, Secret(try broker.jwt(user)))
                await #expect(throws: MayflyError.self) { try await companion.register(PushToken(Data())) }
                try await companion.logOut()
            }

            @Test func aMonitorsLogoutAfterARefusedToken() async throws {
                let monitor = try monitor()
                try await monitor.logIn(user, Secret(try broker.jwt(user)))
                await #expect(throws: MayflyError.self) { try await monitor.register(PushToken(Data())) }
                try await monitor.logOut()
            }

            /// The phone rings while the broker doesn't answer a registration.
            @Test func aCallDuringARegistration() async throws {
                let calls = try calls()
                try await calls.logIn(user, Secret(try broker.jwt(user)))
                let registry = try #require(PKPushRegistry.stubLast)
                network.hold("POST")
                registry.delegate?.pushRegistry(
                    registry, didUpdate: PKPushCredentials(stub: SimulatedPhone.bytes(PushToken.random().hex)), for: .voIP)
                try await eventually("the registration") { network.hasWaiting ? true : nil }
                registry.delegate?.pushRegistry(registry, didReceiveIncomingPushWith: PKPushPayload(stub: [:]), for: .voIP) {}
                try await Task.sleep(for: .seconds(1))
                #expect(lines.count("nobody waits") == 1)
                network.hold(nil)
                try await calls.logOut()
            }

            /// Before the first unlock, for instance. Somebody may wait all the same.
            @Test func aCallWhoseMemoryCannotBeRead() async throws {
                try storage.save(["another": "version"], as: "kept")
                let calls = try calls()
                let (registry, provider) = (try #require(PKPushRegistry.stubLast), try #require(CXProvider.stubLast))
                registry.delegate?.pushRegistry(registry, didReceiveIncomingPushWith: PKPushPayload(stub: [:]), for: .voIP) {}
                try await eventually("the call") { lines.count("ringing for a call that can't be looked up") == 1 ? true : nil }
                #expect(provider.stubEnded.isEmpty)
                withExtendedLifetime(calls) {}
            }

            /// A registration fails, and the app returns to the foreground.
            private func returning(_ delegate: any UIApplicationDelegate, _ register: () async throws -> Void) async throws {
                network.lose("POST")
                try? await register()
                network.lose(nil)
                UIApplication.shared.stubEnterForeground()
                try await eventually("a registration") { lines.count("registered") == 1 ? true : nil }
                withExtendedLifetime(delegate) {}
            }

            @Test func theReturnToACompanion() async throws {
                let (companion, jwt) = (try companion(), Secret(try broker.jwt(user)))
                try await companion.register(.random())
                try await returning(CompanionSkeleton.AppDelegate(companion: companion, show: lines.add)) {
                    try await companion.logIn(user, jwt)
                }
                try await companion.logOut()
            }

            @Test func theReturnToAMonitor() async throws {
                let (monitor, jwt) = (try monitor(), Secret(try broker.jwt(user)))
                try await monitor.register(.random())
                try await returning(MonitorSkeleton.AppDelegate(monitor: monitor, show: lines.add)) {
                    try await monitor.logIn(user, jwt)
                }
                try await monitor.logOut()
            }

            @Test func theReturnToCalls() async throws {
                let (calls, jwt) = (try calls(), Secret(try broker.jwt(user)))
                let delegate = CallsSkeleton.AppDelegate { calls }
                _ = delegate.application(.shared, didFinishLaunchingWithOptions: nil)
                let registry = try #require(PKPushRegistry.stubLast)
                let token = PKPushCredentials(stub: SimulatedPhone.bytes(PushToken.random().hex))
                registry.delegate?.pushRegistry(registry, didUpdate: token, for: .voIP)
                try await eventually("the token") { try phone.keptText.contains("token") ? true : nil }
                try await returning(delegate) { try await calls.logIn(user, jwt) }
                try await calls.logOut()
            }

            /// iOS has removed the notification whose button was pressed without a network.
            @Test func anApprovalWithoutANetwork() async throws {
                let (companion, token) = (try companion(), PushToken.random())
                try await companion.register(token)
                try await companion.logIn(user, Secret(try broker.jwt(user)))
                try await broker.backEnd().report(.approvalRequest(), in: "s", of: user)
                let asked = ReceivedPush(try await broker.payload(to: token))
                network.lose("POST")
                await #expect(throws: MayflyError.unreachable("test")) {
                    try await companion.opened(asked, action: "MAYFLY_ALLOW")
                }
                network.lose(nil)
                let shown = UNUserNotificationCenter.current().stub.withLock { $0.delivered.last?.request }
                #expect(shown?.content.categoryIdentifier == "APPROVAL_REQUEST")
                try await companion.opened(ReceivedPush(try #require(shown)), action: "MAYFLY_ALLOW")
                #expect(lines.count("answered") == 1)
                try await companion.logOut()
            }

            /// The feed goes on with the JWT of the login's renewal.
            @Test func aFeedOutlivesItsJWT() async throws {
                let companion = try companion()
                try await companion.logIn(user, Secret(try broker.jwt(user, until: .now - 600)))
                try await companion.watch()
                try await eventually("the refusal") { lines.count("connecting") == 1 ? true : nil }
                try await companion.logIn(user, Secret(try broker.jwt(user)))
                try await eventually("the feed") { lines.count("connected") == 1 ? true : nil }
                try await companion.logOut()
            }

            /// Each screen may ask for the feed.
            @Test func noFeedGoesOnAfterTheLogout() async throws {
                let companion = try companion()
                try await companion.logIn(user, Secret(try broker.jwt(user)))
                for count in 1...2 {
                    try await companion.watch()
                    try await eventually("the feed") { lines.count("connected") == count ? true : nil }
                }
                try await companion.logOut()
                #expect(lines.count("no longer connected") == 2)
            }

            /// The next user of the phone logs in, and nobody has logged out.
            @Test func aNextUserOfACompanion() async throws {
                let (next, token, companion) = ("next-\(user)", PushToken.random(), try companion())
                try await companion.register(token)
                for user in [user, next] { try await companion.logIn(user, Secret(try broker.jwt(user))) }
                #expect(try await !broker.accounts(user).companionStatus().hasDevice)
                #expect(try await broker.accounts(next).companionStatus().hasDevice)
            }

            @Test func aNextUserOfAMonitor() async throws {
                let (next, monitor, backEnd) = ("next-\(user)", try monitor(), try broker.backEnd())
                try await monitor.register(.random())
                try await monitor.logIn(user, Secret(try broker.jwt(user)))
                try await monitor.watch("p-\(user)", name: "Workshop")
                try await monitor.logIn(next, Secret(try broker.jwt(next)))
                #expect(try await backEnd.monitors(of: "p-\(user)") == [])
                try await monitor.watch("p-\(next)", name: "Office")
                #expect(try await backEnd.monitors(of: "p-\(next)").count == 1)
            }

            @Test func aNextUserOfAPhone() async throws {
                let (next, client) = ("next-\(user)", try broker.client(network.transport))
                let calls = Calls(client: client, storage: storage, waiting: { [] }, show: lines.add)
                let registry = try #require(PKPushRegistry.stubLast)
                let token = PKPushCredentials(stub: SimulatedPhone.bytes(PushToken.random().hex))
                registry.delegate?.pushRegistry(registry, didUpdate: token, for: .voIP)
                try await eventually("the token") { try phone.keptText.contains("token") ? true : nil }
                for user in [user, next] { try await calls.logIn(user, Secret(try broker.jwt(user))) }
                #expect(try await broker.accounts(user).testPush(.calls).queued == 0)
                #expect(try await broker.accounts(next).testPush(.calls).queued == 1)
            }

            /// Nobody can delete with a JWT that has ended, and the next user must get in.
            @Test func aNextUserAfterALoginThatEnded() async throws {
                let (next, companion) = ("next-\(user)", try companion())
                try await companion.register(.random())
                try await companion.logIn(user, Secret(try broker.jwt(user)))
                await #expect(throws: MayflyError.self) { try await companion.logIn(user, Secret("ended")) }
                try await companion.logIn(next, Secret(try broker.jwt(next)))
                #expect(lines.count("the last user's pushes go on") == 1)
                #expect(try await broker.accounts(next).companionStatus().hasDevice)
            }

            private struct Value: Codable, Equatable { var number: Int }

            /// A value of another version of the app is no new phone: the next change would replace its registrations.
            @Test func aKeptValueThatCannotBeRead() throws {
                try storage.save(["another": "version"], as: "kept")
                let before = try phone.keptText
                var kept = Kept(in: storage, empty: Value(number: 0))
                #expect(throws: (any Error).self) { try kept.read() }
                #expect(throws: (any Error).self) { try kept.change { $0.number = 1 } }
                #expect(try phone.keptText == before)
            }
        }
    }
#endif
