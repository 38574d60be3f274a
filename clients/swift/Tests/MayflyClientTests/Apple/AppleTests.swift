#if MAYFLY_APPLE_STUBS
    import ActivityKit
    import CallKit
    import ExampleSupport
    import Foundation
    import MayflyApple
    import PushKit
    import Security
    import SocketTransport
    import SwiftUI
    import Testing
    import UIKit
    import UserNotifications

    @testable import MayflyClient

    /// The parts for Apple's systems, called as iOS calls them. The stubs of UIKit and others are shared by all, so these tests run one after the other.
    @MainActor
    @Suite(.serialized, .timeLimit(.minutes(1)))
    struct AppleTests {
        private let broker = TestBroker.shared
        private let center = UNUserNotificationCenter.current()
        private let application = UIApplication.shared
        private let user = "user-\(UUID().uuidString)"

        init() {
            center.stub.withLock { $0 = UNUserNotificationCenter.Stub() }
            application.stubState = .active
            application.stubToken = nil
            application.unregisterForRemoteNotifications()
        }

        // MARK: The delegate

        private final class Delegate: PushAppDelegate {
            var heard: [String] = []
            override var categories: Set<UNNotificationCategory> { [ApprovalAction.category(allow: "Yes", deny: "No")] }
            override func launched() { heard.append("launched") }
            override func registered(_ deviceToken: Data) async { heard.append("token \(PushToken(deviceToken).hex)") }
            override func registrationFailed(_ error: any Error) { heard.append("failed") }
            override func presentation(of push: ReceivedPush) async -> UNNotificationPresentationOptions {
                push.payload["quiet"] as? Bool == true ? [] : [.banner]
            }
            override func opened(_ push: ReceivedPush, action: String) async {
                heard.append("\(action) \(push.identifier ?? "") \(push.payload["requestId"] as? String ?? "")")
            }
            override func received(_ push: ReceivedPush) async -> Bool { push.payload["new"] as? Bool == true }
        }

        /// Reports off the main thread, where UserNotifications may be.
        private nonisolated func present(_ payload: [AnyHashable: Any], to delegate: Delegate) async
            -> UNNotificationPresentationOptions
        {
            let request = UNNotificationRequest(stubIdentifier: "id", payload: payload)
            return await withCheckedContinuation { continuation in
                delegate.userNotificationCenter(.current(), willPresent: UNNotification(stub: request)) {
                    MainActor.preconditionIsolated()
                    continuation.resume(returning: $0)
                }
            }
        }

        private nonisolated func respond(_ action: String, _ payload: [AnyHashable: Any], to delegate: Delegate) async {
            let request = UNNotificationRequest(stubIdentifier: "id", payload: payload)
            let response = UNNotificationResponse(stub: UNNotification(stub: request), action: action)
            await withCheckedContinuation { continuation in
                delegate.userNotificationCenter(.current(), didReceive: response) {
                    MainActor.preconditionIsolated()
                    continuation.resume()
                }
            }
        }

        @Test func theDelegateFromLaunchToTap() async throws {
            let delegate = Delegate()
            application.delegate = delegate
            let isLaunched = (delegate as any UIApplicationDelegate).application(application, didFinishLaunchingWithOptions: nil)
            #expect(isLaunched)
            // Set before the launch ends, or iOS drops the tap of a cold start.
            #expect(center.delegate === delegate)
            #expect(application.isRegisteredForRemoteNotifications)
            #expect(center.stub.withLock { $0.questions } == 0)
            #expect(center.stub.withLock { $0.categories.map(\.identifier) } == ["APPROVAL_REQUEST"])
            application.stubToken = .failure(CocoaError(.fileNoSuchFile))
            application.stubToken = .success(Data([1, 0xab]))
            try await eventually { delegate.heard.count == 3 ? true : nil }
            #expect(delegate.heard == ["launched", "failed", "token 01ab"])

            #expect(await present(["quiet": true], to: delegate) == [])
            #expect(await present(["quiet": false], to: delegate) == [.banner])
            await respond("MAYFLY_ALLOW", ["requestId": "r"], to: delegate)
            #expect(delegate.heard.last == "MAYFLY_ALLOW id r")
            let delegated = delegate as any UIApplicationDelegate
            #expect(await delegated.application(application, didReceiveRemoteNotification: ["new": true]) == .newData)
            #expect(await delegated.application(application, didReceiveRemoteNotification: [:]) == .noData)
        }

        // MARK: Permission and settings

        @Test func permission() async throws {
            let permission = NotificationPermission()
            await permission.refresh()
            #expect(permission.status == .notDetermined && !permission.isGranted)
            center.stub.withLock { $0.answer = .denied }
            #expect(try await !permission.ask())
            #expect(permission.status == .denied && !permission.isGranted)
            // The user changes it in Settings, and returns.
            permission.openSettings()
            #expect(application.stubOpened.last?.absoluteString == UIApplication.openNotificationSettingsURLString)
            center.stub.withLock { $0.status = .authorized }
            application.stubEnterForeground()
            try await eventually { permission.isGranted ? true : nil }
            center.stub.withLock { $0.status = .notDetermined }
            #expect(try await permission.ask([.alert, .provisional]))
            #expect(permission.status == .provisional && permission.isGranted)
        }

        private final class Box { var settings = MonitorSettings() }

        @Test func theSettingsView() async throws {
            let (permission, box) = (NotificationPermission(), Box())
            let settings = Binding(get: { box.settings }, set: { box.settings = $0 })
            func tree() -> [any View] { NotificationSettingsView(permission) { MonitorToggles(settings) }.stubTree }
            func button(_ title: String) -> Button? { tree().compactMap { $0 as? Button }.first { $0.stubTitle == title } }
            await permission.refresh()
            #expect(button("Open Settings") == nil)
            center.stub.withLock { $0.answer = .denied }
            try #require(button("Allow Notifications")).stubAction()
            try await eventually { permission.status == .denied ? true : nil }
            #expect(button("Allow Notifications") == nil)
            let before = application.stubOpened.count
            try #require(button("Open Settings")).stubAction()
            #expect(application.stubOpened.count == before + 1)

            let toggles = tree().compactMap { $0 as? Toggle }
            #expect(toggles.count == 6)
            for toggle in toggles { toggle.stubIsOn.wrappedValue = false }
            var off = MonitorSettings()
            off.notificationsEnabled = false
            (off.onStart, off.onComplete, off.onFailed, off.onPaused, off.onMilestone) = (false, false, false, false, false)
            #expect(box.settings == off)
        }

        // MARK: Presence

        private final class Heard { var events: [RoomEvent] = [] }

        /// iOS suspends, resumes and ends the app. The other side sees each.
        @Test func theLifeCycleOfASession() async throws {
            let (mine, theirs) = try await broker.room()
            let other = try await broker.client().join(theirs)
            let heard = Heard()
            let listening = Task { for await event in other { heard.events.append(event) } }
            try await eventually { heard.events.isEmpty ? nil : true }
            let session = try await broker.client().join(mine)
            func waitFor(_ event: RoomEvent, count: Int) async throws {
                try await eventually("\(event)") { heard.events.count { $0 == event } == count ? true : nil }
            }
            let lifecycle = AppLifecycle(session)
            let own = Task { for await _ in session {} }
            try await waitFor(.peerJoined, count: 1)
            application.stubEnterBackground()
            #expect(!application.stubRunningTasks.isEmpty)
            try await eventually { application.stubRunningTasks.isEmpty ? true : nil }
            try await waitFor(.peerLeft(delivery: nil), count: 1)
            application.stubEnterForeground()
            try await waitFor(.peerJoined, count: 2)
            // iOS ends the process when this returns, so it waits for the broker, but no longer.
            let start = ContinuousClock.now
            application.stubTerminate()
            #expect(start.duration(to: .now) < .seconds(2))
            try await waitFor(.peerLeft(delivery: nil), count: 2)
            withExtendedLifetime(lifecycle) {}
            await own.value
            await other.leave()
            await listening.value
        }

        /// Over a network that doesn't answer. iOS ends an app that goes on then.
        @Test func aSuspensionThatTakesTooLong() async throws {
            struct Silent: LiveConnection {
                func suspend() async { try? await Task.sleep(for: .seconds(60)) }
                func resume() async {}
                func leave() async {}
            }
            let lifecycle = AppLifecycle(Silent())
            application.stubEnterBackground()
            #expect(!application.stubRunningTasks.isEmpty)
            application.stubExpireTasks()
            #expect(application.stubRunningTasks.isEmpty)
            application.stubState = .active
            withExtendedLifetime(lifecycle) {}
        }

        // MARK: Notifications

        private func deliver(_ payload: [AnyHashable: Any], as id: String) {
            center.stubDeliver(UNNotificationRequest(stubIdentifier: id, payload: payload))
        }

        private var shown: [String] { center.stub.withLock { $0.delivered.map(\.request.identifier) } }

        /// Two phones of a user. One answers by the notification's button, the other one is cleared, and nothing else is.
        @Test func approvalsAreAnsweredAndCleared() async throws {
            let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
            let (one, two) = (PushToken.random(), PushToken.random())
            _ = try await accounts.registerDevice(one)
            let registration = try await accounts.registerDevice(two)
            let receipt = try await backEnd.report(.approvalRequest(), in: "s", of: user)
            let request = try #require(receipt.requestID)
            let asked = ReceivedPush(try await broker.payload(to: one))
            deliver(asked.payload, as: request)
            #expect(try await accounts.respond(UNNotificationDefaultActionIdentifier, to: asked, from: one) == nil)
            #expect(
                try await accounts.respond("MAYFLY_DENY", to: ReceivedPush(["type": "question", "questionId": "q"]), from: one)
                    == nil)
            #expect(shown == [request])
            #expect(try await accounts.respond("MAYFLY_DENY", to: asked, from: one) == true)
            #expect(shown.isEmpty)
            #expect(try await backEnd.approval(request).status == .denied)
            #expect(try await accounts.respond("MAYFLY_ALLOW", to: asked, from: one) == false)

            // The second phone shows the approval, another one, and a notification of something else.
            deliver(try await broker.payload(to: two), as: request)
            deliver(["type": "approval", "requestId": "other"], as: "other")
            deliver(["roomId": "x"], as: "x")
            let clearing = try await broker.payload(1, to: two)
            let sessions = registration.table(.session, ["s"])
            let notification = try #require(CompanionNotification(payload: clearing, sessions: sessions))
            #expect(await notification.clearScreen())
            #expect(shown == ["other", "x"])
            #expect(center.stub.withLock { $0.badge } == 2)
            #expect(await !notification.clearScreen())
            // While no app ran, iOS showed the clearing text itself.
            deliver(clearing, as: request)
            await CompanionNotification.clearScreen(sessions: sessions)
            #expect(shown == ["other", "x"])
        }

        /// The network breaks off after the press of a button: before the call arrived, and after it.
        @Test func aButtonWhoseAnswerIsLost() async throws {
            let backEnd = try broker.backEnd()
            let token = PushToken.random()
            _ = try await broker.accounts(user).registerDevice(token)
            let request = try #require(try await backEnd.report(.approvalRequest(), in: "s", of: user).requestID)
            let asked = ReceivedPush(try await broker.payload(to: token), identifier: request)
            func losing(_ isSent: Bool) throws -> Accounts {
                try broker.accounts(
                    user,
                    ScriptedTransport { _, call in
                        let isRespond = call.url.path.hasSuffix("/respond")
                        if isRespond, !isSent { throw MayflyError.noAnswer("lost") }
                        let answer = try await SocketTransport().send(call)
                        if isRespond { throw MayflyError.noAnswer("lost") }
                        return answer
                    })
            }
            deliver(asked.payload, as: request)
            let error = await #expect(throws: MayflyError.self) { try await losing(false).respond("MAYFLY_ALLOW", to: asked) }
            #expect(error == .noAnswer("lost"))
            #expect(shown == [request])
            #expect(try await losing(true).respond("MAYFLY_ALLOW", to: asked) == true)
            #expect(shown.isEmpty)
            #expect(try await backEnd.approval(request).status == .approved)
            #expect(try await losing(true).respond("MAYFLY_DENY", to: asked) == false)
            // iOS gives the app no time to wait.
            let silent = ScriptedTransport { _, _ in
                try await Task.sleep(for: .seconds(60))
                throw MayflyError.noAnswer("lost")
            }
            await #expect(throws: MayflyError.noAnswer("no answer to the approval in 0.1 seconds")) {
                try await broker.accounts(user, silent).respond("MAYFLY_ALLOW", to: asked, within: .milliseconds(100))
            }
        }

        @Test func aSessionsNotificationsAreCleared() async throws {
            let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
            let token = PushToken.random()
            let registration = try await accounts.registerDevice(token)
            for session in ["s", "t"] { try await backEnd.report(.taskComplete, in: session, of: user) }
            for number in 0...1 { deliver(try await broker.payload(number, to: token), as: "\(number)") }
            try await backEnd.clearSession("s", of: user)
            let sessions = registration.table(.session, ["s", "t"])
            let clearing = try #require(
                CompanionNotification(payload: try await broker.payload(2, to: token), sessions: sessions))
            #expect(await clearing.clearScreen())
            #expect(shown == ["1"])
        }

        /// An approval comes while the last notification is removed. A badge of 0 would remove it, too.
        @Test func aNotificationThatComesMeanwhileStays() async throws {
            deliver(["type": "complete"], as: "old")
            let removed = await DeliveredNotifications.remove { shown in
                guard shown["type"] as? String == "complete" else { return false }
                UNUserNotificationCenter.current().stubDeliver(
                    UNNotificationRequest(stubIdentifier: "new", payload: ["type": "approval", "requestId": "r"]))
                return true
            }
            #expect(removed == 1 && shown == ["new"])
            #expect(center.stub.withLock { $0.badge } == 1)
        }

        @Test func theExtensionsAddNames() async throws {
            let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
            let (device, monitor) = (PushToken.random(), PushToken.random())
            let sessions = try await accounts.registerDevice(device).table(.session, ["s"])
            let printer = "printer-\(user)"
            let printers = try await accounts.registerMonitor(monitor, printer: printer).table(.printer, [printer])
            try await backEnd.report(.taskComplete, in: "s", of: user)
            try await backEnd.reportStatus(of: printer, from: .idle, to: .running)
            let done = UNNotificationRequest(stubIdentifier: "1", payload: try await broker.payload(to: device))
            let started = UNNotificationRequest(stubIdentifier: "2", payload: try await broker.payload(to: monitor))

            let first = CompanionNotification.content(for: done, sessions: sessions) { ["s": "Build"][$0] }
            #expect(first.title == "Task Complete" && first.subtitle == "Build" && !first.threadIdentifier.isEmpty)
            let second = MonitorNotification.content(for: started, printers: printers) { $0 == printer ? "Workshop" : nil }
            #expect(second.title == "Print Started" && second.subtitle == "Workshop" && !second.threadIdentifier.isEmpty)
            // Strangers' pushes, and names that the phone has no word for, stay as they came.
            #expect(CompanionNotification.content(for: done, sessions: HandleTable()) { $0 } === done.content)
            #expect(CompanionNotification.content(for: done, sessions: sessions) { _ in nil } === done.content)
            #expect(MonitorNotification.content(for: started, printers: HandleTable()) { $0 } === started.content)
        }

        // MARK: Keychain

        private struct Value: Codable, Hashable { var id: String, number: Int }

        @Test func theKeychain() throws {
            let (mine, other) = (
                SharedKeychain(service: user, accessGroup: "TEAM.a"), SharedKeychain(service: user, accessGroup: "TEAM.b")
            )
            #expect(try mine.load(Value.self).isEmpty)
            try mine.delete("1")
            for value in [Value(id: "1", number: 1), Value(id: "2", number: 2), Value(id: "1", number: 3)] {
                try mine.save(value, as: value.id)
            }
            // Damaged for this version of the app.
            try mine.save(["another": "version"], as: "3")
            #expect(Set(try mine.load(Value.self)) == [Value(id: "1", number: 3), Value(id: "2", number: 2)])
            #expect(try mine.load(Value.self, as: "1") == Value(id: "1", number: 3))
            #expect(try mine.load(Value.self, as: "4") == nil)
            #expect(throws: DecodingError.self) { try mine.load(Value.self, as: "3") }
            #expect(try other.load(Value.self).isEmpty)
            let items = StubKeychain.shared.contents.filter { $0[kSecAttrService] as? String == user }
            #expect(items.count == 3)
            // A locked phone's extension reads it, and no backup takes it along.
            #expect(
                items.allSatisfy { $0[kSecAttrAccessible] as? CFString == kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly })
            StubKeychain.shared.isLocked = true
            defer { StubKeychain.shared.isLocked = false }
            let error = #expect(throws: SharedKeychain.Failure.self) { try mine.load(Value.self) }
            #expect(error?.status == errSecInteractionNotAllowed)
            #expect(throws: SharedKeychain.Failure.self) { try mine.save(Value(id: "1", number: 0), as: "1") }
            #expect(throws: SharedKeychain.Failure.self) { try mine.delete("1") }
        }

        // MARK: Live Activities

        /// Two tokens of an activity: the broker gets both, and forgets the first. Then the activity ends.
        @Test func theTokensOfALiveActivity() async throws {
            let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
            let session = "session-\(user)"
            #expect(try SessionActivities.start(SessionAttributes(sessionID: session, name: "Build")))
            #expect(try SessionActivities.start(SessionAttributes(sessionID: session, name: "Build")))
            #expect(SessionActivities.sessionIDs.filter { $0 == session }.count == 1)
            let (registered, continuation) = AsyncStream.makeStream(of: Registration.self)
            let following = Task.detached {
                try await accounts.registerTokens(ofSession: session) { continuation.yield($1) }
            }
            let (first, second) = (PushToken.random(), PushToken.random())
            var registrations = registered.makeAsyncIterator()
            stubActivityToken(SimulatedPhone.bytes(first.hex), of: SessionAttributes.self) { $0.sessionID == session }
            let before = try #require(await registrations.next())
            stubActivityToken(SimulatedPhone.bytes(second.hex), of: SessionAttributes.self) { $0.sessionID == session }
            #expect(try #require(await registrations.next()).id == before.id)
            try await backEnd.report(.progress(), in: session, of: user)
            let push = try await broker.payload(to: second)
            let aps = try #require(push["aps"] as? [String: Any])
            let json = try JSONSerialization.data(withJSONObject: try #require(aps["content-state"]))
            #expect(try JSONDecoder().decode(SessionAttributes.ContentState.self, from: json).status == .processing)
            #expect(try await broker.payloads(to: first).isEmpty)
            await SessionActivities.end(session)
            #expect(!SessionActivities.sessionIDs.contains(session))
            try await following.value
        }

        /// The broker restarts behind its proxy when Apple gives the token, or is over its limit.
        @Test func aLiveActivitysTokenDuringARestart() async throws {
            let session = "session-\(user)"
            let transport = ScriptedTransport { number, request in
                switch number {
                case 1: TransportResponse(status: 503, contentType: "text/html", retryAfter: nil, body: Data())
                case 2: ScriptedTransport.problem(429, "too_many_requests", retryAfter: "1")
                default: try await SocketTransport().send(request)
                }
            }
            let accounts = try broker.accounts(user, transport)
            #expect(try SessionActivities.start(SessionAttributes(sessionID: session, name: "Build")))
            let following = Task.detached { try await accounts.registerTokens(ofSession: session) }
            stubActivityToken(SimulatedPhone.bytes(PushToken.random().hex), of: SessionAttributes.self) {
                $0.sessionID == session
            }
            try await eventually("the registration") {
                try await broker.accounts(user).companionStatus().activities.map(\.sessionID) == [session] ? true : nil
            }
            await SessionActivities.end(session)
            try await following.value
        }

        // MARK: Calls

        /// A registered phone rings for a known and an unknown caller, and for a push without content.
        @Test func aPhoneRingsAtOnce() async throws {
            let accounts = try broker.accounts(user)
            let token = PushToken.random()
            let registration = try await accounts.registerPhone(token, uid: user)
            let callers = registration.table(.uid, ["alice"])
            let phone = PhoneCalls(
                configuration: CXProviderConfiguration(), callers: { callers }, unknownCaller: "Unknown",
                name: { ["alice": "Alice"][$0] })
            let (registry, provider) = (try #require(PKPushRegistry.stubLast), try #require(CXProvider.stubLast))
            let delegate = try #require(registry.delegate)
            #expect(registry.desiredPushTypes == [.voIP] && registry.stubQueue?.label == DispatchQueue.main.label)
            var events = phone.events.makeAsyncIterator()

            delegate.pushRegistry(registry, didUpdate: PKPushCredentials(stub: Data([7])), for: .voIP)
            guard case .token(PushToken(Data([7]))) = await events.next() else { throw Failure(description: "no token") }
            try await broker.ring(user, from: "alice", session: "call-1", type: "video")
            try await broker.ring(user, from: "mallory", session: "call-2")
            var pushes: [[AnyHashable: Any]] = [try await broker.payload(0, to: token), try await broker.payload(1, to: token)]
            pushes.append([:])
            for (number, push) in pushes.enumerated() {
                var isComplete = false
                delegate.pushRegistry(registry, didReceiveIncomingPushWith: PKPushPayload(stub: push), for: .voIP) {
                    isComplete = true
                }
                // Before the delegate returns, or iOS ends the app.
                #expect(provider.stubCalls.count == number + 1)
                try await eventually { isComplete ? true : nil }
            }
            #expect(Set(provider.stubCalls.prefix(2).compactMap(\.update.localizedCallerName)) == ["Alice", "Unknown"])
            #expect(provider.stubCalls.filter(\.update.hasVideo).map(\.update.localizedCallerName) == ["Alice"])
            #expect(provider.stubCalls.last?.update.localizedCallerName == "Unknown")
            guard case .ringing(let id, let call) = await events.next() else { throw Failure(description: "doesn't ring") }
            #expect(id == provider.stubCalls[0].id)
            #expect(call.isAbout("call-1", registration) || call.isAbout("call-2", registration))
            for _ in 1...2 { _ = await events.next() }

            let calls = try #require(provider.stubDelegate)
            let (answer, end) = (CXAnswerCallAction(call: id), CXEndCallAction(call: id))
            let mute = CXSetMutedCallAction(call: id, muted: true)
            calls.provider(provider, perform: answer)
            calls.provider(provider, perform: mute)
            calls.provider(provider, perform: end)
            guard case .answered(id) = await events.next(), case .muted(id, true) = await events.next(),
                case .hungUp(id) = await events.next()
            else { throw Failure(description: "not answered, muted and hung up") }
            #expect([answer, mute, end].allSatisfy { $0.isComplete && !$0.stubHasFailed })
            // Buttons that nothing handles.
            let update = provider.stubCalls[0].update
            #expect(!update.supportsHolding && !update.supportsGrouping && !update.supportsUngrouping && !update.supportsDTMF)
            phone.end(id, .remoteEnded)
            #expect(provider.stubEnded.map(\.reason) == [.remoteEnded])

            // Blocked: reported all the same, and nothing rings.
            provider.stubRefusal = CocoaError(.userCancelled)
            delegate.pushRegistry(registry, didReceiveIncomingPushWith: PKPushPayload(stub: pushes[0]), for: .voIP) {}
            guard case .notShown(_, let error) = await events.next() else { throw Failure(description: "shown") }
            #expect((error as? CocoaError)?.code == .userCancelled)
            delegate.pushRegistry(registry, didInvalidatePushTokenFor: .voIP)
            guard case .tokenInvalid = await events.next() else { throw Failure(description: "still valid") }
            calls.providerDidReset(provider)
            guard case .reset = await events.next() else { throw Failure(description: "no reset") }
        }
    }
#endif
