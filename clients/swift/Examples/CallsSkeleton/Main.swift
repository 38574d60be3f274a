#if MAYFLY_APPLE_STUBS
    import ExampleSupport
    import Foundation
    import MayflyClient
    import SocketTransport

    /// The app on Linux, without screens:
    ///
    ///     CallsSkeleton http://127.0.0.1:8787 FOLDER
    ///
    /// FOLDER is the phone's storage. `login UID JWT` `name UID NAME` `service SESSION ...` (the calls that wait at the calling service) `logout`, and those
    /// of `SimulatedPhone`
    @main
    @MainActor
    struct Main {
        static func main() async throws {
            let arguments = CommandLine.arguments.dropFirst()
            guard arguments.count == 2, let url = URL(string: arguments[1]) else {
                return print("usage: CallsSkeleton BROKER-URL FOLDER")
            }
            let storage = try FolderStorage(URL(fileURLWithPath: arguments[2], isDirectory: true))
            let client = try Client(baseURL: url, environment: .sandbox, transport: SocketTransport())
            let service = CallingService()
            let delegate = AppDelegate {
                Calls(client: client, storage: storage, waiting: { await service.waiting }, show: SimulatedPhone.show)
            }
            await SimulatedPhone(delegate).run { words in
                switch (words[0], words.count) {
                case ("login", 3): try await delegate.calls?.logIn(words[1], Secret(words[2]))
                case ("name", 3): try delegate.calls?.name(words[1], words[2])
                case ("service", _): await service.set(Array(words.dropFirst()))
                case ("logout", 1): try await delegate.calls?.logOut()
                default: return false
                }
                return true
            }
        }
    }

    private actor CallingService {
        private(set) var waiting: [String] = []
        func set(_ sessions: [String]) { waiting = sessions }
    }
#endif
