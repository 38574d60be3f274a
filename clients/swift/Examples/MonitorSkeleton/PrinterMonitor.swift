import Foundation
import MayflyClient

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// What an app that watches a printer has between its screens and Mayfly.
actor PrinterMonitor {
    /// What stays when iOS ends the app.
    nonisolated struct Memory: Codable, Sendable {
        /// Whose login it is.
        var user: String?
        /// A private monitor's login is one long-lived JWT.
        var jwt: Secret?
        var token: PushToken?
        var device = Registered()
        /// Whether the device has these settings.
        var hasSentSettings = false
        var printer: String?
        /// The phone's own name of the printer.
        var name = ""
        var settings = MonitorSettings()

        /// The printers that a push may mean.
        var printers: HandleTable { device.current?.table(.printer, [printer].compactMap { $0 }) ?? HandleTable() }
    }

    /// App and extension need this group in their capability Keychain Sharing. `TEAM` is the team's id.
    static let keychain = SharedKeychain(service: "monitor", accessGroup: "TEAM.org.example.monitor")

    private let client: Client
    private var kept: Kept<Memory>
    private let show: @Sendable (String) -> Void
    private var turns = Turns()
    private var isRegistered = false

    init(client: Client, storage: any Storage, show: @escaping @Sendable (String) -> Void) {
        (self.client, self.show) = (client, show)
        kept = Kept(in: storage, empty: Memory())
    }

    var settings: MonitorSettings { get throws { try kept.read().settings } }

    /// Returns nil if nobody is logged in.
    private func accounts() throws -> Accounts? {
        try kept.read().jwt.map { jwt in Accounts(client: client) { jwt.value } }
    }

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
        try await register()
    }

    /// A phone watches one printer.
    func watch(_ printer: String, name: String) async throws {
        try kept.change { ($0.printer, $0.name) = (printer, name) }
        try await register()
    }

    /// The app returns to the foreground, perhaps with a network again.
    func returned() async throws { if !isRegistered { try await register() } }

    private func register() async throws { try await inTurn { try await $0.registerNow() } }

    private func inTurn(_ work: @escaping @Sendable (isolated PrinterMonitor) async throws -> Void) async throws {
        let task = turns.add { try await work(self) }
        try await task.value
    }

    private func registerNow() async throws {
        isRegistered = false
        guard let accounts = try accounts(), let token = try kept.read().token else { return }
        if let last = try kept.read().device.unanswered, last != token { try await register(last, at: accounts) }
        try await register(token, at: accounts)
        // The old device would ring, too. What fails below is done by the next launch.
        try await sendSettings()
        for old in try kept.read().device.old {
            try await accounts.deleteMonitor(old)
            try kept.change { $0.device.remove(old) }
        }
        isRegistered = true
        show("registered")
    }

    private func register(_ token: PushToken, at accounts: Accounts) async throws {
        try kept.change { $0.device.unanswered = token }
        do {
            let device = try await accounts.registerMonitor(token, printer: try kept.read().printer)
            try kept.change {
                // A new token is a new device: it starts with all settings on.
                if device.id != $0.device.current?.id { $0.hasSentSettings = false }
                $0.device.set(device)
            }
        } catch {
            try kept.change { $0.device.recordFailure(error) }
            throw error
        }
    }

    /// The user turned a toggle. What fails is sent again by the next change or launch.
    func change(_ settings: MonitorSettings) async throws {
        try kept.change { ($0.settings, $0.hasSentSettings) = (settings, false) }
        try await inTurn { try await $0.sendSettings() }
        show("settings sent")
    }

    private func sendSettings() async throws {
        let memory = try kept.read()
        guard !memory.hasSentSettings, let device = memory.device.current else { return }
        try await accounts()?.updateMonitor(device, memory.settings)
        try kept.change { $0.hasSentSettings = $0.settings == memory.settings }
    }

    /// Otherwise the next user of the phone gets this one's pushes.
    func logOut() async throws {
        try await inTurn { try await $0.logOutNow() }
        show("logged out")
    }

    private func logOutNow() async throws {
        if let accounts = try accounts(), let last = try kept.read().device.unanswered { try await register(last, at: accounts) }
        try await accounts()?.logOut(try kept.read().device.all)
        try await forgetUser()
    }

    private func forgetUser() async throws {
        await DeliveredNotifications.remove { _ in true }
        // Apple's token is the phone's, and serves the next user.
        try kept.change { $0 = Memory(token: $0.token) }
    }

    /// Reads a push that came or was tapped. Returns nil if it is about no printer of this phone.
    func news(_ push: ReceivedPush) throws -> (name: String, status: PrinterStatus, progress: Int?)? {
        let memory = try kept.read()
        return MonitorNotification(payload: push.payload, printers: memory.printers)
            .map { (memory.name, $0.status, $0.progress) }
    }
}
