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
    let chats: Chats
    private let show: @Sendable (String) -> Void

    init(chats: Chats, show: @escaping @Sendable (String) -> Void) {
        (self.chats, self.show) = (chats, show)
        super.init()
    }

    /// On a phone. Xcode shows what it prints.
    convenience override init() {
        self.init(chats: Chats(client: .onPhone, storage: Chat.keychain, show: { print($0) }), show: { print($0) })
    }

    override func launched() {
        Task { await chats.load() }
    }

    override func returned() {
        Task { await chats.returned() }
    }

    override func registered(_ deviceToken: Data) async { await chats.register(deviceToken) }

    override func registrationFailed(_ error: any Error) { show("no token from Apple, the next launch asks again") }

    override func presentation(of push: ReceivedPush) async -> UNNotificationPresentationOptions {
        await chats.isOpen(push) ? [] : [.banner, .list, .sound]
    }

    override func opened(_ push: ReceivedPush, action: String) async { await chats.tapped(push) }

    /// After the first chat was made or accepted: now the user sees what notifications are for.
    func askForPermission() async {
        guard permission.status == .notDetermined else { return }
        let isGranted = try? await permission.ask()
        show(isGranted == true ? "notifications are on" : "notifications are off, see Settings")
    }
}
