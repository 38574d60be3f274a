import Foundation
import MayflyClient
import UserNotifications

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// What an app that watches an assistant has between its screens and Mayfly.
actor Companion {
    private let client: Client
    private var kept: Kept<CompanionMemory>
    private let show: @Sendable (String) -> Void
    private var turns = Turns()
    private var isRegistered = false
    private var feed: SessionFeed?
    private var lifecycle: AppLifecycle?
    /// Registers the tokens of Live Activities, by session.
    private var following: [String: Task<Void, Never>] = [:]

    init(client: Client, storage: any Storage, show: @escaping @Sendable (String) -> Void) {
        (self.client, self.show) = (client, show)
        kept = Kept(in: storage, empty: CompanionMemory())
    }

    /// Returns nil if nobody is logged in.
    private func accounts() throws -> Accounts? {
        guard try kept.read().jwt != nil else { return nil }
        // Read for each call, since a feed outlives a JWT.
        return Accounts(client: client) { try await self.jwt() }
    }

    private func jwt() throws -> String {
        guard let jwt = try kept.read().jwt else { throw MayflyError.invalidConfiguration("Nobody is logged in.") }
        return jwt.value
    }

    // MARK: From launch to logout

    /// At each launch: the screen may be out of date, and the Live Activities went on.
    func launched() async throws {
        try await clearScreen()
        for session in SessionActivities.sessionIDs { follow(session) }
    }

    /// The app returns to the foreground, perhaps with a network again.
    func returned() async throws {
        try await clearScreen()
        if !isRegistered { try await inTurn { try await $0.registerNow() } }
    }

    /// iOS reports few background pushes, and none to an app that the user closed.
    private func clearScreen() async throws { await CompanionNotification.clearScreen(sessions: try kept.read().sessions) }

    func logIn(_ user: String, _ jwt: Secret) async throws {
        try await inTurn { me in
            if try me.kept.read().user.map({ $0 != user }) ?? false { try await me.leaveLastUser() }
            try me.kept.change { ($0.user, $0.jwt) = (user, jwt) }
            try await me.registerNow()
        }
    }

    /// With the next user's JWT the registrations would seem gone.
    private func leaveLastUser() async throws {
        do { try await logOutNow() } catch let error as MayflyError where error.refusal?.kind == .unauthorized {
            // The last user's login has ended, so only the broker can end the registrations: when they expire.
            show("the last user's pushes go on")
            try await forgetUser()
        }
    }

    /// Apple gave the phone a token: at each launch, and when it changes.
    func register(_ token: PushToken) async throws {
        try kept.change { $0.token = token }
        try await inTurn { try await $0.registerNow() }
    }

    private func inTurn(_ work: @escaping @Sendable (isolated Companion) async throws -> Void) async throws {
        let task = turns.add { try await work(self) }
        try await task.value
    }

    private func registerNow() async throws {
        isRegistered = false
        guard let accounts = try accounts(), let token = try kept.read().token else { return }
        if let last = try kept.read().device.unanswered, last != token { try await register(last, at: accounts) }
        try await register(token, at: accounts)
        // Otherwise the phone would count as two. What fails is deleted by the next launch, or by the logout.
        for old in try kept.read().device.old {
            try await accounts.delete(old)
            try kept.change { $0.device.remove(old) }
        }
        isRegistered = true
        show("registered")
    }

    private func register(_ token: PushToken, at accounts: Accounts) async throws {
        try kept.change { $0.device.unanswered = token }
        do {
            let device = try await accounts.registerDevice(token)
            try kept.change { $0.device.set(device) }
        } catch {
            try kept.change { $0.device.recordFailure(error) }
            throw error
        }
    }

    /// Otherwise the next user of the phone gets this one's pushes.
    func logOut() async throws {
        try await inTurn { try await $0.logOutNow() }
        show("logged out")
    }

    private func logOutNow() async throws {
        await feed?.leave()
        for session in Set(SessionActivities.sessionIDs).union(following.keys) { await endActivity(session) }
        if let accounts = try accounts(), let last = try kept.read().device.unanswered { try await register(last, at: accounts) }
        let memory = try kept.read()
        try await accounts()?.logOut(memory.device.all + memory.activities.values.map(\.registration))
        try await forgetUser()
    }

    private func forgetUser() async throws {
        await DeliveredNotifications.remove { _ in true }
        // Apple's token is the phone's, and serves the next user.
        try kept.change { $0 = CompanionMemory(token: $0.token) }
    }

    // MARK: Sessions

    /// The app's back end said which sessions there are.
    func name(_ session: String, _ name: String) throws { try kept.change { $0.names[session] = name } }

    /// Follows the sessions while the app is open.
    func watch() async throws { try await inTurn { try await $0.watchNow() } }

    private func watchNow() async throws {
        guard let accounts = try accounts() else { return show("log in first") }
        // The logout ends one feed only.
        await feed?.leave()
        let feed = await accounts.followSessions()
        self.feed = feed
        lifecycle = await AppLifecycle(feed)
        Task {
            for await news in feed { heard(news) }
        }
    }

    private func heard(_ news: SessionNews) {
        switch news {
        case .connected: show("connected")
        case .approvalRequested(let request, let session, _): show("asked \(request) in \(session)")
        case .approvalAnswered(_, let session, let isApproved): show("\(isApproved ? "allowed" : "denied") in \(session)")
        case .approvalOver(_, let session, _): show("no longer asked in \(session)")
        case .progress(let session, _, _): show("progress in \(session)")
        case .stateChanged(let session, _, let state): show("\(session) is \(state)")
        case .claimRefused(let refusal): show("refused: \(refusal.detail)")
        case .disconnected: show("connecting")
        case .ended: show("no longer connected")
        }
    }

    /// Makes this phone the session's active one.
    func claim(_ session: String) async throws { await feed?.claim(session, device: "phone", token: try kept.read().token) }

    /// Shows the session on the lock screen.
    func startActivity(_ session: String) throws {
        let name = try kept.read().names[session] ?? session
        guard try SessionActivities.start(SessionAttributes(sessionID: session, name: name)) else {
            return show("Live Activities are off")
        }
        follow(session)
    }

    private func follow(_ session: String) {
        following[session] = Task {
            do {
                guard let accounts = try accounts() else { return }
                let last = try kept.read().activities[session]?.token
                try await accounts.registerTokens(ofSession: session, previous: last) { [weak self] in
                    await self?.keep(CompanionMemory.Activity(token: $0, registration: $1), of: session)
                }
            } catch is CancellationError {
                // The activity has ended.
            } catch {
                show("the Live Activity gets no updates: \(error)")
            }
        }
    }

    /// Also breaks off a registration on its way: Apple drops the token of an activity that has ended.
    private func endActivity(_ session: String) async {
        await SessionActivities.end(session)
        let task = following.removeValue(forKey: session)
        task?.cancel()
        await task?.value
    }

    /// The new registration goes on with the last one, so no other has to be deleted.
    private func keep(_ activity: CompanionMemory.Activity, of session: String) {
        do {
            try kept.change { $0.activities[session] = activity }
            show("activity registered")
        } catch { show("the activity can't be kept") }
    }

    // MARK: Pushes

    /// Whether an open app shows a push.
    func isForScreen(_ push: ReceivedPush) throws -> Bool {
        let notification = CompanionNotification(payload: push.payload, sessions: try kept.read().sessions)
        // A type of a later broker.
        guard let notification else { return true }
        // Who knows the token can send pushes about unknown sessions. A clearing push has a text for a phone whose app doesn't run.
        return notification.sessionID != nil && !notification.isClearing
    }

    /// A push came in the background. Returns whether it changed anything.
    func received(_ push: ReceivedPush) async throws -> Bool {
        let notification = CompanionNotification(payload: push.payload, sessions: try kept.read().sessions)
        guard let notification else { return false }
        if case .handoff(let client) = notification.kind, let session = notification.sessionID {
            show("\(session) went to \(client.rawValue)")
            await endActivity(session)
            if let activity = try kept.read().activities[session] {
                try await accounts()?.delete(activity.registration)
                try kept.change { $0.activities[session] = nil }
            }
            return true
        }
        return await notification.clearScreen()
    }

    /// The user tapped a notification, or answered by its button.
    func opened(_ push: ReceivedPush, action: String) async throws {
        let memory = try kept.read()
        do {
            if let isInTime = try await accounts()?.respond(action, to: push, from: memory.token) {
                return show(isInTime ? "answered" : "too late")
            }
        } catch {
            await askAgain(push)
            throw error
        }
        let session = CompanionNotification(payload: push.payload, sessions: memory.sessions)?.sessionID
        show(session.map { "open \(memory.names[$0] ?? $0)" } ?? "unknown push")
    }

    /// iOS took the notification off the screen when its button was pressed.
    private func askAgain(_ push: ReceivedPush) async {
        let content = UNMutableNotificationContent()
        content.title = "Not answered, try again"
        content.categoryIdentifier = CompanionCategory.approval.rawValue
        content.userInfo = push.payload
        let request = UNNotificationRequest(identifier: push.identifier ?? UUID().uuidString, content: content, trigger: nil)
        try? await UNUserNotificationCenter.current().add(request)
    }
}

nonisolated extension Accounts {
    /// A registration that is gone already is as good as deleted.
    fileprivate func delete(_ registration: Registration) async throws {
        do { try await deleteToken(registration) } catch let error as MayflyError where error.refusal?.kind == .gone {}
    }
}
