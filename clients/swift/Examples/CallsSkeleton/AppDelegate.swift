import MayflyClient
import UIKit

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// What iOS reports to the app. It needs no permission, and no token for alerts.
@MainActor
final class AppDelegate: NSObject, UIApplicationDelegate {
    private let make: @MainActor () -> Calls
    private(set) var calls: Calls?

    init(_ make: @escaping @MainActor () -> Calls) {
        self.make = make
        super.init()
    }

    /// On a phone. Xcode shows what it prints.
    convenience override init() {
        self.init {
            // Ask your calling service which calls wait. With an empty list each call ends at once.
            Calls(client: .onPhone, storage: Calls.keychain, waiting: { [] }, show: { print($0) })
        }
    }

    func application(
        _ application: UIApplication, didFinishLaunchingWithOptions options: [UIApplication.LaunchOptionsKey: Any]?
    ) -> Bool {
        calls = make()
        _ = NotificationCenter.default.addObserver(
            forName: UIApplication.willEnterForegroundNotification, object: nil, queue: nil
        ) { [weak self] _ in MainActor.assumeIsolated { self?.calls?.returned() } }
        return true
    }
}
