#if os(Linux)
    import Foundation
    import Testing

    @testable import MayflyClient

    /// The examples of apps with accounts, each in a process of its own, from the first launch to the logout.
    @Suite(.timeLimit(.minutes(2)))
    struct AccountExamplesTests {
        private let broker = TestBroker.shared
        private let user = "user-\(UUID().uuidString)"

        // MARK: Companion

        /// A logged-in phone that knows the session `s` as Build.
        private func companion(on phone: Phone, token: PushToken, jwt: String) async throws -> App {
            let app = try phone.launch("CompanionSkeleton")
            app.type("token \(token.hex)")
            app.type("login \(user) \(jwt)")
            try await app.read("registered")
            try await app.read("notifications are on")
            app.type("name s Build")
            try await app.read("done name")
            return app
        }

        /// One user's two phones. A button on one answers an approval, and the other one clears it. iOS ends the second app, and Apple changes its token.
        @Test func anApprovalOnTwoPhones() async throws {
            let (accounts, backEnd, jwt) = (try broker.accounts(user), try broker.backEnd(), try broker.jwt(user))
            let (annsPhone, annsPad) = (try Phone(), try Phone())
            let (first, second, third) = (PushToken.random(), PushToken.random(), PushToken.random())
            let phone = try await companion(on: annsPhone, token: first, jwt: jwt)
            let pad = try await companion(on: annsPad, token: second, jwt: jwt)
            phone.type("watch")
            try await phone.read("connected")
            pad.type("background")

            let request = try #require(try await backEnd.report(.approvalRequest(), in: "s", of: user).requestID)
            try await phone.read("asked \(request) in s")
            for (app, token) in [(phone, first), (pad, second)] {
                try app.push(try await broker.payload(to: token))
                try await app.read("banner Approval Needed | Build | ")
            }
            phone.type("background")
            phone.type("press MAYFLY_ALLOW \(request)")
            try await phone.read("answered")
            #expect(try await backEnd.approval(request).status == .approved)
            phone.type("screen")
            #expect(try await phone.read("screen ") == " badge 0")
            phone.type("foreground")
            try await phone.read("connected")

            // The pad shows a question, too. The clearing push, which only the pad gets, leaves it.
            try await backEnd.report(.question(id: "q"), in: "s", of: user)
            let question = try await broker.payload(2, to: second)
            #expect(try await broker.payload(1, to: first)["type"] as? String == "question")
            try pad.push(question)
            try await pad.read("banner")
            try pad.push(try await broker.payload(1, to: second))
            try await pad.read("received newData")
            pad.type("screen")
            let screen = try await pad.read("screen ")
            #expect(screen.contains("question | Build") && !screen.contains(",") && screen.hasSuffix("badge 1"))
            pad.terminate()

            let again = try annsPad.launch("CompanionSkeleton")
            again.type("token \(third.hex)")
            try await again.read("registered")
            again.type("permit")
            again.type("background")
            try await backEnd.report(.taskComplete, in: "s", of: user)
            let id = try again.push(try await broker.payload(to: third))
            try await again.read("banner Task Complete | Build | ")
            again.type("foreground")
            again.type("tap \(id)")
            try await again.read("open Build")
            #expect(try await broker.payloads(to: second).count == 3)

            again.type("logout")
            try await again.read("logged out")
            // It knows no session any more.
            try again.push(question)
            try await again.read("no banner")
            #expect(try await accounts.companionStatus().hasDevice)
            phone.type("logout")
            try await phone.read("logged out")
            #expect(try await !accounts.companionStatus().hasDevice)
            #expect(try !annsPhone.keptText.contains(jwt) && !annsPad.keptText.contains(jwt))
        }

        /// A desktop takes a session over from a phone, whose Live Activity ends.
        @Test func aLiveActivityUntilTheHandoff() async throws {
            let (accounts, backEnd) = (try broker.accounts(user), try broker.backEnd())
            let (token, old, new) = (PushToken.random(), PushToken.random(), PushToken.random())
            let annsPhone = try Phone()
            let phone = try await companion(on: annsPhone, token: token, jwt: try broker.jwt(user))
            phone.type("watch")
            try await phone.read("connected")
            phone.type("activity s")
            try await phone.read("done activity")
            for token in [old, new] {
                phone.type("activity-token s \(token.hex)")
                try await phone.read("activity registered")
            }
            #expect(try await accounts.companionStatus().activities.map(\.sessionID) == ["s"])
            try await backEnd.report(.progress(), in: "s", of: user)
            try await phone.read("progress in s")
            _ = try await broker.payload(to: new)
            #expect(try await broker.payloads(to: old).isEmpty)

            phone.type("claim s")
            try await phone.read("done claim")
            // A claim has no answer.
            try await Task.sleep(for: .seconds(1))
            let desktop = await accounts.followSessions()
            await desktop.claim("s", device: "desktop", type: .desktop)
            let handoff = try await broker.payload(to: token)
            #expect(handoff["type"] as? String == "session_handoff")
            try phone.push(handoff)
            try await phone.read("s went to desktop")
            try await phone.read("received newData")
            phone.type("activities")
            #expect(try await phone.read("activities ") == "")
            #expect(try await accounts.companionStatus().activities.isEmpty)
            await desktop.leave()
            #expect(try annsPhone.kept.count == 1)
        }

        // MARK: Monitor

        /// A print, with one event off. iOS ends the app, Apple changes the token, and the settings stay.
        @Test func aPrinterFromLoginToLogout() async throws {
            let (backEnd, printer, jwt) = (try broker.backEnd(), "printer-\(user)", try broker.jwt(user))
            let (phone, old, new) = (try Phone(), PushToken.random(), PushToken.random())
            let first = try phone.launch("MonitorSkeleton")
            first.type("notoken")
            try await first.read("no token from Apple")
            first.type("refuse")
            first.type("login \(user) \(jwt)")
            first.type("token \(old.hex)")
            try await first.read("registered")
            first.type("watch \(printer) Workshop")
            try await first.read("registered")
            try await first.read("notifications are off, see Settings")
            first.type("toggle Paused")
            try await first.read("settings sent")
            var settings = MonitorSettings()
            settings.onPaused = false
            #expect(try await backEnd.monitors(of: printer).map(\.settings) == [settings])

            try await backEnd.reportStatus(of: printer, from: .idle, to: .running)
            let started = try await broker.payload(to: old)
            // Nothing is shown to a user who refused, and all of it after Settings.
            first.type("background")
            try first.push(started)
            try await first.read("done push")
            first.type("screen")
            #expect(try await first.read("screen ") == " badge 0")
            first.type("permit")
            first.type("foreground")
            try first.push(started)
            try await first.read("Workshop is running")
            try await first.read("banner Print Started | Workshop | ")
            first.terminate()

            let second = try phone.launch("MonitorSkeleton")
            second.type("token \(new.hex)")
            try await second.read("registered")
            #expect(try await backEnd.monitors(of: printer).map(\.settings) == [settings])
            try await backEnd.reportProgress(of: printer, percent: 50)
            let half = try await broker.payload(to: new)
            #expect(try await broker.payloads(to: old).count == 1)
            second.type("permit")
            second.type("background")
            let id = try second.push(half)
            try await second.read("banner 50% Complete | Workshop")
            second.type("foreground")
            second.type("tap \(id)")
            try await second.read("Workshop is running, 50%")
            second.type("logout")
            try await second.read("logged out")
            #expect(try await backEnd.monitors(of: printer).isEmpty)
            try second.push(half)
            try await second.read("unknown push")
            try await second.read("no banner")
            #expect(try !phone.keptText.contains(jwt))
        }

        // MARK: Calls

        /// Calls of a friend and a stranger. iOS starts the app for a call, PushKit changes its token, and then has none.
        @Test func callsFromLoginToLogout() async throws {
            let (jwt, phone) = (try broker.jwt(user), try Phone())
            let (old, new, last) = (PushToken.random(), PushToken.random(), PushToken.random())
            func call(_ number: Int) -> String { "call-\(number)-\(user)" }
            let first = try phone.launch("CallsSkeleton")
            first.type("voip-token \(old.hex)")
            first.type("login \(user) \(jwt)")
            try await first.read("registered")
            first.type("name alice Alice")
            try await first.read("done name")
            first.type("service other \(call(1))")
            try await broker.ring(user, from: "alice", session: call(1), type: "video")
            try first.ring(try await broker.payload(to: old))
            try await first.read("screen: Alice calls with video")
            try await first.read("ringing for \(call(1))")
            first.type("answer")
            try await first.read("talking in \(call(1))")
            first.type("mute")
            try await first.read("\(call(1)) is muted")
            first.type("hangup")
            try await first.read("hung up \(call(1))")
            // A stranger rings, too, and has hung up.
            try await broker.ring(user, from: "mallory", session: call(2))
            try first.ring(try await broker.payload(1, to: old))
            try await first.read("screen: Unknown caller calls")
            try await first.read("nobody waits")
            try first.ring([:])
            try await first.read("screen: Unknown caller calls")
            first.terminate()

            try await broker.ring(user, from: "alice", session: call(3))
            let third = try await broker.payload(2, to: old)
            let second = try phone.launch("CallsSkeleton")
            second.type("service \(call(3))")
            try second.ring(third)
            try await second.read("screen: Alice calls")
            try await second.read("ringing for \(call(3))")
            second.type("voip-token \(new.hex)")
            try await second.read("registered")
            try await broker.ring(user, from: "alice", session: call(4))
            _ = try await broker.payload(to: new)
            #expect(try await broker.payloads(to: old).count == 3)
            second.type("voip-invalid")
            try await second.read("this phone doesn't ring")
            try await broker.ring(user, from: "alice", session: call(5))

            second.type("voip-token \(last.hex)")
            try await second.read("registered")
            second.type("logout")
            try await second.read("logged out")
            try await broker.ring(user, from: "alice", session: call(6))
            try await Task.sleep(for: .milliseconds(500))
            #expect(try await broker.payloads(to: new).count == 1)
            #expect(try await broker.payloads(to: last).isEmpty)
            #expect(try !phone.keptText.contains(jwt))
        }
    }
#endif
