#if canImport(SwiftUI) && os(iOS) || MAYFLY_APPLE_STUBS
    import SwiftUI
    #if MAYFLY_APPLE_STUBS
        import MayflyClient
    #endif

    /// The part of an app's settings about notifications: the permission, a button to ask for it or to open Settings, and the app's own toggles.
    ///
    /// The texts are keys of the app's own string catalog. Compiled on iOS only, and not for app extensions.
    @available(iOSApplicationExtension, unavailable)
    public struct NotificationSettingsView<Toggles: View>: View {
        private let permission: NotificationPermission
        private let toggles: Toggles

        /// - Parameter toggles: for instance ``MonitorToggles``. They are off limits without permission.
        public init(_ permission: NotificationPermission, @ViewBuilder toggles: () -> Toggles) {
            self.permission = permission
            self.toggles = toggles()
        }

        public var body: some View {
            Form {
                Section {
                    switch permission.status {
                    case .notDetermined:
                        Button("Allow Notifications") { Task { _ = try? await permission.ask() } }
                    case .denied:
                        Text("Notifications are off.")
                        Button("Open Settings") { permission.openSettings() }
                    default:
                        Text("Notifications are on.")
                    }
                }
                Section { toggles }
                    .disabled(!permission.isGranted)
            }
            .task { await permission.refresh() }
        }
    }

    /// Which events of a printer are pushed. Send them by ``Accounts/updateMonitor(_:_:)`` when they change. Compiled on iOS only.
    public struct MonitorToggles: View {
        @Binding private var settings: MonitorSettings

        public init(_ settings: Binding<MonitorSettings>) { _settings = settings }

        public var body: some View {
            Toggle("Notifications", isOn: $settings.notificationsEnabled)
            Toggle("Start", isOn: $settings.onStart)
            Toggle("Complete", isOn: $settings.onComplete)
            Toggle("Failed", isOn: $settings.onFailed)
            Toggle("Paused", isOn: $settings.onPaused)
            Toggle("Milestones", isOn: $settings.onMilestone)
        }
    }
#endif
