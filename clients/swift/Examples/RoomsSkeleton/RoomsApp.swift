#if os(iOS)
    import SwiftUI

    /// The app on a phone. On Linux `Main.swift` runs it.
    @main
    struct RoomsApp: App {
        @UIApplicationDelegateAdaptor(AppDelegate.self) private var delegate

        var body: some Scene {
            WindowGroup { SettingsView(permission: delegate.permission) }
        }
    }
#endif
