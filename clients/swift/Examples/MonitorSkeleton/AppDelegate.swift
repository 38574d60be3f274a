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
    let monitor: PrinterMonitor
    private let show: @Sendable (String) -> Void

    init(monitor: PrinterMonitor, show: @escaping @Sendable (String) -> Void) {
        (self.monitor, self.show) = (monitor, show)
        super.init()
    }

    /// On a phone. Xcode shows what it prints.
    convenience override init() {
        let monitor = PrinterMonitor(client: .onPhone, storage: PrinterMonitor.keychain, show: { print($0) })
        self.init(monitor: monitor, show: { print($0) })
    }

    override func returned() {
        Task { await attempt { try await $0.returned() } }
    }

    override func registered(_ deviceToken: Data) async { await attempt { try await $0.register(PushToken(deviceToken)) } }

    private func attempt(_ work: @Sendable (PrinterMonitor) async throws -> Void) async {
        do { try await work(monitor) } catch { show("failed: \(error)") }
    }

    override func registrationFailed(_ error: any Error) { show("no token from Apple, the next launch asks again") }

    override func presentation(of push: ReceivedPush) async -> UNNotificationPresentationOptions {
        // The open app updates its picture of the printer, too. Who knows the token can send pushes about unknown printers.
        await tell(push) ? [.banner, .list, .sound] : []
    }

    override func opened(_ push: ReceivedPush, action: String) async { await tell(push) }

    /// Returns false if the push is about no printer of this phone.
    @discardableResult
    private func tell(_ push: ReceivedPush) async -> Bool {
        guard let news = try? await monitor.news(push) else {
            show("unknown push")
            return false
        }
        show("\(news.name) is \(news.status.rawValue)\(news.progress.map { ", \($0)%" } ?? "")")
        return true
    }

    /// After the user chose a printer: now the user sees what notifications are for.
    func askForPermission() async {
        let isGranted = try? await permission.ask()
        show(isGranted == true ? "notifications are on" : "notifications are off, see Settings")
    }
}
