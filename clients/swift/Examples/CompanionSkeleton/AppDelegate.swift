import MayflyClient
import UIKit
import UserNotifications

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// What iOS reports to the app, from launch to termination.
@MainActor
final class AppDelegate: PushAppDelegate {
    let companion: Companion
    private let show: @Sendable (String) -> Void

    init(companion: Companion, show: @escaping @Sendable (String) -> Void) {
        (self.companion, self.show) = (companion, show)
        super.init()
    }

    /// On a phone. Xcode shows what it prints.
    convenience override init() {
        let companion = Companion(client: .onPhone, storage: CompanionMemory.keychain, show: { print($0) })
        self.init(companion: companion, show: { print($0) })
    }

    override var categories: Set<UNNotificationCategory> { [ApprovalAction.category(allow: "Allow", deny: "Deny")] }

    override func launched() { run { try await $0.launched() } }

    override func returned() { run { try await $0.returned() } }

    override func registered(_ deviceToken: Data) async { await attempt { try await $0.register(PushToken(deviceToken)) } }

    override func registrationFailed(_ error: any Error) { show("no token from Apple, the next launch asks again") }

    override func presentation(of push: ReceivedPush) async -> UNNotificationPresentationOptions {
        await attempt { try await $0.isForScreen(push) } == true ? [.banner, .list, .sound, .badge] : []
    }

    override func received(_ push: ReceivedPush) async -> Bool {
        await attempt { try await $0.received(push) } ?? false
    }

    override func opened(_ push: ReceivedPush, action: String) async {
        await attempt { try await $0.opened(push, action: action) }
    }

    /// After the login, where the user sees what notifications are for.
    func askForPermission() async {
        let isGranted = try? await permission.ask()
        show(isGranted == true ? "notifications are on" : "notifications are off, see Settings")
    }

    private func run(_ work: @escaping @Sendable (Companion) async throws -> Void) {
        Task { await attempt(work) }
    }

    @discardableResult
    private func attempt<Value: Sendable>(_ work: @Sendable (Companion) async throws -> Value) async -> Value? {
        do {
            return try await work(companion)
        } catch {
            show("failed: \(error)")
            return nil
        }
    }
}
