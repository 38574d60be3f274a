import MayflyClient
import SwiftUI

#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import MayflyApple
#endif

/// The app's settings: the permission, and which events are pushed.
struct SettingsView: View {
    let delegate: AppDelegate
    @State var settings: MonitorSettings

    var body: some View {
        NotificationSettingsView(delegate.permission) { MonitorToggles(sent) }
    }

    /// Sends each change.
    private var sent: Binding<MonitorSettings> {
        Binding(
            get: { settings },
            set: { new in
                settings = new
                Task { try await delegate.monitor.change(new) }
            })
    }
}
