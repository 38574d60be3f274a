#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import Foundation
    import MayflyClient
    import SocketTransport
    import SwiftUI

    /// The app on Linux, without screens:
    ///
    ///     MonitorSkeleton http://127.0.0.1:8787 FOLDER
    ///
    /// FOLDER is the phone's storage. `login USER JWT` `watch PRINTER NAME` `toggle TITLE` `logout`, and those of `SimulatedPhone`
    @main
    @MainActor
    struct Main {
        static func main() async throws {
            let arguments = CommandLine.arguments.dropFirst()
            guard arguments.count == 2, let url = URL(string: arguments[1]) else {
                return print("usage: MonitorSkeleton BROKER-URL FOLDER")
            }
            let storage = try FolderStorage(URL(fileURLWithPath: arguments[2], isDirectory: true))
            let client = try Client(baseURL: url, environment: .sandbox, transport: SocketTransport())
            let show = SimulatedPhone.show
            let delegate = AppDelegate(monitor: PrinterMonitor(client: client, storage: storage, show: show), show: show)
            let phone = SimulatedPhone(delegate, service: NotificationService(storage: storage))
            await phone.run { words in try await run(words, delegate) }
        }

        private static func run(_ words: [String], _ delegate: AppDelegate) async throws -> Bool {
            let monitor = delegate.monitor
            switch (words[0], words.count) {
            case ("login", 3): try await monitor.logIn(words[1], Secret(words[2]))
            case ("watch", 3):
                try await monitor.watch(words[1], name: words[2])
                await delegate.askForPermission()
            case ("toggle", 2):
                let view = SettingsView(delegate: delegate, settings: try await monitor.settings)
                let toggle = view.stubTree.compactMap { $0 as? Toggle }.first { $0.stubTitle == words[1] }
                guard let toggle else { return false }
                toggle.stubIsOn.wrappedValue.toggle()
            case ("logout", 1): try await monitor.logOut()
            default: return false
            }
            return true
        }
    }
#endif
