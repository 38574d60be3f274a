#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import Foundation
    import MayflyApple
    import MayflyClient
    import SocketTransport

    /// The app on Linux, without screens:
    ///
    ///     CompanionSkeleton http://127.0.0.1:8787 FOLDER
    ///
    /// FOLDER is the phone's storage. `login USER JWT` `name SESSION NAME` `watch` `claim SESSION` `activity SESSION` `activities` `logout`, and those of
    /// `SimulatedPhone`
    @main
    @MainActor
    struct Main {
        static func main() async throws {
            let arguments = CommandLine.arguments.dropFirst()
            guard arguments.count == 2, let url = URL(string: arguments[1]) else {
                return print("usage: CompanionSkeleton BROKER-URL FOLDER")
            }
            let storage = try FolderStorage(URL(fileURLWithPath: arguments[2], isDirectory: true))
            let client = try Client(baseURL: url, environment: .sandbox, transport: SocketTransport())
            let show = SimulatedPhone.show
            let delegate = AppDelegate(companion: Companion(client: client, storage: storage, show: show), show: show)
            let phone = SimulatedPhone(delegate, service: NotificationService(storage: storage))
            await phone.run { words in try await run(words, delegate) }
        }

        private static func run(_ words: [String], _ delegate: AppDelegate) async throws -> Bool {
            let companion = delegate.companion
            switch (words[0], words.count) {
            case ("login", 3):
                try await companion.logIn(words[1], Secret(words[2]))
                await delegate.askForPermission()
            case ("name", 3): try await companion.name(words[1], words[2])
            case ("watch", 1): try await companion.watch()
            case ("claim", 2): try await companion.claim(words[1])
            case ("activity", 2): try await companion.startActivity(words[1])
            case ("activities", 1):
                SimulatedPhone.show("activities \(SessionActivities.sessionIDs.sorted().joined(separator: " "))")
            case ("logout", 1): try await companion.logOut()
            default: return false
            }
            return true
        }
    }
#endif
